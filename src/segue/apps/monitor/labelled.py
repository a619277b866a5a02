"""Labelled rows of the operator: text, sentiment, topic, time, and the sentiment towards single entities.

In: tables. Out: `Labelled` rows, sorted by time if most of them have one. Sentiments are negative, neutral and
positive, or common synonyms; numbers are 0 and 1 (negative, positive), 0 to 2, or -1 to 1. Labels of entities are a
list of objects with name (or code) and sentiment, an object of names and sentiments, either of them as JSON in a cell,
or ACME:negative|GLBX:positive.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

from segue.apps.cells import clean, open_given, parse_time, rows_given
from segue.apps.monitor.texts import LONGEST_NAME, Rows
from segue.data.tables import Table
from segue.errors import DataError

SENTIMENTS = ("negative", "neutral", "positive")
_NAMES = {
    "negative": ("negative", "neg", "bearish", "bad", "负面", "消极", "利空", "负"),
    "neutral": ("neutral", "neu", "none", "中性", "中立"),
    "positive": ("positive", "pos", "bullish", "good", "正面", "积极", "利好", "正"),
}
_KNOWN = {name: place for place, label in enumerate(SENTIMENTS) for name in _NAMES[label]}
_NUMBERS = {frozenset("01"): {"0": 0, "1": 2}, frozenset("012"): {"0": 0, "1": 1, "2": 2}}
_SIGNED = {"-1": 0, "0": 1, "1": 2}
MOST_TOPICS = 500


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A labelled row."""

    text: str
    sentiment: int | None = None
    """Index in SENTIMENTS."""
    topic: str | None = None
    time: float | None = None
    source: str = ""
    entities: tuple[tuple[str, int], ...] = ()
    """Codes or names, with the indices of their sentiments."""


@dataclass(frozen=True, kw_only=True)
class LabelledRows:
    """All labelled rows, and the number of problems by kind."""

    rows: tuple[Labelled, ...]
    left_out: dict[str, int] = field(default_factory=dict)


def read_labelled(sources: Sequence[str | Path | Table]) -> LabelledRows:
    """Read all tables."""
    problems: Counter[str] = Counter()
    found = [row for source in sources for row in _rows(source, problems)]
    return gathered(found, problems)


def gathered(found: Iterable[Labelled], problems: Counter[str] | None = None) -> LabelledRows:
    """Return each text once, with its last labels, sorted by time if most have one; raise DataError if the rows have
    fewer than two sentiments or too many topics."""
    problems = Counter() if problems is None else problems
    by_text: dict[str, Labelled] = {}
    for row in found:
        problems["texts that repeat"] += row.text in by_text
        by_text[row.text] = row
    rows = list(by_text.values())
    if sum(row.time is not None for row in rows) > len(rows) / 2:
        rows.sort(key=lambda row: row.time or 0.0)
    sentiments = {row.sentiment for row in rows if row.sentiment is not None}
    if len(sentiments) < 2:
        raise DataError(
            "a monitor must learn at least two sentiments of negative, neutral and positive; got "
            f"{', '.join(SENTIMENTS[one] for one in sorted(sentiments)) or 'none'}. Give rows with the columns text "
            "and sentiment."
        )
    topics = {row.topic for row in rows if row.topic is not None}
    if len(topics) > MOST_TOPICS:
        raise DataError(f"a monitor must have at most {MOST_TOPICS} topics; got {len(topics):,}. Use fewer.")
    return LabelledRows(rows=tuple(rows), left_out={why: count for why, count in problems.items() if count})


def _rows(source: str | Path | Table, problems: Counter[str]) -> list[Labelled]:
    table = open_given(source)
    rows = Rows(source=Path(table.source).name, zone=UTC)
    roles = ("text", "title", "sentiment", "topic", "time", "entities")
    cells = [{role: rows.cell(row, role) for role in roles} for _, row in rows_given(table)]
    said = [_pairs(one["entities"]) for one in cells]
    labels = [*(one["sentiment"] for one in cells), *(label for pairs in said for _, label in pairs or ())]
    numbers = _numbers({_number(one) for one in labels} - {None})
    found = []
    for one, pairs in zip(cells, said, strict=True):
        text = clean(one["text"]) or clean(one["title"])
        title = clean(one["title"])
        if title and not text.startswith(title):
            text = f"{title}\n{text}"
        label = clean(one["sentiment"]).lower()
        sentiment = _place(one["sentiment"], numbers)
        places = {clean(name).removeprefix("$"): _place(given, numbers) for name, given in pairs or ()}
        entities = tuple((name, place) for name, place in places.items() if name and place is not None)
        problems["cells of entities that cannot be read"] += pairs is None
        problems["entities without a name or with an unknown sentiment"] += len(places) - len(entities)
        topic = clean(one["topic"])[:LONGEST_NAME] or None
        if not text:
            problems["rows without a text"] += 1
        elif sentiment is None and topic is None and not entities:
            problems["rows without sentiment and topic" if not label else "rows with an unknown sentiment"] += 1
        else:
            time = None if one["time"] in (None, "") else parse_time(one["time"], UTC)
            found.append(
                Labelled(text=text, sentiment=sentiment, topic=topic, time=time, source=rows.source, entities=entities)
            )
    for kind, count in table.problems.counts.items():
        problems[kind.replace("_", " ")] += count
    return found


def _place(given: Any, numbers: Mapping[str, int]) -> int | None:
    """Return the index of a sentiment; None if it is not one."""
    return _KNOWN.get(clean(given).lower(), numbers.get(_number(given) or ""))


def _pairs(cell: Any) -> list[tuple[Any, Any]] | None:
    """Return names of entities with their sentiments as given; None if the cell cannot be read."""
    if isinstance(cell, str):
        if cell.lstrip()[:1] not in ("[", "{"):
            parts = [part.rpartition(":") for part in cell.replace("：", ":").split("|") if part.strip()]
            return [(name, label) for name, _, label in parts]
        try:
            cell = json.loads(cell)
        except ValueError:
            return None
    if cell is None or cell != cell:  # nothing, or the nan of a table without a value
        return []
    if isinstance(cell, Mapping):
        return list(cell.items())
    if not isinstance(cell, Sequence) or not all(isinstance(one, Mapping) for one in cell):
        return None
    return [(one.get("code") or one.get("name"), one.get("sentiment")) for one in cell]


def _number(value: Any) -> str | None:
    text = clean(value)
    try:
        number = float(text)
    except ValueError:
        return None
    return str(int(number)) if number.is_integer() else None


def _numbers(seen: set[str | None]) -> dict[str, int]:
    values = {one for one in seen if one is not None}
    if values <= {"-1", "0", "1"} and "-1" in values:
        return _SIGNED
    return next((meaning for known, meaning in _NUMBERS.items() if values and values <= known), {})
