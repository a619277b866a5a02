"""Ranking: topics in the order of their probabilities, from weighted scores of the parts.

In: scores of the parts for held-out questions. Out: a weight for each part, fitted to maximise the likelihood of the
correct topics (a softmax over the candidates of all parts); and the ranked topics of a question.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.apps.desk.parts import PARTS
from segue.evaluation.baselines import log_softmax

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
PRIOR = np.array([12.0, 6.0, 0.5, 4.0, 2.0, 0.3, 0.5, 0.5])
"""Prior weights, which give all parts a similar spread."""
STRENGTH = 3.0
"""Strength of the prior, in questions."""
LEAST = 40
"""Minimum number of questions to fit weights. With fewer, each question is held out on its own; its topic then lacks
one of few questions, and a good part can look worse than chance."""
FROM_EACH = 20
"""Number of candidates from each part, if there are more than `FEW` topics."""
FEW = 2000
"""Maximum number of topics up to which all are candidates."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Candidate topics with their scores by all parts."""

    topics: Ints
    scores_KC: Floats


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Ranked topics, best first."""

    topics: Ints
    log_probabilities: NDArray[np.float64]
    scores_KC: Floats
    """Scores of the parts, in the same order."""


def put_forward(scores_KT: Floats) -> Scored:
    """Select the candidates: all topics if there are few, or the best of each part."""
    topics = scores_KT.shape[1]
    used = [row for row in scores_KT if row.any()]
    if topics <= FEW or not used:
        found = np.arange(min(topics, FEW))
    else:
        found = np.unique(np.concatenate([np.argpartition(-row, FROM_EACH)[:FROM_EACH] for row in used]))
    return Scored(topics=found, scores_KC=scores_KT[:, found])


def rank(scored: Scored, weights_K: NDArray[np.float64]) -> Ranked:
    """Rank the candidates by their weighted scores."""
    log_C = log_softmax(weights_K @ scored.scores_KC.astype(np.float64))
    order = np.argsort(-log_C, kind="stable")
    return Ranked(topics=scored.topics[order], log_probabilities=log_C[order], scores_KC=scored.scores_KC[:, order])


def fit_weights(scores: Sequence[Scored], golds: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Fit the weights to questions with known topics. A question is usable if its candidates include a correct and a
    wrong topic; if fewer than `LEAST` are, return the prior."""
    rows = []
    for scored, gold in zip(scores, golds, strict=True):
        right = np.isin(scored.topics, list(gold))
        if right.any() and not right.all():
            rows.append((scored.scores_KC, right))
    if len(rows) < LEAST:
        return PRIOR.copy()
    widest = max(len(right) for _, right in rows)
    scores_NKC = torch.zeros(len(rows), len(PARTS), widest)
    there_NC = torch.full((len(rows), widest), -torch.inf)
    right_NC = torch.full((len(rows), widest), -torch.inf)
    for place, (scores_KC, right) in enumerate(rows):
        scores_NKC[place, :, : len(right)] = torch.from_numpy(scores_KC)
        there_NC[place, : len(right)] = 0
        right_NC[place, : len(right)][torch.from_numpy(right)] = 0
    return _fit(scores_NKC, there_NC, right_NC)


def _fit(scores_NKC: Tensor, there_NC: Tensor, right_NC: Tensor) -> NDArray[np.float64]:
    """Return nonnegative multiples of the prior, so that a misleading part gets a weight of 0."""
    prior_K = torch.from_numpy(PRIOR).float()
    times_K = torch.ones(len(PARTS), requires_grad=True)
    optimizer = torch.optim.LBFGS([times_K], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits_NC = torch.einsum("k,nkc->nc", times_K.clamp(min=0) * prior_K, scores_NKC)
        likely_N = (logits_NC + right_NC).logsumexp(1) - (logits_NC + there_NC).logsumexp(1)
        loss = -likely_N.sum() + STRENGTH / 2 * (times_K - 1).square().sum()
        loss = loss / len(scores_NKC)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return (times_K.detach().clamp(min=0) * prior_K).double().numpy()
