"""Full-text search: BM25 over the terms of many texts, stored in arrays.

In: texts. Out: a score of each text for a query: its BM25 divided by that of the query with itself, so that scores of
different queries are comparable, and words that occur in no text count against all of them.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.desk.terms import terms_of

SATURATION = 1.5
"""k1 of BM25: saturation of the term frequency."""
LENGTH = 0.75
"""b of BM25: strength of the length normalisation."""
COMMON = 0.2
"""Maximum share of texts that may contain a term, where there are many texts. More frequent terms are ignored, because
they do not distinguish answers."""
MANY = 20_000
"""Number of texts above which `COMMON` applies."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Index:
    """An inverted index: the texts that contain each term, with BM25 weights."""

    terms: tuple[str, ...]
    starts_V: NDArray[np.int64]
    texts: NDArray[np.int32]
    """Numbers of the texts: those of term v are `texts[starts_V[v] : starts_V[v + 1]]`."""
    weights: Floats
    inverse_V: Floats
    """Inverse document frequencies."""
    mean_length: float
    size: int

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {term: column for column, term in enumerate(self.terms)}

    def scores(self, query: str) -> Floats:
        """Return a score for each text, from 0 to about 1."""
        asked = terms_of(query)
        found = [(self._columns[term], count) for term, count in asked.items() if term in self._columns]
        if not found:
            return np.zeros(self.size, dtype=np.float32)
        slices = [slice(int(self.starts_V[column]), int(self.starts_V[column + 1])) for column, _ in found]
        sums = np.bincount(
            np.concatenate([self.texts[one] for one in slices]),
            np.concatenate([self.weights[one] for one in slices]),
            minlength=self.size,
        )
        return (sums / self._own(asked)).astype(np.float32)

    def _own(self, asked: Mapping[str, int]) -> float:
        """Return the BM25 of the query with itself; unknown terms have the largest inverse document frequency."""
        rarest = np.log(1 + (self.size + 0.5) / 0.5)
        length = sum(asked.values())
        total = 0.0
        for term, count in asked.items():
            column = self._columns.get(term)
            inverse = rarest if column is None else float(self.inverse_V[column])
            total += inverse * _saturated(count, length, self.mean_length)
        return max(total, 1e-6)


def build_index(texts: Iterable[str]) -> Index:
    """Build an index in one pass over the texts."""
    found: dict[str, int] = {}
    columns, counts, sizes, lengths = array("i"), array("i"), array("i"), array("i")
    for text in texts:
        terms = terms_of(text)
        columns.extend(found.setdefault(term, len(found)) for term in terms)
        counts.extend(terms.values())
        sizes.append(len(terms))
        lengths.append(terms.total())
    size = len(lengths)
    length_N = np.frombuffer(lengths, dtype=np.int32) if size else np.zeros(0, dtype=np.int32)
    mean = float(length_N.sum()) / max(1, size) or 1.0
    of_text = np.repeat(np.arange(size, dtype=np.int32), np.frombuffer(sizes, dtype=np.int32) if size else 0)
    of_term, count = (np.frombuffer(one, dtype=np.int32) if one else of_text for one in (columns, counts))
    having = np.bincount(of_term, minlength=len(found))
    # Terms in alphabetical order, without the frequent ones.
    most = size * COMMON if size > MANY else size
    names = np.array(list(found), dtype=object)
    kept = np.flatnonzero(having <= most)
    kept = kept[np.argsort(names[kept])]
    place = np.full(len(found), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    order = np.argsort(place[of_term], kind="stable")[int((place[of_term] < 0).sum()) :]
    of_text = of_text[order]
    inverse = np.log(1 + (size - having[kept] + 0.5) / (having[kept] + 0.5))
    weights = inverse[place[of_term[order]]] * _saturated(count[order], length_N[of_text], mean)
    return Index(
        terms=tuple(names[kept].tolist()),
        starts_V=np.concatenate([[0], np.cumsum(having[kept])]).astype(np.int64),
        texts=of_text.astype(np.int32),
        weights=weights.astype(np.float32),
        inverse_V=inverse.astype(np.float32),
        mean_length=mean,
        size=size,
    )


def _saturated(count: Any, length: Any, mean: float) -> Any:
    """Return the saturated and length-normalised term frequency of numbers or arrays."""
    return count * (SATURATION + 1) / (count + SATURATION * (1 - LENGTH + LENGTH * length / mean))
