"""Validation of a `tokenizer.json` as transformers 5 writes it for an XLNet, and its conversion for the library.

In: the bytes of an untrusted file. Out: a `Description`. The `tokenizers` library gets the output of
`Description.for_library` and never the file: an arbitrary description could hang it (regular expressions) or exhaust
the memory (replacements that grow). So only the parts that transformers writes are accepted: a Unigram model, and the
normalisation and word splitting of XLNet.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from segue.config.schema import LARGEST_VOCABULARY
from segue.errors import CheckpointError
from segue.text.library import UnlikeError, piece_text
from segue.text.pieces import LAYOUT, SPACE_MARK

QUOTES_AND_ACCENTS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
]
LOWER = {"type": "Lowercase"}
METASPACE = {"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": "always", "split": True}
WORDS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}
_MATCHING = ("single_word", "lstrip", "rstrip", "normalized")
_LONGEST_REPLACEMENT = 128
"""Maximum number of bytes with which the character table may replace one character: Unicode's own tables need 33."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """The parts of a `tokenizer.json` that determine ids."""

    tokens: list[str]
    """Tokens by id: the pieces of the model, then added tokens."""
    scores: list[float]
    """Log-probabilities of the pieces."""
    unk: int
    control: frozenset[str]
    """Tokens that no text may produce."""
    added: list[dict[str, Any]]
    """Added tokens that are searched in the text before anything else, without the special ones."""
    lower: bool
    table: str | None
    """SentencePiece's character table, in base64."""

    def for_library(self) -> dict[str, Any]:
        """Return the description in the library's format. A piece that no text may produce becomes the empty one, which
        nothing matches."""
        steps = [*QUOTES_AND_ACCENTS, *([LOWER] if self.lower else [])]
        steps += [] if self.table is None else [{"type": "Precompiled", "precompiled_charsmap": self.table}]
        pieces = ["" if token in self.control else token for token in self.tokens]
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self.added,
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": WORDS,
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "Unigram",
                "unk_id": self.unk,
                "vocab": list(zip(pieces, self.scores, strict=False)),
                "byte_fallback": False,
            },
        }


def describe(data: bytes, *, source: str) -> Description:
    """Return the description in a file; `source` is its name in errors."""
    try:
        values = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
        steps, model = values["normalizer"]["normalizers"], values["model"]
        tokens, scores, unk = _model(model)
        tokens, added, control = _added(tokens, values["added_tokens"])
        lower, table = _steps(steps)
        if values["pre_tokenizer"] != WORDS:
            raise UnlikeError("another pre-tokenizer")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        reason = str(error) if isinstance(error, UnlikeError) else f"another form ({type(error).__name__}: {error})"
        raise CheckpointError(
            f"{source} must be as transformers 5 writes it for an XLNet; got {reason[:200]}.",
            remedy="Pass vocabulary=, the spiece.model of the same model, to segue.checkpoint.convert.convert.",
            option="Give the spiece.model of the same model: segue convert SOURCE OUT --vocabulary spiece.model.",
        ) from None
    return Description(
        tokens=tokens, scores=scores, unk=unk, control=control - {tokens[unk]}, added=added, lower=lower, table=table
    )


def _model(model: Mapping[str, Any]) -> tuple[list[str], list[float], int]:
    """Return the pieces, their scores and the id of the unknown piece."""
    if model["type"] != "Unigram" or model.get("byte_fallback", False) is not False:
        raise UnlikeError(f"a model that is not XLNet's: {str(model['type'])[:40]}")
    vocab, unk = model["vocab"], model["unk_id"]
    if type(vocab) is not list or not 0 < len(vocab) <= LARGEST_VOCABULARY:
        raise UnlikeError(f"no list of at most {LARGEST_VOCABULARY:,} pieces")
    if type(unk) is not int or not 0 <= unk < len(vocab):
        raise UnlikeError(f"the unknown piece {str(unk)[:40]} of {len(vocab)}")
    tokens = [piece_text(piece) for piece, _ in vocab]
    scores = [float(score) for _, score in vocab]
    if not all(math.isfinite(score) for score in scores):
        raise UnlikeError("a score that is not finite")
    if len(set(tokens)) < len(tokens):
        raise UnlikeError("a piece twice")
    return tokens, scores, unk


def _added(
    tokens: list[str], listed: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[dict[str, Any]], frozenset[str]]:
    """Return all tokens, those that are searched first, and those that no text may produce."""
    tokens = list(tokens)
    places = {token: index for index, token in enumerate(tokens)}
    added: list[dict[str, Any]] = []
    control = {token for token in LAYOUT if token in places}
    for token in sorted(listed, key=lambda token: int(token["id"])):
        content, index = piece_text(token["content"]), token["id"]
        if content not in places and index == len(tokens) < LARGEST_VOCABULARY:
            places[content] = index
            tokens.append(content)
        if type(index) is not int or places.get(content) != index:
            raise UnlikeError(f"the token {content!r} with the id {str(index)[:40]}")
        if token["special"] is True or content in LAYOUT:
            control.add(content)
        else:
            flags = {name: token[name] is True for name in _MATCHING}
            added.append({"id": index, "content": content, "special": False} | flags)
    return tokens, added, frozenset(control)


def _steps(steps: list[dict[str, Any]]) -> tuple[bool, str | None]:
    """Return True if case is folded, and the character table; raise UnlikeError unless the normalisation is XLNet's."""
    rest = steps[len(QUOTES_AND_ACCENTS) :]
    lower = rest[:1] == [LOWER]
    rest = rest[lower:]
    known = steps[: len(QUOTES_AND_ACCENTS)] == QUOTES_AND_ACCENTS and len(rest) <= 1
    if not known or any(step["type"] != "Precompiled" for step in rest):
        raise UnlikeError(f"other normalisation: {', '.join(str(step['type'])[:40] for step in steps[:20])}")
    if not rest:
        return lower, None
    table = rest[0]["precompiled_charsmap"]
    try:
        _check_table(base64.b64decode(table, validate=True))
    except binascii.Error as error:
        raise UnlikeError(f"a table of characters that is not in base64: {error}") from None
    return lower, table


def _check_table(table: bytes) -> None:
    """Check a character table: the size of a trie, the trie, and the replacement texts, each ended by a NUL."""
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size % 4 or 4 + size > len(table):
        raise UnlikeError("a table of characters that is not whole")
    texts = table[4 + size :]
    texts.decode("utf-8")
    if max(map(len, texts.split(b"\0"))) > _LONGEST_REPLACEMENT:
        raise UnlikeError(f"a table that replaces a character by more than {_LONGEST_REPLACEMENT} bytes")


def _no_constant(text: str) -> None:
    raise UnlikeError(f"{text} where a number should be")
