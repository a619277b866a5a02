"""Confidence intervals of the difference between two models, on the same resampled examples (paired bootstrap).

In: for each model, a function from example indices to its metrics. Out: for each model after the first, its metrics
minus those of the first, with percentile intervals as in `bootstrap`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from segue.evaluation.metrics.bootstrap import FEWEST, PERCENTILES, RESAMPLES, SEED, Metric

Measure: TypeAlias = Callable[[NDArray[np.int64]], Mapping[str, float]]
"""Function from example indices, which may repeat, to the metrics of a model on them."""


def paired_differences(
    measures: Sequence[Measure], *, examples: int, resamples: int = RESAMPLES, seed: int = SEED
) -> list[dict[str, Metric]]:
    """Return a table of differences for each model after the first. There are no intervals for fewer than `FEWEST`
    examples, nor for a difference that is the same in all resamples."""
    every = np.arange(examples)
    points = _minus([measure(every) for measure in measures])
    drawn: list[list[dict[str, float]]] = []
    if examples >= FEWEST and len(measures) > 1:
        random = np.random.default_rng(seed)
        for _ in range(resamples):
            chosen = random.integers(0, examples, size=examples)
            drawn.append(_minus([measure(chosen) for measure in measures]))
    return [
        {name: _metric(name, value, [one[place][name] for one in drawn]) for name, value in point.items()}
        for place, point in enumerate(points)
    ]


def _minus(found: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    first = found[0]
    return [{name: other[name] - first[name] for name in first if name in other} for other in found[1:]]


def _metric(name: str, value: float, drawn: Sequence[float]) -> Metric:
    low, high = np.percentile(drawn, PERCENTILES) if drawn else (0.0, 0.0)
    known = bool(low < high)
    return Metric(name=name, value=value, low=float(low) if known else None, high=float(high) if known else None)
