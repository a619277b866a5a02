"""Database queries of the pages: trends, texts, alarms. Every function is work for one transaction."""

import json
import math
import time as clock
from collections.abc import Sequence
from typing import Any

from segue.apps.database import Connection
from segue.apps.monitor.store import TEXT, shown_text, texts_of
from segue.apps.monitor.watch import DAY, HOUR, WEEK

FINE = 14 * DAY
"""Maximum length of a period in seconds that is shown by the hour."""
WEEKS = 8
"""Weeks of history that a point is compared with."""
SURE = 1.96
"""Standard errors on each side of a 95 % interval."""
MOST_POINTS = 3000
_SUMS = ", ".join(
    [
        *(f"CAST(sum({name}) AS BIGINT)" for name in ("texts", "repeats", "negative", "positive")),
        "sum(score)",
        "sum(square)",
    ]
)


NOTHING = (0, 0, 0, 0, 0.0, 0.0)


def figures(texts: int, repeats: int, negative: int, positive: int, score: float, square: float) -> dict[str, Any]:
    """Return volume, and mean sentiment with its 95 % interval."""
    found = {"texts": int(texts), "repeats": int(repeats), "negative": int(negative), "positive": int(positive)}
    if texts <= 0:
        return {**found, "mean": None, "low": None, "high": None}
    mean = score / texts
    variance = max(0.0, square / texts - mean * mean) * texts / max(1, texts - 1)
    half = SURE * math.sqrt(variance / texts) if texts > 1 else 1.0
    return {**found, "mean": mean, "low": max(-1.0, mean - half), "high": min(1.0, mean + half)}


def overview(connection: Connection, *, start: float, end: float, limit: int) -> list[dict[str, Any]]:
    """Return the entities with the most texts between two times, by whole days, with the equally long period before."""
    first, last = _whole_days(start, end)
    rows = connection.execute(
        f"SELECT entity, {_SUMS} FROM entity_days WHERE start >= ? AND start < ? AND entity != '' GROUP BY entity "
        "ORDER BY sum(texts) DESC, entity LIMIT ?",
        (first, last, limit),
    ).fetchall()
    before: dict[str, Sequence[Any]] = {}
    if rows:
        marks = ", ".join("?" * len(rows))
        earlier = connection.execute(
            f"SELECT entity, {_SUMS} FROM entity_days WHERE entity IN ({marks}) AND start >= ? AND start < ? "
            "GROUP BY entity",
            (*(entity for entity, *_ in rows), 2 * first - last, first),
        )
        before = {entity: sums for entity, *sums in earlier}
    return [
        {"entity": entity, **figures(*sums), "before": figures(*before.get(entity, NOTHING))} for entity, *sums in rows
    ]


def _whole_days(start: float, end: float) -> tuple[int, int]:
    return int(start // DAY * DAY), int(math.ceil(end / DAY) * DAY)


def within(
    connection: Connection, *, entity: str, topic: str, start: float, end: float, limit: int
) -> list[dict[str, Any]]:
    """Return the topics of an entity, or the entities of a topic, with the most texts between two times, by whole days,
    with the period of equal length before."""
    by, of, value = ("entity", "topic", topic) if topic else ("topic", "entity", entity)
    first, last = _whole_days(start, end)

    rows = connection.execute(
        f"SELECT {by}, {_SUMS} FROM days WHERE {of} = ? AND start >= ? AND start < ? AND {by} != '' GROUP BY {by} "
        f"ORDER BY sum(texts) DESC, {by} LIMIT ?",
        (value, first, last, limit),
    ).fetchall()
    before: dict[str, Sequence[Any]] = {}
    if rows:
        marks = ", ".join("?" * len(rows))
        earlier = connection.execute(
            f"SELECT {by}, {_SUMS} FROM days WHERE {of} = ? AND start >= ? AND start < ? AND {by} IN ({marks}) "
            f"GROUP BY {by}",
            (value, 2 * first - last, first, *(name for name, *_ in rows)),
        )
        before = {name: sums for name, *sums in earlier}
    return [{by: name, **figures(*sums), "before": figures(*before.get(name, NOTHING))} for name, *sums in rows]


def totals(connection: Connection, *, entity: str, topic: str, start: float, end: float) -> dict[str, Any]:
    """Return the figures of a subject between two times, by whole days, and of the period of the same length before."""
    first, last = _whole_days(start, end)

    def between(since: int, until: int) -> dict[str, Any]:
        rows = _by_start(connection, "days", entity, topic, since, until).values()
        return figures(*(map(sum, zip(*rows, strict=True)) if rows else NOTHING))

    return {**between(first, last), "before": between(2 * first - last, first)}


def topics(connection: Connection, *, start: float, end: float) -> list[dict[str, Any]]:
    """Return the topics of all texts between two times."""
    rows = connection.execute(
        f"SELECT topic, {_SUMS} FROM days WHERE entity = '' AND start >= ? AND start < ? GROUP BY topic "
        "ORDER BY sum(texts) DESC, topic",
        (int(start // DAY * DAY), math.ceil(end)),
    ).fetchall()
    return [{"topic": topic, **figures(*sums)} for topic, *sums in rows]


def timeline(connection: Connection, *, entity: str, topic: str, start: float, end: float) -> dict[str, Any]:
    """Return a point for each hour, or for each day of long periods, with the usual number of texts: the mean at the
    same hour and weekday of the weeks before."""
    step = HOUR if end - start <= FINE else DAY
    first = max(start // step * step, end - MOST_POINTS * step)
    sums = _by_start(connection, "hours" if step == HOUR else "days", entity, topic, first - WEEKS * WEEK, end)
    begun = min(sums, default=end)
    points = []
    place = first
    while place < end:
        past = [place - week * WEEK for week in range(1, WEEKS + 1) if place - week * WEEK >= begun]
        usual = sum(sums.get(one, (0,))[0] for one in past) / len(past) if past else None
        points.append({"start": place, **figures(*sums.get(place, NOTHING)), "usual": usual})
        place += step
    return {"step": step, "points": points}


def _by_start(
    connection: Connection, table: str, entity: str, topic: str, start: float, end: float
) -> dict[float, tuple[Any, ...]]:
    assert table in ("hours", "days")
    more, values = (" AND topic = ?", (topic,)) if topic else ("", ())
    table = "entity_days" if table == "days" and not topic else table
    rows = connection.execute(
        f"SELECT start, {_SUMS} FROM {table} WHERE entity = ? AND start >= ? AND start < ?{more} GROUP BY start",
        (entity, math.ceil(start), math.ceil(end), *values),
    )
    return {float(one): tuple(sums) for one, *sums in rows}


def daily_means(connection: Connection, entity: str, *, start: float, end: float) -> dict[int, float]:
    """Return the mean sentiment of each day with a text; days are numbered from 1970."""
    sums = _by_start(connection, "days", entity, "", start, end)
    return {int(one // DAY): row[4] / row[0] for one, row in sums.items() if row[0] > 0}


# --------------------------------------------------------------------------------------------------------------- texts


def texts(
    connection: Connection,
    *,
    entity: str = "",
    topic: str = "",
    sentiment: str = "",
    start: float = -1e18,
    before: tuple[float, int] = (1e18, 2**62),
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Return the last texts of a subject before a position, the latest first, with the sentiment towards the entity."""
    where, values = ["m.entity = ?"], [entity]  # type: tuple[list[str], list[Any]]
    if topic:
        where.append("m.topic = ?")
        values.append(topic)
    conditions = {
        "negative": "m.negative >= 0.5",
        "positive": "m.positive >= 0.5",
        "neutral": "m.negative < 0.5 AND m.positive < 0.5",
    }
    if sentiment:
        where.append(conditions[sentiment])
        if topic and not _has(connection, entity, topic, sentiment):
            return []  # else all texts of the topic would be looked through
    time, number = before
    where.append("m.time >= ? AND m.time <= ? AND (m.time < ? OR m.number < ?)")
    values += [start, time, time, number]
    columns = ", ".join(f"t.{name}" for name in TEXT)
    rows = connection.execute(
        f"SELECT m.negative, m.positive, {columns} FROM mentions m JOIN texts t ON t.number = m.number "
        f"WHERE {' AND '.join(where)} ORDER BY m.time DESC, m.number DESC LIMIT ?",
        (*values, limit),
    )
    return [
        {**shown_text(row), "said": {"negative": negative, "positive": positive}} for negative, positive, *row in rows
    ]


def _has(connection: Connection, entity: str, topic: str, sentiment: str) -> bool:
    """Return True if an entity has a text with this topic and sentiment."""
    column = sentiment if sentiment != "neutral" else "texts - negative - positive"
    row = connection.execute(
        f"SELECT sum({column}) FROM days WHERE entity = ? AND topic = ?", (entity, topic)
    ).fetchone()
    return bool(row[0])


def latest(connection: Connection, *, after: int, limit: int) -> list[dict[str, Any]]:
    """Return the last `limit` texts after a number, in order of arrival."""
    rows = connection.execute(
        f"SELECT {', '.join(TEXT)} FROM texts WHERE number > ? ORDER BY number DESC LIMIT ?", (after, limit)
    ).fetchall()
    return [shown_text(row) for row in reversed(rows)]


def one_text(connection: Connection, number: int) -> dict[str, Any] | None:
    """Return a text, the number of its repeats, and its correction."""
    found = texts_of(connection, [number])
    if not found:
        return None
    (repeated,) = connection.execute("SELECT count(*) FROM texts WHERE original = ?", (number,)).fetchone()
    names = ("sentiment", "topic", "entities", "state")
    row = connection.execute(f"SELECT {', '.join(names)} FROM labels WHERE text = ?", (number,)).fetchone()
    label = None
    if row is not None:
        label = dict(zip(names, row, strict=True))
        label["entities"] = json.loads(label["entities"])
    return {**found[0], "repeated": repeated, "label": label}


# -------------------------------------------------------------------------------------------------------------- alarms

_ALARM = (
    "number", "incident", "entity", "topic", "kind", "time", "since", "created", "figures", "state", "agent",
    "acknowledged",
)  # fmt: skip


def _alarm(row: Sequence[Any]) -> dict[str, Any]:
    found = dict(zip(_ALARM, row, strict=True))
    found["figures"] = json.loads(found["figures"])
    return found


def alarms(
    connection: Connection,
    *,
    entity: str | None = None,
    topic: str = "",
    state: str = "",
    start: float = -1e18,
    end: float = 1e18,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Return alarms between two times, the latest first: all for None, or those of a subject: all texts, a topic, an
    entity with any topic, or both, which includes alarms of the entity that have a text of the topic behind them."""
    where, values = ["time >= ?", "time < ?"], [start, end]  # type: tuple[list[str], list[Any]]
    if entity and topic:
        where.append(
            "entity = ? AND (topic = ? OR topic = '' AND EXISTS (SELECT 1 FROM alarm_texts x JOIN texts t "
            "ON t.number = x.text WHERE x.alarm = alarms.number AND t.topic = ?))"
        )
        values += [entity, topic, topic]
    elif entity:
        where.append("entity = ?")
        values.append(entity)
    elif entity is not None:
        where.append("entity = '' AND topic = ?")
        values.append(topic)
    if state:
        where.append("state = ?")
        values.append(state)
    rows = connection.execute(
        f"SELECT {', '.join(_ALARM)} FROM alarms WHERE {' AND '.join(where)} ORDER BY time DESC, number DESC LIMIT ?",
        (*values, limit),
    )
    return [_alarm(row) for row in rows]


def open_incidents(connection: Connection) -> int:
    """Return the number of incidents that nobody has acknowledged."""
    (found,) = connection.execute("SELECT count(DISTINCT incident) FROM alarms WHERE state = 'open'").fetchone()
    return int(found)


def one_alarm(connection: Connection, number: int) -> dict[str, Any] | None:
    """Return an alarm with its texts, its comments, and the other alarms of its incident; None if there is none."""
    row = connection.execute(f"SELECT {', '.join(_ALARM)} FROM alarms WHERE number = ?", (number,)).fetchone()
    if row is None:
        return None
    found = _alarm(row)
    numbers = [text for (text,) in connection.execute("SELECT text FROM alarm_texts WHERE alarm = ?", (number,))]
    comments = connection.execute(
        "SELECT agent, created, text FROM comments WHERE alarm = ? ORDER BY number", (number,)
    ).fetchall()
    related = connection.execute(
        "SELECT number, entity, topic, kind, time FROM alarms WHERE incident = ? AND number != ? ORDER BY number",
        (found["incident"], number),
    ).fetchall()
    return {
        **found,
        "texts": texts_of(connection, numbers),
        "comments": [dict(zip(("agent", "created", "text"), one, strict=True)) for one in comments],
        "related": [dict(zip(("number", "entity", "topic", "kind", "time"), one, strict=True)) for one in related],
    }


def acknowledge(connection: Connection, number: int, agent: str) -> bool:
    """Acknowledge all alarms of the incident of an alarm; return False if there is no such alarm."""
    row = connection.execute("SELECT incident FROM alarms WHERE number = ?", (number,)).fetchone()
    if row is None:
        return False
    connection.execute(
        "UPDATE alarms SET state = 'acknowledged', agent = ?, acknowledged = ? WHERE incident = ? AND state = 'open'",
        (agent, clock.time(), row[0]),
    )
    return True


def comment(connection: Connection, number: int, agent: str, text: str) -> bool:
    """Add a comment to an alarm; return False if there is no such alarm."""
    if connection.execute("SELECT 1 FROM alarms WHERE number = ?", (number,)).fetchone() is None:
        return False
    connection.execute(
        "INSERT INTO comments (alarm, agent, created, text) VALUES (?, ?, ?, ?)", (number, agent, clock.time(), text)
    )
    return True


# ------------------------------------------------------------------------------------------------------------- sources


def sources(connection: Connection) -> list[dict[str, Any]]:
    """Return the counts and the state of each source."""
    names = ("name", "taken", "known", "refused", "last", "problem")
    rows = connection.execute(f"SELECT {', '.join(names)} FROM sources ORDER BY name")
    return [dict(zip(names, row, strict=True)) for row in rows]


def refused(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """Return the last rejected rows."""
    names = ("number", "source", "created", "reason", "given")
    rows = connection.execute(f"SELECT {', '.join(names)} FROM refused ORDER BY number DESC LIMIT ?", (limit,))
    return [dict(zip(names, row, strict=True)) for row in rows]


def names(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """Return proposed names, those with the most texts first."""
    columns = ("name", "texts", "first", "last")
    rows = connection.execute(
        f"SELECT {', '.join(columns)} FROM names WHERE state = 'open' ORDER BY texts DESC, name LIMIT ?", (limit,)
    )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def span(connection: Connection) -> tuple[float, float] | None:
    """Return the times of the first and the last text; None if there is none."""
    (first,) = connection.execute("SELECT min(time) FROM texts").fetchone()  # each by the index, together by all rows
    (last,) = connection.execute("SELECT max(time) FROM texts").fetchone()
    return None if first is None else (float(first), float(last))
