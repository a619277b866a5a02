"""Jobs of encoders: predictions of fine-tuned models, and embeddings."""

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError
from segue.infer.documents import text_parts
from segue.infer.embed import EmbedSettings, embed
from segue.serve.jobs import Job
from segue.serve.models import Served
from segue.serve.pool import Part
from segue.tasks.folder import TaskModel
from segue.tasks.predict import prediction_of
from segue.tasks.task import Example, Item, Prediction, UnusableRowError

Breathe = Callable[[], None]


class Predict:
    """Job that predicts rows of a task, each a mapping from columns to values."""

    def __init__(self, served: Served, rows: Sequence[dict[str, Any]], *, limit: int) -> None:
        assert served.task is not None
        self._name, self._made, self._rows, self._limit = served.name, served.task, rows, limit
        self._examples: list[Example] = []
        self._items: list[list[Item]] = []
        self._found: dict[int, Any] = {}
        self._of: list[tuple[int, int]] = []
        """For each part: the index of its row, and its index among the items of the row."""
        self.tokens = 0
        self.predictions: list[Prediction | None] = [None] * len(rows)

    def parts(self, job: Job[Any]) -> Generator[Part | None]:
        made, now = self._made, time.monotonic()
        layout = made.layout()

        def compute(items: Sequence[Item]) -> list[Any]:
            return _answers(made, items)

        for number, row in enumerate(self._rows):
            try:
                example = made.task.example(number, row, labelled=False)
                items = made.task.items(example, layout)
            except (UnusableRowError, DataError) as error:
                raise DataError(f"input {number}: {error}") from None
            self._examples.append(example)
            self._items.append(items)
            for place, item in enumerate(items):
                tokens = sum(len(document) for document in item.documents)
                self.tokens += tokens
                if tokens > self._limit:
                    raise DataError(
                        f"input {number} must have at most {self._limit:,} tokens; got {tokens:,}. Send less text."
                    )
                self._of.append((number, place))
                yield Part(
                    job=job,
                    number=len(self._of) - 1,
                    kind=("task", self._name),
                    length=tokens,
                    content=item,
                    compute=compute,
                    since=now,
                )
            yield None

    def take(self, number: int, result: Any) -> None:
        self._found[number] = result
        row, _ = self._of[number]
        mine = [part for part, (of, _) in enumerate(self._of) if of == row]
        if len(mine) == len(self._items[row]) and all(part in self._found for part in mine):
            parts = [self._found.pop(part) for part in mine]
            self.predictions[row] = prediction_of(self._made, self._examples[row], self._items[row], parts)

    def result(self) -> list[Prediction]:
        return [one for one in self.predictions if one is not None]


def _answers(made: TaskModel, items: Sequence[Item]) -> list[Any]:
    return made.task.answers(made.model, items, made.reader())


class Embed:
    """Job that embeds texts as vectors."""

    def __init__(
        self,
        served: Served,
        texts: Sequence[str],
        settings: EmbedSettings,
        *,
        limit: int,
        breathe: Breathe,
    ) -> None:
        assert served.text is not None
        self._served, self._model, self._texts = served, served.text, texts
        self._settings, self._limit, self._breathe = settings, limit, breathe
        self.vectors: list[NDArray[np.float32] | None] = [None] * len(texts)
        self.tokens = 0

    def parts(self, job: Job[Any]) -> Generator[Part | None]:
        now, model, settings = time.monotonic(), self._model, self._settings

        def compute(texts: Sequence[str]) -> list[tuple[NDArray[np.float32], int]]:
            found = embed(
                model.model, model.tokenizer, text_parts(texts), settings, progress=lambda tokens: self._breathe()
            )
            return [(one.vector, one.tokens) for one in found]

        for number, text in enumerate(self._texts):
            tokens = len(model.tokenizer.encode(text))
            if tokens > self._limit:
                raise DataError(
                    f"input {number} must have at most {self._limit:,} tokens; got {tokens:,}. Send less text."
                )
            yield Part(
                job=job,
                number=number,
                kind=("embed", self._served.name, settings),
                length=tokens,
                content=text,
                compute=compute,
                since=now,
            )

    def take(self, number: int, result: Any) -> None:
        self.vectors[number], tokens = result
        self.tokens += tokens

    def result(self) -> list[NDArray[np.float32]]:
        return [one for one in self.vectors if one is not None]
