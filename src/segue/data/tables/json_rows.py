"""Rows of a JSON table: JSON lines, a list of objects, SQuAD and similar formats.

In and out as in `reader`. JSON lines are streamed. A document is one value and must be in memory as a whole; its size
is limited. The meaning of the fields is left to the tasks, except for the nesting of SQuAD, which is flattened, and
that of multiple choice (`choices`).
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from segue.data.tables.choices import questions_apart
from segue.data.tables.reader import (
    BLANK,
    Record,
    Row,
    TableReader,
    TableRows,
    Unit,
    Unread,
    count,
    peek,
    without_blank_end,
)
from segue.errors import DataError

LARGEST_DOCUMENT = 2**27  # characters; in memory, a document of many small values takes twenty times its size
MOST_UNREAD = 1000  # unreadable rows at the beginning after which a file is not a table


def read_json_lines(reading: TableReader, *, columns: tuple[str, ...] | None, ahead: int) -> TableRows:
    """Read one object per line. The columns are the fields of the first `ahead` objects; missing ones are None."""
    rows = _objects(reading, without_blank_end(_json_lines(reading)), columns)
    return _known_columns(rows, "line", ahead)


def read_json(reading: TableReader, *, columns: tuple[str, ...] | None, squad: bool, ahead: int) -> TableRows:
    """Read a .json file: SQuAD (`squad`: nothing else), a list of rows (also as field `data`), or JSON lines."""
    first, reading.pieces = peek(reading.pieces, 2)
    if not squad and _are_lines(first, columns):
        return read_json_lines(reading, columns=columns, ahead=ahead)
    document = _document(reading)
    entries = document.get("data") if isinstance(document, dict) else document
    if isinstance(entries, list) and _is_squad(entries):
        reading.unit = "question"
        return TableRows(
            ("id", "context", "question", "answers", "impossible"), "question", _questions(reading, entries)
        )
    if squad or not isinstance(entries, list):
        got = f"an object with the fields {_some(document)}" if isinstance(document, dict) else type(document).__name__
        if isinstance(entries, list):
            got = "a list of something else" if entries else "an empty list"
        rule = "SQuAD or CMRC JSON (articles with paragraphs, or contexts with qas)"
        other = "" if squad else ", a list of objects, an object with such a list as 'data', or an object a line"
        raise DataError(f"{reading.where} must hold {rule}{other}; got {got}. Write it so.")
    reading.unit = "record"
    return _known_columns(_objects(reading, enumerate(entries, 1), columns), "record", len(entries))


def _are_lines(first: list[str], columns: tuple[str, ...] | None) -> bool:
    """Return True if a text that begins with these lines has one value per line, and is not a document."""
    values: list[Any] = []
    for line in first:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            values.append(None)
    if len(values) < 2:
        return bool(values) and isinstance(values[0], dict) and not isinstance(values[0].get("data"), list)
    if isinstance(values[0], list):
        return columns is not None
    return isinstance(values[0], dict) or (first[0].startswith("{") and isinstance(values[1], dict))


def _json_lines(reading: TableReader) -> Iterator[tuple[int, Any]]:
    for number, line in reading.lines():
        if isinstance(line, Unread) or not line.strip():
            yield number, line if isinstance(line, Unread) else BLANK
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, reading.bad(number, f"no JSON: {error}, in {line[:40]!r}")


def _document(reading: TableReader) -> Any:
    held, size = [], 0
    for piece in reading.pieces:
        held.append(piece)
        size += len(piece)
        if size > LARGEST_DOCUMENT:
            raise DataError(
                f"{reading.where} must have at most {LARGEST_DOCUMENT} characters, since a JSON document is read as a "
                "whole; it has more. Split it, or write JSON lines, which are streamed."
            )
    text = "".join(held)
    if not text.strip():
        raise DataError(f"{reading.where} must have rows; got an empty file. Check how it was made.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{reading.where} must be JSON; got {error}. Correct it, or give its --format.") from None


def _objects(
    reading: TableReader, values: Iterable[tuple[int, Any]], columns: tuple[str, ...] | None
) -> Iterator[tuple[int, Record]]:
    for number, value in questions_apart(reading, values):
        if isinstance(value, Unread):
            yield number, value
            continue
        if isinstance(value, list) and columns is not None:
            if len(value) != len(columns):
                why = f"{count(len(value), 'value')} for {count(len(columns), 'column')}"
                yield number, reading.bad(number, why, dict(zip(columns, value, strict=False)))
                continue
            value = dict(zip(columns, value, strict=True))
        if not isinstance(value, dict) or not value:
            got = "an empty one" if value == {} else type(value).__name__
            yield number, reading.bad(number, f"an object with fields is needed; got {got}")
            continue
        if (unread := reading.too_long(number, value)) is not None:
            yield number, unread
            continue
        try:
            row = reading.cleaned(value, number)
        except RecursionError:
            yield number, reading.bad(number, "nested too deeply")
            continue
        reading.good()
        yield number, row
    reading.check()


def _known_columns(rows: Iterator[tuple[int, Record]], unit: Unit, ahead: int) -> TableRows:
    """Find the columns in the first `ahead` rows, or in up to MOST_UNREAD rows until one is readable."""
    head = list(islice(rows, ahead))
    while all(isinstance(row, Unread) for _, row in head) and len(head) < MOST_UNREAD:
        more = list(islice(rows, 1))
        head += more
        if not more:
            break
    columns = tuple(dict.fromkeys(name for _, row in head if not isinstance(row, Unread) for name in row))
    blank: Row = dict.fromkeys(columns)
    every = ((number, row if isinstance(row, Unread) else blank | row) for number, row in chain(head, rows))
    return TableRows(columns, unit, every)


def _some(names: Iterable[str]) -> str:
    return ", ".join(repr(name[:40]) for name in islice(names, 8)) or "none"


def _is_squad(entries: list[Any]) -> bool:
    first = entries[0] if entries else None
    return isinstance(first, dict) and (
        "paragraphs" in first or ("qas" in first and ("context" in first or "context_text" in first))
    )


def _questions(reading: TableReader, entries: list[Any]) -> Iterator[tuple[int, Record]]:
    """Yield the questions of SQuAD (questions in paragraphs in articles) or of flat CMRC (paragraphs, other names)."""
    number = 0
    for article in entries:
        paragraphs = article.get("paragraphs", [article]) if isinstance(article, dict) else None
        for paragraph in paragraphs if isinstance(paragraphs, list) else [None]:
            questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
            for question in questions if isinstance(questions, list) else [None]:
                number += 1
                try:
                    row = _question(paragraph, question, number)
                except (TypeError, RecursionError) as error:
                    yield number, reading.bad(number, str(error))
                    continue
                if (unread := reading.too_long(number, row)) is not None:
                    yield number, unread
                    continue
                reading.good()
                yield number, reading.cleaned(row, number)
    reading.check()


def _question(paragraph: Any, question: Any, number: int) -> Row:
    if not isinstance(question, dict):
        raise TypeError("a paragraph with a list 'qas' of questions is needed")
    context = paragraph.get("context", paragraph.get("context_text"))
    asked = question.get("question", question.get("query_text"))
    answers = question.get("answers", [])
    impossible = question.get("is_impossible")
    if not isinstance(context, str) or not isinstance(asked, str):
        raise TypeError("the context and the question must be text")
    if not isinstance(answers, list):
        raise TypeError(f"the answers must be a list; got {type(answers).__name__}")
    return {
        "id": str(question.get("id", question.get("query_id", number))),
        "context": context,
        "question": asked,
        "answers": [_answer(answer) for answer in answers],
        "impossible": impossible if isinstance(impossible, bool) else None,
    }


def _answer(answer: Any) -> Row:
    text = answer.get("text") if isinstance(answer, dict) else answer
    if not isinstance(text, str):
        raise TypeError("an answer must have a text")
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    known = isinstance(start, int) and not isinstance(start, bool) and start >= 0
    return {"text": text, "start": start if known else None}
