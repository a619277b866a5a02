"""Cross-fitting: confidences and thresholds are evaluated on questions to which they were not fitted.

In: scores of the parts for held-out questions, and for questions whose topics were hidden. Out: the weights, logistic
models and thresholds of the model, fitted to all questions, and the outcome of each question under the same procedure
fitted to the others. Questions are divided into five folds, those of one dialogue together. For each fold, the weights
of the parts and the two logistic models are fitted to the other four; this gives the confidences from which the
threshold is chosen, and which are reported. The threshold is evaluated once more by choosing it for each fold on the
other four alone, with confidences fitted within them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.desk.confidence import (
    Counts,
    Outcomes,
    calibration_error,
    fit_logistic,
    outside_threshold,
    probability,
    signals,
    stack,
    threshold_for,
)
from segue.apps.desk.parts import SECOND
from segue.apps.desk.ranker import Ranked, Scored, fit_weights, rank

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Scores of questions on which the parts were not trained."""

    golds: Sequence[tuple[int, ...]]
    """Topics of each question; none if it is out of scope."""
    scores: Sequence[Scored]
    plain: Sequence[Scored]
    """The same scores without a network or cross-encoder."""
    hidden: Sequence[Scored]
    """Scores of questions whose topics were hidden."""
    folds_N: Ints
    hidden_folds_M: Ints
    answerable_T: Bools
    """True for topics with an answer."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """Fitted weights and thresholds, and their cross-fitted outcomes."""

    weights_K: Floats
    base_K: Floats
    right_S: Floats
    inside_S: Floats
    threshold: float
    outside: float
    ranked: tuple[Ranked, ...]
    """Rankings of the held-out questions, with weights fitted without them."""
    confidence_N: Floats
    """Confidence in the first topic, whether or not the question is in scope and the topic has an answer."""
    inside_N: Floats
    outcomes: Outcomes
    """Outcomes of the held-out questions, then of those whose topics were hidden."""
    counts: Counts
    """Counts with the threshold of each fold chosen on the other folds."""
    calibration: float
    found: tuple[int, int] | None
    """Number of out-of-scope questions that are recognised, and their total; None if there are none."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """Signals of all questions, with weights fitted without one fold."""

    ranked: tuple[Ranked, ...]
    right_NS: Floats
    inside_NS: Floats
    hidden_MS: Floats
    top_N: Ints


@dataclass(frozen=True, kw_only=True)
class _Said:
    """Cross-fitted probabilities of each question: correct, and in scope."""

    right_N: Floats
    inside_N: Floats
    hidden_right_M: Floats
    hidden_inside_M: Floats


def folds_of(groups: Sequence[str], *, seed: int) -> dict[str, int]:
    """Assign a random fold to each group."""
    kinds = list(dict.fromkeys(groups))
    order = np.random.default_rng(seed).permutation(len(kinds)).tolist()
    return {kinds[one]: place % FOLDS for place, one in enumerate(order)}


def weights_for(scores: Sequence[Scored], golds: Sequence[tuple[int, ...]], rows_N: Bools) -> Floats:
    """Return the weights of the parts, fitted to some of the questions."""
    rows = [place for place in np.flatnonzero(rows_N).tolist() if golds[place]]
    return fit_weights([scores[place] for place in rows], [golds[place] for place in rows])


def decide(evidence: Evidence, *, error: float, outside_share: float | None) -> Decided:
    """Fit weights, logistic models and thresholds, and evaluate them by cross-fitting. `outside_share` is the expected
    share of out-of-scope questions; None for their share among the held-out questions."""
    every_N = np.ones(len(evidence.golds), dtype=bool)
    seen = [_seen(evidence, *_weights(evidence, evidence.folds_N != fold)) for fold in range(FOLDS)]
    said = _crosswise(evidence, seen, None)
    outside, outcomes = _outcomes(evidence, seen, said, None, outside_share)
    own_N, own_M = evidence.folds_N, evidence.hidden_folds_M
    right_NS = _own(np.stack([one.right_NS for one in seen]), own_N)
    inside_NS = _own(np.stack([one.inside_NS for one in seen]), own_N)
    hidden_MS = _own(np.stack([one.hidden_MS for one in seen]), own_M)
    right_N = outcomes.right_N[: len(every_N)]
    inside_N = np.array([bool(gold) for gold in evidence.golds], dtype=bool)
    weights_K, base_K = _weights(evidence, every_N)
    recognised = np.concatenate([said.inside_N[~inside_N], said.hidden_inside_M]) < outside
    return Decided(
        weights_K=weights_K,
        base_K=base_K,
        right_S=fit_logistic(right_NS, right_N),
        inside_S=_fit_inside(inside_NS, inside_N, hidden_MS),
        threshold=threshold_for(outcomes, error=error),
        outside=outside,
        ranked=tuple(seen[fold].ranked[place] for place, fold in enumerate(own_N.tolist())),
        confidence_N=said.right_N,
        inside_N=said.inside_N,
        outcomes=outcomes,
        counts=_judged(evidence, seen, outcomes, error=error, outside_share=outside_share),
        calibration=calibration_error(said.right_N, right_N),
        found=(int(recognised.sum()), len(recognised)) if len(recognised) else None,
    )


def _judged(
    evidence: Evidence, seen: Sequence[_Seen], outcomes: Outcomes, *, error: float, outside_share: float | None
) -> Counts:
    """Count the outcomes of each fold with both thresholds chosen on the four other folds."""
    answered = np.zeros(len(outcomes.right_N), dtype=bool)
    fold_of = np.concatenate([evidence.folds_N, evidence.hidden_folds_M])
    for fold in range(FOLDS):
        said = _crosswise(evidence, [seen[fold]] * FOLDS, fold)
        _, others = _outcomes(evidence, [seen[fold]] * FOLDS, said, fold, outside_share)
        threshold = threshold_for(others.part(fold_of != fold), error=error)
        answered |= (fold_of == fold) & (others.confidence_N >= threshold) & (others.confidence_N > 0)
    return outcomes.counts(answered)


def _weights(evidence: Evidence, rows_N: Bools) -> tuple[Floats, Floats]:
    """Return the weights with a network or cross-encoder, and without."""
    weights_K = weights_for(evidence.scores, evidence.golds, rows_N)
    base_K = weights_K if evidence.plain is evidence.scores else weights_for(evidence.plain, evidence.golds, rows_N)
    base_K = base_K.copy()
    base_K[list(SECOND)] = 0
    return weights_K, base_K


def _seen(evidence: Evidence, weights_K: Floats, base_K: Floats) -> _Seen:
    ranked = tuple(rank(one, weights_K) for one in evidence.scores)
    return _Seen(
        ranked=ranked,
        right_NS=stack([signals(one) for one in ranked]),
        inside_NS=stack([signals(rank(one, base_K)) for one in evidence.plain]),
        hidden_MS=stack([signals(rank(one, base_K)) for one in evidence.hidden]),
        top_N=np.array([int(one.topics[0]) for one in ranked], dtype=np.int64),
    )


def _crosswise(evidence: Evidence, seen: Sequence[_Seen], away: int | None) -> _Said:
    """Return the probabilities of each fold by models fitted to the others, and never to the fold `away`."""
    right_N, inside_N = np.zeros(len(evidence.golds)), np.zeros(len(evidence.golds))
    hidden_right_M, hidden_inside_M = np.zeros(len(evidence.hidden)), np.zeros(len(evidence.hidden))
    is_inside_N = np.array([bool(gold) for gold in evidence.golds], dtype=bool)
    for fold in range(FOLDS):
        one, here_N, here_M = seen[fold], evidence.folds_N == fold, evidence.hidden_folds_M == fold
        rest_N = ~here_N & (evidence.folds_N != away)
        rest_M = ~here_M & (evidence.hidden_folds_M != away)
        right_S = fit_logistic(one.right_NS[rest_N], _right(evidence, one)[rest_N])
        inside_S = _fit_inside(one.inside_NS[rest_N], is_inside_N[rest_N], one.hidden_MS[rest_M])
        right_N[here_N] = probability(one.right_NS[here_N], right_S)
        inside_N[here_N] = probability(one.inside_NS[here_N], inside_S)
        hidden_right_M[here_M] = probability(one.hidden_MS[here_M], right_S)
        hidden_inside_M[here_M] = probability(one.hidden_MS[here_M], inside_S)
    return _Said(right_N=right_N, inside_N=inside_N, hidden_right_M=hidden_right_M, hidden_inside_M=hidden_inside_M)


def _outcomes(
    evidence: Evidence, seen: Sequence[_Seen], said: _Said, away: int | None, outside_share: float | None
) -> tuple[float, Outcomes]:
    """Return the scope threshold, chosen on all folds but `away`, and the outcome of every question with it."""
    own_N, own_M = evidence.folds_N, evidence.hidden_folds_M
    inside_N = np.array([bool(gold) for gold in evidence.golds], dtype=bool)
    some_outside = bool(len(evidence.hidden)) or not inside_N.all()
    outside = outside_threshold(said.inside_N[inside_N & (own_N != away)]) if some_outside else 0.0
    top_N = _own(np.stack([one.top_N for one in seen]), own_N)
    right_N = _own(np.stack([_right(evidence, one) for one in seen]), own_N).astype(bool)
    given_N = evidence.answerable_T[top_N.astype(np.int64)]
    confidence_N = np.where((said.inside_N >= outside) & given_N, said.right_N, 0.0)
    confidence_M = np.where(said.hidden_inside_M >= outside, said.hidden_right_M, 0.0)
    weight_N, weight_M = np.ones(len(own_N)), np.zeros(len(own_M))
    if outside_share is not None:
        count = int((~inside_N).sum()) + len(own_M)
        each = outside_share / (1 - outside_share) * int(inside_N.sum()) / max(1, count)
        weight_N, weight_M = np.where(inside_N, 1.0, each), np.full(len(own_M), each)
    no_M = np.zeros(len(own_M), dtype=bool)
    return outside, Outcomes(
        confidence_N=np.concatenate([confidence_N, confidence_M]),
        right_N=np.concatenate([right_N, no_M]),
        inside_N=np.concatenate([inside_N, no_M]),
        weight_N=np.concatenate([weight_N, weight_M]),
    )


def _right(evidence: Evidence, seen: _Seen) -> Bools:
    return np.array([top in gold for top, gold in zip(seen.top_N.tolist(), evidence.golds, strict=True)], dtype=bool)


def _fit_inside(inside_NS: Floats, inside_N: Bools, hidden_MS: Floats) -> Floats:
    is_inside = np.concatenate([inside_N, np.zeros(len(hidden_MS), dtype=bool)])
    return fit_logistic(np.concatenate([inside_NS, hidden_MS]), is_inside)


def _own(all_F: NDArray[np.generic], fold_N: Ints) -> NDArray[np.float64]:
    """Select the row of its own fold for each question."""
    found: NDArray[np.float64] = all_F[fold_N, np.arange(len(fold_N))].astype(np.float64)
    return found
