"""The model of a monitor: topic, entities, sentiment of a text and towards each entity, and the deciding words."""

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
from segue.arguments import checks_arguments
from segue.errors import ConfigError

MOST_ENTITIES = 20
"""Maximum number of entities per text."""
_HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNIT = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+|[^\w\s]|_")


@dataclass(frozen=True, kw_only=True)
class Sentiment:
    """Calibrated probabilities of the sentiments."""

    negative: float
    neutral: float
    positive: float

    @property
    def label(self) -> str:
        """The most probable sentiment."""
        return SENTIMENTS[int(np.argmax((self.negative, self.neutral, self.positive)))]

    @property
    def score(self) -> float:
        """Sentiment from -1 (certainly negative) to 1 (certainly positive)."""
        return self.positive - self.negative


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Predictions for a text."""

    topic: str
    """Most probable topic; empty if the model has no topics."""
    topic_probability: float
    sentiment: Sentiment
    entities: dict[str, Sentiment]
    """Sentiment towards each entity by code, in the order of first mention."""


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """A span of a text, and its contribution to the score of a sentiment relative to the others."""

    start: int
    end: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class MonitorModel:
    """A model that predicts sentiment, topic and entities of texts."""

    linear: Linear
    topics: tuple[str, ...]
    sentiment: Calibration
    topic: Calibration | None
    entities: Entities
    entity: Calibration | None = None
    """Calibration of the weights for single entities; None if there are none, and the clauses about an entity are then
    classified like texts."""
    joined: Joined | None = None
    """The network that is combined with the linear model for sentiment; None if there is none."""

    @checks_arguments
    def read(self, text: str) -> Reading:
        """Return the predictions for a text of any length."""
        return self.read_all([text])[0]

    @checks_arguments
    def read_all(self, texts: Sequence[str]) -> list[Reading]:
        """Return the predictions for several texts, which a network reads in batches."""
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
        """Return the clauses about each entity by code; the whole text if it names one entity. Names are replaced by
        markers if the model was trained on labels of single entities."""
        mentions = self.entities.mentions(text) if self.entities.all else []
        spans = list(around(text, mentions).items())[:MOST_ENTITIES]
        marked = self.entity is not None
        return {code: said_of(text, some, entity=code, mentions=mentions, marked=marked) for code, some in spans}

    def _towards(self, parts: Sequence[str], calibration: Calibration) -> dict[str, Sentiment]:
        """Return the sentiment by part of a text, from the weights for single entities."""
        if not parts:
            return {}
        scores_NC = np.stack([self.linear.scores(part)[-len(SENTIMENTS) :] for part in parts])
        found_NC = calibration.probabilities(scores_NC)
        return {part: _sentiment(row_C) for part, row_C in zip(parts, found_NC, strict=True)}

    def _sentiments(self, scores: Mapping[str, NDArray[np.float32]]) -> dict[str, Sentiment]:
        """Return the sentiment by text, from the scores of the linear model and of the network if there is one."""
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

    @checks_arguments
    def deciding(self, text: str, *, label: str | None = None, entity: str | None = None) -> list[Deciding]:
        """Return words, or single characters in Chinese, with their contributions to the predicted sentiment, or to
        `label`, in the linear model. The sum of all, of the biases and of `by_network` is the difference between its
        score and the mean of the others. With `entity`, the same for the sentiment towards the entity with this code;
        words outside of the clauses about it contribute nothing."""
        said = self._part(text, entity)
        worth = np.zeros(len(text) + 1)
        for start, end, value in self.linear.contributions(said.text, self._weights(said.text, label, entity)):
            places = [place for place in range(start, end) if not said.text[place].isspace()]
            for place in places:
                first, last = said.places[place]
                worth[first:last] += value / len(places) / (last - first)
        found = [(unit.start(), unit.end()) for unit in _UNIT.finditer(text)]
        return [Deciding(start=start, end=end, weight=float(worth[start:end].sum())) for start, end in found]

    @checks_arguments
    def by_network(self, text: str, *, label: str | None = None, entity: str | None = None) -> float | None:
        """Return the contribution of the network, which reads the text, or the clauses about an entity, as a whole, to
        the predicted sentiment, or to `label`; None if no network reads it."""
        part = self._part(text, entity).text
        joined = None if entity is not None and self.entity is not None else self._joined(part)
        if joined is None:
            return None
        added_C = joined.mixture.network * joined.network.scores([part])[0]
        return float(added_C @ self._direction(part, label))

    def _part(self, text: str, entity: str | None) -> Said:
        """Return the clauses about an entity, or the text; raise ConfigError if the text does not name the entity."""
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
        """Return the weight of the score of each class in the contributions, for an entity or a text."""
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
        """Return the network if it reads a text."""
        return self.joined if self.joined is not None and self.joined.network.reads(text) else None

    def _direction(self, text: str, label: str | None) -> NDArray[np.float32]:
        """Return the difference of one sentiment to the mean of the others."""
        chosen = label or self._sentiments({text: self.linear.scores(text)})[text].label
        return _against(chosen, self.linear.bias_C[: len(SENTIMENTS)])


def _against(label: str, bias_C: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the difference of one sentiment to the mean of the others that occur, as weights of the scores."""
    if label not in SENTIMENTS:
        raise ConfigError(f"label must be one of {', '.join(SENTIMENTS)}; got {label[:40]!r}. Use one of them.")
    chosen = SENTIMENTS.index(label)
    present = [place for place in range(len(SENTIMENTS)) if bias_C[place] > NEVER / 2]
    direction_C = np.zeros(len(SENTIMENTS), dtype=np.float32)
    for place in present:
        direction_C[place] = 1.0 if place == chosen else -1.0 / max(1, len(present) - 1)
    return direction_C


def _sentiment(probabilities_C: NDArray[np.float64]) -> Sentiment:
    negative, neutral, positive = probabilities_C.tolist()
    return Sentiment(negative=negative, neutral=neutral, positive=positive)
