"""Rows of question answering tables: the answers, their offsets, and whether the question is answerable.

In: a row of SQuAD JSON (a list of answers with texts and starts), of the `datasets` library (an object with a list of
texts and one of starts), or of a flat table (one text, perhaps its start). Out: Gold, with every answer checked against
the context. Wrong offsets are corrected to the nearest occurrence of the answer's text.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from segue.data.tables import Row
from segue.errors import DataError
from segue.tasks.task import UnusableRowError

_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, kw_only=True)
class Given:
    """The answers of a row, before they are located in its context."""

    answers: tuple[tuple[str, int | None], ...]
    """Non-empty texts, each with its stated start."""
    impossible: bool | None
    """True if the row marks the question as unanswerable; None if it does not say."""


@dataclass(frozen=True, kw_only=True)
class Gold:
    """The reference answers to a question."""

    texts: tuple[str, ...]
    """Texts of all answers, for the metrics; empty if the question has no answer."""
    spans: tuple[tuple[int, int], ...]
    """Start and end character of the answers that occur in the context: the training targets."""
    moved: int = 0
    """Number of answers that were not at their stated start."""
    guessed: int = 0
    """Number of answers with several occurrences and no stated start: the first was taken."""


def given_answers(row: Row) -> Given:
    """Return the answers of a row."""
    answers = _listed(row.get("answer"), row.get("answer_start"))
    impossible = _truth(row.get("impossible"))
    if impossible is None and _is_unmarked(row.get("answer")) and not answers:
        impossible = True
    return Given(answers=tuple((text, start) for text, start in answers if text.strip()), impossible=impossible)


def gold_of(given: Given, context: str, *, unanswerable: bool) -> Gold:
    """Locate the answers in the context; raise UnusableRowError if the row cannot be used for training."""
    if given.impossible and given.answers:
        raise UnusableRowError("a question that is marked as impossible and has an answer")
    if not given.answers:
        if unanswerable and given.impossible is not False:
            return Gold(texts=(), spans=())
        raise UnusableRowError("a question without an answer")
    spans, moved, guessed = [], 0, 0
    for text, start in given.answers:
        found = locate(context, text, start)
        if found is None:
            continue
        spans.append(found)
        if start is None:
            guessed += context.find(context[slice(*found)], found[0] + 1) >= 0
        else:
            moved += start < 0 or not context.startswith(text, start)
    if not spans:
        raise UnusableRowError("an answer that is not in its context")
    texts = tuple(text for text, _ in given.answers)
    return Gold(texts=texts, spans=tuple(spans), moved=moved, guessed=guessed)


def locate(context: str, text: str, start: int | None) -> tuple[int, int] | None:
    """Return the span of a text in its context, without surrounding spaces: the occurrence nearest to its stated start,
    or the first if none is stated."""
    bare = text.strip()
    wanted = 0 if start is None else max(0, start + text.index(bare))
    before = context.rfind(bare, 0, wanted + len(bare))  # begins at `wanted` at the latest
    after = context.find(bare, wanted)
    places = [place for place in (before, after) if place >= 0]
    if not places:
        return None
    place = min(places, key=lambda place: abs(place - wanted))
    return place, place + len(bare)


def _listed(answer: Any, start: Any) -> list[tuple[str, int | None]]:
    if isinstance(answer, Mapping):
        texts, starts = answer.get("text"), answer.get("answer_start", answer.get("start"))
        if not isinstance(texts, Sequence) or isinstance(texts, str):
            texts, starts = [texts], [starts]
        starts = list(starts) if isinstance(starts, Sequence) else [None] * len(texts)
        if len(starts) != len(texts):
            raise UnusableRowError("as many answer_starts as answers are needed")
        return [(_text(text), _start(place)) for text, place in zip(texts, starts, strict=True)]
    if isinstance(answer, list | tuple):
        if all(not isinstance(one, Mapping) for one in answer):
            starts = list(start) if isinstance(start, list | tuple) else [start if len(answer) == 1 else None]
            starts += [None] * (len(answer) - len(starts))
            return [(_text(one), _start(place)) for one, place in zip(answer, starts, strict=False)]
        return [pair for one in answer for pair in _listed(one, None)]
    return [(_text(answer), _start(start))]


def _is_unmarked(answer: Any) -> bool:
    """Return True for a row of the `datasets` library, where only an empty list marks a question as unanswerable."""
    return isinstance(answer, Mapping) and isinstance(answer.get("text"), Sequence)


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float):
        return str(value)
    raise DataError(f"an answer must be a text; got {type(value).__name__}. Check the column of the answers.")


def _start(value: Any) -> int | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number.is_integer():
        raise UnusableRowError("an answer_start that is not a whole number")
    return int(number)


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if not word:
        return None
    if word not in _YES + _NO:
        raise DataError(f"the impossible column must hold one of {', '.join(_YES + _NO)}; got {value!r}. Correct it.")
    return word in _YES
