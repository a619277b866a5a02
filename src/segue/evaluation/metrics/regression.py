"""Regression metrics.

In: two lists of numbers. Out: Pearson and Spearman correlation, as in scipy.stats, and the mean squared error.
Ties share the mean of their ranks. A correlation with constant predictions (or constant gold values) is undefined: it
is set to 0, which means that nothing was learnt, and not to NaN, which cannot be compared.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segue.evaluation.metrics.bootstrap import RESAMPLES, SEED, Floats, Metric, divide, measure
from segue.evaluation.metrics.inputs import as_floats, check_lengths

CONSTANT = 1e-13
"""Standard deviation, relative to the largest value, below which values count as constant up to rounding."""


def regression(
    gold: Sequence[float] | NDArray[np.floating],
    predicted: Sequence[float] | NDArray[np.floating],
    *,
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Metric]:
    """Return pearson, spearman, mean_squared_error."""
    gold_N = as_floats(gold, name="gold", dimensions=1)
    predicted_N = as_floats(predicted, name="predicted", dimensions=1)
    check_lengths(gold_N, predicted_N)
    squared_N = (gold_N - predicted_N) ** 2
    gold_ranks, predicted_ranks = _Ranks(gold_N), _Ranks(predicted_N)

    def formula(weights_RN: Floats) -> dict[str, Floats]:
        return {
            "pearson": _correlation(gold_N[None], predicted_N[None], weights_RN),
            "spearman": _correlation(gold_ranks(weights_RN), predicted_ranks(weights_RN), weights_RN),
            "mean_squared_error": weights_RN @ squared_N / len(gold_N),
        }

    return measure(formula, np.ones(len(gold_N), dtype=np.int64), resamples=resamples, seed=seed)


def _correlation(x_RN: Floats, y_RN: Floats, weights_RN: Floats) -> Floats:
    x_RN, x_constant_R = _centred(x_RN, weights_RN)
    y_RN, y_constant_R = _centred(y_RN, weights_RN)
    covariance_R = (weights_RN * x_RN * y_RN).sum(axis=1)
    norms_R = np.sqrt((weights_RN * x_RN**2).sum(axis=1)) * np.sqrt((weights_RN * y_RN**2).sum(axis=1))
    norms_R[x_constant_R | y_constant_R] = 0
    return np.clip(divide(covariance_R, norms_R), -1, 1)


def _centred(x_RN: Floats, weights_RN: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    count_R = weights_RN.sum(axis=1)
    centred_RN = x_RN - ((weights_RN * x_RN).sum(axis=1) / count_R)[:, None]
    deviation_R = np.sqrt((weights_RN * centred_RN**2).sum(axis=1) / count_R)
    return centred_RN, deviation_R <= CONSTANT * np.abs(x_RN).max()


class _Ranks:
    """Ranks of values in a resample, from 1, ties averaged: sorted once, counted for each resample."""

    def __init__(self, values_N: Floats) -> None:
        self.order_N = np.argsort(values_N, kind="stable")
        distinct_U, self.number_N = np.unique(values_N, return_inverse=True)
        self.starts_U = np.searchsorted(values_N[self.order_N], distinct_U)

    def __call__(self, weights_RN: Floats) -> Floats:
        copies_RU = np.add.reduceat(weights_RN[:, self.order_N], self.starts_U, axis=1)
        last_RU = np.cumsum(copies_RU, axis=1)
        middle_RU = last_RU - (copies_RU - 1) / 2
        ranks_RN: Floats = middle_RU[:, self.number_N]
        return ranks_RN
