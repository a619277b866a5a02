"""The tokeniser interface, which all kinds implement.

Every kind keeps these promises, tested on random Unicode:
- offsets are exact and count characters: token n comes from `text[starts[n]:ends[n]]`, starts and ends never fall, and
  no character is lost between tokens but white space, where the kind says so; bytes of one character share its span;
- `decode(encode(text)) == text`, unless the kind says what it changes (a released model with its own normalisation,
  words); lone surrogates aside: they have no UTF-8 form and become U+FFFD in every kind;
- text never produces a special id other than unk: `<sep>` typed by a user is four or five ordinary characters;
- a saved tokeniser loads to an equal one, with the same fingerprint.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError

BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
"""A piece that stands for a byte, where no piece has the character."""
SPECIALS = ("unk", "cls", "sep", "pad", "mask", "eod", "eop")


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Ids, and where in the text each of them comes from."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """Where a text that comes in parts stands: the end of it, from which its next ids can be made.

    `read` characters of `text` have given their ids already, `given` of them; the others wait for what follows.
    """

    text: str = ""
    read: int = 0
    given: int = 0


class Tokenizer(Protocol):
    """Text to ids and back."""

    @property
    def size(self) -> int:
        """Number of ids, special ones included."""

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens that it has, of: unk, cls, sep, pad, mask, eod (end of a document), eop (end of a
        paragraph). None of them comes out of text, but unk where a kind has unknown parts."""

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a text."""

    def encode_with_offsets(self, text: str) -> Encoding:
        """The same ids, and where each comes from."""

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """The ids that this part of a text makes certain, whatever follows it, and what waits (see `stream`)."""

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """The text of ids; special ones give nothing."""

    def token(self, index: int) -> str:
        """A token id as text for display."""

    def word_starts(self) -> NDArray[np.bool_]:
        """For each id: whether it begins a word, for spans of whole words."""

    def save(self, folder: Path) -> None:
        """Writes its files into an existing folder."""

    def fingerprint(self) -> str:
        """A hash of everything that decides its ids."""


def special_ids(names: Sequence[str]) -> dict[str, int]:
    """Ids from 0 on for the names of special tokens, which must be known and different."""
    unknown = [name for name in names if name not in SPECIALS]
    if unknown or len(set(names)) != len(names):
        raise DataError(
            f"special tokens must be different ones of {', '.join(SPECIALS)}; "
            f"got {', '.join(names)}. Remove the others."
        )
    return {name: index for index, name in enumerate(names)}
