"""A linear model of terms: which topic a question is about, from the questions that are known for each.

In: questions and their topics. Out: log-probabilities of the topics. The terms are TF-IDF vectors of length 1; the
weights are those of a logistic regression with a penalty.
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
from segue.evaluation.baselines import Products, log_softmax
from segue.text.ngrams import Vectors

Floats = NDArray[np.float32]
INVERSE_PENALTY = 20.0
"""C of the regression."""
MOST_TERMS = 40_000
MOST_STEPS = 60
HISTORY = 10
"""Steps that L-BFGS remembers. With a hundred it takes nearly three times as long, and finds as many intents."""


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
        """One for each topic."""
        columns, values = _vector(question, self._columns, self.inverse_V)
        found: Floats = values @ self.weight_VT[columns] + self.bias_T
        return found

    def scores(self, question: str) -> Floats:
        """Log-probabilities."""
        return log_softmax(self.logits(question).astype(np.float64)).astype(np.float32)


def fit_linear(questions: Sequence[str], golds: Sequence[Sequence[int]], *, topics: int) -> Linear:
    """Learns from questions, each with the numbers of its topics."""
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
    """The same regression on dense vectors: weights [E + 1, T], the last row the bias."""
    weight_ET, bias_T = _fit(
        _Dense(torch.from_numpy(vectors_NE)),
        golds,
        terms=vectors_NE.shape[1],
        topics=topics,
        inverse_penalty=inverse_penalty,
    )
    return np.concatenate([weight_ET, bias_T[None]])


class _Dense:
    """Products as those of a sparse matrix."""

    def __init__(self, vectors_NE: Tensor) -> None:
        self._vectors_NE = vectors_NE

    def forward(self, right_ET: Tensor) -> Tensor:
        return self._vectors_NE @ right_ET

    def backward(self, right_NT: Tensor) -> Tensor:
        return self._vectors_NE.T @ right_NT


def _vector(question: str, columns: dict[str, int], inverse_V: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The columns that are not 0, in order, and their values."""
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
    parameters_VT = torch.zeros(terms + 1, topics)
    penalty = 1 / (inverse_penalty * len(golds))
    optimizer = torch.optim.LBFGS(
        [parameters_VT],
        max_iter=MOST_STEPS,
        max_eval=2 * MOST_STEPS,
        tolerance_change=0.0,
        history_size=HISTORY,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        weight_VT = parameters_VT[:-1]
        scores_NT = products.forward(weight_VT) + parameters_VT[-1]
        loss = -(scores_NT.log_softmax(dim=1) * gold_NT).sum() / len(golds)
        error_NT = (scores_NT.softmax(dim=1) - gold_NT) / len(golds)
        parameters_VT.grad = torch.cat(
            [products.backward(error_NT) + penalty * weight_VT, error_NT.sum(dim=0, keepdim=True)]
        )
        return loss + penalty / 2 * weight_VT.square().sum()

    with torch.no_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    found = parameters_VT.numpy()
    return np.ascontiguousarray(found[:-1]), found[-1].copy()
