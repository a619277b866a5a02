"""Agents' answers, looked at by a person before the desk learns from them; and what the desk has achieved so far."""

import sqlite3
import time
from typing import Any

DAY = 86400.0


def propose(connection: sqlite3.Connection, id: str, message: int) -> None:
    """An agent's message becomes a proposal: the visitor's last question, and this answer."""
    row = connection.execute(
        "SELECT text FROM messages WHERE conversation = ? AND author = 'visitor' AND number < ? "
        "ORDER BY number DESC LIMIT 1",
        (id, message),
    ).fetchone()
    (answer,) = connection.execute("SELECT text FROM messages WHERE number = ?", (message,)).fetchone()
    if row is not None:
        connection.execute(
            "INSERT OR IGNORE INTO reviews (message, question, answer) VALUES (?, ?, ?)", (message, row[0], answer)
        )


def propose_choice(connection: sqlite3.Connection, id: str, message: int, *, topic: str) -> None:
    """A visitor took a suggestion: the question that led to it is one about this topic."""
    row = connection.execute(
        "SELECT json_extract(about, '$.question') FROM messages WHERE conversation = ? AND author = 'desk' "
        "AND number < ? AND json_extract(about, '$.kind') = 'suggestion' ORDER BY number DESC LIMIT 1",
        (id, message),
    ).fetchone()
    (answer,) = connection.execute("SELECT text FROM messages WHERE number = ?", (message,)).fetchone()
    if row is not None and row[0]:
        connection.execute(
            "INSERT OR IGNORE INTO reviews (message, question, answer, topic) VALUES (?, ?, ?, ?)",
            (message, row[0], answer, topic),
        )


def proposals(connection: sqlite3.Connection, *, state: str, limit: int) -> list[dict[str, Any]]:
    """Those in a state (open, accepted, rejected), the oldest first."""
    names = ("message", "question", "answer", "topic", "state", "reviewer", "learned_by")
    rows = connection.execute(
        f"SELECT {', '.join(names)} FROM reviews WHERE state = ? ORDER BY message LIMIT ?", (state, limit)
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def decide(
    connection: sqlite3.Connection,
    message: int,
    *,
    accepted: bool,
    reviewer: str,
    question: str | None,
    answer: str | None,
    topic: str | None,
) -> bool:
    """Accepts a proposal, with changes if there are any, or rejects it; False if there is none."""
    cursor = connection.execute(
        "UPDATE reviews SET state = ?, reviewer = ?, question = coalesce(?, question), answer = coalesce(?, answer), "
        "topic = ? WHERE message = ? AND learned_by IS NULL",
        ("accepted" if accepted else "rejected", reviewer, question, answer, topic, message),
    )
    return cursor.rowcount == 1


def accepted(connection: sqlite3.Connection, model: str) -> list[tuple[int, str, str, str | None, str]]:
    """What a model does not know yet: message, question, answer, topic, conversation. After a roll-back that is what
    later models learned too."""
    return connection.execute(
        "SELECT message, question, answer, topic, conversation FROM reviews JOIN messages ON number = message "
        "WHERE reviews.state = 'accepted' AND (learned_by IS NULL OR learned_by > ?) ORDER BY message",
        (model,),
    ).fetchall()


def learned(connection: sqlite3.Connection, numbers: list[int], model: str) -> None:
    """Notes which model has learned from them."""
    connection.executemany("UPDATE reviews SET learned_by = ? WHERE message = ?", [(model, one) for one in numbers])


def statistics(connection: sqlite3.Connection, *, days: float) -> dict[str, Any]:
    """What happened in the last days."""
    since = time.time() - days * DAY

    def one(query: str, *values: Any) -> Any:
        (found,) = connection.execute(query, values or (since,)).fetchone()
        return found

    conversations = one("SELECT count(*) FROM conversations WHERE created > ?")
    questions = one("SELECT count(*) FROM messages WHERE author = 'visitor' AND created > ?")
    answered = one(
        "SELECT count(*) FROM messages WHERE author = 'desk' AND created > ? "
        "AND json_extract(about, '$.kind') = 'answer'"
    )
    good, bad = connection.execute(
        "SELECT coalesce(sum(good), 0), coalesce(sum(1 - good), 0) FROM feedback JOIN messages ON number = message "
        "WHERE author = 'desk' AND messages.created > ?",
        (since,),
    ).fetchone()
    seconds = one(
        "SELECT avg(json_extract(about, '$.seconds')) FROM messages WHERE author = 'desk' AND created > ? "
        "AND json_extract(about, '$.seconds') IS NOT NULL"
    )
    reasons = connection.execute(
        "SELECT json_extract(about, '$.reason') AS reason, count(*) FROM messages WHERE author = 'desk' "
        "AND created > ? AND reason IS NOT NULL GROUP BY reason ORDER BY 2 DESC",
        (since,),
    ).fetchall()
    topics = connection.execute(
        "SELECT json_extract(about, '$.topic') AS topic, count(*) FROM messages WHERE author = 'desk' AND created > ? "
        "AND topic IS NOT NULL GROUP BY topic ORDER BY 2 DESC LIMIT 20",
        (since,),
    ).fetchall()
    lacking = connection.execute(
        "SELECT json_extract(about, '$.question') AS question, count(*) FROM messages WHERE author = 'desk' "
        "AND created > ? AND question IS NOT NULL AND json_extract(about, '$.kind') != 'answer' "
        "AND coalesce(json_extract(about, '$.reason'), '') NOT IN ('asked_for_person', 'anger') GROUP BY question "
        "ORDER BY 2 DESC, max(number) DESC LIMIT 20",
        (since,),
    ).fetchall()
    states = dict(connection.execute("SELECT state, count(*) FROM conversations GROUP BY state").fetchall())
    webhooks = connection.execute(
        "SELECT count(delivered), count(given_up), count(*) - count(delivered) - count(given_up) FROM outbox"
    ).fetchone()
    return {
        "days": days,
        "conversations": conversations,
        "questions": questions,
        "answered": answered,
        "share_answered": answered / questions if questions else None,
        "feedback": {"good": good, "bad": bad, "share_right": good / (good + bad) if good + bad else None},
        "mean_seconds": seconds,
        "states": states,
        "not_answered": [{"reason": reason, "count": count} for reason, count in reasons],
        "topics": [{"topic": topic, "count": count} for topic, count in topics],
        "without_answer": [{"question": question, "count": count} for question, count in lacking],
        "webhooks": dict(zip(("delivered", "given_up", "waiting"), webhooks, strict=True)),
    }
