"""When to answer: the probability that the best topic is right, and that the question is one for this desk at all.

In: what the parts gave for questions that were held back, and whether the best topic was right. Out: two logistic
models of a few signals, the curve of errors against answered questions, and the threshold for an accepted error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma

import numpy as np
from numpy.typing import NDArray

from segue.apps.desk.ranker import Ranked

Floats = NDArray[np.float64]
SIGNALS = ("constant", "log-odds", "margin", "questions", "answers", "near", "meaning")
PENALTY = 1.0
"""Strength of the penalty of the weights, in questions."""
STEPS = 50
KEPT = 0.95
"""Share of the desk's own questions that must not be called outside."""
NEVER = 1.01
"""A threshold that nothing reaches."""
TAIL = 0.025
"""Probability that the upper bound of a share leaves out."""
BINS = 10
"""Bins of the calibration error."""


def signals(ranked: Ranked) -> Floats:
    """Numbers that tell a sure answer from a guess."""
    first = float(ranked.log_probabilities[0])
    second = float(ranked.log_probabilities[1]) if len(ranked.topics) > 1 else -20.0
    odds = first - np.log(max(-np.expm1(min(first, -1e-9)), 1e-9))
    best = ranked.scores_KC.max(axis=1)
    return np.array([1.0, odds, min(first - second, 20.0), 5 * best[0], 5 * best[1], 5 * best[3], 5 * best[4]])


def fit_logistic(signals_NS: Floats, true_N: NDArray[np.bool_]) -> Floats:
    """Weights of the signals, by Newton's method."""
    weights_S = np.zeros(signals_NS.shape[1])
    penalty_S = np.full(len(weights_S), PENALTY)
    penalty_S[0] = 1e-3
    for _ in range(STEPS):
        found_N = probability(signals_NS, weights_S)
        gradient_S = signals_NS.T @ (found_N - true_N) + penalty_S * weights_S
        curve_N = np.maximum(found_N * (1 - found_N), 1e-9)
        step_S = np.linalg.solve((signals_NS.T * curve_N) @ signals_NS + np.diag(penalty_S), gradient_S)
        size = min(1.0, 5.0 / max(float(np.abs(step_S).max()), 1e-12))
        weights_S -= size * step_S
        if np.abs(step_S).max() < 1e-9:
            break
    return weights_S


def probability(signals_NS: Floats, weights_S: Floats) -> Floats:
    """By the logistic model."""
    found: Floats = 1 / (1 + np.exp(-np.clip(signals_NS @ weights_S, -30, 30)))
    return found


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What came of questions that were held back: one number for each in every array."""

    confidence_N: Floats
    """0 where nothing is answered: taken for outside, or a topic without an answer."""
    right_N: NDArray[np.bool_]
    inside_N: NDArray[np.bool_]
    """False for questions outside, which are never right."""
    weight_N: Floats
    """What a question counts for the error: 1, but for questions outside what their share asks for."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> "Outcomes":
        """From rows as `rows` gives them; models of earlier versions have only the first two numbers of each."""
        table = np.array([[*row, 1.0, 1.0][:4] if len(row) == 2 else row for row in rows], dtype=np.float64)
        confidence_N, right_N, inside_N, weight_N = table.reshape(-1, 4).T
        return cls(confidence_N=confidence_N, right_N=right_N > 0, inside_N=inside_N > 0, weight_N=weight_N)

    def rows(self) -> list[list[float]]:
        """The outcomes as stored with a model: nothing is rounded, so that a threshold stays the same."""
        columns = (self.confidence_N, self.right_N.astype(int), self.inside_N.astype(int), self.weight_N)
        return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def part(self, rows_N: NDArray[np.bool_]) -> "Outcomes":
        """Some of them."""
        return Outcomes(
            confidence_N=self.confidence_N[rows_N],
            right_N=self.right_N[rows_N],
            inside_N=self.inside_N[rows_N],
            weight_N=self.weight_N[rows_N],
        )

    def counts(self, answered_N: NDArray[np.bool_]) -> "Counts":
        """Where these are answered."""
        return Counts(
            inside=int(self.inside_N.sum()),
            answered=int((answered_N & self.inside_N).sum()),
            wrong=int((answered_N & self.inside_N & ~self.right_N).sum()),
            outside=int((~self.inside_N).sum()),
            outside_answered=int((answered_N & ~self.inside_N).sum()),
            error=_share(self.weight_N * ~self.right_N, self.weight_N, answered_N),
            never=int((self.inside_N & (self.confidence_N <= 0)).sum()),
        )

    def at(self, threshold: float) -> "Counts":
        """With one threshold."""
        return self.counts((self.confidence_N >= threshold) & (self.confidence_N > 0))


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many questions, and of which kind."""

    inside: int
    answered: int
    """Number of in-scope questions that are answered."""
    wrong: int
    """Number of these answers that are wrong."""
    outside: int
    outside_answered: int
    error: float
    """Share of wrong answers; those to questions outside count as their expected share says."""
    never: int
    """Questions inside that no threshold answers: they are taken for outside, or their topic has no answer."""

    @property
    def share_answered(self) -> float:
        """Share of in-scope questions that are answered."""
        return self.answered / max(1, self.inside)

    @property
    def share_wrong(self) -> float:
        """Share of answers to in-scope questions that are wrong."""
        return self.wrong / max(1, self.answered)

    @property
    def up_to(self) -> float:
        """The largest share of wrong answers that such a count is still likely for."""
        return upper_bound(self.wrong, self.answered)


@dataclass(frozen=True, kw_only=True)
class Point:
    """What happens with one threshold, among questions inside."""

    threshold: float
    answered: float
    """Share of the questions that are answered."""
    error: float
    """Share of these that are answered wrongly."""


def curve(asked: Outcomes, *, points: int = 40) -> list[Point]:
    """Errors against answered questions, from answering few to answering all that can be: the last point is there."""
    inside = asked.part(asked.inside_N)
    possible = np.unique(inside.confidence_N[inside.confidence_N > 0])[::-1].tolist()
    places = np.unique(np.linspace(0, len(possible) - 1, min(points, len(possible))).astype(int)).tolist()
    found = [(possible[place], inside.at(possible[place])) for place in places]
    return [Point(threshold=value, answered=one.share_answered, error=one.share_wrong) for value, one in found]


def threshold_for(asked: Outcomes, *, error: float) -> float:
    """The lowest threshold with which no more than this share of the answers is wrong; 1.01, which nothing reaches, if
    there is none. Two shares must be small enough: what was counted, and the mean of that and of what the confidences
    expect. With few questions the count alone is a matter of luck, and the lowest of many thresholds that look good is
    one that had luck; a bound of the count alone (one wrong answer more, or a confidence interval) asks for more
    questions than a small desk has: no error below 1 % could be accepted with fewer than 99 answers."""
    order = np.argsort(-asked.confidence_N, kind="stable")
    sorted_N, weight_N = asked.confidence_N[order], asked.weight_N[order]
    total_N = np.maximum(np.cumsum(weight_N), 1e-12)
    wrong_N = np.cumsum(weight_N * ~asked.right_N[order])
    expected_N = np.cumsum(weight_N * np.where(asked.inside_N[order], 1 - sorted_N, 1.0))
    ends = np.append(sorted_N[1:] < sorted_N[:-1], True)  # not in the middle of equals
    small = (wrong_N / total_N <= error) & ((wrong_N + expected_N) / (2 * total_N) <= error)
    good = np.flatnonzero(small & ends & (sorted_N > 0))
    return float(sorted_N[good[-1]]) if len(good) else NEVER


def upper_bound(wrong: int, count: int) -> float:
    """The upper end of the exact interval of 95 % (Clopper and Pearson 1934) of a share; 1 for none.

    >>> round(upper_bound(0, 147), 3), round(upper_bound(5, 100), 3), upper_bound(0, 0)
    (0.025, 0.113, 1.0)
    """
    if wrong >= count:
        return 1.0
    places = np.arange(wrong + 1)
    choose = np.array([lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) for k in places.tolist()])
    low, high = wrong / count, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        likely = np.exp(choose + places * np.log(max(middle, 1e-300)) + (count - places) * np.log1p(-middle)).sum()
        low, high = (middle, high) if likely > TAIL else (low, middle)
    return float(high)


def calibration_error(confidence_N: Floats, right_N: NDArray[np.bool_]) -> float:
    """The mean distance between confidence and share right, in ten bins of equally many questions."""
    if not len(confidence_N):
        return 0.0
    bins = np.array_split(np.argsort(confidence_N, kind="stable"), BINS)
    off = [len(rows) * abs(float(confidence_N[rows].mean() - right_N[rows].mean())) for rows in bins if len(rows)]
    return sum(off) / len(confidence_N)


def _share(part_N: Floats, whole_N: Floats, rows_N: NDArray[np.bool_]) -> float:
    whole = float(whole_N[rows_N].sum())
    return float(part_N[rows_N].sum()) / whole if whole > 0 else 0.0


def outside_threshold(inside_N: Floats) -> float:
    """The largest that keeps `KEPT` of the desk's own questions."""
    return float(np.quantile(inside_N, 1 - KEPT)) if len(inside_N) else 0.0


def stack(found: Sequence[Floats]) -> Floats:
    """[N, S], also for none."""
    return np.stack(found) if found else np.zeros((0, len(SIGNALS)))
