"""Accuracy on minimal pairs.

In: the scores of both sentences of each pair, and the groups of each pair. Out: accuracy by paradigm, by phenomenon and
overall, the latter as a mean over the pairs, with an interval, and as a mean over the paradigms. The two are the same
if all paradigms have equally many pairs. A pair with equal scores is a tie and counts as half right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segue.evaluation.metrics.bootstrap import RESAMPLES, SEED, Floats, Metric, measure
from segue.evaluation.metrics.inputs import as_floats, check_lengths


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of pairs."""

    pairs: int
    ties: int
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class PairAccuracy:
    """Accuracies from 0 to 1."""

    accuracy: Metric
    """Mean over the pairs."""
    mean_of_paradigms: float
    pairs: int
    ties: int
    phenomena: dict[str, Group]
    """Groups in the order of the data, like the paradigms."""
    paradigms: dict[str, Group]
    phenomenon_of: dict[str, str]
    """The phenomenon of each paradigm."""


def pair_accuracy(
    good: ArrayLike,
    bad: ArrayLike,
    *,
    paradigms: Sequence[str],
    phenomena: Sequence[str],
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> PairAccuracy:
    """Return the accuracy, from a score for each sentence and the group names of each pair; a higher score is a more
    likely sentence."""
    good_N, bad_N = as_floats(good, name="good", dimensions=1), as_floats(bad, name="bad", dimensions=1)
    check_lengths(good_N, bad_N, names=("good", "bad"))
    check_lengths(good_N, paradigms, names=("good", "paradigms"))
    check_lengths(good_N, phenomena, names=("good", "phenomena"))
    right_N = (np.sign(good_N - bad_N) + 1) / 2
    kinds, copies_K = np.unique(right_N, return_counts=True)

    def formula(weights_RK: Floats) -> dict[str, Floats]:
        return {"accuracy": weights_RK @ kinds / len(right_N)}

    by_paradigm = _groups(right_N, paradigms)
    return PairAccuracy(
        accuracy=measure(formula, copies_K, resamples=resamples, seed=seed)["accuracy"],
        mean_of_paradigms=float(np.mean([group.accuracy for group in by_paradigm.values()])),
        pairs=len(right_N),
        ties=int((right_N == 0.5).sum()),
        phenomena=_groups(right_N, phenomena),
        paradigms=by_paradigm,
        phenomenon_of=dict(zip(paradigms, phenomena, strict=True)),
    )


def _groups(right_N: NDArray[np.float64], names: Sequence[str]) -> dict[str, Group]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return {
        name: Group(pairs=len(at), ties=int((right_N[at] == 0.5).sum()), accuracy=float(right_N[at].mean()))
        for name, at in places.items()
    }
