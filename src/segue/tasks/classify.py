"""Classification of a text or a text pair, with one label or several."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.data.tables import Row
from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric
from segue.evaluation.metrics.classification import classification, multilabel
from segue.model.heads import SequenceClassifier
from segue.tasks.labels import check_missing, in_order, index_of, label_text, looks_missing, shares
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError

TEXT = ("text", "text_a", "sentence", "review", "content", "document", "body", "title", "premise")
FIRST = ("text_a", "sentence1", "premise", "question1", "question", "text", "first", "a")
SECOND = ("text_b", "sentence2", "hypothesis", "question2", "answer", "second", "b")
LABEL = ("label", "labels", "class", "category", "sentiment", "target", "tag", "gold")


class ClassifySettings(Section):
    """Settings of `classify` and `pair`."""

    multiple: bool = False
    """Whether a text may have several labels or none: a JSON list, or text split at `separator`."""
    separator: str = "|"
    """Separator between the labels of a text."""
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """With `multiple`: minimum probability of a predicted label."""
    missing: Literal["leave_out", "class"] | None = None
    """Treatment of labels such as NaN, null and None: missing, so that their rows are skipped, or a class. Default: an
    error, if there are any. Empty cells, JSON null and Parquet NaN are always missing."""


@dataclass(frozen=True, kw_only=True)
class Classify:
    """The tasks `classify` and `pair`."""

    roles: tuple[str, ...]
    """Roles of the text columns."""
    labels: tuple[str, ...]
    settings: ClassifySettings

    def to_values(self) -> dict[str, Any]:
        return {
            "roles": list(self.roles),
            "labels": list(self.labels),
            "settings": self.settings.model_dump(exclude_none=True),
        }

    def describe(self, examples: Sequence[Example]) -> list[str]:
        if self.settings.multiple:
            return shares([n for example in examples for n in example.gold], self.labels)
        return shares([example.gold for example in examples], self.labels)

    @property
    def metric(self) -> str:
        return "micro_f1" if self.settings.multiple else "accuracy"

    def head(self, read: ReadConfig, summary: str) -> HeadConfig:
        return HeadConfig(
            kind="sequence_classifier",
            num_labels=len(self.labels),
            labels=self.labels,
            task="multiple" if self.settings.multiple else "single",
            summary=summary,  # type: ignore[arg-type]
            pool=read.pool or "last",
        )

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        texts = tuple(text_of(row[role]) for role in self.roles)
        if not labelled:
            return Example(number=number, texts=texts)
        found = [index_of(label, self.labels) for label in _labels_of(row["label"], self.settings)]
        return Example(number=number, texts=texts, gold=tuple(found) if self.settings.multiple else found[0])

    def items(self, example: Example, layout: Layout) -> list[Item]:
        return [Item(documents=(layout.arrange(*example.texts).document,), gold=example.gold)]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        logits_BC = self._logits(model, items, reader)
        assert isinstance(model, SequenceClassifier)
        return model.cost(logits_BC, self._golds([item.gold for item in items]), weight_C=class_weights)

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        if self.settings.multiple:  # weight of a positive label: the ratio of texts without it to those with it
            given = self._golds([example.gold for example in examples]).sum(dim=0)
            return (len(examples) - given) / given.clamp(min=1)
        counts = Counter(example.gold for example in examples)
        inverse = torch.tensor([1 / max(1, counts[n]) for n in range(len(self.labels))])
        return inverse * len(examples) / (inverse * torch.tensor([counts[n] for n in range(len(self.labels))])).sum()

    def chance(self, examples: Sequence[Example]) -> float | None:
        if self.settings.multiple:
            rate = self._golds([example.gold for example in examples]).mean(dim=0).double().numpy()
            return float(-np.mean(_xlogx(rate) + _xlogx(1 - rate)))
        counts = np.array(list(Counter(example.gold for example in examples).values()), dtype=np.float64)
        return float(-_xlogx(counts / counts.sum()).sum())

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        logits_BC = self._logits(model, items, reader).float()
        probability_BC = logits_BC.sigmoid() if self.settings.multiple else logits_BC.softmax(dim=-1)
        return list(probability_BC.cpu().numpy())

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        probabilities = parts[0]
        columns: dict[str, Any]
        if self.settings.multiple:
            given = [n for n in range(len(self.labels)) if probabilities[n] >= self.settings.threshold]
            columns = {"prediction": self.settings.separator.join(self.labels[n] for n in given)}
            confidence = None
        else:
            best = int(probabilities.argmax())
            columns = {"prediction": self.labels[best], "probability": round(float(probabilities[best]), 6)}
            confidence = float(probabilities[best])
        columns |= {f"probability of {label}": round(float(probabilities[n]), 6) for n, label in enumerate(self.labels)}
        return Prediction(value=probabilities, columns=columns, confidence=confidence)

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        probabilities = np.stack([prediction.value for prediction in predictions])
        golds = [example.gold for example in examples]
        if self.settings.multiple:
            return multilabel(
                self._golds(golds).long().numpy(), probabilities, threshold=self.settings.threshold, resamples=resamples
            )
        return classification(golds, probabilities, num_labels=len(self.labels), resamples=resamples)

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        probabilities = prediction.value
        if not self.settings.multiple:
            best = int(probabilities.argmax())
            wrong = best != example.gold
            return Comparison(
                gold=self.labels[example.gold],
                predicted=self.labels[best],
                badness=float(probabilities[best]) if wrong else 0.0,
            )
        given = {n for n in range(len(self.labels)) if probabilities[n] >= self.settings.threshold}
        gold = set(example.gold)
        sure = [float(probabilities[n] if n in given else 1 - probabilities[n]) for n in given ^ gold]
        shown = [", ".join(self.labels[n] for n in sorted(some)) or "(none)" for some in (gold, given)]
        return Comparison(gold=shown[0], predicted=shown[1], badness=max(sure, default=0.0))

    def _logits(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> Tensor:
        assert isinstance(model, SequenceClassifier)
        return model.logits(reader.whole(model.trunk, [item.documents[0] for item in items]))

    def _golds(self, golds: Sequence[Any]) -> Tensor:
        if not self.settings.multiple:
            return torch.tensor(golds)
        given_BC = torch.zeros(len(golds), len(self.labels))
        for row, gold in enumerate(golds):
            given_BC[row, list(gold)] = 1.0
        return given_BC


def learn(roles: tuple[str, ...], rows: Sequence[tuple[int, Row]], settings: ClassifySettings) -> Classify:
    """Create the task with the labels of the training rows."""
    found: list[tuple[int, str]] = []
    for number, row in rows:
        with suppress(UnusableRowError):  # counted when the row becomes an example
            found += [(number, label) for label in _labels_of(row["label"], settings)]
    if settings.missing is None:
        check_missing(found)
    return Classify(roles=roles, labels=in_order([label for _, label in found]), settings=settings)


def restore(values: Mapping[str, Any]) -> Classify:
    """Restore the task from saved values."""
    return Classify(
        roles=tuple(values["roles"]),
        labels=tuple(values["labels"]),
        settings=ClassifySettings.model_validate(values["settings"]),
    )


_LABEL = Column(role="label", names=LABEL, answer=True)
CLASSIFY = TaskKind(
    name="classify",
    help="Classify a text: topics, sentiment. With task.multiple=true, several labels per text.",
    columns=(Column(role="text", names=TEXT), _LABEL),
    settings=ClassifySettings,
    learn=partial(learn, ("text",)),
    restore=restore,
)
PAIR = TaskKind(
    name="pair",
    help="Classify a pair of texts: inference, paraphrase, question and answer.",
    columns=(Column(role="first", names=FIRST), Column(role="second", names=SECOND), _LABEL),
    settings=ClassifySettings,
    learn=partial(learn, ("first", "second")),
    restore=restore,
)


def text_of(value: Any) -> str:
    """Return a text of a row; raise UnusableRowError if it is empty."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    if not text.strip():
        raise UnusableRowError("an empty text")
    return text


def _labels_of(value: Any, settings: ClassifySettings) -> list[str]:
    if not settings.multiple:
        if isinstance(value, list | tuple):
            raise DataError(
                f"each text must have one label; got a list, {value!r}. Set task.multiple=true for several labels."
            )
        return _not_missing([label_text(value)], settings)
    if isinstance(value, float):
        label_text(value)  # raises UnusableRowError for NaN
    values = value if isinstance(value, list | tuple) else str(value or "").split(settings.separator)
    return _not_missing(sorted({label_text(part) for part in values if str(part).strip()}), settings)


def _not_missing(labels: list[str], settings: ClassifySettings) -> list[str]:
    if settings.missing == "leave_out" and any(map(looks_missing, labels)):
        raise UnusableRowError("a missing label")
    return labels


def _xlogx(share: Any) -> Any:
    return np.where(share > 0, share * np.log(np.maximum(share, 1e-300)), 0.0)
