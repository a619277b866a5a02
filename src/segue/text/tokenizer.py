"""The tokeniser interface, which all kinds implement.

Every kind has these properties, tested on random Unicode:
- offsets are exact and count characters: token n comes from `text[starts[n]:ends[n]]`, starts and ends never decrease,
  and no character is lost between tokens except white space, if the kind says so; bytes of one character share its
  span;
- `decode(encode(text)) == text`, unless the kind says what it changes (a released model with its own normalisation,
  words), except for lone surrogates: they have no UTF-8 form and become U+FFFD in every kind;
- text never produces a special id other than unk: `<sep>` typed by a user is five ordinary characters;
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
"""A piece that stands for a byte, if no piece has the character."""
SPECIALS = ("unk", "cls", "sep", "pad", "mask", "eod", "eop")


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Ids, and the span of each in the text."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """State of a text that arrives in parts: its end, from which the next ids can be computed.

    The ids of the first `read` characters of `text`, `given` in number, have been returned; the others wait for later
    text.
    """

    text: str = ""
    read: int = 0
    given: int = 0


class Tokenizer(Protocol):
    """Converts text to ids and back."""

    @property
    def size(self) -> int:
        """Number of ids, including special ones."""

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of its special tokens, among: unk, cls, sep, pad, mask, eod (end of a document), eop (end of a
        paragraph). Text produces none of them, except unk if a kind has unknown parts."""

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets."""

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return the ids that this part of a text makes final, whatever follows it, and the new state (see
        `stream`)."""

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text of ids; special tokens have no text."""

    def token(self, index: int) -> str:
        """Return a token as text for display."""

    def word_starts(self) -> NDArray[np.bool_]:
        """Return True for each id that begins a word, for spans of whole words."""

    def save(self, folder: Path) -> None:
        """Write the files of the tokeniser into an existing folder."""

    def fingerprint(self) -> str:
        """Return a hash of everything that determines its ids."""


def special_ids(names: Sequence[str]) -> dict[str, int]:
    """Return ids from 0 on for the names of special tokens, which must be known and distinct."""
    unknown = [name for name in names if name not in SPECIALS]
    if unknown or len(set(names)) != len(names):
        raise DataError(
            f"special tokens must be different ones of {', '.join(SPECIALS)}; "
            f"got {', '.join(names)}. Remove the others."
        )
    return {name: index for index, name in enumerate(names)}
