"""Conversion of a `spiece.model` to the `tokenizer.json` that transformers 5 makes of it for an XLNet, with one
exception.

In: the bytes of a SentencePiece model. Out: a description in the format of the `tokenizers` library, which transformers
prefers if a folder has both files.

Transformers lists the model's own symbols, such as `.` and `(`, among the added tokens: texts are then split at them,
which gives pieces that the original XLNet code does not find. Here only special tokens are listed, so that both
versions of transformers tokenise texts as in the model's training, up to the exceptions in docs/differences.md.
"""

import base64
import struct
from typing import Any

from segue.checkpoint.tensorflow.wire import integer, message, read_fields
from segue.text.fast_file import LOWER, METASPACE, QUOTES_AND_ACCENTS, WORDS
from segue.text.pieces import LAYOUT

FILE = "tokenizer.json"
_NORMAL, _CONTROL = 1, 3
_UNIGRAM = 1


def described(model: bytes, *, lower: bool) -> dict[str, Any] | None:
    """Return the content of `tokenizer.json`; None if the model is not unigram: transformers converts no others."""
    pieces: list[tuple[str, float, int]] = []
    table, kind, unk = b"", _UNIGRAM, 0
    for number, value in read_fields(model):
        if number == 1:
            pieces.append(_piece(message(value)))
        elif number == 2:
            trained = dict(read_fields(message(value)))
            kind, unk = integer(trained.get(3, _UNIGRAM)), integer(trained.get(40, 0))
        elif number == 3:
            table = message(dict(read_fields(message(value))).get(2, b""))
    if kind != _UNIGRAM:
        return None
    steps = [*QUOTES_AND_ACCENTS, *([LOWER] if lower else [])]
    if table:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode("ascii")})
    ids = {piece: index for index, (piece, _, _) in enumerate(pieces)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(i, p) for i, (p, _, kind) in enumerate(pieces) if p in LAYOUT or kind == _CONTROL],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": WORDS,
        "post_processor": _template(ids),
        "decoder": METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": unk,
            "vocab": [[piece, score] for piece, score, _ in pieces],
            "byte_fallback": False,
        },
    }


def _piece(data: bytes) -> tuple[str, float, int]:
    """Return a piece, its score and its kind."""
    fields = dict(read_fields(data))
    (score,) = struct.unpack("<f", integer(fields.get(2, 0)).to_bytes(4, "little"))
    return message(fields.get(1, b"")).decode("utf-8"), score, integer(fields.get(3, _NORMAL))


def _added(index: int, piece: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": piece} | flags | {"special": True}


def _template(ids: dict[str, int]) -> dict[str, Any] | None:
    """Return the template of XLNet's sequences: the text, `<sep>`, `<cls>` as segment 2."""
    if "<sep>" not in ids or "<cls>" not in ids:
        return None

    def special(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    first, end = [text("A", 0), special("<sep>", 0)], [special("<cls>", 2)]
    tokens = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("<cls>", "<sep>")}
    return {
        "type": "TemplateProcessing",
        "single": [*first, *end],
        "pair": [*first, text("B", 1), special("<sep>", 1), *end],
        "special_tokens": tokens,
    }
