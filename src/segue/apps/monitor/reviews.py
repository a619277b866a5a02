"""Database queries of corrections, their review and training, and of the texts of a person."""

import json
import time
from collections.abc import Mapping
from typing import Any

from segue.apps.database import Connection
from segue.apps.monitor import store
from segue.apps.monitor.model import Reading, Sentiment
from segue.apps.monitor.texts import Text


def correct(
    connection: Connection,
    number: int,
    *,
    sentiment: str | None,
    topic: str | None,
    entities: Mapping[str, str],
    agent: str,
) -> bool:
    """Store a correction of a text and of the sentiment towards its entities, by code; return False if there is no such
    text."""
    if connection.execute("SELECT 1 FROM texts WHERE number = ?", (number,)).fetchone() is None:
        return False
    connection.execute(
        "INSERT INTO labels (text, sentiment, topic, entities, agent, created) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT "
        "(text) DO UPDATE SET sentiment = excluded.sentiment, topic = excluded.topic, entities = excluded.entities, "
        "agent = excluded.agent, created = excluded.created, state = 'open', reviewer = NULL, learned_by = NULL",
        (number, sentiment, topic, json.dumps(dict(entities), ensure_ascii=False), agent, time.time()),
    )
    return True


def proposals(connection: Connection, *, state: str, limit: int) -> list[dict[str, Any]]:
    """Return corrections in a state (open, accepted, rejected), the oldest first, with their texts."""
    names = ("text", "sentiment", "topic", "entities", "agent", "created", "state", "reviewer", "learned_by")
    rows = connection.execute(
        f"SELECT {', '.join(names)} FROM labels WHERE state = ? ORDER BY created, text LIMIT ?", (state, limit)
    ).fetchall()
    found = []
    for row in rows:
        one = dict(zip(names, row, strict=True))
        one["entities"] = json.loads(one["entities"])
        found.append({**one, "about": store.texts_of(connection, [one["text"]])[0]})
    return found


def decide(connection: Connection, number: int, *, accepted: bool, reviewer: str) -> bool:
    """Accept or reject a correction; return False if there is none that no model was trained on."""
    cursor = connection.execute(
        "UPDATE labels SET state = ?, reviewer = ? WHERE text = ? AND learned_by IS NULL",
        ("accepted" if accepted else "rejected", reviewer, number),
    )
    return cursor.rowcount == 1


def accepted(connection: Connection, model: str) -> list[dict[str, Any]]:
    """Return accepted corrections that a model was not trained on; after a roll-back, also those of later models."""
    rows = connection.execute(
        "SELECT l.text, l.sentiment, l.topic, l.entities, t.time, t.title, t.text FROM labels l "
        "JOIN texts t ON t.number = l.text WHERE l.state = 'accepted' AND (l.learned_by IS NULL OR l.learned_by > ?) "
        "ORDER BY l.text",
        (model,),
    )
    found = []
    for number, sentiment, topic, entities, when, title, text in rows:
        whole = Text(id="", source="", time=when, title=title, text=text).whole
        about = {"sentiment": sentiment, "topic": topic, "entities": json.loads(entities)}
        found.append({"number": number, "time": when, "text": whole, **about})
    return found


def all_accepted(connection: Connection) -> set[int]:
    """Return the numbers of the texts with an accepted correction."""
    return {number for (number,) in connection.execute("SELECT text FROM labels WHERE state = 'accepted'")}


def learned(connection: Connection, numbers: list[int], model: str) -> None:
    """Store which model was trained on corrections."""
    connection.execute_many("UPDATE labels SET learned_by = ? WHERE text = ?", [(model, one) for one in numbers])


# ------------------------------------------------------------------------------------------------------ personal data


def of_person(connection: Connection, author: str) -> dict[str, Any]:
    """Return all texts of an author."""
    rows = connection.execute(
        f"SELECT {', '.join(store.TEXT)} FROM texts WHERE author = ? ORDER BY time, number", (author,)
    )
    return {"person": author, "texts": [store.shown_text(row) for row in rows]}


def whole_texts(found: dict[str, Any]) -> set[str]:
    """Return the texts of a person in the form that models are trained on."""
    return {Text(id="", source="", time=0.0, title=one["title"], text=one["text"]).whole for one in found["texts"]}


def forget(connection: Connection, author: str) -> int:
    """Delete the texts of an author, with their counts and pending notifications, and return their number."""
    columns = "number, id, source, time, topic, topic_probability, negative, positive, entities, original, late"
    wholes = connection.execute("SELECT title, text FROM texts WHERE author = ? AND original IS NULL", (author,))
    deleted = [f"{title}\n{text}" for title, text in wholes]
    rows = connection.execute(f"SELECT {columns} FROM texts WHERE author = ?", (author,)).fetchall()
    for number, id, source, when, topic, sure, negative, positive, entities, original, late in rows:
        said = {code: _sentiment(*pair) for code, pair in json.loads(entities).items()}
        reading = Reading(topic=topic, topic_probability=sure, sentiment=_sentiment(negative, positive), entities=said)
        row = store.Row(
            text=Text(id=id, source=source, time=when, text=""),
            reading=reading,
            fingerprint="",
            original=original,
            late=bool(late),
            model="",
            arrived=0.0,
        )
        store.count_texts(connection, [(number, row)], sign=-1)
        told = connection.execute("SELECT alarm FROM alarm_texts WHERE text = ?", (number,)).fetchall()
        for (alarm,) in told:
            connection.execute(
                "DELETE FROM outbox WHERE subject IN (SELECT 'incident ' || incident FROM alarms WHERE number = ?)",
                (alarm,),
            )
            connection.execute("DELETE FROM mails WHERE id = ?", (f"alarm-{alarm}",))
        for table, column in (("alarm_texts", "text"), ("labels", "text"), ("texts", "number")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
    store.forget_names(connection, deleted)
    refused = connection.execute("SELECT number, given FROM refused").fetchall()
    named = [(number,) for number, given in refused if author in given]
    connection.execute_many("DELETE FROM refused WHERE number = ?", named)
    return len(rows)


def _sentiment(negative: float, positive: float) -> Sentiment:
    return Sentiment(negative=negative, neutral=max(0.0, 1 - negative - positive), positive=positive)
