"""Deletion of models that were trained on questions of deleted people.

Reviewed questions keep the id of their conversation. Once it is gone from the database, the models trained on it are
deleted; if the model in use is among them, a replacement is first trained without these questions. The training data of
a damaged model cannot be checked, and it can never be used again, so it is deleted too.
"""

import shutil
from collections.abc import Callable, Container
from pathlib import Path

from segue.apps.desk import reviews
from segue.apps.desk.build import build
from segue.apps.desk.folder import CONVERSATION, learned_from, read_knowledge_of
from segue.apps.desk.improve import with_used_topics
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.store import DESK
from segue.apps.folder import MODELS, next_name, read_about
from segue.errors import CheckpointError


def forget_in_models(desk: Path, *, told: Callable[[str], object]) -> list[str]:
    """Delete the models, and return their names. A replacement is put into use however good it is: nobody's questions
    may stay because they help."""
    with DESK.changing(desk, wait=lambda: told("waiting for segue desk improve to finish")):
        return _forget(desk, told)


def _forget(desk: Path, told: Callable[[str], object]) -> list[str]:
    with DESK.opened(desk) as database:
        there = database.do(reviews.conversations)
    found, in_use = learned_from(desk), DESK.current_model(desk)
    gone = [name for name, learned in found.items() if learned is None or learned - there]
    if in_use in found and found[in_use] is None:
        for name in (one for one in gone if one != in_use):
            shutil.rmtree(desk / MODELS / name)
        raise CheckpointError(
            f"{desk / MODELS / in_use} must be intact to be trained again without the people who were deleted; it "
            "is damaged. Their conversations are deleted. Roll back to another model, or restore a back-up, then run "
            "this again."
        )
    if in_use in gone:
        folder = desk / MODELS / in_use
        told("training without the questions of people who were deleted")
        built = build(without_deleted(read_knowledge_of(folder), there), **read_about(folder)["asked_for"], told=told)
        name = next_name(desk)
        DESK.write_model(desk, name, built.write)
        DESK.use_model(desk, name)
    for name in gone:
        shutil.rmtree(desk / MODELS / name)
    return gone


def without_deleted(known: Knowledge, there: Container[str]) -> Knowledge:
    """Return the knowledge without questions of deleted conversations, and without topics from agents that have no
    other question."""
    asked = tuple(
        one
        for one in known.asked
        if not one.group.startswith(CONVERSATION) or one.group.removeprefix(CONVERSATION) in there
    )
    return with_used_topics(Knowledge(topics=known.topics, asked=asked))
