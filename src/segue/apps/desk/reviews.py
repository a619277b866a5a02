"""Reviews of agents' answers before the desk learns from them, and statistics of a desk."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from segue.apps.database import Connection
from segue.apps.desk import store
from segue.apps.desk.decide import small_talk, wants_person

DAY = 86400.0
"""Seconds in a day."""
MOST_OFFERED = 20
"""Maximum number of a visitor's messages that are offered as the question of a proposal."""


def propose(connection: Connection, id: str, message: int) -> None:
    """Propose an agent's message as an answer to the question that was handed over (`question_for`)."""
    said = store.messages(connection, id)
    question = question_for([one for one in said if one["number"] < message])
    if question is not None:
        (answer,) = (one["text"] for one in said if one["number"] == message)
        connection.execute(
            "INSERT INTO reviews (message, question, answer) VALUES (?, ?, ?) ON CONFLICT (message) DO NOTHING",
            (message, question, answer),
        )


def question_for(said: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the question that an agent's next message answers, given all earlier messages of the conversation.

    This is the question that the desk handed over, or was unsure about before the visitor asked for a person; once
    somebody has answered, the visitor's next question. Later remarks ("are you there?") do not replace it. A mere wish
    for a person is returned only if there is nothing else, and None if the visitor has only made small talk.
    """
    question, wish, answered = None, None, True
    for one in said:
        about = one["about"]
        kind = about.get("kind")
        if one["author"] == "visitor":
            if wants_person(one["text"]):
                wish = one["text"]
            elif answered and small_talk(one["text"]) is None:
                question, answered = one["text"], False
        elif one["author"] == "agent" or kind in ("answer", "resumed"):
            answered = True
        elif kind in ("suggestion", "generated", "handed_over") and about.get("reason") != "asked_for_person":
            question, answered = about.get("question", question), False
    return wish if question is None else question


def propose_choice(connection: Connection, id: str, message: int, *, topic: str, answer: str) -> None:
    """Propose the question that led to a suggestion which the visitor took, as a question of this topic. `answer` is
    that of the topic, with open slots, because the visitor's values concern nobody else."""
    question, kind = connection.field("about", "question"), connection.field("about", "kind")
    row = connection.execute(
        f"SELECT {question} FROM messages WHERE conversation = ? AND author = 'desk' AND number < ? "
        f"AND {kind} IN ('suggestion', 'generated') ORDER BY number DESC LIMIT 1",
        (id, message),
    ).fetchone()
    if row is not None and row[0]:
        connection.execute(
            "INSERT INTO reviews (message, question, answer, topic) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (message) DO NOTHING",
            (message, row[0], answer, topic),
        )


def proposals(connection: Connection, *, state: str, limit: int) -> list[dict[str, Any]]:
    """Return the proposals in a state (open, accepted, outside, rejected), oldest first, each with the messages of the
    visitor before the answer, from which a reviewer may pick another question."""
    names = ("message", "question", "answer", "topic", "state", "reviewer", "learned_by")
    rows = connection.execute(
        f"SELECT conversation, {', '.join(f'reviews.{name}' for name in names)} FROM reviews "
        "JOIN messages ON number = message WHERE reviews.state = ? ORDER BY message LIMIT ?",
        (state, limit),
    ).fetchall()
    found = []
    for conversation, *values in rows:
        said = connection.execute(
            "SELECT text FROM messages WHERE conversation = ? AND author = 'visitor' AND number < ? "
            "ORDER BY number DESC LIMIT ?",
            (conversation, values[0], MOST_OFFERED),
        ).fetchall()
        asked = [text for (text,) in reversed(said)]
        found.append({**dict(zip(names, values, strict=True)), "conversation": conversation, "asked": asked})
    return found


def decide(
    connection: Connection,
    message: int,
    *,
    accepted: bool,
    reviewer: str,
    question: str | None,
    answer: str | None,
    topic: str | None,
    outside: bool = False,
) -> bool:
    """Accept a proposal, with changes if any, or reject it; `outside` accepts its question alone, as one that the desk
    must not answer. Return False if there is no such proposal. A proposal that was learned can be decided again: the
    desk next learns it as it is then, or takes it out."""
    if accepted and outside:
        cursor = connection.execute(
            "UPDATE reviews SET state = 'outside', reviewer = ?, question = coalesce(?, question), learned_by = NULL "
            "WHERE message = ?",
            (reviewer, question, message),
        )
    elif accepted:
        cursor = connection.execute(
            "UPDATE reviews SET state = 'accepted', reviewer = ?, question = coalesce(?, question), "
            "answer = coalesce(?, answer), topic = ?, learned_by = NULL WHERE message = ?",
            (reviewer, question, answer, topic, message),
        )
    else:
        cursor = connection.execute(
            "UPDATE reviews SET state = 'rejected', reviewer = ? WHERE message = ?", (reviewer, message)
        )
    return cursor.rowcount == 1


def accepted(connection: Connection, model: str) -> list[tuple[int, str, str | None, str | None, str]]:
    """Return what a model has not learned yet: message, question, answer, topic, conversation. After a roll-back this
    includes what later models learned. If a visitor took a suggestion and nobody wrote another answer, the answer is
    None, and the topic keeps its own. For a question out of scope, answer and topic are None."""
    rows = connection.execute(
        "SELECT message, question, answer, topic, conversation, author, text, "
        f"{connection.field('about', 'template')}, reviews.state FROM reviews JOIN messages ON number = message "
        "WHERE reviews.state IN ('accepted', 'outside') AND (learned_by IS NULL OR learned_by > ?) ORDER BY message",
        (model,),
    ).fetchall()
    found: list[tuple[int, str, str | None, str | None, str]] = []
    for message, question, answer, topic, conversation, author, text, template, state in rows:
        if state == "outside":
            found.append((message, question, None, None, conversation))
            continue
        chosen = author == "desk" and topic is not None and answer == (text if template is None else template)
        found.append((message, question, None if chosen else answer, topic, conversation))
    return found


def agreed(connection: Connection) -> set[tuple[str, str]]:
    """Return the conversation and question of every accepted proposal, those out of scope included."""
    rows = connection.execute(
        "SELECT conversation, question FROM reviews JOIN messages ON number = message "
        "WHERE reviews.state IN ('accepted', 'outside')"
    )
    return {(conversation, question) for conversation, question in rows}


def refused(connection: Connection) -> set[tuple[str | None, str]]:
    """Return the topic and answer of proposals that were learned and are rejected now, or whose question is out of
    scope, unless the same answer was accepted elsewhere."""
    rows = connection.execute(
        "SELECT topic, answer FROM reviews WHERE ((state = 'rejected' AND learned_by IS NOT NULL) "
        "OR state = 'outside') AND answer NOT IN (SELECT answer FROM reviews WHERE state = 'accepted')"
    )
    return {(topic, answer) for topic, answer in rows}


def conversations(connection: Connection) -> set[str]:
    """Return the ids of all conversations."""
    return {id for (id,) in connection.execute("SELECT id FROM conversations")}


def learned(connection: Connection, numbers: list[int], model: str) -> None:
    """Record the model that was trained on some proposals."""
    connection.execute_many("UPDATE reviews SET learned_by = ? WHERE message = ?", [(model, one) for one in numbers])


def statistics(connection: Connection, *, days: float) -> dict[str, Any]:
    """Return statistics of the last days. The share answered refers to messages to which the desk replied with an
    answer, suggestions or a hand-over: not to those sent while a person is awaited, values that it asked for, or small
    talk."""
    since = time.time() - days * DAY
    kind, reason, topic, question, seconds = (
        connection.field("about", name) for name in ("kind", "reason", "topic", "question", "seconds")
    )
    by_desk = "FROM messages WHERE author = 'desk' AND created > ?"

    def one(query: str) -> Any:
        (found,) = connection.execute(query, (since,)).fetchone()
        return found

    def counted(query: str) -> list[Any]:
        return connection.execute(query, (since,)).fetchall()

    conversations = one("SELECT count(*) FROM conversations WHERE created > ?")
    questions = one("SELECT count(*) FROM messages WHERE author = 'visitor' AND created > ?")
    answered = one(f"SELECT count(*) {by_desk} AND {kind} = 'answer'")
    replied = one(f"SELECT count(*) {by_desk} AND {kind} IN ('answer', 'suggestion', 'generated', 'handed_over')")
    good, bad = connection.execute(
        "SELECT count(CASE WHEN good = 1 THEN 1 END), count(CASE WHEN good = 0 THEN 1 END) FROM feedback "
        f"JOIN messages ON number = message WHERE author = 'desk' AND messages.created > ? AND {kind} = 'answer'",
        (since,),
    ).fetchone()
    generated = one(f"SELECT count(*) {by_desk} AND {kind} = 'generated'")
    mean = one(f"SELECT avg(CAST({seconds} AS DOUBLE PRECISION)) {by_desk} AND {seconds} IS NOT NULL")
    reasons = counted(
        f"SELECT {reason} AS reason, count(*) {by_desk} AND {reason} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC"
    )
    topics = counted(
        f"SELECT {topic} AS topic, count(*) {by_desk} AND {topic} IS NOT NULL AND {kind} = 'answer' "
        "GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
    )
    lacking = counted(
        f"SELECT {question} AS question, count(*) {by_desk} AND {question} IS NOT NULL AND {kind} != 'answer' "
        f"AND coalesce({reason}, '') NOT IN ('asked_for_person', 'anger') GROUP BY 1 "
        "ORDER BY 2 DESC, max(number) DESC LIMIT 20"
    )
    states = dict(connection.execute("SELECT state, count(*) FROM conversations GROUP BY state").fetchall())
    webhooks = connection.execute(
        "SELECT count(delivered), count(given_up), count(*) - count(delivered) - count(given_up) FROM outbox"
    ).fetchone()
    return {
        "days": days,
        "conversations": conversations,
        "questions": questions,
        "answered": answered,
        "share_answered": answered / replied if replied else None,
        "feedback": {"good": good, "bad": bad, "share_right": good / (good + bad) if good + bad else None},
        "generated": generated,
        "mean_seconds": mean,
        "states": states,
        "not_answered": [{"reason": reason, "count": count} for reason, count in reasons],
        "topics": [{"topic": topic, "count": count} for topic, count in topics],
        "without_answer": [{"question": question, "count": count} for question, count in lacking],
        "webhooks": dict(zip(("delivered", "given_up", "waiting"), webhooks, strict=True)),
    }
