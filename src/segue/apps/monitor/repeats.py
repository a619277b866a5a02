"""Detection of duplicates and near-duplicates.

In: texts. Out: a fingerprint that texts with the same words share (retweets, other links, other punctuation), and for
near-duplicates the number of the earlier text. Near-duplicates are found with MinHash: 64 minimal hashes of 5-grams of
characters, in 16 bands. News about two companies often differ only in a name and a figure, so similarity is not enough:
numbers and entities must be the same too. Only the last texts are compared, so memory does not grow.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

HASHES, BANDS = 64, 16
RUN = 5
ALIKE = 0.75
"""Minimum share of equal hashes, an estimate of the Jaccard similarity of the 5-grams of two texts."""
LONGEST = 5000
"""Number of characters of a text that are compared."""
_LEFT_OUT = re.compile(r"https?://\S+|\burl\b|^\s*rt\b|@\w+|\bat_user\b")
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_DRAW = np.random.default_rng(20)
_FACTORS = _DRAW.integers(1, 2**63, HASHES, dtype=np.uint64) | np.uint64(1)
_ADDED = _DRAW.integers(0, 2**63, HASHES, dtype=np.uint64)
_POWERS = np.array([pow(1_000_003, n, 2**64) for n in range(RUN)], dtype=np.uint64)

Signature = NDArray[np.uint64]


def plain(text: str) -> str:
    """Return the words of a text, without links and mentions of users."""
    return " ".join(_WORD.findall(_LEFT_OUT.sub(" ", text[:LONGEST].lower()))) + text[LONGEST:]


def fingerprint(text: str) -> str:
    """Return a hash that is equal for texts with the same words."""
    return hashlib.blake2b(plain(text).encode("utf-8", "replace"), digest_size=12).hexdigest()


def signature(text: str) -> Signature:
    """Return the MinHash signature of a text."""
    letters = np.frombuffer(plain(text)[:LONGEST].encode("utf-32-le", "replace"), dtype=np.uint32).astype(np.uint64)
    if len(letters) < RUN:
        letters = np.concatenate([letters, np.zeros(RUN - len(letters), dtype=np.uint64)])
    runs = np.lib.stride_tricks.sliding_window_view(letters, RUN) @ _POWERS
    mixed = (runs ^ (runs >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    found: Signature = (mixed[:, None] * _FACTORS + _ADDED).min(axis=0)
    return found


def numbers_of(text: str) -> frozenset[str]:
    """Return the numbers in a text, which near-duplicates must share."""
    return frozenset(_NUMBER.findall(text))


@dataclass(frozen=True, kw_only=True)
class Known:
    """Features of a text for the comparison with later ones."""

    signature: Signature
    numbers: frozenset[str]
    entities: frozenset[str]
    keys: tuple[bytes, ...] = field(repr=False)


def known(text: str, entities: Sequence[str]) -> Known:
    """Return the features of a text."""
    found = signature(text)
    rows = HASHES // BANDS
    keys = tuple(bytes([band]) + found[band * rows : (band + 1) * rows].tobytes() for band in range(BANDS))
    return Known(signature=found, numbers=numbers_of(text), entities=frozenset(entities), keys=keys)


class Near:
    """An index of the last texts by the bands of their signatures."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._texts: OrderedDict[int, Known] = OrderedDict()
        self._bands: dict[bytes, list[int]] = {}

    def find(self, one: Known) -> int | None:
        """Return the number of a text that this one repeats; None if there is none."""
        seen: set[int] = set()
        for key in one.keys:
            for number in self._bands.get(key, ()):
                if number in seen:
                    continue
                seen.add(number)
                other = self._texts[number]
                alike = float((other.signature == one.signature).mean())
                if alike >= ALIKE and other.numbers == one.numbers and other.entities == one.entities:
                    return number
        return None

    def add(self, number: int, one: Known) -> None:
        """Add a text, and remove the oldest ones beyond the maximum."""
        if number in self._texts:
            return
        self._texts[number] = one
        for key in one.keys:
            self._bands.setdefault(key, []).append(number)
        while len(self._texts) > self._most:
            old, gone = self._texts.popitem(last=False)
            for key in gone.keys:
                left = self._bands[key]
                left.remove(old)
                if not left:
                    del self._bands[key]
