"""Models forget what they learned from people who were deleted.

Accepted questions keep the id of their conversation. Once it is gone from the database, the models that learned from it
are taken away; where the one in use is among them, one is learned without these questions first.
"""

import shutil
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path

from segue.apps.desk import store
from segue.apps.desk.build import build
from segue.apps.desk.folder import (
    CONVERSATION,
    MODELS,
    current_model,
    learned_from,
    next_name,
    read_about,
    read_knowledge_of,
    use_model,
)
from segue.apps.desk.improve import AGENTS
from segue.apps.desk.knowledge import Knowledge
from segue.files import write_folder


def forget_in_models(desk: Path, *, told: Callable[[str], object]) -> list[str]:
    """Gives the names of the models that are gone. The one that takes their place is put into use however good it is:
    nobody's questions may stay because they help."""
    database = store.conversations_of(desk, alone=False)
    database.open()
    try:
        rows = database.do(lambda connection: connection.execute("SELECT id FROM conversations").fetchall())
    finally:
        database.close()
    there = {id for (id,) in rows}
    gone = [name for name, learned in learned_from(desk).items() if learned - there]
    if current_model(desk) in gone:
        folder = desk / MODELS / current_model(desk)
        told("learning without the questions of people who were deleted")
        built = build(without_deleted(read_knowledge_of(folder), there), **read_about(folder)["asked_for"], told=told)
        name = next_name(desk)
        write_folder(desk / MODELS / name, built.write, kind="desk-model")
        use_model(desk, name)
    for name in gone:
        shutil.rmtree(desk / MODELS / name)
    return gone


def without_deleted(known: Knowledge, there: Container[str]) -> Knowledge:
    """The knowledge without questions from conversations that are no longer there, and without topics that came from
    agents and have no other question."""
    asked = [
        one
        for one in known.asked
        if not one.group.startswith(CONVERSATION) or one.group.removeprefix(CONVERSATION) in there
    ]
    used = {topic for one in asked for topic in one.topics}
    kept = [place for place, topic in enumerate(known.topics) if place in used or topic.source != AGENTS]
    places = {topic: place for place, topic in enumerate(kept)}
    return Knowledge(
        topics=tuple(known.topics[topic] for topic in kept),
        asked=tuple(replace(one, topics=tuple(places[topic] for topic in one.topics)) for one in asked),
    )
