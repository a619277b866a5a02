"""Conversations in the database. Every function is to be called within a transaction (`segue.apps.database`).

A conversation is in one of four states: `desk` (the model answers), `waiting` (for an agent), `agent` (an agent
answers), `resolved`. A message may have an id chosen by its sender, with which it is stored only once. Webhook events
are stored in the same transaction as what they report.
"""

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from segue.apps import webhooks
from segue.apps.database import Connection, Search, Step
from segue.apps.folder import Application

State = Literal["desk", "waiting", "agent", "resolved"]
Author = Literal["visitor", "desk", "agent"]
RATED = ("answer", "generated")
"""Kinds of the desk's messages that visitors may rate."""
WORDS = Search(name="words", table="messages", key="number", column="text")
"""Full-text search of messages."""
STEPS: tuple[Step, ...] = (
    (
        """
CREATE TABLE conversations (
  id TEXT PRIMARY KEY, person TEXT NOT NULL, language TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
  updated DOUBLE PRECISION NOT NULL, state TEXT NOT NULL, agent TEXT, reason TEXT,
  failures BIGINT NOT NULL DEFAULT 0, memory TEXT NOT NULL DEFAULT '{}');
CREATE INDEX conversations_of_state ON conversations (state, updated);
CREATE INDEX conversations_of_person ON conversations (person);
CREATE TABLE messages (
  number NUMBERED,
  conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
  author TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, client TEXT,
  about TEXT NOT NULL DEFAULT '{}', UNIQUE (conversation, client));
CREATE INDEX messages_of_conversation ON messages (conversation, number);
""",
        WORDS,
        """
CREATE TABLE feedback (
  message BIGINT PRIMARY KEY NOT NULL REFERENCES messages (number) ON DELETE CASCADE, good BIGINT NOT NULL,
  created DOUBLE PRECISION NOT NULL);
CREATE TABLE reviews (
  message BIGINT PRIMARY KEY NOT NULL REFERENCES messages (number) ON DELETE CASCADE, question TEXT NOT NULL,
  answer TEXT NOT NULL, topic TEXT, state TEXT NOT NULL DEFAULT 'open', reviewer TEXT, learned_by TEXT);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
""",
        webhooks.TABLE,
    ),
)
DESK = Application(name="desk", what="a desk", steps=STEPS)


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message to be stored."""

    author: Author
    text: str
    name: str = ""
    client: str | None = None
    about: Mapping[str, Any] | None = None


def open_conversation(connection: Connection, *, person: str, language: str) -> dict[str, Any]:
    """Open a conversation and return it."""
    id, now = secrets.token_urlsafe(18), time.time()
    connection.execute(
        "INSERT INTO conversations (id, person, language, created, updated, state) VALUES (?, ?, ?, ?, ?, 'desk')",
        (id, person, language, now, now),
    )
    webhooks.put(connection, "conversation_opened", id, {"conversation": id, "person": person})
    found = conversation(connection, id)
    assert found is not None
    return found


def conversation(connection: Connection, id: str) -> dict[str, Any] | None:
    """Return a conversation without its messages; None if it does not exist."""
    names = ("id", "person", "language", "created", "updated", "state", "agent", "reason", "failures", "memory")
    row = connection.execute(f"SELECT {', '.join(names)} FROM conversations WHERE id = ?", (id,)).fetchone()
    if row is None:
        return None
    found = dict(zip(names, row, strict=True))
    found["memory"] = json.loads(found["memory"])
    return found


def messages(connection: Connection, id: str, *, after: int = 0) -> list[dict[str, Any]]:
    """Return the messages of a conversation after a message number."""
    rows = connection.execute(
        "SELECT number, author, name, text, messages.created, client, about, good FROM messages "
        "LEFT JOIN feedback ON message = number WHERE conversation = ? AND number > ? ORDER BY number",
        (id, after),
    )
    names = ("number", "author", "name", "text", "created", "client", "about", "good")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    for one in found:
        one["about"] = json.loads(one["about"])
        one["good"] = None if one["good"] is None else bool(one["good"])
    return found


def sent_before(connection: Connection, id: str, client: str) -> list[dict[str, Any]] | None:
    """Return the message with this id of its sender, and the reply of the desk, if any; None if it was never sent."""
    row = connection.execute(
        "SELECT number FROM messages WHERE conversation = ? AND client = ?", (id, client)
    ).fetchone()
    if row is None:
        return None
    later = messages(connection, id, after=row[0] - 1)
    return later[:1] + [one for one in later[1:2] if one["author"] == "desk"]


def say(
    connection: Connection, id: str, said: Iterable[Said], *, changes: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Store messages, changes of the conversation, and webhook events; return the messages."""
    now = time.time()
    numbers = []
    for one in said:
        (number,) = connection.execute(
            "INSERT INTO messages (conversation, author, name, text, created, client, about) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING number",
            (
                id,
                one.author,
                one.name,
                one.text,
                now,
                one.client,
                json.dumps(dict(one.about or {}), ensure_ascii=False),
            ),
        ).fetchone()
        numbers.append(number)
        webhooks.put(
            connection,
            "message_created",
            id,
            {"conversation": id, "message": number, "author": one.author, "text": one.text},
        )
    change(connection, id, {**(changes or {}), "updated": now})
    return messages(connection, id, after=numbers[0] - 1) if numbers else []


def change(connection: Connection, id: str, changes: Mapping[str, Any]) -> None:
    """Change fields of a conversation; hand-overs and resolutions become webhook events."""
    before = conversation(connection, id)
    assert before is not None
    values = {
        name: json.dumps(value, ensure_ascii=False) if name == "memory" else value for name, value in changes.items()
    }
    assert set(values) <= {"updated", "state", "agent", "reason", "failures", "memory"}
    names = ", ".join(f"{name} = ?" for name in values)
    connection.execute(f"UPDATE conversations SET {names} WHERE id = ?", (*values.values(), id))
    state = changes.get("state", before["state"])
    if state != before["state"]:
        if state == "waiting":
            webhooks.put(connection, "handed_over", id, {"conversation": id, **record(connection, id)})
        elif state == "resolved":
            webhooks.put(
                connection, "resolved", id, {"conversation": id, "agent": changes.get("agent", before["agent"])}
            )


def record(connection: Connection, id: str) -> dict[str, Any]:
    """Return the record for an agent who takes over: reason, candidates of the desk, and transcript."""
    found = conversation(connection, id)
    assert found is not None
    said = messages(connection, id)
    last: dict[str, Any] = next(
        (one["about"] for one in reversed(said) if one["author"] == "desk" and "candidates" in one["about"]), {}
    )
    transcript = [{"author": one["author"], "text": one["text"], "created": one["created"]} for one in said]
    return {"reason": found["reason"], "candidates": last.get("candidates", []), "transcript": transcript}


def listed(
    connection: Connection, *, state: str | None, search: str, limit: int, before: float
) -> list[dict[str, Any]]:
    """Return conversations updated before a time, latest first, optionally in a state or containing a text."""
    where, values = ["updated < ?"], [before]  # type: tuple[list[str], list[Any]]
    if state is not None:
        where.append("state = ?")
        values.append(state)
    if search:
        condition, words = connection.contains(WORDS, search)
        where.append(f"id IN (SELECT conversation FROM messages WHERE {condition})")
        values += words
    rows = connection.execute(
        f"SELECT id FROM conversations WHERE {' AND '.join(where)} ORDER BY updated DESC LIMIT ?", (*values, limit)
    ).fetchall()
    found = []
    for (id,) in rows:
        one = conversation(connection, id)
        assert one is not None
        last = connection.execute(
            "SELECT text, author FROM messages WHERE conversation = ? ORDER BY number DESC LIMIT 1", (id,)
        ).fetchone()
        found.append({**one, "last": None if last is None else {"text": last[0][:200], "author": last[1]}})
    return found


def open_of(connection: Connection, person: str) -> int:
    """Return the number of open conversations of a person."""
    (count,) = connection.execute(
        "SELECT count(*) FROM conversations WHERE person = ? AND state != 'resolved'", (person,)
    ).fetchone()
    return int(count)


def close_idle(connection: Connection, person: str, count: int, *, idle: float) -> int:
    """Resolve up to `count` conversations of a person that are led by the desk and have been idle for some seconds,
    longest idle first; return their number. A new message reopens them."""
    rows = connection.execute(
        "SELECT id FROM conversations WHERE person = ? AND state = 'desk' AND updated < ? ORDER BY updated LIMIT ?",
        (person, time.time() - idle, count),
    ).fetchall()
    for (id,) in rows:
        change(connection, id, {"state": "resolved"})
    return len(rows)


def give_feedback(connection: Connection, id: str, message: int, *, good: bool) -> bool:
    """Store whether an answer helped; return False if the message is no answer of the desk or of an agent: a hand-over,
    a question for a value, suggestions."""
    row = connection.execute(
        f"SELECT author, {connection.field('about', 'kind')} FROM messages WHERE number = ? AND conversation = ?",
        (message, id),
    ).fetchone()
    if row is None or (row[0] != "agent" and row[1] not in RATED):
        return False
    connection.execute(
        "INSERT INTO feedback (message, good, created) VALUES (?, ?, ?) ON CONFLICT (message) DO UPDATE SET "
        "good = excluded.good, created = excluded.created",
        (message, good, time.time()),
    )
    return True


# ------------------------------------------------------------------------------------------------------ personal data


def of_person(connection: Connection, person: str) -> dict[str, Any]:
    """Return everything stored about a person."""
    rows = connection.execute("SELECT id FROM conversations WHERE person = ? ORDER BY created", (person,)).fetchall()
    kept = [{**(conversation(connection, id) or {}), "messages": messages(connection, id)} for (id,) in rows]
    return {"person": person, "conversations": kept}


def forget(connection: Connection, person: str) -> int:
    """Delete everything stored about a person, with webhook events and reviews; return the number of conversations.
    `Database.clean` then removes the remains from the search index and the log."""
    rows = connection.execute("SELECT id FROM conversations WHERE person = ?", (person,)).fetchall()
    for (id,) in rows:
        connection.execute("DELETE FROM outbox WHERE subject = ?", (id,))
        connection.execute("DELETE FROM messages WHERE conversation = ?", (id,))
        connection.execute("DELETE FROM conversations WHERE id = ?", (id,))
    return len(rows)
