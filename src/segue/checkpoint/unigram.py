"""The `tokenizer.json` of an XLNet of transformers 5, which writes no `spiece.model`, as the model that it came from.

In: the path of the file and the settings beside it. Out: the bytes of a SentencePiece model: the same pieces with the
same scores, the kind of each piece (unknown, control, user-defined, normal), and the table of characters. All else that
a SentencePiece model says is as in the XLNet releases. A file that leaves any of these open is refused.

The tokeniser that the file itself describes finds other pieces than the original: docs/differences.md.
"""

import base64
import binascii
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.checkpoint.files import read_small
from segue.checkpoint.header import parse_object
from segue.checkpoint.tensorflow.wire import fixed32_field, message_field, number_field
from segue.errors import CheckpointError

FILE = "tokenizer.json"
LARGEST = 1 << 26
"""Bytes: a million pieces."""
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_UNIGRAM = 1
_BEFORE = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
]
_LOWER = {"type": "Lowercase"}
_MARK = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
_WORDS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, _MARK]}


def rebuilt_pieces(path: Path, settings: Mapping[str, object]) -> bytes:
    """The bytes of the `spiece.model`; `settings` are those of `tokenizer_config.json`."""
    try:
        values = parse_object(path, read_small(path, limit=LARGEST))
        model = values["model"]
        table = _table(values, lower=settings.get("do_lower_case") is True)
        return _model(_pieces(model, values["added_tokens"]), table)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        reason = str(error) if isinstance(error, _UnlikeError) else f"another form ({type(error).__name__}: {error})"
        raise CheckpointError(
            f"{path} must be as transformers 5 writes it for an XLNet; got {reason[:200]}.",
            remedy="Pass vocabulary=, the spiece.model of the same model, to segue.checkpoint.convert.convert.",
            option="Give the spiece.model of the same model: segue convert SOURCE OUT --vocabulary spiece.model.",
        ) from None


class _UnlikeError(ValueError):
    """What does not say all that is needed."""


def _table(values: Mapping[str, Any], *, lower: bool) -> bytes:
    """SentencePiece's table of characters, if all around it is as XLNet has it."""
    *steps, last = values["normalizer"]["normalizers"]
    if steps != [*_BEFORE, *([_LOWER] if lower else [])] or last["type"] != "Precompiled":
        raise _UnlikeError(f"other normalisation: {', '.join(str(step['type']) for step in [*steps, last])}")
    if values["pre_tokenizer"] != _WORDS:
        raise _UnlikeError("another way to cut words")
    try:
        return base64.b64decode(last["precompiled_charsmap"], validate=True)
    except binascii.Error as error:
        raise _UnlikeError(f"a table of characters that is not in base64: {error}") from None


def _pieces(model: Mapping[str, Any], added: list[Mapping[str, Any]]) -> list[tuple[str, float, int]]:
    """Each piece with its score and its kind. Those that are not learned have no score, and are listed apart."""
    if model["type"] != "Unigram" or model["byte_fallback"] is not False or model["unk_id"] != 0:
        raise _UnlikeError(f"a model that is not XLNet's: {model['type']}")
    pieces = [(str(piece), float(score), _NORMAL) for piece, score in model["vocab"]]
    for token in added:
        index, content = token["id"], token["content"]
        if type(index) is not int or not 0 <= index < len(pieces) or pieces[index][0] != content:
            raise _UnlikeError(f"the token {content!r}, which was added to the vocabulary")
        kind = _UNKNOWN if index == model["unk_id"] else _CONTROL if token["special"] is True else _USER_DEFINED
        pieces[index] = (content, pieces[index][1], kind)
    for piece, score, kind in pieces:
        if (score == 0) != (kind != _NORMAL):
            raise _UnlikeError(f"the piece {piece!r} with the score {score}, of which the kind is not known")
    return pieces


def _model(pieces: list[tuple[str, float, int]], table: bytes) -> bytes:
    """A ModelProto of SentencePiece: pieces, the settings of the training that matter later, the normalisation."""
    parts = []
    for piece, score, kind in pieces:
        bits = int.from_bytes(struct.pack("<f", score), "little")
        text = message_field(1, piece.encode("utf-8"))
        parts.append(message_field(1, text + fixed32_field(2, bits) + number_field(3, kind)))
    training = number_field(3, _UNIGRAM) + number_field(4, len(pieces))
    return b"".join([*parts, message_field(2, training), message_field(3, message_field(2, table))])
