"""Whether a tokeniser knows the language of a text: the share of tokens that say it was not made for it.

In: a tokeniser, and ids that it made of a text. Out: a warning, once, from a `LanguageWatch`.

Such tokens are unknown ones; single bytes of characters beyond ASCII, of a tokeniser that has pieces too; and pieces of
a script, with spaces between words (English) or without (Chinese), of which the vocabulary has few: a Chinese tokeniser
writes English with its pieces for single letters. Two languages of one script are not told apart.

On the tokenisers of the packaged models (10,000 and 12,000 pieces), the share was measured on the texts of 15 data
sets: at most 5 % for text of their own language, at least 68 % for the other one, and 55 % for Tang poems in
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
"""Tokens: of fewer, nothing is said."""
ENOUGH = 100_000
"""Tokens that are looked at: a language shows in them."""
RARE = 0.1
"""A smaller part of the pieces with letters makes a script one that the vocabulary has few of."""


class LanguageWatch:
    """Counts the tokens of the texts that a model reads, and warns once if they seem to be in another language."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counts = np.zeros(tokenizer.size, dtype=np.int64)
        self._kinds: Kinds | None = None
        self._ended = False

    def read(self, *parts: NDArray[np.int64]) -> None:
        """Counts these tokens; a SegueWarning if too many so far say that the language is another one."""
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
    """How many tokens of a text the tokeniser was made for."""

    tokens: int
    fallback: int
    """Unknown ones and single bytes, those of ASCII apart: signs and digits are of no language."""
    rare: int
    """Pieces of a script that the vocabulary has few of."""

    @property
    def share(self) -> float:
        """Share of tokens which suggest that the text is in another language."""
        return (self.fallback + self.rare) / max(1, self.tokens)

    @property
    def foreign(self) -> bool:
        """Whether there are too many of them."""
        return self.tokens >= FEWEST and self.share > THRESHOLD

    def __str__(self) -> str:
        kinds = {"unknown or single bytes": self.fallback, "pieces of a script that it has few of": self.rare}
        shown = " and ".join(f"{count / self.tokens:.0%} are {kind}" for kind, count in kinds.items() if count)
        return (
            f"the text seems to be in another language than the model: of the first {self.tokens:,} tokens that its "
            f"tokeniser made, {shown}. What the model makes of them means little: use a model of that language."
        )


class Kinds(NamedTuple):
    """What each id of a tokeniser is."""

    text: NDArray[np.bool_]
    """No special token, but for the unknown one."""
    fallback: NDArray[np.bool_]
    rare: NDArray[np.bool_]


def coverage(kinds: Kinds, counts: NDArray[np.int64]) -> Coverage:
    """From how often each id occurs in a text."""
    tokens, fallback, rare = (int(counts[kind].sum()) for kind in kinds)
    return Coverage(tokens=tokens, fallback=fallback, rare=rare)


def token_kinds(tokenizer: Tokenizer) -> Kinds:
    """What each id is. Bytes and scripts are of interest where there are pieces."""
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
