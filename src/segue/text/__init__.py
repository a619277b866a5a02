"""Text to ids and back, with offsets. Start at `tokenizer`, which says what a tokeniser is.

`tokenizer` the interface; `pieces` SentencePiece trained here, `released` SentencePiece from elsewhere (`normalise` is
its pre-processing), `fast` the `tokenizer.json` of an XLNet of transformers (`fast_file` checks it), `word_pieces`
BERT's tokenisers, `byte_pairs` GPT-2's, `library` how those three are run, `words`, `symbols` characters and bytes;
`train` makes them, `files` and `folder` keep them, `stream` encodes and decodes what comes in parts; `unicode` holds
facts about characters.
"""
