"""Models forget what they learned from people who were deleted.

Accepted questions keep the id of their conversation. Once it is gone from the database, the models that learned from it
are taken away; where the one in use is among them, one is learned without these questions first.
"""

import shutil
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path

from segue.apps.desk.build import build
from segue.apps.desk.folder import CONVERSATION, learned_from, read_knowledge_of
from segue.apps.desk.improve import AGENTS
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.store import DESK
from segue.apps.folder import MODELS, next_name, read_about


def forget_in_models(desk: Path, *, told: Callable[[str], object]) -> list[str]:
    """Gives the names of the models that are gone. The one that takes their place is put into use however good it is:
    nobody's questions may stay because they help."""
    with DESK.opened(desk) as database:
        rows = database.do(lambda connection: connection.execute("SELECT id FROM conversations").fetchall())
    there = {id for (id,) in rows}
    gone = [name for name, learned in learned_from(desk).items() if learned - there]
    if DESK.current_model(desk) in gone:
        folder = desk / MODELS / DESK.current_model(desk)
        told("learning without the questions of people who were deleted")
        built = build(without_deleted(read_knowledge_of(folder), there), **read_about(folder)["asked_for"], told=told)
        name = next_name(desk)
        DESK.write_model(desk, name, built.write)
        DESK.use_model(desk, name)
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
