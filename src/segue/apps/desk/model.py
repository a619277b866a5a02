"""A desk's model: asked a question, it says which topics answer it, how sure that is, and whether to answer at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from segue.apps.desk.confidence import probability, signals
from segue.apps.desk.knowledge import Knowledge, Topic
from segue.apps.desk.learn import Fitted
from segue.apps.desk.matcher import Matcher
from segue.apps.desk.network import Network
from segue.apps.desk.pairs import PairReader
from segue.apps.desk.parts import Parts
from segue.apps.desk.ranker import Ranked, rank
from segue.apps.desk.second import scores_of
from segue.apps.desk.slots import SLOT, Slots, filled, slots_in, told_value
from segue.apps.desk.terms import words_of
from segue.apps.encoder import Encoder
from segue.text.unicode import is_chinese, is_unspaced

Reason = Literal["low_confidence", "out_of_scope", "no_answer"]
"""Why the desk does not answer."""
SUGGESTED = 3
"""Topics that "did you mean" offers."""
SHORT = 16
"""Length of a question that may go on with the one before it: a word counts 4, a Chinese character 2."""
ELLIPTIC = 10
"""The same, of one that alone is outside what the desk knows."""
NARROW = 0.5
"""Part of the probability of being inside that is asked for, from which a question that the desk is sure of is not
handed over as outside, but asked about: "did you mean"."""
LIKELY = 0.05
"""Probability from which a topic is worth offering."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A topic that may answer a question."""

    topic: Topic
    probability: float
    """Its share among all topics, by what the parts say; not how sure the answer is: that is the confidence."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the model found for a question."""

    candidates: tuple[Candidate, ...]
    """The best topics, at most five."""
    confidence: float
    """Probability that the first is right: how often that was so for questions like it that were held back."""
    inside: float
    """Probability that the question is one for this desk."""
    reason: Reason | None
    """Why not to answer; None where the first candidate is the answer."""
    with_before: bool
    """Whether the question was read together with the one before it."""
    needs: Mapping[str, float]
    """The confidence, and the probability of being inside, from which the desk answers."""
    slots: Slots
    """What the answer leaves open, as far as the question fills it."""

    @property
    def answer(self) -> str | None:
        """The answer; None where a person should answer, and where a slot of it is still open."""
        text = self.candidates[0].topic.answer
        return (
            None if self.reason is not None or self.slots.missing or text is None else filled(text, self.slots.values)
        )

    def told(self, message: str) -> "Finding":
        """The same with the first open slot filled by what the visitor says next; unchanged, if that is no value."""
        name, *missing = self.slots.missing
        value = told_value(message, name)
        if value is None:
            return self
        return replace(self, slots=Slots(values={**self.slots.values, name: value}, missing=tuple(missing)))

    @property
    def suggestions(self) -> tuple[Candidate, ...]:
        """Topics for "did you mean", where the model is not sure."""
        if self.reason != "low_confidence":
            return ()
        return tuple(one for one in self.candidates[:SUGGESTED] if one.probability >= LIKELY and one.topic.answer)


def is_follow_up(question: str, *, longest: int = SHORT) -> bool:
    """Whether a question is so short that it may need the one before it.

    >>> is_follow_up("and abroad?"), is_follow_up("那国外呢？"), is_follow_up("can penguins fly over the moon")
    (True, True, False)
    """
    words = words_of(question)
    return sum(2 * len(word) if is_unspaced(word[0]) else 4 for word in words) <= longest


def _parts_of(text: str) -> list[str]:
    """Words, and single characters of scripts without spaces."""
    return [part for word in words_of(text) for part in (word if is_unspaced(word[0]) else (word,))]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The topics of a question in order, by their numbers."""

    ranked: Ranked
    confidence: float
    inside: float


@dataclass(frozen=True, kw_only=True)
class DeskModel:
    """Answers questions."""

    knowledge: Knowledge
    parts: Parts
    encoder: Encoder | None
    matcher: Matcher | None
    network: Network | None
    pairs: PairReader | None
    fitted: Fitted

    @cached_property
    def _places(self) -> dict[Topic, int]:
        return {topic: place for place, topic in reversed(list(enumerate(self.knowledge.topics)))}

    @cached_property
    def _questions_by_topic(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for one in self.knowledge.asked:
            for topic in one.topics:
                found.setdefault(topic, []).append(one.text)
        return found

    def named(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._names.get(name)

    @cached_property
    def _names(self) -> dict[str, Topic]:
        return {topic.name: topic for topic in reversed(self.knowledge.topics)}

    def has_question(self, text: str) -> bool:
        """Return True if a text is a known question of a topic, apart from case and punctuation."""
        return tuple(words_of(text)) in self._known_questions

    @cached_property
    def _known_questions(self) -> set[tuple[str, ...]]:
        return {tuple(words_of(one.text)) for one in self.knowledge.asked if one.topics}

    def ask(self, question: str, *, before: Sequence[str] = ()) -> Finding:
        """What is found for a question. `before` are the questions of the same conversation, the latest last: where the
        question alone has no answer ("and abroad?"), it is read together with the one before it."""
        alone = self._find(question, with_before=False)
        if alone.reason == "low_confidence" or (alone.reason == "out_of_scope" and alone.inside >= 0.5):
            alone = self._without_value(question, alone)
        if alone.reason in (None, "no_answer") or not before:
            return alone
        if not is_follow_up(question, longest=ELLIPTIC if alone.reason == "out_of_scope" else SHORT):
            return alone
        together = self._find(f"{before[-1]} {question}", with_before=True)
        if together.reason is not None:
            return alone
        fits = is_follow_up(question, longest=ELLIPTIC) and self._is_about(together.candidates[0].topic, question)
        return together if fits or self._raised(together, before[-1]) else alone

    def _is_about(self, topic: Topic, question: str) -> bool:
        """Whether at least half of the words of a question, or of its characters, are used in others about a topic."""
        known = {part for text in self._questions_by_topic.get(self._places[topic], ()) for part in _parts_of(text)}
        parts = _parts_of(question)
        return bool(parts) and 2 * sum(part in known for part in parts) >= len(parts)

    def _raised(self, together: Finding, before: str) -> bool:
        """Whether the new words make a topic likelier than the old question alone did: otherwise its answer would be
        given on the strength of what was answered already."""
        (old,) = self.judge([before])
        place = self._places[together.candidates[0].topic]
        log = dict(zip(old.ranked.topics.tolist(), old.ranked.log_probabilities.tolist(), strict=True)).get(place)
        likelier = log is None or together.candidates[0].probability > float(np.exp(log))
        return likelier and (place != int(old.ranked.topics[0]) or together.inside >= old.inside)

    def _without_value(self, question: str, alone: Finding) -> Finding:
        """A question that lacks the value of a slot, "where is my order", is judged as if it had one: then the desk can
        ask for it."""
        topic = alone.candidates[0].topic
        missing = self.slots(topic, question).missing
        if not missing:
            return alone
        valued = self._find(f"{question} {{{missing[0]}}}", with_before=False)
        if valued.reason is not None or valued.candidates[0].topic != topic:
            return alone
        if not self._raised(valued, f"{{{missing[0]}}}"):  # a value alone would have said as much
            return alone
        return replace(valued, slots=self.slots(topic, question))

    def slots(self, topic: Topic, question: str) -> Slots:
        """What the answer of a topic leaves open, as far as a question fills it."""
        if topic.answer is None or not SLOT.search(topic.answer):
            return Slots(values={}, missing=())
        templates = [text for text in self._questions_by_topic.get(self._places[topic], ()) if "{" in text]
        return slots_in(topic.answer, templates, question)

    def sample(self, topic: Topic, like: str) -> str:
        """A question about a topic, in the script of another text; its name where none is known."""
        known = [SLOT.sub("…", text) for text in self._questions_by_topic.get(self._places[topic], ())]
        return next((one for one in known if is_chinese(one) == is_chinese(like)), known[0] if known else topic.name)

    def judge(self, questions: Sequence[str]) -> list[Judged]:
        """The order of the topics for each question, and how sure it is."""
        found = []
        base_K = self.fitted.base_K
        for scored in scores_of(self.parts, questions, self.encoder, self.matcher, self.network, self.pairs, base_K):
            ranked = rank(scored, self.fitted.weights_K)
            base = ranked if self.network is None and self.pairs is None else rank(scored, base_K)
            confidence = float(probability(signals(ranked), self.fitted.right_S))
            inside = float(probability(signals(base), self.fitted.inside_S))
            found.append(Judged(ranked=ranked, confidence=confidence, inside=inside))
        return found

    def _find(self, question: str, *, with_before: bool) -> Finding:
        (judged,) = self.judge([question])
        ranked = judged.ranked
        found = tuple(
            Candidate(topic=self.knowledge.topics[topic], probability=float(np.exp(log)))
            for topic, log in zip(ranked.topics[:5].tolist(), ranked.log_probabilities[:5].tolist(), strict=True)
        )
        reason: Reason | None = None
        if judged.inside < self.fitted.outside:
            narrow = judged.confidence >= self.fitted.threshold and judged.inside >= NARROW * self.fitted.outside
            reason = "low_confidence" if narrow else "out_of_scope"
        elif judged.confidence < self.fitted.threshold:
            reason = "low_confidence"
        elif found[0].topic.answer is None:
            reason = "no_answer"
        return Finding(
            needs={"confidence": self.fitted.threshold, "inside": self.fitted.outside},
            slots=self.slots(found[0].topic, question),
            candidates=found,
            confidence=judged.confidence,
            inside=judged.inside,
            reason=reason,
            with_before=with_before,
        )
