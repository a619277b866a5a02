"""Predictions of a fine-tuned model: for a list of examples, or for a table of any length in constant memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from segue.data.tables import Record, Unread
from segue.errors import DataError
from segue.tasks.batches import by_length
from segue.tasks.folder import TaskModel
from segue.tasks.reader import Reader
from segue.tasks.task import Example, Item, Prediction, Task, UnusableRowError
from segue.tasks.wide import Wide
from segue.text.coverage import LanguageWatch

AT_ONCE = 512
"""Number of rows of a stream in memory at a time, so that rows of similar length can be batched."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A row of a stream with its prediction, or the reason why there is none."""

    number: int
    prediction: Prediction | None
    problem: str | None = None


def answer(
    made: TaskModel, examples: Sequence[Example], *, batch_size: int = 32, reader: Reader | None = None
) -> Iterator[tuple[int, Prediction]]:
    """Yield the index of an example in the list and its prediction, as they are computed: short ones first."""
    layout = made.layout()
    items = [made.task.items(example, layout) for example in examples]
    return _answer(made, examples, items, batch_size=batch_size, reader=reader or made.reader())


@torch.no_grad()
def _answer(
    made: TaskModel, examples: Sequence[Example], items_of: Sequence[list[Item]], *, batch_size: int, reader: Reader
) -> Iterator[tuple[int, Prediction]]:
    items: list[Item] = []
    of: list[int] = []
    for number, new in enumerate(items_of):
        items += new
        of += [number] * len(new)
    own: dict[int, list[int]] = {}
    for index, number in enumerate(of):
        own.setdefault(number, []).append(index)
    parts: dict[int, Any] = {}
    training = made.model.training
    made.model.eval()
    try:
        for numbers in by_length(items, size=batch_size):
            results = made.task.answers(made.model, [items[n] for n in numbers], reader)
            parts.update(zip(numbers, results, strict=True))
            for number in dict.fromkeys(of[n] for n in numbers):
                if all(n in parts for n in own[number]):
                    mine = [items[n] for n in own[number]]
                    found = [parts.pop(n) for n in own[number]]
                    yield number, prediction_of(made, examples[number], mine, found)
    finally:
        made.model.train(training)


def prediction_of(made: TaskModel, example: Example, items: Sequence[Item], found: Sequence[Any]) -> Prediction:
    """Return the prediction for an example, from the outputs of the network for its items and, if there are any, the
    n-grams joined to it."""
    if made.wide is not None:  # classification, which has one item per example
        found = list(made.wide.joined([found[0]], [example.texts]))
    return made.task.prediction(example, items, found)


def answers_in_order(
    made: TaskModel, examples: Sequence[Example], *, batch_size: int = 32, reader: Reader | None = None
) -> list[Prediction]:
    """Return a prediction for each example."""
    found = dict(answer(made, examples, batch_size=batch_size, reader=reader))
    return [found[number] for number in range(len(examples))]


def join_ngrams(
    task: Task, wide: Wide, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Return the predictions of a model with n-grams from those of the model alone; they equal those of `answer`."""
    found_NC = wide.joined([one.value for one in predictions], [example.texts for example in examples])
    return [task.prediction(example, [], [row_C]) for example, row_C in zip(examples, found_NC, strict=True)]


def answer_rows(made: TaskModel, rows: Iterable[tuple[int, Record]], *, batch_size: int = 32) -> Iterator[Answered]:
    """Yield a prediction for each row, in order, however many there are; a row without one has the reason. Raise
    DataError only if none of the first rows can be converted: then the table is at fault."""
    stream = iter(rows)
    begun = False
    watch = LanguageWatch(made.tokenizer)
    while chunk := list(islice(stream, AT_ONCE)):
        layout = made.layout()
        examples: list[Example] = []
        items: list[list[Item]] = []
        results: dict[int, Answered] = {}
        refused: DataError | None = None
        for position, (number, row) in enumerate(chunk):
            if isinstance(row, Unread):
                results[position] = Answered(number=number, prediction=None, problem=row.why)
                continue
            try:
                example = made.task.example(number, row, labelled=False)
                items.append(made.task.items(example, layout))
                examples.append(example)
            except (UnusableRowError, DataError) as error:
                results[position] = Answered(number=number, prediction=None, problem=str(error))
                if isinstance(error, DataError):
                    refused = refused or DataError(f"record {number}: {error}")
        begun = begun or bool(examples)
        if refused is not None and not begun:
            raise refused
        watch.read(*(document.ids for own in items for item in own for document in item.documents))
        places = [position for position in range(len(chunk)) if position not in results]
        for index, prediction in _answer(made, examples, items, batch_size=batch_size, reader=made.reader()):
            results[places[index]] = Answered(number=examples[index].number, prediction=prediction)
        for position in range(len(chunk)):
            yield results[position]
