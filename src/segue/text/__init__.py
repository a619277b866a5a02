"""Tokenisation: text to ids and back, with offsets. Start at `tokenizer`, which defines the interface.

`tokenizer` the interface; `pieces` SentencePiece trained here, `released` SentencePiece from elsewhere (`normalise` is
its pre-processing), `fast` the `tokenizer.json` of an XLNet of transformers (`fast_file` checks it), `word_pieces`
BERT's tokenisers, `byte_pairs` GPT-2's, `library` the library that runs those three, `words`, `symbols` characters and
bytes; `train` trains them, `files` and `folder` save them, `stream` encodes and decodes incrementally; `unicode` has
properties of characters.
"""
