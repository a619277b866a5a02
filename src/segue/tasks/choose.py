"""Multiple-choice reading comprehension, as in RACE and C3: one of several options for a question about a text.

Each option is read in a document of its own: the text, then the question with the option in its blank, or after it. The
scores of a question's options are normalised by one softmax. Questions may have different numbers of options.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.data.tables import Row
from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric
from segue.evaluation.metrics.classification import classification
from segue.model.heads import SequenceScorer
from segue.tasks.classify import text_of
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.scores import scores
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError

CONTEXT = ("context", "article", "passage", "paragraph", "document", "text", "dialogue", "ctx", "question", "query")
QUESTION = ("question", "query", "prompt")
OPTIONS = ("options", "choices", "choice", "endings", "candidates")
ANSWER = ("answer", "label", "correct", "gold", "target")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTER_ROLES = tuple(f"option_{letter.lower()}" for letter in LETTERS[:6])
BLANK = re.compile("[_＿]+")


class ChooseSettings(Section):
    """Settings of `choose`."""

    separator: str = "|"
    """Separator between the options of a question, if they are one text that is not a JSON list."""
    answers: Literal["letter", "number", "text"] | None = None
    """Form of the answer: the letter, the number or the text of an option. Default: the form that fits most rows."""
    first_number: Literal[0, 1] | None = None
    """Number of the first option, if answers are numbers. Default: the number that fits most rows."""


@dataclass(frozen=True, kw_only=True)
class Choose:
    """The task `choose`."""

    settings: ChooseSettings
    """Settings, with `answers` and `first_number` inferred from the training rows."""

    def to_values(self) -> dict[str, Any]:
        return {"settings": self.settings.model_dump(exclude_none=True)}

    def describe(self, examples: Sequence[Example]) -> list[str]:
        counts = Counter(map(_num_options, examples))
        listed = ", ".join(f"{count:,} of {options} options" for options, count in sorted(counts.items()))
        guessed = sum(count / options for options, count in counts.items()) / len(examples)
        how = self.settings.answers
        numbers = f" from {self.settings.first_number}" if how == "number" else ""
        return [f"questions: {listed}; guessing is right in {guessed:.1%}; answers are given as {how}s{numbers}"]

    @property
    def metric(self) -> str:
        return "accuracy"

    def head(self, read: ReadConfig, summary: str) -> HeadConfig:
        return HeadConfig(
            kind="sequence_scorer",
            loss="choice",
            summary=summary,  # type: ignore[arg-type]
            pool=read.pool or "last",
        )

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        """Convert a row. `texts` are the context, the question and the options that are not blank; `extra` has the
        indices of these among all options, and the number of all options; `gold` is an index among the options that are
        not blank."""
        options = _options_of(row, self.settings)
        places = tuple(place for place, option in enumerate(options) if option)
        texts = (_context_of(row["context"]), _plain(row.get("question")), *(options[place] for place in places))
        if len(places) < 2:
            raise UnusableRowError("fewer than two options")
        if not labelled:
            return Example(number=number, texts=texts, extra=(places, len(options)))
        found = _place_of(row["answer"], options, self.settings)
        if found is None:
            raise UnusableRowError(f"an answer that is not the {self.settings.answers} of an option")
        return Example(number=number, texts=texts, gold=places.index(found), extra=(places, len(options)))

    def items(self, example: Example, layout: Layout) -> list[Item]:
        context, question, *options = example.texts
        first = layout.tokenizer.encode_with_offsets(context)
        seconds = [layout.tokenizer.encode_with_offsets(with_option(question, option)) for option in options]
        documents = tuple(layout.arrange_encoded([first, second]).document for second in seconds)
        return [Item(documents=documents, gold=example.gold)]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        assert isinstance(model, SequenceScorer)
        losses = [
            model.cost(scores_O[None], torch.tensor([item.gold], device=scores_O.device))
            for item, scores_O in zip(items, scores(model, items, reader), strict=True)
        ]
        return torch.stack(losses).mean()

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        return None

    def chance(self, examples: Sequence[Example]) -> float | None:
        return float(np.mean([np.log(_num_options(example)) for example in examples]))

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        return [scores_O.float().softmax(dim=0).cpu().numpy() for scores_O in scores(model, items, reader)]

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        probabilities = parts[0]
        places, options = example.extra
        best = int(probabilities.argmax())
        every = [0.0] * options
        for place, probability in zip(places, probabilities, strict=True):
            every[place] = round(float(probability), 6)
        columns = {
            "prediction": LETTERS[places[best]],
            "option": example.texts[2 + best],
            "probability": every[places[best]],
            "probabilities": every,
        }
        return Prediction(value=probabilities, columns=columns, confidence=float(probabilities[best]))

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        most = max(map(_num_options, examples))
        probabilities_NO = np.zeros((len(examples), most))
        for row, prediction in enumerate(predictions):
            probabilities_NO[row, : len(prediction.value)] = prediction.value
        found = classification(
            [example.gold for example in examples], probabilities_NO, num_labels=most, resamples=resamples
        )
        return {name: found[name] for name in ("accuracy", "calibration_error")}

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        best = int(prediction.value.argmax())
        return Comparison(
            gold=example.texts[2 + example.gold],
            predicted=example.texts[2 + best],
            badness=float(prediction.value[best]) if best != example.gold else 0.0,
        )


def with_option(question: str, option: str) -> str:
    """Return the question with the option in its blanks, or after it."""
    if BLANK.search(question):
        return BLANK.sub(lambda _: option, question)
    return f"{question} {option}" if question else option


def learn(rows: Sequence[tuple[int, Row]], settings: ChooseSettings) -> Choose:
    """Create the task with the form of answers that fits most training rows."""
    understood: list[tuple[Row, list[str]]] = []
    for _, row in rows:
        with suppress(UnusableRowError):  # counted when the row becomes an example
            understood.append((row, _options_of(row, settings)))
    ways = [
        settings.model_copy(update={"answers": answers, "first_number": first})
        for answers, first in (("letter", None), ("number", 0), ("number", 1), ("text", None))
        if settings.answers in (None, answers) and (first is None or settings.first_number in (None, first))
    ]
    fitting = [sum(_place_of(row["answer"], options, way) is not None for row, options in understood) for way in ways]
    if not any(fitting):
        row, options = understood[0] if understood else (rows[0][1], [])
        raise DataError(
            f"answers must be the letter, the number or the text of an option; got {str(row['answer'])[:40]!r} for the "
            f"options {str(options)[:200]}. Check the columns answer and options, and task.answers."
        )
    return Choose(settings=ways[fitting.index(max(fitting))])


def restore(values: Mapping[str, Any]) -> Choose:
    """Restore the task from saved values."""
    return Choose(settings=ChooseSettings.model_validate(values["settings"]))


def _letter_column(role: str) -> Column:
    letter = role[-1]
    number = LETTERS.lower().index(letter)
    names = (role, letter, f"choice_{letter}", f"option{number + 1}", f"choice{number + 1}", f"ending{number}")
    return Column(role=role, names=names, optional=True)


CHOOSE = TaskKind(
    name="choose",
    help="Choose among the options of a question about a text: multiple-choice reading comprehension.",
    columns=(
        Column(role="context", names=CONTEXT),
        Column(role="question", names=QUESTION, optional=True),
        Column(role="options", names=OPTIONS, optional=True),
        *(_letter_column(role) for role in LETTER_ROLES),
        Column(role="answer", names=ANSWER, answer=True),
    ),
    settings=ChooseSettings,
    learn=learn,
    restore=restore,
)


def _num_options(example: Example) -> int:
    """Return the number of options that are not blank."""
    return len(example.texts) - 2


def _options_of(row: Row, settings: ChooseSettings) -> list[str]:
    """Return all options, including blank ones, since letters and numbers count them."""
    if "options" in row:
        values = _list_of(row["options"], settings)
    else:
        values = [row[role] for role in LETTER_ROLES if role in row]
        if not values:
            raise DataError(
                "a table for the task choose must have options; got no column for them. Name one that holds lists with "
                "--column options=NAME, or one for each with --column option_a=NAME --column option_b=NAME ..."
            )
    if len(values) > len(LETTERS):
        raise UnusableRowError(f"more than {len(LETTERS)} options")
    return [_plain(value) for value in values]


def _context_of(value: Any) -> str:
    """Return a text, or the joined lines of a dialogue."""
    return text_of("\n".join(map(_plain, value)) if isinstance(value, list | tuple) else value)


def _list_of(value: Any, settings: ChooseSettings) -> list[Any]:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            if isinstance(parsed := json.loads(value), list):
                return parsed
        return value.split(settings.separator)
    if isinstance(value, list | tuple):
        return list(value)
    if value is None:
        return []
    raise DataError(
        f"the options of a question must be a list of texts; got {str(value)[:80]!r}. Write a list in JSON, or the "
        f"options with {settings.separator!r} between them."
    )


def _place_of(answer: Any, options: Sequence[str], settings: ChooseSettings) -> int | None:
    """Return the index of the option that is the answer; None if it is none of them."""
    text = _plain(answer)
    place = -1
    match settings.answers:
        case "letter":
            place = LETTERS.find(text.upper()) if len(text) == 1 else -1
        case "number":
            whole = str(int(answer)) if isinstance(answer, float) and answer.is_integer() else text
            place = int(whole) - (settings.first_number or 0) if whole.isdecimal() and len(whole) < 4 else -1
        case "text":
            place = options.index(text) if text in options else -1
    return place if 0 <= place < len(options) and options[place] else None


def _plain(value: Any) -> str:
    return "" if value is None else str(value).strip()
