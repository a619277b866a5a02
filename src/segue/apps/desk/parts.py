"""Scores of each topic for a question, by parts fitted to the knowledge of a desk.

| part | score of a topic |
|---|---|
| questions | full-text search: the best of its questions |
| answers | full-text search: its answer |
| linear | log-probability by logistic regression on terms |
| near | embeddings: the nearest of its questions |
| meaning | embeddings: its answer |
| dense | log-probability by logistic regression on embeddings |
| network | log-probability by a fine-tuned classifier, if there is one |
| pairs | for the first few topics: score by a cross-encoder, if there is one |

In: knowledge, and embeddings of its texts. Out: `Parts`, whose `scores` have one row per part. A part that could not be
fitted scores 0 for all topics. `ranker` weighs the parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from segue.apps.desk.index import Index, build_index
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.linear import Linear, fit_dense, fit_linear
from segue.apps.desk.matcher import Matcher
from segue.evaluation.baselines import log_softmax
from segue.model.kernels import library
from segue.model.kernels.step import Product

PARTS = ("questions", "answers", "linear", "near", "meaning", "dense", "network", "pairs")
SECOND = (PARTS.index("network"), PARTS.index("pairs"))
"""Parts that are fine-tuned models, tried on top of the others (`second`)."""
MOST_TOPICS = 2000
"""Maximum number of topics for logistic regressions; with more, they would be large, with few questions per topic."""
LEAST_ASKED = 2.0
"""Minimum mean number of questions per topic for logistic regressions."""
DENSE_SCALE = 4.0
"""Length of the embeddings in the logistic regression on them."""
DENSE_PENALTY = 10.0
"""Inverse strength of its penalty (C)."""

MANY_ROWS = 10_000
"""Number of embeddings from which they are stored in 8 bits for products with them."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """Embeddings of all questions and answers."""

    asked_QE: Floats
    answers_TE: Floats
    """Zeros for topics without an answer."""

    def matched(self, matcher: Matcher) -> "Vectors":
        """Apply a bi-encoder."""
        return Vectors(asked_QE=matcher.questions(self.asked_QE), answers_TE=matcher.answers(self.answers_TE))


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts fitted to some questions of the knowledge."""

    topics: int
    question_P: Ints
    """Question of each pair of a question and one of its topics: an index of `texts`, `questions` and `asked_QE`."""
    topic_P: Ints
    """Topic of each pair."""
    texts: tuple[str, ...]
    """Questions, then the answers of topics without questions."""
    questions: Index | None
    answers: Index | None
    """Index of one text per topic, empty for topics without an answer."""
    linear: Linear | None
    asked_QE: Floats | None
    answers_TE: Floats | None
    dense_ET: Floats | None

    def scores(self, question: str, vector_E: Floats | None) -> Floats:
        """Return the scores [parts, topics]; those of fine-tuned models are added in batches by `second`."""
        found_KT = np.zeros((len(PARTS), self.topics), dtype=np.float32)
        if self.questions is not None:
            found_KT[0] = self._best(self.questions.scores(question))
        if self.answers is not None:
            found_KT[1] = self.answers.scores(question)
        if self.linear is not None:
            found_KT[2] = self.linear.scores(question)
        if vector_E is None:
            return found_KT
        if self._near is not None:
            found_KT[3] = self._best(self._near(vector_E))
        if self._meaning is not None:
            found_KT[4] = self._meaning(vector_E)
        if self.dense_ET is not None:
            logits_T = DENSE_SCALE * vector_E @ self.dense_ET[:-1] + self.dense_ET[-1]
            found_KT[5] = log_softmax(logits_T.astype(np.float64))
        return found_KT

    @cached_property
    def _near(self) -> Callable[[Floats], Floats] | None:
        return None if self.asked_QE is None or not len(self.asked_QE) else products_with(self.asked_QE)

    @cached_property
    def _meaning(self) -> Callable[[Floats], Floats] | None:
        return None if self.answers_TE is None else products_with(self.answers_TE)

    def _best(self, scores_Q: Floats) -> Floats:
        """Return the best score among the questions of each topic; 0 for topics without questions."""
        best_T = np.full(self.topics, -np.inf, dtype=np.float32)
        np.maximum.at(best_T, self.topic_P, scores_Q[self.question_P])
        return np.where(np.isfinite(best_T), best_T, np.float32(0.0))

    @cached_property
    def _of_topic(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place, topic in zip(self.question_P.tolist(), self.topic_P.tolist(), strict=True):
            found.setdefault(topic, []).append(place)
        return found

    def nearest(self, question: str, topics: Sequence[int]) -> list[str | None]:
        """Return the text of each topic that is nearest to a question, other than the question itself."""
        scores_Q = np.zeros(len(self.texts)) if self.questions is None else self.questions.scores(question)
        found: list[str | None] = []
        for topic in topics:
            places = [place for place in self._of_topic.get(topic, ()) if self.texts[place] != question]
            found.append(self.texts[max(places, key=lambda place: scores_Q[place])] if places else None)
        return found


def products_with(vectors_NE: Floats) -> Callable[[Floats], Floats]:
    """Return a function from a vector to its dot products with all rows. Many rows are stored in 8 bits for it, which
    changes the products of unit vectors by about 0.002 at most: the time is that of reading the rows from memory."""
    if len(vectors_NE) < MANY_ROWS or not library.available():
        return lambda vector_E: vectors_NE @ vector_E
    product = Product(torch.from_numpy(vectors_NE), None, eight_bits=True)
    return lambda vector_E: product(torch.from_numpy(vector_E)[None])[0].numpy()


def topic_texts(knowledge: Knowledge, rows: Sequence[int]) -> tuple[list[str], list[tuple[int, ...]], list[int]]:
    """Return those of the given questions that have a topic, their topics, and the topics that have an answer but none
    of these questions."""
    asked = [knowledge.asked[row] for row in rows if knowledge.asked[row].topics]
    golds = [one.topics for one in asked]
    taken = {one for gold in golds for one in gold}
    without = [n for n, topic in enumerate(knowledge.topics) if topic.answer and n not in taken]
    return [one.text for one in asked], golds, without


def fit_parts(
    knowledge: Knowledge, rows: Sequence[int], vectors: Vectors | None, *, like: Parts | None = None
) -> Parts:
    """Fit the parts to those of the given questions that have a topic. The answer of a topic without questions
    stands in for a question in full-text search and embeddings: otherwise topics with questions would always rank ahead
    of it. `like` are parts fitted to the same questions with other embeddings; all but their embeddings are reused."""
    kept = np.array([row for row in rows if knowledge.asked[row].topics], dtype=np.int64)
    topics = len(knowledge.topics)
    texts, golds, without = topic_texts(knowledge, rows)
    answers = [topic.answer or "" for topic in knowledge.topics]
    pairs = [(place, topic) for place, gold in enumerate(golds) for topic in gold]
    pairs += [(len(texts) + place, topic) for place, topic in enumerate(without)]
    learn = 1 < topics <= MOST_TOPICS and len(texts) >= LEAST_ASKED * topics
    asked_QE, dense_ET = None, None
    if vectors is not None:
        asked_QE = vectors.asked_QE[kept]
        if learn:
            dense_ET = fit_dense(DENSE_SCALE * asked_QE, golds, topics=topics, inverse_penalty=DENSE_PENALTY)
        asked_QE = np.concatenate([asked_QE, vectors.answers_TE[without]])
    if like is not None:
        meanings_TE = None if like.answers_TE is None or vectors is None else vectors.answers_TE
        return replace(like, asked_QE=asked_QE, answers_TE=meanings_TE, dense_ET=dense_ET)
    questions = [*texts, *(answers[topic] for topic in without)]
    return Parts(
        topics=topics,
        question_P=np.array([place for place, _ in pairs], dtype=np.int64),
        topic_P=np.array([topic for _, topic in pairs], dtype=np.int64),
        texts=tuple(questions),
        questions=build_index(questions) if questions else None,
        answers=build_index(answers) if any(answers) else None,
        linear=fit_linear(texts, golds, topics=topics) if learn else None,
        asked_QE=asked_QE,
        answers_TE=None if vectors is None or not any(answers) else vectors.answers_TE,
        dense_ET=dense_ET,
    )
