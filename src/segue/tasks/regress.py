"""Regression: a number for a text or a text pair, such as a rating or a semantic similarity.

The model learns standard scores: numbers minus the mean of the training examples, divided by their standard deviation.
Both are saved with the task, and predictions are converted back to the scale of the table.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.data.tables import Row
from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric
from segue.evaluation.metrics.regression import CONSTANT, regression
from segue.model.heads import SequenceClassifier
from segue.tasks.classify import text_of
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError

TEXT = (
    "text",
    "text_a",
    "sentence1",
    "text1",
    "premise",
    "question1",
    "first",
    "sentence",
    "review",
    "content",
    "body",
)
SECOND = ("text_b", "sentence2", "text2", "hypothesis", "question2", "second")
NUMBER = ("score", "label", "similarity", "rating", "stars", "value", "number", "target", "gold")


class RegressSettings(Section):
    """Settings of `regress`."""

    second: bool = True
    """Whether to read a second text with the first, if the training table has a column for it."""


@dataclass(frozen=True, kw_only=True)
class Regress:
    """The task `regress`."""

    roles: tuple[str, ...]
    """Roles of the text columns."""
    mean: float
    """Mean of the targets of the training examples."""
    scale: float
    """Standard deviation of the targets of the training examples."""
    settings: RegressSettings

    def to_values(self) -> dict[str, Any]:
        return {
            "roles": list(self.roles),
            "mean": self.mean,
            "scale": self.scale,
            "settings": self.settings.model_dump(exclude_none=True),
        }

    def describe(self, examples: Sequence[Example]) -> list[str]:
        numbers = [example.gold for example in examples]
        texts = "one text each" if len(self.roles) == 1 else "two texts each"
        return [
            f"{len(numbers):,} numbers from {min(numbers):g} to {max(numbers):g}, mean {self.mean:.4g}, standard "
            f"deviation {self.scale:.4g}; {texts}"
        ]

    @property
    def metric(self) -> str:
        return "pearson"

    def head(self, read: ReadConfig, summary: str) -> HeadConfig:
        return HeadConfig(
            kind="sequence_classifier",
            num_labels=1,
            task="regression",
            summary=summary,  # type: ignore[arg-type]
            pool=read.pool or "last",
        )

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        return _example(self.roles, number, row, labelled=labelled)

    def items(self, example: Example, layout: Layout) -> list[Item]:
        gold = None if example.gold is None else (example.gold - self.mean) / self.scale
        return [Item(documents=(layout.arrange(*example.texts).document,), gold=gold)]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        logits_B1 = self._logits(model, items, reader)
        assert isinstance(model, SequenceClassifier)
        return model.cost(logits_B1, torch.tensor([item.gold for item in items], device=logits_B1.device))

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        return None

    def chance(self, examples: Sequence[Example]) -> float | None:
        return 1.0  # variance of standard scores, which is the loss of always predicting their mean

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        logits_B = self._logits(model, items, reader).squeeze(-1).double().cpu()
        return [float(logit) * self.scale + self.mean for logit in logits_B]

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        return Prediction(value=parts[0], columns={"prediction": float(f"{parts[0]:.6g}")})

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        return regression(
            [example.gold for example in examples],
            [prediction.value for prediction in predictions],
            resamples=resamples,
        )

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        return Comparison(
            gold=f"{example.gold:.6g}",
            predicted=f"{prediction.value:.6g}",
            badness=abs(float(prediction.value) - float(example.gold)),
        )

    def _logits(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> Tensor:
        assert isinstance(model, SequenceClassifier)
        return model.logits(reader.whole(model.trunk, [item.documents[0] for item in items]))


def learn(rows: Sequence[tuple[int, Row]], settings: RegressSettings) -> Regress:
    """Create the task with the mean and the standard deviation of the targets of the usable training rows."""
    both = settings.second and any("second" in row for _, row in rows[:1])
    roles = ("text", "second") if both else ("text",)
    numbers = []
    for number, row in rows:
        with suppress(UnusableRowError):  # counted when the row becomes an example
            numbers.append(_example(roles, number, row, labelled=True).gold)
    if not numbers:
        shown = ", ".join(repr(str(row.get("number"))[:40]) for _, row in rows[:3])
        raise DataError(
            f"the task regress needs texts with numbers to learn; got none: the first of that column are {shown}. "
            "Name the column with --column number=NAME; for classes use the task classify."
        )
    mean, scale = float(np.mean(numbers)), float(np.std(numbers))
    if scale <= CONSTANT * max(map(abs, numbers)):
        raise DataError(
            f"the task regress needs different numbers to learn; got {numbers[0]:g} in all {len(numbers):,} examples. "
            "Check the column, or add examples."
        )
    return Regress(roles=roles, mean=mean, scale=scale, settings=settings)


def restore(values: Mapping[str, Any]) -> Regress:
    """Restore the task from saved values."""
    mean, scale = float(values["mean"]), float(values["scale"])
    if not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
        raise ValueError(f"mean and scale must be finite, the scale above 0, and are {mean} and {scale}")
    return Regress(
        roles=tuple(values["roles"]),
        mean=mean,
        scale=scale,
        settings=RegressSettings.model_validate(values["settings"]),
    )


REGRESS = TaskKind(
    name="regress",
    help="Predict a number for a text or a pair of texts: ratings, similarity.",
    columns=(
        Column(role="text", names=TEXT),
        Column(role="second", names=SECOND, optional=True),
        Column(role="number", names=NUMBER, answer=True),
    ),
    settings=RegressSettings,
    learn=learn,
    restore=restore,
)


def _example(roles: tuple[str, ...], number: int, row: Row, *, labelled: bool) -> Example:
    for role in roles:
        if role not in row:
            raise DataError(
                f"this model reads two texts, and the table must have both; got no column for {role!r}. "
                f"Name it with --column {role}=NAME."
            )
    texts = tuple(text_of(row[role]) for role in roles)
    return Example(number=number, texts=texts, gold=number_of(row["number"]) if labelled else None)


def number_of(value: Any) -> float:
    """Return a label as a number; raise UnusableRowError unless it is finite."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    raise UnusableRowError("a label that is not a finite number")
