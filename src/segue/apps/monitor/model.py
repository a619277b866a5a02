"""The model of a monitor: topic, entities, sentiment of the text and of each entity in it; the words that decided."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.calibrate import Calibration
from segue.apps.monitor.entities import Entities, Mention
from segue.apps.monitor.joining import Joined
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
    joined: Joined | None = None
    """A network that tells sentiment with the linear model; None where there is none."""

    def read(self, text: str) -> Reading:
        """All that the model says of a text, however long it is."""
        return self.read_all([text])[0]

    def read_all(self, texts: Sequence[str]) -> list[Reading]:
        """The same of several texts, which a network reads together."""
        said = [self._said(text) for text in texts]
        wanted = dict.fromkeys([*texts, *(part for one in said for part in one.values())])
        scores = {text: self.linear.scores(text) for text in wanted}
        sentiments = self._sentiments(scores)
        found = []
        for text, parts in zip(texts, said, strict=True):
            topic, sure = "", 0.0
            if self.topic is not None:
                found_T = self.topic.probabilities(scores[text][None, len(SENTIMENTS) :])[0]
                topic, sure = self.topics[int(found_T.argmax())], float(found_T.max())
            found.append(
                Reading(
                    topic=topic,
                    topic_probability=sure,
                    sentiment=sentiments[text],
                    entities={code: sentiments[part] for code, part in parts.items()},
                )
            )
        return found

    def _said(self, text: str) -> dict[str, str]:
        """By code, what is said of each entity: where there is one alone, all."""
        mentions = self.entities.mentions(text) if self.entities.all else []
        codes = list(dict.fromkeys(one.entity for one in mentions))[:MOST_ENTITIES]
        if len(codes) < 2:
            return dict.fromkeys(codes, text)
        said = around(text, mentions)
        return {code: text if said[code] == text.strip() else said[code] for code in codes}

    def _sentiments(self, scores: Mapping[str, NDArray[np.float32]]) -> dict[str, Sentiment]:
        """By text, from the scores of the linear model, joined by the network if there is one."""
        found: dict[str, Sentiment] = {}
        read = [] if self.joined is None else [text for text in scores if self.joined.network.reads(text)]
        if self.joined is not None and read:
            linear_NC = np.stack([scores[text][: len(SENTIMENTS)] for text in read])
            both_NC = self.joined.mixture.probabilities(linear_NC, self.joined.network.scores(read))
            found = {text: _sentiment(row_C) for text, row_C in zip(read, both_NC, strict=True)}
        for text, scores_C in scores.items():
            if text not in found:
                found[text] = _sentiment(self.sentiment.probabilities(scores_C[None, : len(SENTIMENTS)])[0])
        return found

    def deciding(self, text: str, *, label: str | None = None) -> list[Deciding]:
        """Words, or single characters in Chinese, with what each adds to the sentiment that the text has, or to another
        one, in the linear model. Their sum, that of the biases, and what `by_network` gives are the difference of its
        score to the mean of the others'."""
        direction_C = np.zeros(len(self.linear.bias_C), dtype=np.float32)
        direction_C[: len(SENTIMENTS)] = self._direction(text, label)
        joined = self._joined(text)
        scale = self.sentiment.scale if joined is None else joined.mixture.linear
        worth = np.zeros(len(text) + 1)
        for start, end, value in self.linear.contributions(text, direction_C * np.float32(scale)):
            places = [place for place in range(start, end) if not text[place].isspace()]
            worth[places] += value / max(1, len(places))
        found = [(unit.start(), unit.end()) for unit in _UNIT.finditer(text)]
        return [Deciding(start=start, end=end, weight=float(worth[start:end].sum())) for start, end in found]

    def by_network(self, text: str, *, label: str | None = None) -> float | None:
        """What the network, which reads the text as a whole, adds to the sentiment that it has, or to another one; None
        where no network reads it."""
        joined = self._joined(text)
        if joined is None:
            return None
        added_C = joined.mixture.network * joined.network.scores([text])[0]
        return float(added_C @ self._direction(text, label))

    def _joined(self, text: str) -> Joined | None:
        """The network, where it reads a text."""
        return self.joined if self.joined is not None and self.joined.network.reads(text) else None

    def _direction(self, text: str, label: str | None) -> NDArray[np.float32]:
        """From the mean of the other sentiments to one."""
        chosen = SENTIMENTS.index(label or self._sentiments({text: self.linear.scores(text)})[text].label)
        present = [place for place in range(len(SENTIMENTS)) if self.linear.bias_C[place] > NEVER / 2]
        direction_C = np.zeros(len(SENTIMENTS), dtype=np.float32)
        for place in present:
            direction_C[place] = 1.0 if place == chosen else -1.0 / max(1, len(present) - 1)
        return direction_C


def _sentiment(probabilities_C: NDArray[np.float64]) -> Sentiment:
    negative, neutral, positive = probabilities_C.tolist()
    return Sentiment(negative=negative, neutral=neutral, positive=positive)


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
