"""Schema and statements of the database; every function is work for one transaction (`segue.apps.database`).

All SQL of a monitor is here, in `reviews` and in `queries`. A text is a row of `texts`, and of `mentions` for each of
its entities and once for the entity "", which stands for all texts. `hours` and `days` count texts by entity and topic,
`entity_days` by entity, so that a page reads at most some ten thousand rows, however many texts there are.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from segue.apps import outbox, webhooks
from segue.apps.database import Connection
from segue.apps.folder import Application
from segue.apps.monitor.model import Reading, Sentiment
from segue.apps.monitor.texts import Text
from segue.apps.monitor.watch import DAY, HOUR, WEEK, Alarm, Seen

COUNTED = ("texts", "repeats", "negative", "positive", "score", "square", "timely", "timely_negative")
"""Columns of the count tables."""
_COUNTS = (
    "texts BIGINT NOT NULL, repeats BIGINT NOT NULL, negative BIGINT NOT NULL, positive BIGINT NOT NULL, "
    "score DOUBLE PRECISION NOT NULL, square DOUBLE PRECISION NOT NULL, timely BIGINT NOT NULL, "
    "timely_negative BIGINT NOT NULL"
)
STEPS = (
    f"""
CREATE TABLE texts (
  number NUMBERED, id TEXT NOT NULL UNIQUE, source TEXT NOT NULL, time DOUBLE PRECISION NOT NULL,
  arrived DOUBLE PRECISION NOT NULL, language TEXT NOT NULL, author TEXT, title TEXT NOT NULL, text TEXT NOT NULL,
  fingerprint TEXT NOT NULL, original BIGINT, topic TEXT NOT NULL, topic_probability DOUBLE PRECISION NOT NULL,
  sentiment TEXT NOT NULL, negative DOUBLE PRECISION NOT NULL, positive DOUBLE PRECISION NOT NULL,
  entities TEXT NOT NULL,
  late BIGINT NOT NULL, model TEXT NOT NULL);
CREATE INDEX texts_by_time ON texts (time, number);
CREATE INDEX texts_by_fingerprint ON texts (fingerprint);
CREATE INDEX texts_by_author ON texts (author) WHERE author IS NOT NULL;
CREATE INDEX texts_by_original ON texts (original) WHERE original IS NOT NULL;
CREATE TABLE mentions (
  entity TEXT NOT NULL, topic TEXT NOT NULL, time DOUBLE PRECISION NOT NULL, number BIGINT NOT NULL,
  negative DOUBLE PRECISION NOT NULL,
  positive DOUBLE PRECISION NOT NULL, late BIGINT NOT NULL, PRIMARY KEY (entity, time, number));
CREATE INDEX mentions_by_topic ON mentions (entity, topic, time, number);
CREATE TABLE hours (
  entity TEXT NOT NULL, topic TEXT NOT NULL, start BIGINT NOT NULL, {_COUNTS}, PRIMARY KEY (entity, start, topic));
CREATE TABLE days (
  entity TEXT NOT NULL, topic TEXT NOT NULL, start BIGINT NOT NULL, {_COUNTS}, PRIMARY KEY (entity, start, topic));
CREATE INDEX days_by_start ON days (start, entity);
CREATE TABLE subjects (
  entity TEXT NOT NULL, topic TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (entity, topic));
CREATE TABLE alarms (
  number NUMBERED, incident BIGINT, entity TEXT NOT NULL, topic TEXT NOT NULL,
  kind TEXT NOT NULL, time DOUBLE PRECISION NOT NULL, since DOUBLE PRECISION NOT NULL,
  created DOUBLE PRECISION NOT NULL, figures TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'open', agent TEXT, acknowledged DOUBLE PRECISION);
CREATE INDEX alarms_by_time ON alarms (time);
CREATE INDEX alarms_of_entity ON alarms (entity, topic, time);
CREATE TABLE alarm_texts (alarm BIGINT NOT NULL, text BIGINT NOT NULL, PRIMARY KEY (alarm, text));
CREATE INDEX alarms_of_text ON alarm_texts (text);
CREATE TABLE comments (
  number NUMBERED, alarm BIGINT NOT NULL, agent TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
  text TEXT NOT NULL);
CREATE INDEX comments_of_alarm ON comments (alarm, number);
CREATE TABLE labels (
  text BIGINT PRIMARY KEY NOT NULL, sentiment TEXT, topic TEXT, agent TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
  state TEXT NOT NULL DEFAULT 'open', reviewer TEXT, learned_by TEXT);
CREATE INDEX labels_by_state ON labels (state, text);
CREATE TABLE sources (
  name TEXT PRIMARY KEY, place TEXT NOT NULL, taken BIGINT NOT NULL, known BIGINT NOT NULL,
  refused BIGINT NOT NULL, last DOUBLE PRECISION, problem TEXT);
CREATE TABLE refused (
  number NUMBERED, source TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, reason TEXT NOT NULL,
  given TEXT NOT NULL);
CREATE TABLE names (name TEXT PRIMARY KEY, texts BIGINT NOT NULL, first DOUBLE PRECISION NOT NULL,
  last DOUBLE PRECISION NOT NULL);
CREATE TABLE state (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);
CREATE TABLE mails ({outbox.COLUMNS});
"""
    + webhooks.TABLE,
    f"""
ALTER TABLE labels ADD COLUMN entities TEXT NOT NULL DEFAULT '{{}}';
ALTER TABLE names ADD COLUMN state TEXT NOT NULL DEFAULT 'open';
CREATE INDEX names_by_state ON names (state, texts);
CREATE TABLE entity_days (entity TEXT NOT NULL, start BIGINT NOT NULL, {_COUNTS}, PRIMARY KEY (entity, start));
INSERT INTO entity_days SELECT entity, start, {", ".join(f"CAST(sum({name}) AS BIGINT)" for name in COUNTED[:4])},
  sum(score), sum(square), {", ".join(f"CAST(sum({name}) AS BIGINT)" for name in COUNTED[6:])}
  FROM days GROUP BY entity, start;
CREATE INDEX entity_days_by_start ON entity_days (start, entity);
DROP INDEX days_by_start;
CREATE INDEX days_by_topic ON days (topic, start, entity);
CREATE INDEX negative_mentions ON mentions (entity, time, number) WHERE negative >= 0.5;
CREATE INDEX positive_mentions ON mentions (entity, time, number) WHERE positive >= 0.5;
CREATE INDEX neutral_mentions ON mentions (entity, time, number) WHERE negative < 0.5 AND positive < 0.5;
CREATE INDEX alarms_by_state ON alarms (state, time, number);
CREATE INDEX alarms_of_incident ON alarms (incident, state);
""",
)
MONITOR = Application(name="monitor", what="a monitor", steps=STEPS)
MOST_NAMES = 20_000
"""Maximum number of proposed names."""
MOST_REFUSED = 10_000
"""Maximum number of stored rejected rows; older ones are deleted."""
_KEYS = {
    "hours": ("entity", "topic", "start"),
    "days": ("entity", "topic", "start"),
    "entity_days": ("entity", "start"),
}
"""Count tables, with their keys."""


def _upsert(table: str) -> str:
    names = (*_KEYS[table], *COUNTED)
    added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in COUNTED)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(_KEYS[table])}) DO UPDATE SET {added}"
    )


_UPSERTS = {table: _upsert(table) for table in _KEYS}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A text to be stored."""

    text: Text
    reading: Reading
    fingerprint: str
    original: int | None
    late: bool
    model: str
    arrived: float


# ------------------------------------------------------------------------------------------------------------- writing


def known_ids(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return those ids that are stored."""
    found: set[str] = set()
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        marks = ", ".join("?" * len(some))
        found.update(id for (id,) in connection.execute(f"SELECT id FROM texts WHERE id IN ({marks})", some))
    return found


def originals(connection: Connection, fingerprints: Sequence[str]) -> dict[str, tuple[int, Reading]]:
    """Return the first text with each of these fingerprints, and its predictions."""
    found: dict[str, tuple[int, Reading]] = {}
    names = "fingerprint, number, topic, topic_probability, negative, positive, entities"
    for start in range(0, len(fingerprints), 500):
        some = fingerprints[start : start + 500]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            f"SELECT {names} FROM texts WHERE fingerprint IN ({marks}) AND original IS NULL ORDER BY number", some
        )
        for fingerprint, number, *values in rows:
            found.setdefault(fingerprint, (number, _reading(*values)))
    return found


def reading_of(connection: Connection, number: int) -> Reading:
    """Return the predictions for a text."""
    row = connection.execute(
        "SELECT topic, topic_probability, negative, positive, entities FROM texts WHERE number = ?", (number,)
    ).fetchone()
    return _reading(*row)


def _reading(topic: str, sure: float, negative: float, positive: float, entities: str) -> Reading:
    return Reading(
        topic=topic,
        topic_probability=sure,
        sentiment=_sentiment(negative, positive),
        entities={code: _sentiment(*pair) for code, pair in json.loads(entities).items()},
    )


def _sentiment(negative: float, positive: float) -> Sentiment:
    return Sentiment(negative=negative, neutral=max(0.0, 1 - negative - positive), positive=positive)


def add_text(connection: Connection, row: Row) -> int:
    """Store a text and return its number."""
    text, reading = row.text, row.reading
    entities = {code: [round(one.negative, 5), round(one.positive, 5)] for code, one in reading.entities.items()}
    (number,) = connection.execute(
        "INSERT INTO texts (id, source, time, arrived, language, author, title, text, fingerprint, original, topic, "
        "topic_probability, sentiment, negative, positive, entities, late, model) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
        (
            text.id,
            text.source,
            text.time,
            row.arrived,
            text.language,
            text.author,
            text.title,
            text.text,
            row.fingerprint,
            row.original,
            reading.topic,
            round(reading.topic_probability, 5),
            reading.sentiment.label,
            round(reading.sentiment.negative, 5),
            round(reading.sentiment.positive, 5),
            json.dumps(entities, ensure_ascii=False),
            int(row.late),
            row.model,
        ),
    ).fetchone()
    return int(number)


def subjects_of(reading: Reading) -> dict[str, Sentiment]:
    """Return the sentiment by entity; "" is the text itself."""
    return {"": reading.sentiment, **reading.entities}


def count_texts(connection: Connection, written: Iterable[tuple[int, Row]], *, sign: int = 1) -> None:
    """Add texts to the mentions and to all counts; with sign -1, remove them."""
    mentions: list[tuple[Any, ...]] = []
    counts: dict[str, dict[Any, list[float]]] = {table: {} for table in _KEYS}
    for number, row in written:
        for entity, sentiment in subjects_of(row.reading).items():
            negative, positive = round(sentiment.negative, 5), round(sentiment.positive, 5)
            key = (entity, row.reading.topic, row.text.time, number)
            mentions.append((*key, negative, positive, int(row.late)) if sign > 0 else (entity, row.text.time, number))
            score = positive - negative
            is_negative = negative >= 0.5
            added = (
                1,
                row.original is not None,
                is_negative,
                positive >= 0.5,
                score,
                score * score,
                not row.late,
                is_negative and not row.late,
            )
            hour, day = (int(row.text.time // length * length) for length in (HOUR, DAY))
            topic = row.reading.topic
            places = {"hours": (entity, topic, hour), "days": (entity, topic, day), "entity_days": (entity, day)}
            for table, place in places.items():
                sums = counts[table].setdefault(place, [0.0] * len(added))
                for column, value in enumerate(added):
                    sums[column] += sign * value
    if sign > 0:
        connection.execute_many("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?)", mentions)
    else:
        connection.execute_many("DELETE FROM mentions WHERE entity = ? AND time = ? AND number = ?", mentions)
    for table, found in counts.items():
        connection.execute_many(_UPSERTS[table], [(*place, *sums) for place, sums in found.items()])


def refuse(connection: Connection, source: str, reason: str, row: Any) -> None:
    """Store a rejected row with the reason, for inspection."""
    shown = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False, default=str)
    (number,) = connection.execute(
        "INSERT INTO refused (source, created, reason, given) VALUES (?, ?, ?, ?) RETURNING number",
        (source, time.time(), reason[:500], shown.replace("\0", "")[:4000]),
    ).fetchone()
    connection.execute("DELETE FROM refused WHERE number <= ?", (number - MOST_REFUSED,))


def note_source(
    connection: Connection,
    name: str,
    *,
    place: Mapping[str, Any] | None,
    taken: int = 0,
    known: int = 0,
    refused: int = 0,
    problem: str | None = None,
) -> None:
    """Store the position in a source, and add to its counts."""
    connection.execute(
        "INSERT INTO sources (name, place, taken, known, refused) VALUES (?, '{}', 0, 0, 0) ON CONFLICT (name) "
        "DO NOTHING",
        (name,),
    )
    connection.execute(
        "UPDATE sources SET taken = taken + ?, known = known + ?, refused = refused + ?, last = ?, problem = ? "
        "WHERE name = ?",
        (taken, known, refused, time.time(), None if problem is None else problem[:500], name),
    )
    if place is not None:
        connection.execute("UPDATE sources SET place = ? WHERE name = ?", (json.dumps(dict(place)), name))


def place_of(connection: Connection, name: str) -> dict[str, Any]:
    """Return the position in a source."""
    row = connection.execute("SELECT place FROM sources WHERE name = ?", (name,)).fetchone()
    found: dict[str, Any] = {} if row is None else json.loads(row[0])
    return found


def count_names(connection: Connection, names: Sequence[str], when: float) -> None:
    """Count names that are not in the list, in texts up to a time. Beyond MOST_NAMES, delete those with the fewest
    texts, the oldest first; names that an operator has decided on stay."""
    if not names:
        return
    connection.execute_many(
        "INSERT INTO names (name, texts, first, last) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
        "texts = names.texts + excluded.texts, first = CASE WHEN excluded.first < names.first THEN excluded.first ELSE "
        "names.first END, last = CASE WHEN excluded.last > names.last THEN excluded.last ELSE names.last END",
        [(name, texts, when, when) for name, texts in Counter(names).items()],
    )
    (count,) = connection.execute("SELECT count(*) FROM names WHERE state = 'open'").fetchone()
    if count > MOST_NAMES:
        connection.execute(
            "DELETE FROM names WHERE name IN (SELECT name FROM names WHERE state = 'open' ORDER BY texts, last, name "
            "LIMIT ?)",
            (count - MOST_NAMES * 3 // 4,),
        )


def forget_names(connection: Connection, texts: Sequence[str]) -> None:
    """Remove texts from the counts of the names in them."""
    names = connection.execute("SELECT name FROM names WHERE state = 'open'").fetchall()
    held = [(count, name) for (name,) in names if (count := sum(name in text for text in texts))]
    connection.execute_many("UPDATE names SET texts = texts - ? WHERE name = ?", held)
    connection.execute("DELETE FROM names WHERE state = 'open' AND texts <= 0")


def get_state(connection: Connection, name: str) -> float | None:
    """Return a stored number; None if there is none."""
    row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return None if row is None else float(row[0])


def set_state(connection: Connection, name: str, value: float) -> None:
    """Store a number."""
    connection.execute(
        "INSERT INTO state VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
    )


# ------------------------------------------------------------------------------------------------------------ watching


def to_judge(connection: Connection, after: float, until: float) -> list[tuple[int, float, Reading]]:
    """Return the texts between two times that are not late, sorted by time."""
    rows = connection.execute(
        "SELECT number, time, topic, topic_probability, negative, positive, entities FROM texts WHERE time > ? AND "
        "time <= ? AND late = 0 ORDER BY time, number",
        (after, until),
    )
    return [(number, time, _reading(*values)) for number, time, *values in rows]


def _where(entity: str, topic: str) -> tuple[str, tuple[str, ...]]:
    return ("entity = ? AND topic = ?", (entity, topic)) if topic else ("entity = ?", (entity,))


def history(connection: Connection, entity: str, topic: str, *, start: float, end: float, most: int) -> list[Seen]:
    """Return the last texts of a subject between two times, sorted by time, without late ones."""
    where, values = _where(entity, topic)
    rows = connection.execute(
        f"SELECT time, number, negative, positive FROM mentions WHERE {where} AND time >= ? AND time < ? AND late = 0 "
        "ORDER BY time DESC, number DESC LIMIT ?",
        (*values, start, end, most),
    ).fetchall()
    names = ("time", "number", "negative", "positive")
    return [Seen(**dict(zip(names, row, strict=True))) for row in reversed(rows)]


def negatives(
    connection: Connection, entity: str, topic: str, *, start: float, end: float
) -> tuple[list[tuple[float, int]], int]:
    """Return the number of negative texts of a subject by hour, and of all its texts, without late ones."""
    where, values = _where(entity, topic)
    rows = connection.execute(
        "SELECT start, CAST(sum(timely_negative) AS BIGINT), CAST(sum(timely) AS BIGINT) FROM hours "
        f"WHERE {where} AND start >= ? AND start < ? GROUP BY start ORDER BY start",
        (*values, int(start // HOUR * HOUR), int(end // HOUR * HOUR)),
    ).fetchall()
    return [(float(hour), int(negative)) for hour, negative, _ in rows], sum(int(count) for _, _, count in rows)


def subject_state(connection: Connection, entity: str, topic: str) -> dict[str, Any] | None:
    """Return the stored state of a subject; None if there is none."""
    row = connection.execute("SELECT state FROM subjects WHERE entity = ? AND topic = ?", (entity, topic)).fetchone()
    return None if row is None else json.loads(row[0])


def set_subject_state(connection: Connection, entity: str, topic: str, state: Mapping[str, Any]) -> None:
    """Store the state of a subject."""
    connection.execute(
        "INSERT INTO subjects VALUES (?, ?, ?) ON CONFLICT (entity, topic) DO UPDATE SET state = excluded.state",
        (entity, topic, json.dumps(dict(state))),
    )


def add_alarm(connection: Connection, entity: str, topic: str, alarm: Alarm, *, near: float) -> tuple[int, int]:
    """Store an alarm; return its number and that of its incident: the one of the same subject in the week before, the
    one of an alarm in the last `near` seconds that shares half of the texts, or otherwise its own number."""
    (number,) = connection.execute(
        "INSERT INTO alarms (entity, topic, kind, time, since, created, figures) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "RETURNING number",
        (entity, topic, alarm.kind, alarm.time, alarm.since, time.time(), json.dumps(alarm.figures)),
    ).fetchone()
    own = set(alarm.numbers)
    connection.execute_many("INSERT INTO alarm_texts VALUES (?, ?)", [(number, text) for text in sorted(own)])
    incident = _incident(connection, entity, topic, alarm, before=number, near=near)
    connection.execute("UPDATE alarms SET incident = ? WHERE number = ?", (incident or number, number))
    return int(number), int(incident or number)


def _incident(connection: Connection, entity: str, topic: str, alarm: Alarm, *, before: int, near: float) -> int | None:
    """Return the incident of an earlier alarm that a new one belongs to; None if there is none."""
    row = connection.execute(
        "SELECT incident FROM alarms WHERE entity = ? AND topic = ? AND time >= ? AND number < ? ORDER BY number DESC "
        "LIMIT 1",
        (entity, topic, alarm.time - WEEK, before),
    ).fetchone()
    if row is not None:
        return int(row[0])
    own = set(alarm.numbers)
    earlier = connection.execute(
        "SELECT number, incident FROM alarms WHERE time >= ? AND time <= ? AND number < ? ORDER BY number",
        (alarm.time - near, alarm.time, before),
    ).fetchall()
    for other, found in earlier:
        theirs = {text for (text,) in connection.execute("SELECT text FROM alarm_texts WHERE alarm = ?", (other,))}
        if 2 * len(own & theirs) >= min(len(own), len(theirs)):
            return int(found)
    return None


def add_mail(connection: Connection, id: str, subject: str, body: str) -> None:
    """Store a mail to be sent."""
    connection.execute("INSERT INTO mails (id, subject, body, next_try) VALUES (?, ?, ?, 0)", (id, subject, body))


TEXT = (
    "number",
    "source",
    "time",
    "arrived",
    "language",
    "author",
    "title",
    "text",
    "original",
    "topic",
    "topic_probability",
    "sentiment",
    "negative",
    "positive",
    "entities",
    "late",
    "model",
)
"""Columns of a text in responses."""


def shown_text(row: Sequence[Any]) -> dict[str, Any]:
    """Return a row with the columns `TEXT` as a dict."""
    found = dict(zip(TEXT, row, strict=True))
    found["entities"] = json.loads(found["entities"])
    found["late"] = bool(found["late"])
    return found


def texts_of(connection: Connection, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Return texts by number, sorted by time."""
    if not numbers:
        return []
    marks = ", ".join("?" * len(numbers))
    rows = connection.execute(
        f"SELECT {', '.join(TEXT)} FROM texts WHERE number IN ({marks}) ORDER BY time, number", list(numbers)
    )
    return [shown_text(row) for row in rows]


def last_originals(connection: Connection, most: int) -> list[tuple[int, str, list[str]]]:
    """Return number, title with text, and entities of the last texts that are not repeats, in order of arrival."""
    rows = connection.execute(
        "SELECT number, title, text, entities FROM texts WHERE original IS NULL ORDER BY number DESC LIMIT ?", (most,)
    ).fetchall()
    found = []
    for number, title, text, entities in reversed(rows):
        whole = Text(id="", source="", time=0.0, title=title, text=text).whole
        found.append((number, whole, list(json.loads(entities))))
    return found
