"""Linear models of terms: vocabulary, weights for each class, and exact contributions of terms.

In: texts. Out: scores of the classes, or with `contributions` the spans of a text and their contributions to a score.
Words with character n-grams of Chinese, and subwords, are two TF-IDF vectors of length 1, concatenated. Scores are sums
over terms, so contributions are exact: with the bias they add up to the score.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from segue.apps.monitor.said import MARKS
from segue.apps.monitor.terms import located, terms_of
from segue.apps.regression import Floats, fit_regression
from segue.evaluation.baselines import Products
from segue.text.ngrams import Vectors

MOST_TERMS = 150_000
FEW = 500
"""Number of texts below which terms of a single text are kept."""
SMALLEST = 1e-12
SMALLEST_GRADIENT = 2e-5
"""Gradient norm at which the regression stops; smaller ones changed none of the compared predictions."""
Sparse = tuple[NDArray[np.int64], Floats]
"""Columns in order, and their values."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Terms with their inverse document frequencies."""

    terms: tuple[str, ...]
    inverse_V: Floats

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {term: column for column, term in enumerate(self.terms)}

    @cached_property
    def _is_piece(self) -> NDArray[np.bool_]:
        return np.array([term.startswith("~") for term in self.terms], dtype=bool)

    def vector(self, terms: Sequence[str]) -> Sparse:
        """Return the sparse vector of a text with these terms."""
        known = self._columns
        found = [column for term in terms if (column := known.get(term)) is not None]
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        columns, times = np.unique(np.array(found, dtype=np.int64), return_counts=True)
        values = (1 + np.log(times)).astype(np.float32) * self.inverse_V[columns]
        pieces = self._is_piece[columns]
        squares = values * values
        of_pieces = float(squares[pieces].sum())
        of_words = float(squares.sum()) - of_pieces
        lengths = (max(of_words, SMALLEST) ** 0.5, max(of_pieces, SMALLEST) ** 0.5)
        return columns, values / np.where(pieces, lengths[1], lengths[0]).astype(np.float32)

    def column(self, term: str) -> int | None:
        """Return the column of a term; None if it is not in the vocabulary."""
        return self._columns.get(term)


def learn_vocabulary(texts: Sequence[Sequence[str]]) -> Vocabulary:
    """Build the vocabulary of the most frequent terms; `texts` are lists of terms."""
    having: Counter[str] = Counter()
    for terms in texts:
        having.update(set(terms))
    least = 1 if len(texts) < FEW else 2
    kept = [term for term, count in having.items() if count >= least]
    if len(kept) > MOST_TERMS:
        kept = sorted(kept, key=lambda term: (-having[term], term))[:MOST_TERMS]
    terms = tuple(sorted(kept))
    counts = np.array([having[term] for term in terms], dtype=np.float64)
    inverse_V = np.log((1 + len(texts)) / (1 + counts)) + 1
    return Vocabulary(terms=terms, inverse_V=inverse_V.astype(np.float32))


def with_marks(vocabulary: Vocabulary, texts: Sequence[Sequence[str]]) -> Vocabulary:
    """Return the vocabulary, extended by the terms of other texts that contain a marker of a name."""
    more = learn_vocabulary(texts)
    known = set(vocabulary.terms)
    kept = [place for place, term in enumerate(more.terms) if term not in known and any(map(term.__contains__, MARKS))]
    return Vocabulary(
        terms=(*vocabulary.terms, *(more.terms[place] for place in kept)),
        inverse_V=np.concatenate([vocabulary.inverse_V, more.inverse_V[kept]]),
    )


def stacked(rows: Sequence[Sparse], width: int) -> Vectors:
    """Return sparse rows as one matrix."""
    return Vectors(
        starts=np.cumsum([0, *(len(columns) for columns, _ in rows)], dtype=np.int64),
        columns=np.concatenate([np.zeros(0, dtype=np.int64), *(columns for columns, _ in rows)]),
        values=np.concatenate([np.zeros(0, dtype=np.float32), *(values for _, values in rows)]),
        width=width,
    )


def fit_weights(
    rows: Sequence[Sparse], labels: Sequence[int], *, width: int, classes: int, inverse_penalty: float
) -> tuple[Floats, Floats]:
    """Return weights [V, C] and biases [C]."""
    gold_NC = torch.zeros(len(labels), classes)
    gold_NC[torch.arange(len(labels)), torch.tensor(labels, dtype=torch.int64)] = 1
    return fit_regression(
        Products(stacked(rows, width)),
        gold_NC,
        width=width,
        inverse_penalty=inverse_penalty,
        smallest_gradient=SMALLEST_GRADIENT,
    )


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A linear model of all classes: sentiment first, then topics, then the sentiment towards a single entity if it was
    trained on labels of entities."""

    vocabulary: Vocabulary
    weight_VC: Floats
    bias_C: Floats

    def scores(self, text: str) -> Floats:
        """Return the score of each class."""
        columns, values = self.vocabulary.vector(terms_of(text))
        found_C: Floats = values @ self.weight_VC[columns] + self.bias_C
        return found_C

    def contributions(self, text: str, direction_C: Floats) -> list[tuple[int, int, float]]:
        """Return the contributions of the spans of a text to the scores times `direction_C`: (start, end, value). The
        value of a term that occurs several times is divided among its occurrences."""
        places = list(located(text))
        columns, values = self.vocabulary.vector([term for term, _, _ in places])
        worth = dict(zip(columns.tolist(), (values * (self.weight_VC[columns] @ direction_C)).tolist(), strict=True))
        times = Counter(term for term, _, _ in places)
        found = []
        for term, start, end in places:
            column = self.vocabulary.column(term)
            if column is not None:
                found.append((start, end, worth[column] / times[term]))
        return found
