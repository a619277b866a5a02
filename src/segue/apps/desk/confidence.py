"""When to answer: the probability that the best topic is right, and that the question is one for this desk at all.

In: what the parts gave for questions that were held back, and whether the best topic was right. Out: two logistic
models of a few signals, the curve of errors against answered questions, and the threshold for an accepted error.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
class Point:
    """What happens with one threshold."""

    threshold: float
    answered: float
    """Share of the questions that are answered."""
    error: float
    """Share of these that are answered wrongly."""


def curve(confidence_N: Floats, right_N: NDArray[np.bool_], *, points: int = 40) -> list[Point]:
    """Error rate against coverage, from answering few to answering all."""
    order = np.argsort(-confidence_N, kind="stable")
    errors = np.cumsum(~right_N[order])
    places = np.unique(np.linspace(1, len(order), min(points, len(order))).astype(int))
    return [
        Point(
            threshold=float(confidence_N[order[count - 1]]),
            answered=count / len(order),
            error=float(errors[count - 1] / count),
        )
        for count in places.tolist()
    ]


def threshold_for(confidence_N: Floats, right_N: NDArray[np.bool_], *, error: float) -> float:
    """The lowest threshold with which no more than this share of the answers is wrong; 1.01, which nothing reaches, if
    there is none. The share is the mean of what was counted and of what the confidences expect: with few questions
    the count alone is a matter of luck (with 385 questions of bank customers, and one wrong answer more than was
    counted, an accepted error of 5 % let none be answered; what the confidences expect let 15 %, 3.5 % of them
    wrong)."""
    order = np.argsort(-confidence_N, kind="stable")
    sorted_N = confidence_N[order]
    wrong_N = np.cumsum((~right_N[order]) + (1 - sorted_N)) / 2
    ends = np.append(sorted_N[1:] < sorted_N[:-1], True)  # not in the middle of equals
    good = np.flatnonzero((wrong_N / np.arange(1, len(order) + 1) <= error) & ends & (sorted_N > 0))
    return float(sorted_N[good[-1]]) if len(good) else 1.01


def outside_threshold(inside_N: Floats) -> float:
    """The largest that keeps `KEPT` of the desk's own questions."""
    return float(np.quantile(inside_N, 1 - KEPT)) if len(inside_N) else 0.0


def stack(found: Sequence[Floats]) -> Floats:
    """[N, S], also for none."""
    return np.stack(found) if found else np.zeros((0, len(SIGNALS)))
