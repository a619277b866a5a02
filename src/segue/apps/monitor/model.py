"""The model of a monitor: topic, entities, sentiment of the text and of each entity in it; the words that decided."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.calibrate import Calibration
from segue.apps.monitor.entities import Entities
from segue.apps.monitor.joining import Joined
from segue.apps.monitor.labelled import SENTIMENTS
from segue.apps.monitor.learn import NEVER
from segue.apps.monitor.linear import Linear
from segue.apps.monitor.said import Said, around, said_of
from segue.errors import ConfigError

MOST_ENTITIES = 20
"""Entities of one text whose sentiment is told."""
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
    entity: Calibration | None = None
    """Of the weights for single entities, where rows have labels of them; else what is said of an entity is told as
    texts are."""
    joined: Joined | None = None
    """A network that tells sentiment with the linear model; None where there is none."""

    def read(self, text: str) -> Reading:
        """All that the model says of a text, however long it is."""
        return self.read_all([text])[0]

    def read_all(self, texts: Sequence[str]) -> list[Reading]:
        """The same of several texts, which a network reads together."""
        said = [{code: one.text for code, one in self._said(text).items()} for text in texts]
        parts = dict.fromkeys(part for one in said for part in one.values())
        scores = {text: self.linear.scores(text) for text in dict.fromkeys(texts)}
        if self.entity is None:
            scores |= {part: self.linear.scores(part) for part in parts if part not in scores}
        sentiments = self._sentiments(scores)
        towards = sentiments if self.entity is None else self._towards(list(parts), self.entity)
        found = []
        for text, one in zip(texts, said, strict=True):
            topic, sure = "", 0.0
            if self.topic is not None:
                places = slice(len(SENTIMENTS), len(SENTIMENTS) + len(self.topics))
                found_T = self.topic.probabilities(scores[text][None, places])[0]
                topic, sure = self.topics[int(found_T.argmax())], float(found_T.max())
            found.append(
                Reading(
                    topic=topic,
                    topic_probability=sure,
                    sentiment=sentiments[text],
                    entities={code: towards[part] for code, part in one.items()},
                )
            )
        return found

    def _said(self, text: str) -> dict[str, Said]:
        """By code, what is said of each entity: where there is one alone, all. Names are marks where the model has
        learned from labels of single entities."""
        mentions = self.entities.mentions(text) if self.entities.all else []
        spans = list(around(text, mentions).items())[:MOST_ENTITIES]
        marked = self.entity is not None
        return {code: said_of(text, some, entity=code, mentions=mentions, marked=marked) for code, some in spans}

    def _towards(self, parts: Sequence[str], calibration: Calibration) -> dict[str, Sentiment]:
        """By what is said of an entity, the sentiment towards it, from the weights that were learned for that."""
        if not parts:
            return {}
        scores_NC = np.stack([self.linear.scores(part)[-len(SENTIMENTS) :] for part in parts])
        found_NC = calibration.probabilities(scores_NC)
        return {part: _sentiment(row_C) for part, row_C in zip(parts, found_NC, strict=True)}

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

    def deciding(self, text: str, *, label: str | None = None, entity: str | None = None) -> list[Deciding]:
        """Words, or single characters in Chinese, with what each adds to the sentiment that the text has, or to another
        one, in the linear model. Their sum, that of the biases, and what `by_network` gives are the difference of its
        score to the mean of the others'. With `entity`, the same for what the text says of the entity with this code;
        words that say nothing of it add nothing."""
        said = self._part(text, entity)
        worth = np.zeros(len(text) + 1)
        for start, end, value in self.linear.contributions(said.text, self._weights(said.text, label, entity)):
            places = [place for place in range(start, end) if not said.text[place].isspace()]
            for place in places:
                first, last = said.places[place]
                worth[first:last] += value / len(places) / (last - first)
        found = [(unit.start(), unit.end()) for unit in _UNIT.finditer(text)]
        return [Deciding(start=start, end=end, weight=float(worth[start:end].sum())) for start, end in found]

    def by_network(self, text: str, *, label: str | None = None, entity: str | None = None) -> float | None:
        """What the network, which reads the text, or all that it says of an entity, as a whole, adds to the sentiment
        that it has, or to another one; None where no network reads it."""
        part = self._part(text, entity).text
        joined = None if entity is not None and self.entity is not None else self._joined(part)
        if joined is None:
            return None
        added_C = joined.mixture.network * joined.network.scores([part])[0]
        return float(added_C @ self._direction(part, label))

    def _part(self, text: str, entity: str | None) -> Said:
        """What is said of an entity, or the text."""
        if entity is None:
            return said_of(text, [(0, len(text))])
        said = self._said(text)
        if entity not in said:
            raise ConfigError(
                f"entity must be the code of one that the text names; got {entity[:40]!r}. Use one of "
                f"{', '.join(said) or 'another text'}."
            )
        return said[entity]

    def _weights(self, part: str, label: str | None, entity: str | None) -> NDArray[np.float32]:
        """What the score of each class counts, for all that is said of an entity, or for a text."""
        direction_C = np.zeros(len(self.linear.bias_C), dtype=np.float32)
        if entity is not None and self.entity is not None:
            chosen = label or self._towards([part], self.entity)[part].label
            own = slice(-len(SENTIMENTS), None)
            direction_C[own] = np.float32(self.entity.scale) * _against(chosen, self.linear.bias_C[own])
            return direction_C
        joined = self._joined(part)
        scale = self.sentiment.scale if joined is None else joined.mixture.linear
        direction_C[: len(SENTIMENTS)] = np.float32(scale) * self._direction(part, label)
        return direction_C

    def _joined(self, text: str) -> Joined | None:
        """The network, where it reads a text."""
        return self.joined if self.joined is not None and self.joined.network.reads(text) else None

    def _direction(self, text: str, label: str | None) -> NDArray[np.float32]:
        """From the mean of the other sentiments to one."""
        chosen = label or self._sentiments({text: self.linear.scores(text)})[text].label
        return _against(chosen, self.linear.bias_C[: len(SENTIMENTS)])


def _against(label: str, bias_C: NDArray[np.float32]) -> NDArray[np.float32]:
    """From the mean of the other sentiments that occur to one."""
    chosen = SENTIMENTS.index(label)
    present = [place for place in range(len(SENTIMENTS)) if bias_C[place] > NEVER / 2]
    direction_C = np.zeros(len(SENTIMENTS), dtype=np.float32)
    for place in present:
        direction_C[place] = 1.0 if place == chosen else -1.0 / max(1, len(present) - 1)
    return direction_C


def _sentiment(probabilities_C: NDArray[np.float64]) -> Sentiment:
    negative, neutral, positive = probabilities_C.tolist()
    return Sentiment(negative=negative, neutral=neutral, positive=positive)
