"""What each part counts: topics in the order in which they answer a question, with probabilities.

In: scores of the parts for questions that none of them has learned from. Out: a weight for each part, fitted so that
the right topics are likely (a softmax over the topics that any part puts high); and for a question the best topics.
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
"""Weights before any question was asked: they make the usual spread of each part alike."""
STRENGTH = 3.0
"""How many questions the prior weighs as much as."""
LEAST = 40
"""Questions from which parts are weighed. With fewer, each is held back alone; its topic then lacks one of few
questions, and a part that is good can look worse than chance."""
FROM_EACH = 20
"""Topics that each part may put forward, where there are many."""
FEW = 2000
"""Topics up to which all are looked at."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Topics that some part puts high, with what all parts give them: all topics where there are few."""

    topics: Ints
    scores_KC: Floats


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Topics, the best first."""

    topics: Ints
    log_probabilities: NDArray[np.float64]
    scores_KC: Floats
    """What the parts gave them."""


def put_forward(scores_KT: Floats) -> Scored:
    """From the scores of all topics."""
    topics = scores_KT.shape[1]
    used = [row for row in scores_KT if row.any()]
    if topics <= FEW or not used:
        found = np.arange(min(topics, FEW))
    else:
        found = np.unique(np.concatenate([np.argpartition(-row, FROM_EACH)[:FROM_EACH] for row in used]))
    return Scored(topics=found, scores_KC=scores_KT[:, found])


def rank(scored: Scored, weights_K: NDArray[np.float64]) -> Ranked:
    """The topics in order."""
    log_C = log_softmax(weights_K @ scored.scores_KC.astype(np.float64))
    order = np.argsort(-log_C, kind="stable")
    return Ranked(topics=scored.topics[order], log_probabilities=log_C[order], scores_KC=scored.scores_KC[:, order])


def fit_weights(scores: Sequence[Scored], golds: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """For questions with the scores of each and its right topics, where there are `LEAST`. Those whose right topics
    nobody puts forward teach nothing."""
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
    """Weights are multiples of the prior, 0 or more: a part that misleads counts nothing."""
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
