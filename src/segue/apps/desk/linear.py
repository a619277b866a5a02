"""Logistic regression on terms: the topic of a question, trained on the known questions of each topic.

In: questions and their topics. Out: log-probabilities of the topics. Features are TF-IDF vectors of unit length; the
regression has an L2 penalty.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.apps.desk.terms import terms_of
from segue.apps.regression import fit_regression
from segue.evaluation.baselines import Products, log_softmax
from segue.text.ngrams import Vectors

Floats = NDArray[np.float32]
INVERSE_PENALTY = 20.0
"""Inverse strength of the penalty (C)."""
MOST_TERMS = 40_000
"""Maximum number of terms; the most frequent are kept."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Terms with their inverse document frequencies, and weights for each topic."""

    terms: tuple[str, ...]
    inverse_V: Floats
    weight_VT: Floats
    bias_T: Floats

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {term: column for column, term in enumerate(self.terms)}

    def logits(self, question: str) -> Floats:
        """Return a logit for each topic."""
        columns, values = _vector(question, self._columns, self.inverse_V)
        found: Floats = values @ self.weight_VT[columns] + self.bias_T
        return found

    def scores(self, question: str) -> Floats:
        """Return the log-probability of each topic."""
        return log_softmax(self.logits(question).astype(np.float64)).astype(np.float32)


def fit_linear(questions: Sequence[str], golds: Sequence[Sequence[int]], *, topics: int) -> Linear:
    """Train on questions, each with the indices of its topics."""
    having: Counter[str] = Counter()
    for question in questions:
        having.update(terms_of(question).keys())
    kept = sorted(having, key=lambda term: (-having[term], term))[:MOST_TERMS]
    terms = tuple(sorted(kept))
    columns = {term: column for column, term in enumerate(terms)}
    counts = np.array([having[term] for term in terms], dtype=np.float64)
    inverse_V = (np.log((1 + len(questions)) / (1 + counts)) + 1).astype(np.float32)
    rows = [_vector(question, columns, inverse_V) for question in questions]
    vectors = Vectors(
        starts=np.cumsum([0, *(len(found) for found, _ in rows)], dtype=np.int64),
        columns=np.concatenate([np.zeros(0, dtype=np.int64), *(found for found, _ in rows)]),
        values=np.concatenate([np.zeros(0, dtype=np.float32), *(values for _, values in rows)]),
        width=len(terms),
    )
    weight_VT, bias_T = _fit(Products(vectors), golds, terms=len(terms), topics=topics)
    return Linear(terms=terms, inverse_V=inverse_V, weight_VT=weight_VT, bias_T=bias_T)


def fit_dense(vectors_NE: Floats, golds: Sequence[Sequence[int]], *, topics: int, inverse_penalty: float) -> Floats:
    """Train the same regression on dense vectors; return weights [E + 1, T], whose last row is the bias."""
    weight_ET, bias_T = _fit(
        _Dense(torch.from_numpy(vectors_NE)),
        golds,
        terms=vectors_NE.shape[1],
        topics=topics,
        inverse_penalty=inverse_penalty,
    )
    return np.concatenate([weight_ET, bias_T[None]])


class _Dense:
    """A dense matrix with the interface of `Products`."""

    def __init__(self, vectors_NE: Tensor) -> None:
        self._vectors_NE = vectors_NE

    def forward(self, right_ET: Tensor) -> Tensor:
        return self._vectors_NE @ right_ET

    def backward(self, right_NT: Tensor) -> Tensor:
        return self._vectors_NE.T @ right_NT


def _vector(question: str, columns: dict[str, int], inverse_V: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the nonzero columns of a TF-IDF vector, in order, and their values."""
    counts = {columns[term]: count for term, count in terms_of(question).items() if term in columns}
    places = np.array(sorted(counts), dtype=np.int64)
    times = np.array([counts[place] for place in places.tolist()], dtype=np.float32)
    values = (1 + np.log(times)) * inverse_V[places]
    return places, values / max(float(np.sqrt(values @ values)), 1e-12)


def _fit(
    products: Products | _Dense,
    golds: Sequence[Sequence[int]],
    *,
    terms: int,
    topics: int,
    inverse_penalty: float = INVERSE_PENALTY,
) -> tuple[Floats, Floats]:
    gold_NT = torch.zeros(len(golds), topics)
    for row, gold in enumerate(golds):
        gold_NT[row, list(gold)] = 1 / len(gold)
    return fit_regression(products, gold_NT, width=terms, inverse_penalty=inverse_penalty)
