"""Confidence intervals of metrics: percentiles over resampled examples (bootstrap).

In: a formula from example weights to values, so that 1000 resamples are a few matrix products. Out: a Metric for each
value. A resample draws as many examples as there are, with replacement; the interval runs from the 2.5 to the 97.5
percentile. It covers the sampling of examples only: not other seeds, nor other data. There is no interval where
resamples are uninformative: for fewer than FEWEST examples, or if all have the same value.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError

RESAMPLES = 1000
SEED = 0
PERCENTILES = (2.5, 97.5)
FEWEST = 30
"""Minimum number of examples for an interval: with fewer, percentiles over resamples are far too narrow."""
BLOCK = 4_000_000
"""Number of weights in memory at a time: 32 MB."""

Floats = NDArray[np.float64]
Formula = Callable[[Floats], Mapping[str, Floats]]
"""Function from weights_RK, the count of each kind of example in each resample, to values_R by name."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A measured number; `low` and `high` are None if no interval was requested, or none can be computed."""

    name: str
    value: float
    low: float | None
    high: float | None


def measure(
    formula: Formula, copies_K: NDArray[np.int64], *, resamples: int | None = RESAMPLES, seed: int = SEED
) -> dict[str, Metric]:
    """Return the formula's values on the examples, with intervals. `copies_K` is the number of identical examples of
    each kind; all ones if no two are identical. `resamples=None` leaves the intervals out."""
    if resamples is not None and resamples < 1:
        raise DataError(f"resamples must be at least 1; got {resamples}. Use None for no intervals.")
    assert copies_K.min(initial=1) >= 1
    values = formula(copies_K[None].astype(np.float64))
    point = {name: float(value_R[0]) for name, value_R in values.items()}
    bounds: dict[str, tuple[float, float]] = {}
    if resamples is not None and copies_K.sum() >= FEWEST:
        blocks = [formula(weights_RK) for weights_RK in _resampled(copies_K, resamples=resamples, seed=seed)]
        for name in point:
            low, high = np.percentile(np.concatenate([block[name] for block in blocks]), PERCENTILES)
            if low < high:
                bounds[name] = (float(low), float(high))
    metrics = {}
    for name, value in point.items():
        low_high = bounds.get(name, (None, None))
        metrics[name] = Metric(name=name, value=value, low=low_high[0], high=low_high[1])
    return metrics


def measure_means(
    scores: Mapping[str, Floats], *, resamples: int | None = RESAMPLES, seed: int = SEED
) -> dict[str, Metric]:
    """Return metrics that are a mean of one score for each example."""
    names = list(scores)
    scores_NS = np.stack([scores[name] for name in names], axis=1)
    count = len(scores_NS)

    def formula(weights_RN: Floats) -> dict[str, Floats]:
        mean_RS = weights_RN @ scores_NS / count
        return {name: mean_RS[:, column] for column, name in enumerate(names)}

    return measure(formula, np.ones(count, dtype=np.int64), resamples=resamples, seed=seed)


def wilson(right: float, count: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion (Wilson 1927), which is also valid at 0 and 1."""
    square = 1.959964**2
    share = right / count
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = np.sqrt(square * (share * (1 - share) / count + square / (4 * count**2))) / (1 + square / count)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def divide(numerator: Floats, denominator: Floats) -> Floats:
    """Return the quotient, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator != 0)


def _resampled(copies_K: NDArray[np.int64], *, resamples: int, seed: int) -> Iterator[Floats]:
    random = np.random.default_rng(seed)
    kinds, examples = len(copies_K), int(copies_K.sum())
    rows = max(1, BLOCK // kinds)
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        if kinds == examples:
            drawn = random.integers(0, kinds, size=(size, kinds))
            drawn += np.arange(size)[:, None] * kinds
            weights = np.bincount(drawn.ravel(), minlength=size * kinds).reshape(size, kinds)
        else:
            weights = random.multinomial(examples, copies_K / examples, size=size)
        yield weights.astype(np.float64)
