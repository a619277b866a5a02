"""Detection of text in a language for which a tokeniser was not trained.

In: a tokeniser, and the ids of a text. Out: a warning, once, from a `LanguageWatch`.

Tokens that suggest another language are unknown tokens; single bytes of non-ASCII characters, if the tokeniser has
pieces too; and pieces of a script, with spaces between words (English) or without (Chinese), that is rare in the
vocabulary: a Chinese tokeniser encodes English with its pieces for single letters. Two languages of one script are not
distinguished.

On the tokenisers of the packaged models (10,000 and 12,000 pieces), the share of such tokens was measured on the texts
of 15 data sets: at most 5 % for text of their own language, at least 68 % for the other one, and 55 % for Tang poems in
traditional characters, which the Chinese one has hardly seen. The threshold lies between; docs/models.md has the table.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.errors import SegueWarning
from segue.text.pieces import PieceTokenizer
from segue.text.released import ReleasedPieces
from segue.text.tokenizer import BYTE_PIECE, Tokenizer
from segue.text.unicode import is_unspaced

THRESHOLD = 0.3
FEWEST = 8
"""Minimum number of tokens for a warning."""
ENOUGH = 100_000
"""Number of tokens after which counting ends: the language shows in them."""
RARE = 0.1
"""Share of the pieces with letters below which a script is rare in the vocabulary."""


class LanguageWatch:
    """Counts the tokens of the texts that a model reads, and warns once if they seem to be in another language."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counts = np.zeros(tokenizer.size, dtype=np.int64)
        self._kinds: Kinds | None = None
        self._ended = False

    def read(self, *parts: NDArray[np.int64]) -> None:
        """Count tokens; issue a SegueWarning if too many so far suggest another language."""
        if self._ended:
            return
        for ids in parts:
            self._counts += np.bincount(ids, minlength=len(self._counts))
        if self._kinds is None:
            self._kinds = token_kinds(self._tokenizer)
        found = coverage(self._kinds, self._counts)
        self._ended = found.foreign or found.tokens >= ENOUGH
        if found.foreign:
            warnings.warn(f"{found}", SegueWarning, stacklevel=3)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Counts of tokens that suggest another language."""

    tokens: int
    fallback: int
    """Unknown tokens and single bytes, except those of ASCII: signs and digits belong to no language."""
    rare: int
    """Pieces of a script that is rare in the vocabulary."""

    @property
    def share(self) -> float:
        """Share of tokens that suggest another language."""
        return (self.fallback + self.rare) / max(1, self.tokens)

    @property
    def foreign(self) -> bool:
        """True if there are too many of them."""
        return self.tokens >= FEWEST and self.share > THRESHOLD

    def __str__(self) -> str:
        kinds = {"unknown or single bytes": self.fallback, "pieces of a script that it has few of": self.rare}
        shown = " and ".join(f"{count / self.tokens:.0%} are {kind}" for kind, count in kinds.items() if count)
        return (
            f"the text seems to be in another language than the model: of the first {self.tokens:,} tokens that its "
            f"tokeniser made, {shown}. What the model makes of them means little: use a model of that language."
        )


class Kinds(NamedTuple):
    """Masks of the kinds of ids of a tokeniser."""

    text: NDArray[np.bool_]
    """True for ids that are not special, and for the unknown token."""
    fallback: NDArray[np.bool_]
    rare: NDArray[np.bool_]


def coverage(kinds: Kinds, counts: NDArray[np.int64]) -> Coverage:
    """Return the coverage for the frequency of each id in a text."""
    tokens, fallback, rare = (int(counts[kind].sum()) for kind in kinds)
    return Coverage(tokens=tokens, fallback=fallback, rare=rare)


def token_kinds(tokenizer: Tokenizer) -> Kinds:
    """Return the kinds of all ids. Bytes and scripts matter only if the tokeniser has pieces."""
    kinds = Kinds(*(np.zeros(tokenizer.size, dtype=np.bool_) for _ in range(3)))
    kinds.text[:] = True
    special = set(tokenizer.specials.values())
    kinds.text[list(special)] = False
    if "unk" in tokenizer.specials:
        kinds.text[tokenizer.specials["unk"]] = kinds.fallback[tokenizer.specials["unk"]] = True
    if not isinstance(tokenizer, PieceTokenizer | ReleasedPieces):
        return kinds
    scripts: dict[bool, list[int]] = {True: [], False: []}
    for index in range(tokenizer.size):
        piece = tokenizer.token(index)
        if BYTE_PIECE.fullmatch(piece):
            kinds.fallback[index] = piece[3] >= "8"
        elif index not in special and any(map(str.isalpha, piece)):
            scripts[any(map(is_unspaced, piece))].append(index)
    pieces = sum(map(len, scripts.values()))
    for ids in scripts.values():
        if len(ids) < RARE * pieces:
            kinds.rare[ids] = True
    return kinds
