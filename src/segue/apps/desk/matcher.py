"""A bi-encoder: embeddings trained so that questions are close to questions of the same topic and to their answers.

In: embeddings of questions and answers, and their topics. Out: two matrices applied to the embeddings, one for
questions and one for answers. Negatives are the other entries of the batch, and hard negatives: the nearest wrong
entries, searched again in each round. The language model is not changed, so that ten thousand questions take seconds;
`learn` evaluates the matrices and decides whether they are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
ROUNDS = 3
"""Number of searches for hard negatives."""
STEPS = 30
"""Number of updates after each search."""
BATCH = 64
"""Number of positive pairs in a batch."""
MISTAKES = 16
"""Number of nearest wrong entries of a question from which its hard negatives are drawn."""
NEGATIVES = 2
"""Number of negatives drawn for each question of a batch; the entries of the other questions are negatives too."""
SCALE = 16.0
"""Factor from cosine similarities to logits (inverse temperature)."""
RATE = 3e-3
"""Learning rate."""
PENALTY = 0.01
"""Strength of the penalty on the distance of the matrices from the identity. Learning rates from 0.003 to 0.01 and
penalties from 0.01 to 0.1 gave about the same on a fifth of the training questions of BQ: a mean reciprocal rank by the
embeddings alone of 0.134 to 0.139, and 0.131 without training."""
MOST = 10_000
"""Maximum number of training questions."""
MOST_ENTRIES = 20_000
"""Maximum number of entries among which hard negatives are searched."""


@dataclass(frozen=True, kw_only=True)
class Matcher:
    """Matrices applied to the embeddings of questions and of answers."""

    question_EE: Floats
    answer_EE: Floats

    def questions(self, vectors_NE: Floats) -> Floats:
        """Return the embeddings of questions, of unit length."""
        return _normal(vectors_NE @ self.question_EE)

    def answers(self, vectors_NE: Floats) -> Floats:
        """Return the embeddings of answers, of unit length; zeros stay zeros."""
        return _normal(vectors_NE @ self.answer_EE)


def fit_matcher(
    asked_QE: Floats, answers_TE: Floats, golds: Sequence[Sequence[int]], rows: Sequence[int], *, seed: int
) -> Matcher | None:
    """Train on the questions `rows` that have a topic; `golds` are the topics of all questions. Return None if there is
    no positive pair: no topic with two questions, and none with an answer."""
    draw = np.random.default_rng(seed)
    kept = [row for row in rows if golds[row]]
    kept = sorted(draw.permutation(kept)[:MOST].tolist())
    of_topic: dict[int, list[int]] = {}
    for place, row in enumerate(kept):
        for topic in golds[row]:
            of_topic.setdefault(topic, []).append(place)
    has_answer = np.abs(answers_TE).sum(axis=1) > 0
    answered = sorted(topic for topic in of_topic if has_answer[topic])
    everything = draw.permutation(len(answers_TE)).tolist()
    others = [topic for topic in everything if topic not in of_topic and has_answer[topic]]
    answered += others[: max(0, MOST_ENTRIES - len(kept) - len(answered))]
    answers = {topic: len(kept) + place for place, topic in enumerate(answered)}
    pairs = [(n, other) for n, row in enumerate(kept) for other in _positives(n, golds[row], of_topic, answers)]
    if not pairs:
        return None
    entries_ME = torch.from_numpy(np.concatenate([asked_QE[kept], answers_TE[answered]]))
    topics = [tuple(golds[row]) for row in kept] + [(one,) for one in answered]
    most = max(map(len, topics))
    topics_MK = torch.tensor([(*some, *[-1] * (most - len(some))) for some in topics])
    return _fit(entries_ME, len(kept), pairs, topics_MK, draw)


def _positives(place: int, gold: Sequence[int], of_topic: dict[int, list[int]], answers: dict[int, int]) -> list[int]:
    """Return the positives of a question: at most two other questions of each of its topics, and their answers."""
    found: list[int] = []
    for topic in gold:
        some = of_topic[topic]
        here = some.index(place)
        found += [one for one in dict.fromkeys((some[here - 1], some[(here + 1) % len(some)])) if one != place]
        if topic in answers:
            found.append(answers[topic])
    return found


def _fit(
    entries_ME: Tensor, questions: int, pairs: list[tuple[int, int]], topics_MK: Tensor, draw: np.random.Generator
) -> Matcher:
    width = entries_ME.shape[1]
    same = torch.eye(width)
    question_EE, answer_EE = same.clone().requires_grad_(), same.clone().requires_grad_()
    optimizer = torch.optim.Adam([question_EE, answer_EE], lr=RATE)
    first_M = torch.arange(len(entries_ME)) < questions

    def mapped(rows: Tensor) -> Tensor:
        as_question = entries_ME[rows] @ question_EE
        as_answer = entries_ME[rows] @ answer_EE
        return torch.nn.functional.normalize(torch.where(first_M[rows][:, None], as_question, as_answer), dim=1)

    asked = sorted({place for place, _ in pairs})
    for _ in range(ROUNDS):
        with torch.no_grad():
            wrong = _mistakes(mapped(torch.arange(len(entries_ME))), asked, topics_MK)
        for _ in range(STEPS):
            some = [pairs[one] for one in draw.choice(len(pairs), min(BATCH, len(pairs)), replace=False).tolist()]
            drawn = [draw.choice(wrong[place], NEGATIVES).tolist() for place, _ in some if wrong[place]]
            rows_B = torch.tensor([place for place, _ in some])
            columns_C = torch.tensor(sorted({right for _, right in some} | {one for few in drawn for one in few}))
            itself_BC = rows_B[:, None] == columns_C[None]
            right_BC = _together(topics_MK[rows_B], topics_MK[columns_C]) & ~itself_BC
            logits_BC = (SCALE * mapped(rows_B) @ mapped(columns_C).T).masked_fill(itself_BC, -torch.inf)
            likely_B = logits_BC.masked_fill(~right_BC, -torch.inf).logsumexp(1) - logits_BC.logsumexp(1)
            far = (question_EE - same).square().sum() + (answer_EE - same).square().sum()
            optimizer.zero_grad()
            (PENALTY * far / 2 - likely_B.mean()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return Matcher(question_EE=question_EE.detach().numpy(), answer_EE=answer_EE.detach().numpy())


def _together(topics_BK: Tensor, topics_CK: Tensor) -> Tensor:
    """Return [B, C], True where two entries share a topic."""
    alike = topics_BK[:, None, :, None] == topics_CK[None, :, None, :]
    return (alike & (topics_BK >= 0)[:, None, :, None]).flatten(2).any(2)


def _mistakes(mapped_ME: Tensor, asked: Sequence[int], topics_MK: Tensor) -> dict[int, list[int]]:
    """Return the nearest wrong entries of each question."""
    found = {}
    for start in range(0, len(asked), 500):
        some = torch.tensor(asked[start : start + 500])
        near_BC = (mapped_ME[some] @ mapped_ME.T).topk(min(2 * MISTAKES, len(mapped_ME)), dim=1).indices
        for place, columns_C in zip(some.tolist(), near_BC, strict=True):
            right_C = _together(topics_MK[place][None], topics_MK[columns_C])[0]
            found[place] = columns_C[~right_C][:MISTAKES].tolist()
    return found


def _normal(vectors_NE: Floats) -> Floats:
    lengths_N = np.linalg.norm(vectors_NE, axis=1, keepdims=True)
    found: Floats = (vectors_NE / np.maximum(lengths_N, 1e-9)).astype(np.float32)
    return found
