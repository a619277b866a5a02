"""The model of a monitor: topic, entities, sentiment of the text and of each entity in it; the words that decided."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.calibrate import Calibration
from segue.apps.monitor.entities import Entities, Mention
from segue.apps.monitor.labelled import SENTIMENTS
from segue.apps.monitor.learn import NEVER
from segue.apps.monitor.linear import Linear

MOST_ENTITIES = 20
"""Entities of one text whose sentiment is told."""
_SENTENCE = re.compile(r"[。！？!?；;\n]+|\.(?=\s|$)")
_CLAUSE = re.compile(r"[，,：:、]|\b(?:but|while|whereas|although|however)\b|但是?|而|然而")
_HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNIT = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+|[^\w\s]|_")


@dataclass(frozen=True, kw_only=True)
class Sentiment:
    """Calibrated probabilities."""

    negative: float
    neutral: float
    positive: float

    @property
    def label(self) -> str:
        """The most probable one."""
        return SENTIMENTS[int(np.argmax((self.negative, self.neutral, self.positive)))]

    @property
    def score(self) -> float:
        """From -1, negative for sure, to 1, positive for sure."""
        return self.positive - self.negative


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a text says."""

    topic: str
    """Empty where the model knows no topics."""
    topic_probability: float
    sentiment: Sentiment
    entities: dict[str, Sentiment]
    """By code, in the order of their first mention."""


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """A place of a text, and what it adds to the score of the sentiment that was told, against the others."""

    start: int
    end: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class MonitorModel:
    """Reads texts."""

    linear: Linear
    topics: tuple[str, ...]
    sentiment: Calibration
    topic: Calibration | None
    entities: Entities

    def read(self, text: str) -> Reading:
        """All that the model says of a text, however long it is."""
        scores_C = self.linear.scores(text)
        sentiment = self._sentiment(scores_C)
        topic, sure = "", 0.0
        if self.topic is not None:
            found_T = self.topic.probabilities(scores_C[None, len(SENTIMENTS) :])[0]
            topic, sure = self.topics[int(found_T.argmax())], float(found_T.max())
        mentions = self.entities.mentions(text) if self.entities.all else []
        return Reading(
            topic=topic,
            topic_probability=sure,
            sentiment=sentiment,
            entities=self._of_entities(text, mentions, sentiment),
        )

    def _sentiment(self, scores_C: NDArray[np.float32]) -> Sentiment:
        negative, neutral, positive = self.sentiment.probabilities(scores_C[None, : len(SENTIMENTS)])[0].tolist()
        return Sentiment(negative=negative, neutral=neutral, positive=positive)

    def _of_entities(self, text: str, mentions: Sequence[Mention], whole: Sentiment) -> dict[str, Sentiment]:
        codes = list(dict.fromkeys(one.entity for one in mentions))[:MOST_ENTITIES]
        if len(codes) < 2:
            return dict.fromkeys(codes, whole)
        said = around(text, mentions)
        read: dict[str, Sentiment] = {}
        for code in codes:
            part = said[code]
            if part not in read:
                read[part] = whole if part == text.strip() else self._sentiment(self.linear.scores(part))
        return {code: read[said[code]] for code in codes}

    def deciding(self, text: str, *, label: str | None = None) -> list[Deciding]:
        """Words, or single characters in Chinese, with what each adds to the sentiment that the text has, or to another
        one. Their sum and that of the biases is the difference of its score to the mean of the others'."""
        scores_C = self.linear.scores(text)
        chosen = SENTIMENTS.index(label or self._sentiment(scores_C).label)
        present = [place for place in range(len(SENTIMENTS)) if self.linear.bias_C[place] > NEVER / 2]
        direction_C = np.zeros(len(self.linear.bias_C), dtype=np.float32)
        for place in present:
            direction_C[place] = 1.0 if place == chosen else -1.0 / max(1, len(present) - 1)
        worth = np.zeros(len(text) + 1)
        for start, end, value in self.linear.contributions(text, direction_C * np.float32(self.sentiment.scale)):
            places = [place for place in range(start, end) if not text[place].isspace()]
            worth[places] += value / max(1, len(places))
        found = [(unit.start(), unit.end()) for unit in _UNIT.finditer(text)]
        return [Deciding(start=start, end=end, weight=float(worth[start:end].sum())) for start, end in found]


def around(text: str, mentions: Sequence[Mention]) -> dict[str, str]:
    """What is said of each entity: the clauses that name it, and those after them in the same sentence up to the next
    one that names another."""
    said: dict[str, list[str]] = {one.entity: [] for one in mentions}
    for start, end in _pieces(text, 0, len(text), _SENTENCE):
        current: list[str] = []
        for first, last in _pieces(text, start, end, _CLAUSE):
            named = list(dict.fromkeys(one.entity for one in mentions if first <= one.start < last))
            current = named or current
            for code in current:
                said[code].append(text[first:last])
    return {code: "".join(parts).strip() for code, parts in said.items()}


def _pieces(text: str, start: int, end: int, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Places between matches; each match belongs to the piece before it."""
    found = []
    for match in pattern.finditer(text, start, end):
        if match.end() > start:
            found.append((start, match.end()))
            start = match.end()
    if start < end:
        found.append((start, end))
    return found
