"""The prediction of a fine-tuned model as a number, for attribution to words.

In: a fine-tuned model and a row. Out: a Decision: the documents that were read, and a function from versions of them to
the log-probability of the model's answer for the original row (for `rank` and `regress`, the score). N-grams that
are combined with a classifier (`wide`) are not covered: they are linear, and their weights explain them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segue.errors import ConfigError, DataError
from segue.model.heads import SequenceClassifier, TokenTagger
from segue.tasks.answer.task import Answer
from segue.tasks.answer.windows import token_span
from segue.tasks.choose import Choose
from segue.tasks.classify import Classify
from segue.tasks.folder import TaskModel
from segue.tasks.predict import answer
from segue.tasks.rank import Rank
from segue.tasks.reader import Reader
from segue.tasks.regress import Regress
from segue.tasks.scores import scores
from segue.tasks.tag.task import Tag
from segue.tasks.task import Item, Prediction, UnusableRowError

Values = Callable[[Sequence[Item]], Tensor]
"""Function from versions of an item to one number for each, with a gradient."""
ALL_SEGMENTS = 2**15
TASKS = ("classify", "pair", "regress", "tag", "answer", "choose", "rank")
"""Tasks whose words can be explained."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The answer of a model to a row, and its log-probability or score for other versions of the documents."""

    made: TaskModel
    item: Item
    """The documents read: of several windows or documents, those that the answer depends on."""
    answer: str
    """The answer in readable form."""
    whole: str | None
    """Answer of the network combined with its n-grams; None if there are none."""
    prediction: Prediction
    values: Values
    probability: bool
    """Whether `values` are log-probabilities; else they are scores."""


def decide(made: TaskModel, row: Mapping[str, Any]) -> Decision:
    """Return the answer to a row, whose keys are the roles of the task's columns."""
    try:
        example = made.task.example(1, dict(row), labelled=False)
    except (UnusableRowError, KeyError) as error:
        needed = ", ".join(column.role for column in made.kind.columns if not column.answer and not column.optional)
        raise DataError(
            f"a row for the task {made.kind.name} must have {needed}; got {', '.join(row) or 'nothing'}: {error}. Give "
            "each as a text."
        ) from None
    items = made.task.items(example, made.layout())
    _, prediction = next(iter(answer(replace(made, wide=None), [example])))
    made.model.eval()
    reader = made.reader()
    reader.gradient_segments = ALL_SEGMENTS
    shown, item, values = _question(made, items, prediction, reader)
    whole = None
    if made.wide is not None:
        _, joined = next(iter(answer(made, [example])))
        whole, _, _ = _question(made, items, joined, reader)
    return Decision(
        made=made,
        item=item,
        answer=shown,
        whole=whole,
        prediction=prediction,
        values=values,
        probability=not isinstance(made.task, Rank | Regress),
    )


def _question(made: TaskModel, items: list[Item], prediction: Prediction, reader: Reader) -> tuple[str, Item, Values]:
    match made.task:
        case Classify():
            return _class(made, made.task, items[0], prediction, reader)
        case Regress():
            return _number(made, items[0], prediction, reader)
        case Choose():
            best = int(prediction.value.argmax())
            return str(prediction.columns["option"]), items[0], _chosen(made, best, reader)
        case Rank():
            best = int(np.argmax(prediction.value))
            item = replace(items[0], documents=(items[0].documents[best],))
            return f"document {best + 1}", item, lambda some: torch.cat(scores(made.model, some, reader))
        case Tag():
            return _tags(made, items[0], prediction, reader)
        case Answer():
            return _span(made, made.task, items, prediction, reader)
    raise ConfigError(
        f"words can be explained for {', '.join(TASKS)}; got {made.kind.name}. Use a model for one of them."
    )


def _class(
    made: TaskModel, task: Classify, item: Item, prediction: Prediction, reader: Reader
) -> tuple[str, Item, Values]:
    def logits(some: Sequence[Item]) -> Tensor:
        assert isinstance(made.model, SequenceClassifier)
        return made.model.logits(reader.whole(made.model.trunk, [one.documents[0] for one in some]))

    if task.settings.multiple:
        given_C = torch.from_numpy(prediction.value >= task.settings.threshold)

        def several(some: Sequence[Item]) -> Tensor:
            logits_NC = logits(some)
            return torch.nn.functional.logsigmoid(torch.where(given_C, logits_NC, -logits_NC)).mean(dim=-1)

        return str(prediction.columns["prediction"]) or "(none)", item, several
    best = int(prediction.value.argmax())
    return task.labels[best], item, lambda some: logits(some).log_softmax(dim=-1)[:, best]


def _number(made: TaskModel, item: Item, prediction: Prediction, reader: Reader) -> tuple[str, Item, Values]:
    def values(some: Sequence[Item]) -> Tensor:
        assert isinstance(made.model, SequenceClassifier)
        return made.model.logits(reader.whole(made.model.trunk, [one.documents[0] for one in some]))[:, 0]

    return str(prediction.columns["prediction"]), item, values


def _chosen(made: TaskModel, best: int, reader: Reader) -> Values:
    return lambda some: torch.stack([score_O.log_softmax(dim=0)[best] for score_O in scores(made.model, some, reader)])


def _tags(made: TaskModel, item: Item, prediction: Prediction, reader: Reader) -> tuple[str, Item, Values]:
    """Return the mean log-probability of the tags of the found entities, or of all tokens if none was found."""
    pieces = item.extra

    def log_probability(some: Sequence[Item]) -> Tensor:
        assert isinstance(made.model, TokenTagger)
        reading = reader.every_token(made.model.trunk, [one.documents[0] for one in some])
        logits_NTC = made.model.logits(reading)
        return logits_NTC[:, pieces.begin : pieces.begin + len(pieces)].log_softmax(dim=-1)

    with torch.no_grad():
        tags_T = log_probability([item])[0].argmax(dim=-1)
    concerned_T = tags_T > 0 if bool((tags_T > 0).any()) else torch.ones_like(tags_T, dtype=torch.bool)

    def values(some: Sequence[Item]) -> Tensor:
        return (
            log_probability(some)[:, concerned_T]
            .gather(2, tags_T[concerned_T].expand(len(some), -1)[:, :, None])
            .mean(dim=(1, 2))
        )

    columns = prediction.columns
    shown = [f"{one['text']} ({one['type']})" for one in columns.get("entities", [])] or columns.get("prediction", [])
    return ", ".join(map(str, shown)) or "(nothing)", item, values


def _span(
    made: TaskModel, task: Answer, items: list[Item], prediction: Prediction, reader: Reader
) -> tuple[str, Item, Values]:
    begin, end = prediction.columns["start"], prediction.columns["end"]
    item, gold = items[0], (items[0].extra[0].cls,) * 2
    for one in items if begin is not None else ():
        found = token_span(one.extra[0].part, begin, end)
        if found is not None:
            item, gold = one, found
            break
    asked = replace(item, gold=gold)

    def values(some: Sequence[Item]) -> Tensor:
        return torch.stack([-task.loss(made.model, [one], reader, class_weights=None) for one in some])

    return str(prediction.columns["answer"]) or "(no answer)", asked, values
