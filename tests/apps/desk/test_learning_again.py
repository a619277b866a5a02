"""Learning again: what visitors filled in stays theirs, two at once, people who are deleted meanwhile, second thoughts,
damaged models."""

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.database import Connection
from segue.apps.desk import build as built
from segue.apps.desk import improve as improving
from segue.apps.desk import reviews, store
from segue.apps.desk.folder import read_knowledge_of
from segue.apps.desk.improve import with_reviewed
from segue.apps.desk.reply import reply
from segue.apps.desk.service import _say
from segue.apps.desk.settings import DeskSettings
from segue.apps.desk.store import DESK, Said
from segue.apps.folder import MODELS, model_names
from segue.errors import CheckpointError, ConfigError
from tests.command import command

QUESTIONS = ("gift voucher please", "can I buy a gift voucher", "voucher as a gift", "a voucher for a friend")
ANSWER = "Gift vouchers are at the till."


@pytest.fixture(scope="session")
def learned(learned_few: Path) -> Path:
    return learned_few


def done(desk: Path, work: Callable[[Connection], Any]) -> Any:
    with DESK.opened(desk) as database:
        return database.do(work)


def accept(desk: Path, question: str, answer: str, *, person: str = "ann", topic: str | None = None) -> int:
    """An agent answered, and somebody accepted it."""

    def work(connection: Connection) -> int:
        id = store.open_conversation(connection, person=person, language="en")["id"]
        store.say(connection, id, [Said(author="visitor", text=question, client=os.urandom(8).hex())])
        number = int(store.say(connection, id, [Said(author="agent", name="alice", text=answer)])[-1]["number"])
        reviews.propose(connection, id, number)
        assert decided(connection, number, accepted=True, topic=topic)
        return number

    return int(done(desk, work))


def decided(connection: Connection, number: int, *, accepted: bool, topic: str | None = None) -> bool:
    return reviews.decide(
        connection, number, accepted=accepted, reviewer="bob", question=None, answer=None, topic=topic
    )


@pytest.mark.parametrize("said", ["where is order 4711?", "that one"])
def test_what_a_visitor_filled_in_is_nobody_elses_answer(desk: Path, said: str) -> None:
    model = segue.open_desk(desk)

    def work(connection: Connection) -> list[dict[str, Any]]:
        talk = store.open_conversation(connection, person="ann", language="en")
        offered = Said(author="desk", text="?", about={"kind": "suggestion", "question": "my secret thing"})
        store.say(connection, talk["id"], [Said(author="visitor", text="my secret thing", client="12345678"), offered])
        found = reply(model, talk, [], said, DeskSettings(), chosen="order")
        both = [
            Said(author="visitor", text=said, client="23456789"),
            Said(author="desk", text=found.text, about=found.about),
        ]
        _say(connection, talk["id"], both, dict(found.changes), "order")
        (one,) = reviews.proposals(connection, state="open", limit=9)
        assert decided(connection, one["message"], accepted=True, topic="order")
        return [one]

    (proposed,) = done(desk, work)
    assert (proposed["question"], proposed["answer"]) == ("my secret thing", "Order {order} is on its way.")
    assert segue.improve_desk(desk, progress=False).switched
    topics = {topic.name: topic for topic in segue.open_desk(desk).knowledge.topics}
    assert topics["order"].answer == "Order {order} is on its way."


def test_a_choice_that_was_proposed_with_a_value_leaves_the_answer_alone(desk: Path) -> None:
    def work(connection: Connection) -> Any:
        """As earlier versions wrote it."""
        id = store.open_conversation(connection, person="ann", language="en")["id"]
        filled = Said(author="desk", text="Order 4711 is on its way.", about={"kind": "answer", "chosen": True})
        number = store.say(connection, id, [filled])[0]["number"]
        connection.execute(
            "INSERT INTO reviews (message, question, answer, topic, state) VALUES (?, ?, ?, 'order', 'accepted')",
            (number, "my secret thing", "Order 4711 is on its way."),
        )
        return reviews.accepted(connection, "0001")

    (one,) = done(desk, work)
    assert one[1:4] == ("my secret thing", None, "order")
    more = with_reviewed(segue.open_desk(desk).knowledge, [one, (9, "gone", None, "no such topic", "x")])
    assert {topic.name: topic.answer for topic in more.topics}["order"] == "Order {order} is on its way."
    assert "gone" not in {one.text for one in more.asked}


def test_only_one_learns_at_a_time(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept(desk, QUESTIONS[0], ANSWER)
    inside, go_on = threading.Event(), threading.Event()
    build = built.build

    def slow(*given: Any, **more: Any) -> Any:
        inside.set()
        assert go_on.wait(60)
        return build(*given, **more)

    monkeypatch.setattr(improving, "build", slow)
    first = threading.Thread(target=lambda: segue.improve_desk(desk, progress=False))
    first.start()
    try:
        assert inside.wait(60)
        with pytest.raises(ConfigError, match="one command at a time"):
            segue.improve_desk(desk, progress=False)
    finally:
        go_on.set()
        first.join()
    assert DESK.current_model(desk) == "0002"


def test_a_model_that_was_chosen_meanwhile_stays(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(desk / MODELS / "0001", desk / MODELS / "0002")
    accept(desk, QUESTIONS[0], ANSWER)
    build = built.build

    def changed(*given: Any, **more: Any) -> Any:
        DESK.use_model(desk, "0002")
        return build(*given, **more)

    monkeypatch.setattr(improving, "build", changed)
    with pytest.raises(CheckpointError, match="must still use the model 0001"):
        segue.improve_desk(desk, progress=False)
    assert DESK.current_model(desk) == "0002"
    assert [one[1] for one in done(desk, lambda c: reviews.accepted(c, "0002"))] == [QUESTIONS[0]]


def test_who_is_deleted_meanwhile_is_not_learned(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for question in QUESTIONS[1:]:
        accept(desk, question, ANSWER, person="ann")
    accept(desk, QUESTIONS[0], ANSWER, person="bob")
    build = built.build

    def deleted(*given: Any, **more: Any) -> Any:
        done(desk, lambda connection: store.forget(connection, "bob"))
        return build(*given, **more)

    monkeypatch.setattr(improving, "build", deleted)
    assert segue.improve_desk(desk, progress=False).learned == 3
    kept = b"".join(path.read_bytes() for path in (desk / MODELS).rglob("*") if path.is_file())
    assert QUESTIONS[1].encode() in kept
    assert QUESTIONS[0].encode() not in kept


def test_second_thoughts_are_learned_too(desk: Path) -> None:
    numbers = [accept(desk, question, ANSWER, topic="vouchers") for question in QUESTIONS]
    changed = accept(desk, "are you open at night", "We are always open.", topic="hours")
    assert segue.improve_desk(desk, progress=False).switched
    assert {topic.name: topic.answer for topic in segue.open_desk(desk).knowledge.topics}["vouchers"] == ANSWER

    done(desk, lambda connection: [decided(connection, one, accepted=False) for one in (*numbers, changed)])
    assert done(desk, lambda connection: reviews.accepted(connection, "0001")) == []  # not after a roll-back either
    found = segue.improve_desk(desk, progress=False)
    assert (found.learned, found.withdrawn) == (0, 5)
    known = read_knowledge_of(desk / MODELS / found.model)
    assert {topic.name: topic.answer for topic in known.topics}["hours"] == "We are open from nine to six."
    assert "vouchers" not in {topic.name for topic in known.topics}
    assert {*QUESTIONS, "are you open at night"}.isdisjoint(one.text for one in known.asked)
    if found.switched:
        with pytest.raises(ConfigError, match="not learned yet"):
            segue.improve_desk(desk, progress=False)


def test_what_cannot_be_measured_is_not_put_into_use(tmp_path: Path) -> None:
    rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
    rows += [{"question": "I lost my card", "answer": "Block it in the app."}]
    desk = tmp_path / "desk"
    segue.learn_desk(rows, desk, model="none", progress=False)
    accept(desk, "do you sell vouchers", ANSWER)
    said = " ".join(command("desk", "improve", desk).stdout.split())
    assert "the new model was not evaluated" in said
    assert "The current model stays in use." in said
    assert DESK.current_model(desk) == "0001"
    assert segue.roll_back_desk(desk, to="0002") == "0002"


# ---------------------------------------------------------------------------------------------------------- damaged


def test_a_person_is_deleted_also_beside_damaged_models(desk: Path) -> None:
    accept(desk, QUESTIONS[0], ANSWER, person="ann")
    for name in ("0002", "0003"):
        shutil.copytree(desk / MODELS / "0001", desk / MODELS / name)
    (desk / MODELS / "0002" / "knowledge.jsonl").write_text("{")
    (desk / MODELS / "0003" / "knowledge.jsonl").unlink()
    found = segue.person_in_desk(desk, "ann", delete=True, progress=False)
    assert found["models"] == ["0002", "0003"]
    assert model_names(desk) == ["0001"]
    assert segue.person_in_desk(desk, "ann")["conversations"] == []


def test_a_damaged_model_in_use_is_named(desk: Path) -> None:
    accept(desk, QUESTIONS[0], ANSWER, person="ann")
    (desk / MODELS / "0001" / "knowledge.jsonl").write_text("{")
    with pytest.raises(CheckpointError, match=r"0001 must be intact .* Their conversations are deleted"):
        segue.person_in_desk(desk, "ann", delete=True, progress=False)
    assert segue.person_in_desk(desk, "ann")["conversations"] == []
    (desk / MODELS / "0001" / "model.json").write_text('{"format": 1')
    for work in (segue.describe_desk, segue.open_desk, lambda one: segue.improve_desk(one, progress=False)):
        with pytest.raises(CheckpointError, match="missing or changed"):
            work(desk)


def test_what_is_printed_for_other_programs_is_exact(desk: Path) -> None:
    text = "See :smile: under [bold]Orders[/bold] [/foo] at 10:on:30"
    accept(desk, text, text, person="ann")
    kept = json.loads(command("desk", "person", desk, "ann").stdout)
    assert [one["text"] for one in kept["conversations"][0]["messages"]] == [text, text]
    segue.learn_desk([{"question": text, "answer": text}], desk.parent / "odd", model="none", progress=False)
    found = command("desk", "ask", desk.parent / "odd", text, "--json").stdout
    assert json.loads(found)["candidates"][0]["topic"] == text
