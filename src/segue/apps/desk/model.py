"""The model of a desk: ranked topics for a question, their confidence, and the decision whether to answer."""

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
from segue.arguments import checks_arguments
from segue.text.unicode import is_chinese, is_unspaced

Reason = Literal["low_confidence", "out_of_scope", "no_answer"]
"""Why the desk does not answer."""
SUGGESTED = 3
"""Maximum number of suggestions ("did you mean")."""
SHORT = 16
"""Maximum length of a question that may continue the previous one: a word counts 4, a Chinese character 2."""
ELLIPTIC = 10
"""The same for a question that is out of scope on its own."""
NARROW = 0.5
"""Share of the scope threshold from which a question with sufficient confidence leads to suggestions ("did you mean")
rather than to a hand-over as out of scope."""
LIKELY = 0.05
"""Minimum probability of a suggested topic."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A candidate topic for a question."""

    topic: Topic
    probability: float
    """Softmax of the weighted scores over topics, which orders them; the confidence says how reliable the first is."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a question."""

    candidates: tuple[Candidate, ...]
    """First topics, at most five."""
    confidence: float
    """Probability that the first topic is correct, calibrated on held-out questions."""
    inside: float
    """Probability that the question is in scope."""
    reason: Reason | None
    """Reason for not answering; None if the first topic has the answer."""
    with_before: bool
    """Whether the question was read together with the previous one."""
    needs: Mapping[str, float]
    """Thresholds of `confidence` and `inside`, by these names."""
    slots: Slots
    """Slots of the answer, filled as far as the question gives values."""

    @property
    def answer(self) -> str | None:
        """Answer; None if a person should answer, or a slot has no value yet."""
        text = self.candidates[0].topic.answer
        return (
            None if self.reason is not None or self.slots.missing or text is None else filled(text, self.slots.values)
        )

    def told(self, message: str) -> "Finding":
        """Fill the first open slot from the visitor's next message; return the same result if it has no value."""
        name, *missing = self.slots.missing
        value = told_value(message, name)
        if value is None:
            return self
        return replace(self, slots=Slots(values={**self.slots.values, name: value}, missing=tuple(missing)))

    @property
    def suggestions(self) -> tuple[Candidate, ...]:
        """Topics to suggest ("did you mean"); empty unless the confidence is too low."""
        if self.reason != "low_confidence":
            return ()
        return tuple(one for one in self.candidates[:SUGGESTED] if one.probability >= LIKELY and one.topic.answer)


def is_follow_up(question: str, *, longest: int = SHORT) -> bool:
    """Return True if a question is short enough to continue the previous one.

    >>> is_follow_up("and abroad?"), is_follow_up("那国外呢？"), is_follow_up("can penguins fly over the moon")
    (True, True, False)
    """
    words = words_of(question)
    return sum(2 * len(word) if is_unspaced(word[0]) else 4 for word in words) <= longest


def _parts_of(text: str) -> list[str]:
    """Return the words of a text, with scripts without spaces as single characters."""
    return [part for word in words_of(text) for part in (word if is_unspaced(word[0]) else (word,))]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Ranked topics of a question, by index, with confidence and probability of being in scope."""

    ranked: Ranked
    confidence: float
    inside: float


@dataclass(frozen=True, kw_only=True)
class DeskModel:
    """A trained desk, which answers questions."""

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

    @checks_arguments
    def named(self, name: str) -> Topic | None:
        """Return the topic with this name; None if there is none."""
        return self._names.get(name)

    @cached_property
    def _names(self) -> dict[str, Topic]:
        return {topic.name: topic for topic in reversed(self.knowledge.topics)}

    @checks_arguments
    def has_question(self, text: str) -> bool:
        """Return True if a text is a known question of a topic, apart from case and punctuation."""
        return tuple(words_of(text)) in self._known_questions

    @cached_property
    def _known_questions(self) -> set[tuple[str, ...]]:
        return {tuple(words_of(one.text)) for one in self.knowledge.asked if one.topics}

    @checks_arguments
    def ask(self, question: str, *, before: Sequence[str] = ()) -> Finding:
        """Answer a question. `before` are the earlier questions of the conversation, latest last: a short question that
        has no answer on its own ("and abroad?") is read together with the last of them."""
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
        """Return True if at least half of the words or characters of a question occur in questions of a topic."""
        known = {part for text in self._questions_by_topic.get(self._places[topic], ()) for part in _parts_of(text)}
        parts = _parts_of(question)
        return bool(parts) and 2 * sum(part in known for part in parts) >= len(parts)

    def _raised(self, together: Finding, before: str) -> bool:
        """Return True if the new words make the first topic more likely than the earlier question did alone: otherwise
        the answer would rest on a question that was answered already."""
        (old,) = self.judge([before])
        place = self._places[together.candidates[0].topic]
        log = dict(zip(old.ranked.topics.tolist(), old.ranked.log_probabilities.tolist(), strict=True)).get(place)
        likelier = log is None or together.candidates[0].probability > float(np.exp(log))
        return likelier and (place != int(old.ranked.topics[0]) or together.inside >= old.inside)

    def _without_value(self, question: str, alone: Finding) -> Finding:
        """Judge a question that lacks the value of a slot ("where is my order") as if it had one, so that the desk can
        ask for it. Return `alone` if this does not lead to an answer of the same topic."""
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
        """Return the slots in the answer of a topic, filled as far as a question gives values."""
        if topic.answer is None or not SLOT.search(topic.answer):
            return Slots(values={}, missing=())
        templates = [text for text in self._questions_by_topic.get(self._places[topic], ()) if "{" in text]
        return slots_in(topic.answer, templates, question)

    def sample(self, topic: Topic, like: str) -> str:
        """Return a question of a topic, if possible in the script of another text; its name if it has no questions."""
        known = [SLOT.sub("…", text) for text in self._questions_by_topic.get(self._places[topic], ())]
        return next((one for one in known if is_chinese(one) == is_chinese(like)), known[0] if known else topic.name)

    @checks_arguments
    def judge(self, questions: Sequence[str]) -> list[Judged]:
        """Rank the topics for each question, with confidence and probability of being in scope."""
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
