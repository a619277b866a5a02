"""Scores of fine-tuned models on top of the other parts: a classifier of topics, or a cross-encoder.

In: questions and their scores by the other parts. Out: the scores with one more row filled in; and training examples
for the cross-encoder. `learn` decides which model is tried and used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.matcher import Floats, Matcher
from segue.apps.desk.network import Network
from segue.apps.desk.pairs import MOST, READ, Choice, PairReader
from segue.apps.desk.parts import PARTS, Parts, Vectors
from segue.apps.desk.ranker import Scored, put_forward, rank
from segue.apps.encoder import Encoder

Floats64 = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Trainers:
    """Functions that fine-tune models; None for models that are not wanted."""

    network: Callable[[Sequence[str], Sequence[tuple[int, ...]]], Network] | None = None
    """Fine-tune a classifier on questions with their topics."""
    pairs: Callable[[Sequence[Choice]], PairReader] | None = None
    """Fine-tune a cross-encoder on training examples."""


def scores_of(
    parts: Parts,
    questions: Sequence[str],
    encoder: Encoder | None,
    matcher: Matcher | None,
    network: Network | None,
    pairs: PairReader | None,
    base_K: Floats64,
) -> list[Scored]:
    """Return the scores of all parts for each question."""
    vectors: Sequence[Floats | None] = [None] * len(questions)
    if encoder is not None and questions:
        vectors_NE = encoder.vectors(questions)
        vectors = list(vectors_NE if matcher is None else matcher.questions(vectors_NE))
    found = [put_forward(parts.scores(text, one)) for text, one in zip(questions, vectors, strict=True)]
    if network is not None:
        found = with_network(found, network, questions)
    if pairs is not None:
        found = with_pairs(found, pairs, parts, questions, base_K)
    return found


def with_network(scores: Sequence[Scored], network: Network, questions: Sequence[str]) -> list[Scored]:
    """Add the log-probabilities of a classifier."""
    found = []
    for one, network_T in zip(scores, network.scores(questions), strict=True):
        scores_KC = one.scores_KC.copy()
        scores_KC[PARTS.index("network")] = network_T[one.topics]
        found.append(Scored(topics=one.topics, scores_KC=scores_KC))
    return found


def with_pairs(
    scores: Sequence[Scored], pairs: PairReader, parts: Parts, questions: Sequence[str], base_K: Floats64
) -> list[Scored]:
    """Add the scores of a cross-encoder for the first topics; the others get the lowest of these scores."""
    firsts = [rank(one, base_K).topics[:READ] for one in scores]
    texts = [
        [text or "" for text in parts.nearest(question, first.tolist())]
        for question, first in zip(questions, firsts, strict=True)
    ]
    found = []
    for one, first, said in zip(scores, firsts, pairs.scores(questions, texts), strict=True):
        scores_KC = one.scores_KC.copy()
        row_C = np.full(len(one.topics), said.min(), dtype=np.float32)
        place_of = {topic: place for place, topic in enumerate(one.topics.tolist())}
        for topic, value in zip(first.tolist(), said.tolist(), strict=True):
            row_C[place_of[topic]] = value
        scores_KC[PARTS.index("pairs")] = row_C
        found.append(Scored(topics=one.topics, scores_KC=scores_KC))
    return found


def choices_of(
    knowledge: Knowledge,
    parts: Parts,
    rows: Sequence[int],
    vectors: Vectors | None,
    base_K: Floats64,
    *,
    seed: int,
) -> list[Choice]:
    """Return training examples for a cross-encoder: questions with correct entries, and wrong ones ranked highest."""
    drawn = np.random.default_rng(seed).permutation([row for row in rows if knowledge.asked[row].topics]).tolist()
    found: list[Choice] = []
    for row in drawn:
        one = knowledge.asked[row]
        ranked = rank(put_forward(parts.scores(one.text, None if vectors is None else vectors.asked_QE[row])), base_K)
        wrong = [topic for topic in ranked.topics.tolist() if topic not in one.topics][: READ - 1]
        right = [*parts.nearest(one.text, one.topics), *(knowledge.topics[topic].answer for topic in one.topics)]
        known = [text for text in right if text and text != one.text]
        others = [text for text in parts.nearest(one.text, wrong) if text]
        if known and others:
            found.append(Choice(question=one.text, right=known, wrong=others))
        if len(found) >= MOST:
            break
    return found
