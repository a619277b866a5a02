"""What a tokeniser is: a small interface that all kinds keep, and nothing else.

Every kind keeps these promises, tested on random Unicode:
- offsets are exact: token n comes from `text[starts[n]:ends[n]]`, they ascend, and no character is lost between them;
- `decode(encode(text)) == text`, unless the kind says what it changes (a released model with its own normalisation);
- text never produces a special id: `<sep>` typed by a user is four or five ordinary characters;
- a saved tokeniser loads to an equal one, with the same fingerprint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Ids, and where in the text each of them comes from."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Tokenizer(Protocol):
    """Text to ids and back."""

    @property
    def size(self) -> int:
        """Number of ids, special ones included."""

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens that it has, of: unk, cls, sep, pad, mask, eod (end of a document), eop (end of a
        paragraph). None of them comes out of text."""

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a text."""

    def encode_with_offsets(self, text: str) -> Encoding:
        """The same ids, and where each comes from."""

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """The text of ids; special ones give nothing."""

    def token(self, index: int) -> str:
        """How one id is shown to a person."""

    def word_starts(self) -> NDArray[np.bool_]:
        """For each id: whether it begins a word, for spans of whole words."""

    def save(self, folder: Path) -> None:
        """Writes its files into an existing folder."""

    def fingerprint(self) -> str:
        """A hash of everything that decides its ids."""
