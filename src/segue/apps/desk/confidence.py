"""Confidence: the probability that the first topic is correct, and that a question is in scope.

In: scores of the parts for held-out questions, and whether the first topic was correct. Out: two logistic models of a
few signals, the curve of error against coverage, and the threshold for an accepted error.
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
"""Strength of the L2 penalty on the weights, in questions."""
STEPS = 50
"""Maximum number of Newton steps."""
KEPT = 0.95
"""Share of in-scope questions that must be recognised as such."""
NEVER = 1.01
"""Threshold that no confidence reaches."""
TAIL = 0.025
"""Probability beyond the upper confidence bound of a share."""
BINS = 10
"""Number of bins of the calibration error."""


def signals(ranked: Ranked) -> Floats:
    """Return the features [S] of the logistic models, as named in `SIGNALS`."""
    first = float(ranked.log_probabilities[0])
    second = float(ranked.log_probabilities[1]) if len(ranked.topics) > 1 else -20.0
    odds = first - np.log(max(-np.expm1(min(first, -1e-9)), 1e-9))
    best = ranked.scores_KC.max(axis=1)
    return np.array([1.0, odds, min(first - second, 20.0), 5 * best[0], 5 * best[1], 5 * best[3], 5 * best[4]])


def fit_logistic(signals_NS: Floats, true_N: NDArray[np.bool_]) -> Floats:
    """Return the weights of a logistic regression on the signals, fitted by Newton's method."""
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
    """Return the probabilities that a logistic model gives."""
    found: Floats = 1 / (1 + np.exp(-np.clip(signals_NS @ weights_S, -30, 30)))
    return found


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Outcomes of held-out questions, one entry per question in every array."""

    confidence_N: Floats
    """Confidence; 0 if nothing is answered, because the question looks out of scope or its topic has no answer."""
    right_N: NDArray[np.bool_]
    inside_N: NDArray[np.bool_]
    """False for out-of-scope questions, which are never right."""
    weight_N: Floats
    """Weight in the error: 1, or, for out-of-scope questions, what makes up their expected share."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> "Outcomes":
        """Create outcomes from the result of `rows`; models of earlier versions have only the first two columns."""
        table = np.array([[*row, 1.0, 1.0][:4] if len(row) == 2 else row for row in rows], dtype=np.float64)
        confidence_N, right_N, inside_N, weight_N = table.reshape(-1, 4).T
        return cls(confidence_N=confidence_N, right_N=right_N > 0, inside_N=inside_N > 0, weight_N=weight_N)

    def rows(self) -> list[list[float]]:
        """Return the outcomes as stored with a model, without rounding, so that thresholds are reproduced exactly."""
        columns = (self.confidence_N, self.right_N.astype(int), self.inside_N.astype(int), self.weight_N)
        return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def part(self, rows_N: NDArray[np.bool_]) -> "Outcomes":
        """Return the outcomes of some questions."""
        return Outcomes(
            confidence_N=self.confidence_N[rows_N],
            right_N=self.right_N[rows_N],
            inside_N=self.inside_N[rows_N],
            weight_N=self.weight_N[rows_N],
        )

    def counts(self, answered_N: NDArray[np.bool_]) -> "Counts":
        """Return the counts if these questions are answered."""
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
        """Return the counts at a threshold."""
        return self.counts((self.confidence_N >= threshold) & (self.confidence_N > 0))


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of questions by outcome."""

    inside: int
    answered: int
    """Number of in-scope questions that are answered."""
    wrong: int
    """Number of these answers that are wrong."""
    outside: int
    outside_answered: int
    error: float
    """Share of wrong answers, where those to out-of-scope questions are weighted by their expected share."""
    never: int
    """Number of in-scope questions not answered at any threshold: they look out of scope, or have no answer."""

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
        """Upper confidence bound of the share of wrong answers."""
        return upper_bound(self.wrong, self.answered)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of the curve of error against coverage, among in-scope questions."""

    threshold: float
    answered: float
    """Share of questions that are answered."""
    error: float
    """Share of these answers that are wrong."""


def curve(asked: Outcomes, *, points: int = 40) -> list[Point]:
    """Return the curve of error against coverage, from the highest threshold to the lowest, which is included."""
    inside = asked.part(asked.inside_N)
    possible = np.unique(inside.confidence_N[inside.confidence_N > 0])[::-1].tolist()
    places = np.unique(np.linspace(0, len(possible) - 1, min(points, len(possible))).astype(int)).tolist()
    found = [(possible[place], inside.at(possible[place])) for place in places]
    return [Point(threshold=value, answered=one.share_answered, error=one.share_wrong) for value, one in found]


def threshold_for(asked: Outcomes, *, error: float) -> float:
    """Return the lowest threshold at which at most this share of the answers is wrong; `NEVER` if there is none.

    Two shares must be small enough: the counted one, and the mean of it and the one expected from the confidences. With
    few questions, the count alone is a matter of luck, and the lowest of many good-looking thresholds is a lucky one. A
    bound on the count alone (one more wrong answer, or a confidence interval) needs more questions than a small desk
    has: no error below 1 % could be accepted with fewer than 99 answers.
    """
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
    """Return the upper end of the exact 95 % confidence interval (Clopper and Pearson 1934) of a share; 1 for 0 of 0.

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
    """Return the expected calibration error, in `BINS` bins of equally many questions."""
    if not len(confidence_N):
        return 0.0
    bins = np.array_split(np.argsort(confidence_N, kind="stable"), BINS)
    off = [len(rows) * abs(float(confidence_N[rows].mean() - right_N[rows].mean())) for rows in bins if len(rows)]
    return sum(off) / len(confidence_N)


def _share(part_N: Floats, whole_N: Floats, rows_N: NDArray[np.bool_]) -> float:
    whole = float(whole_N[rows_N].sum())
    return float(part_N[rows_N].sum()) / whole if whole > 0 else 0.0


def outside_threshold(inside_N: Floats) -> float:
    """Return the largest scope threshold that keeps a share of `KEPT` of the in-scope questions."""
    return float(np.quantile(inside_N, 1 - KEPT)) if len(inside_N) else 0.0


def stack(found: Sequence[Floats]) -> Floats:
    """Stack signals to [N, S], also if there are none."""
    return np.stack(found) if found else np.zeros((0, len(SIGNALS)))
