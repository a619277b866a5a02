"""Text to ids and back, with offsets. Start at `tokenizer`, which says what a tokeniser is.

`tokenizer` the interface; `pieces` SentencePiece trained here, `released` SentencePiece from elsewhere (`normalise` is
its pre-processing), `fast` a `tokenizer.json` of transformers (`fast_file` checks it), `words`, `symbols` characters
and bytes; `train` makes them, `files` and `folder` keep them, `stream` encodes and decodes what comes in parts;
`unicode` holds facts about characters.
"""
