"""The operator's labelled rows: text, sentiment, topic, time.

In: tables. Out: `Labelled` rows, in the order of their times where they have times. Sentiments are negative, neutral
and positive, or their usual other names; numbers are 0 and 1 (negative, positive), 0 to 2, or -1 to 1.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
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
    """One row."""

    text: str
    sentiment: int | None = None
    """Its place in SENTIMENTS."""
    topic: str | None = None
    time: float | None = None
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class LabelledRows:
    """All of them."""

    rows: tuple[Labelled, ...]
    left_out: dict[str, int] = field(default_factory=dict)


def read_labelled(sources: Sequence[str | Path | Table]) -> LabelledRows:
    """Reads all tables."""
    problems: Counter[str] = Counter()
    found = [row for source in sources for row in _rows(source, problems)]
    return gathered(found, problems)


def gathered(found: Iterable[Labelled], problems: Counter[str] | None = None) -> LabelledRows:
    """Rows in the order of their times; the same text with the same labels counts once, and the last label holds."""
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
    cells = [
        {role: rows.cell(row, role) for role in ("text", "title", "sentiment", "topic", "time")}
        for _, row in rows_given(table)
    ]
    numbers = _numbers({_number(one["sentiment"]) for one in cells} - {None})
    found = []
    for one in cells:
        text = clean(one["text"]) or clean(one["title"])
        title = clean(one["title"])
        if title and not text.startswith(title):
            text = f"{title}\n{text}"
        label = clean(one["sentiment"]).lower()
        sentiment = _KNOWN.get(label, numbers.get(_number(one["sentiment"]) or ""))
        topic = clean(one["topic"])[:LONGEST_NAME] or None
        if not text:
            problems["rows without a text"] += 1
        elif sentiment is None and topic is None:
            problems["rows without sentiment and topic" if not label else "rows with an unknown sentiment"] += 1
        else:
            time = None if one["time"] in (None, "") else parse_time(one["time"], UTC)
            found.append(Labelled(text=text, sentiment=sentiment, topic=topic, time=time, source=rows.source))
    for kind, count in table.problems.counts.items():
        problems[kind.replace("_", " ")] += count
    return found


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
