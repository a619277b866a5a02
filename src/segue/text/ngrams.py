"""TF-IDF vectors of n-grams: words and pairs of words, or runs of one to three characters.

In: texts. Out: sparse vectors of length 1, in which an n-gram that occurs n times has (1 + log n) times its inverse
document frequency. The numbers are those of scikit-learn's TfidfVectorizer with `sublinear_tf` (tests compare them).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError

Counted = Literal["words", "characters"]
"""Units of n-grams."""
Texts = Sequence[tuple[str, ...]]
"""One text for each example, or two."""
WORD = r"\w+|[^\w\s]"
LONGEST_RUN = 3
_WORD, _SPACES = re.compile(WORD), re.compile(r"\s\s+")


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """Sparse rows: row n has the values `values[starts[n] : starts[n + 1]]` in the same slice of `columns`."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True)
class Ngrams:
    """A vocabulary of n-grams with their inverse document frequencies."""

    counted: Counted
    terms: tuple[str, ...]
    frequency_V: NDArray[np.float64]
    """Inverse document frequencies."""

    def __post_init__(self) -> None:
        if len(self._columns) != len(self.terms) or self.frequency_V.shape != (len(self.terms),):
            raise DataError(
                f"n-grams must be different and have one frequency each; got {len(self.terms):,} n-grams, "
                f"{len(self._columns):,} of them different, and {self.frequency_V.size:,} frequencies."
            )

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {term: column for column, term in enumerate(self.terms)}

    def width(self, texts: int) -> int:
        """Return the length of the vector of an example with one text or two."""
        return len(self.terms) * (1 if texts == 1 else 4)

    def vector(self, texts: tuple[str, ...]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the non-zero columns of an example, in order, and their values. For two texts, the vectors of both,
        their absolute difference and their product are concatenated."""
        if len(texts) == 1:
            return self._vector(texts[0])
        (first, first_values), (second, second_values) = map(self._vector, texts)
        both = np.union1d(first, second)
        a, b = np.zeros(len(both)), np.zeros(len(both))
        a[np.searchsorted(both, first)] = first_values
        b[np.searchsorted(both, second)] = second_values
        parts = (a, b, np.abs(a - b), a * b)
        columns = np.concatenate([both + number * len(self.terms) for number in range(4)])
        values = np.concatenate(parts)
        return columns[values != 0], values[values != 0]

    def vectors(self, rows: Texts) -> Vectors:
        """Return a row for each example."""
        found = [self.vector(texts) for texts in rows]
        starts = np.cumsum([0, *(len(columns) for columns, _ in found)], dtype=np.int64)
        return Vectors(
            starts=starts,
            columns=np.concatenate([np.zeros(0, dtype=np.int64), *(columns for columns, _ in found)]),
            values=np.concatenate([np.zeros(0), *(values for _, values in found)]),
            width=self.width(len(rows[0]) if rows else 1),
        )

    def _vector(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        known = self._columns
        counts = {known[term]: count for term, count in count_ngrams(text, self.counted).items() if term in known}
        columns = np.array(sorted(counts), dtype=np.int64)
        times = np.array([counts[column] for column in columns.tolist()], dtype=np.float64)
        values = (1 + np.log(times)) * self.frequency_V[columns]
        return columns, values / max(float(np.sqrt(values @ values)), 1e-300)


def count_ngrams(text: str, counted: Counted) -> Counter[str]:
    """Return the frequency of each n-gram; case is folded."""
    if counted == "words":
        words = _WORD.findall(text.lower())
        return Counter([*words, *(f"{first} {second}" for first, second in pairwise(words))])
    line = _SPACES.sub(" ", text.lower())
    runs = range(1, LONGEST_RUN + 1)
    return Counter([line[start : start + n] for n in runs for start in range(len(line) - n + 1)])


def learn_ngrams(texts: Iterable[str], counted: Counted, *, most: int) -> Ngrams:
    """Return up to `most` of the most frequent n-grams of the texts, sorted by their characters."""
    occurrences: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    number = 0
    for text in texts:
        found = count_ngrams(text, counted)
        occurrences.update(found)
        documents.update(found.keys())
        number += 1
    kept = list(occurrences)
    if len(kept) > most:
        kept = sorted(kept, key=lambda term: (-occurrences[term], term))[:most]
    terms = tuple(sorted(kept))
    having_V = np.array([documents[term] for term in terms], dtype=np.float64)
    return Ngrams(counted, terms, np.log((1 + number) / (1 + having_V)) + 1)
