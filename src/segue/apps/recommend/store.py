"""The database of a recommender: events, items, and sessions, which can be rebuilt from the events.

Every function works within a transaction of its caller. Events are numbered in order of arrival.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from segue.apps.database import Connection, Differs, Step
from segue.apps.folder import Application
from segue.apps.recommend.tables import Event, Item

STEPS: tuple[Step, ...] = (
    (
        """
    CREATE TABLE events (
        number NUMBERED,
        id TEXT UNIQUE,
        "user" TEXT NOT NULL,
        item TEXT NOT NULL,
        kind TEXT NOT NULL,
        time DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX events_of_user ON events ("user", time, number);
    CREATE TABLE items (
        number NUMBERED,
        id TEXT NOT NULL UNIQUE,
        title TEXT NOT NULL,
        description TEXT NOT NULL,
        tags TEXT NOT NULL,
        price DOUBLE PRECISION
    );
    CREATE TABLE sessions (
        "user" TEXT NOT NULL,
        model TEXT NOT NULL,
        events BIGINT NOT NULL,
        state""",
        Differs(sqlite="BLOB", postgresql="BYTEA"),
        """NOT NULL,
        PRIMARY KEY ("user", model)
    );
    """,
    ),
    """
    ALTER TABLE events RENAME COLUMN "user" TO person;
    ALTER TABLE sessions RENAME COLUMN "user" TO person;
    """,
    "CREATE INDEX events_by_arrival ON events (person, number);",
    "ALTER TABLE items ADD COLUMN withdrawn BIGINT NOT NULL DEFAULT 0;",
)
RULES = "rules.json"
"""Name of the optional file with business rules."""
RECOMMEND = Application(name="recommend", what="a recommender", steps=STEPS, written=[RULES])
_ALL = 2**62


# --------------------------------------------------------------------------------------------------------------- items


def add_items(connection: Connection, items: Iterable[Item]) -> None:
    """Add items, or replace known ones with the same ids."""
    connection.execute_many(
        "INSERT INTO items (id, title, description, tags, price, withdrawn) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET title = excluded.title, description = excluded.description, "
        "tags = excluded.tags, price = excluded.price, withdrawn = excluded.withdrawn",
        (
            (one.id, one.title, one.description, json.dumps(one.tags, ensure_ascii=False), one.price, one.withdrawn)
            for one in items
        ),
    )


def change_items(connection: Connection, changes: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Add items, or change the given fields of known ones, by their `id`; return them as they are now."""
    found: dict[str, Item] = {}
    for one in changes:
        item = found.get(one["id"]) or item_of(connection, one["id"]) or Item(id=one["id"])
        found[item.id] = replace(item, **one)
    add_items(connection, found.values())
    return list(found.values())


def item_of(connection: Connection, id: str) -> Item | None:
    """Return an item, or None if it is unknown."""
    row = connection.execute(
        "SELECT id, title, description, tags, price, withdrawn FROM items WHERE id = ?", (id,)
    ).fetchone()
    return None if row is None else _item(row)


def _item(row: Sequence[Any]) -> Item:
    id, title, description, tags, price, withdrawn = row
    return Item(
        id=id,
        title=title,
        description=description,
        tags=tuple(json.loads(tags)),
        price=price,
        withdrawn=bool(withdrawn),
    )


def all_items(connection: Connection, *, after: int = 0) -> list[tuple[int, Item]]:
    """Return items with their numbers, in the order in which they became known."""
    rows = connection.execute(
        "SELECT number, id, title, description, tags, price, withdrawn FROM items WHERE number > ? ORDER BY number",
        (after,),
    )
    return [(row[0], _item(row[1:])) for row in rows]


# -------------------------------------------------------------------------------------------------------------- events


def add_events(connection: Connection, events: Iterable[Event]) -> None:
    """Add the events of a table, which have no ids. Unknown items are added too, without texts."""
    for one in events:
        connection.execute(
            "INSERT INTO events (person, item, kind, time) VALUES (?, ?, ?, ?)",
            (one.user, one.item, one.kind, one.time),
        )
        _know(connection, one.item)


def add_event(connection: Connection, event: Event, id: str | None) -> tuple[int, bool]:
    """Add an event unless its id is already stored; return its number, and whether it is new."""
    row = None if id is None else connection.execute("SELECT number FROM events WHERE id = ?", (id,)).fetchone()
    if row is not None:
        return int(row[0]), False
    (number,) = connection.execute(
        "INSERT INTO events (id, person, item, kind, time) VALUES (?, ?, ?, ?, ?) RETURNING number",
        (id, event.user, event.item, event.kind, event.time),
    ).fetchone()
    _know(connection, event.item)
    return int(number), True


def _know(connection: Connection, item: str) -> None:
    connection.execute(
        "INSERT INTO items (id, title, description, tags, price) VALUES (?, '', '', '[]', NULL) "
        "ON CONFLICT (id) DO NOTHING",
        (item,),
    )


def history(connection: Connection, user: str, *, last: int | None = None) -> list[tuple[int, Event]]:
    """Return the events of a user with their numbers, in order of time, then of arrival: all of them, or the last."""
    rows = connection.execute(
        "SELECT number, item, kind, time FROM events WHERE person = ? ORDER BY time DESC, number DESC LIMIT ?",
        (user, _ALL if last is None else last),
    ).fetchall()
    return [(number, Event(user=user, item=item, kind=kind, time=time)) for number, item, kind, time in reversed(rows)]


def history_after(connection: Connection, user: str, number: int) -> list[tuple[int, Event]] | None:
    """Return the events of a user that arrived after the event with this number, 0 for all, in order of time; None if
    that event is no longer stored."""
    rows = connection.execute(
        "SELECT number, item, kind, time FROM events WHERE person = ? AND number >= ? ORDER BY time, number",
        (user, number),
    ).fetchall()
    if number and not any(row[0] == number for row in rows):
        return None
    return [
        (other, Event(user=user, item=item, kind=kind, time=time)) for other, item, kind, time in rows if other > number
    ]


def events_by_item(connection: Connection) -> dict[str, int]:
    """Return the number of events of each item."""
    return {item: int(count) for item, count in connection.execute("SELECT item, count(*) FROM events GROUP BY item")}


def all_events(connection: Connection) -> list[tuple[int, str, str, str, float]]:
    """Return (number, user, item, kind, time) of all events, sorted by user and time."""
    rows = connection.execute("SELECT number, person, item, kind, time FROM events ORDER BY number").fetchall()
    return sorted(rows, key=lambda row: (row[1], row[4], row[0]))  # databases order texts in ways of their own


# ------------------------------------------------------------------------------------------------------------ sessions


def save_session(connection: Connection, user: str, model: str, number: int, state: bytes) -> None:
    """Save the state of a session whose latest event has this number, unless that was deleted meanwhile."""
    connection.execute(
        "INSERT INTO sessions (person, model, events, state) SELECT ?, ?, ?, ? "
        "WHERE EXISTS (SELECT 1 FROM events WHERE person = ? AND number = ?) "
        "ON CONFLICT (person, model) DO UPDATE SET events = excluded.events, state = excluded.state",
        (user, model, number, state, user, number),
    )


def saved_session(connection: Connection, user: str, model: str) -> tuple[int, bytes] | None:
    """Return the highest number of an event that a saved session has read, and its state; None if none is saved."""
    row = connection.execute(
        "SELECT events, state FROM sessions WHERE person = ? AND model = ?", (user, model)
    ).fetchone()
    return None if row is None else (int(row[0]), bytes(row[1]))


def drop_session(connection: Connection, user: str, model: str) -> None:
    """Delete the saved session of a user."""
    connection.execute("DELETE FROM sessions WHERE person = ? AND model = ?", (user, model))


def drop_sessions(connection: Connection, models: Sequence[str]) -> None:
    """Delete the sessions of models other than these."""
    marks = ", ".join("?" for _ in models)
    connection.execute(f"DELETE FROM sessions WHERE model NOT IN ({marks})", tuple(models))


# -------------------------------------------------------------------------------------------------------------- people


def of_person(connection: Connection, person: str) -> dict[str, Any]:
    """Return all stored data of a person."""
    found = [
        {"number": number, "item": one.item, "kind": one.kind, "time": one.time}
        for number, one in history(connection, person)
    ]
    sessions = [
        {"model": model, "bytes": size}
        for model, size in connection.execute("SELECT model, length(state) FROM sessions WHERE person = ?", (person,))
    ]
    return {"person": person, "events": found, "sessions": sessions}


def forget(connection: Connection, person: str) -> int:
    """Delete all data of a person; return the number of events."""
    connection.execute("DELETE FROM sessions WHERE person = ?", (person,))
    return connection.execute("DELETE FROM events WHERE person = ?", (person,)).rowcount
