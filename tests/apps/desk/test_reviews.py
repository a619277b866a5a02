"""Reviews: the question that an answer is paired with, and what a reviewer decides."""

from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.desk import reviews, store
from segue.apps.desk.store import Said
from tests.apps.desk.test_learning_again import accept, done


@pytest.fixture(scope="session")
def learned(learned_few: Path) -> Path:
    return learned_few


def visitor(text: str) -> dict[str, Any]:
    return {"author": "visitor", "text": text, "about": {}}


def desk_says(kind: str, question: str | None = None, reason: str | None = None) -> dict[str, Any]:
    about = {"kind": kind, "question": question, "reason": reason}
    return {"author": "desk", "text": "?", "about": {name: value for name, value in about.items() if value is not None}}


AGENT: dict[str, Any] = {"author": "agent", "text": "!", "about": {}}
HANDED = [visitor("do you sell vouchers"), desk_says("handed_over", "do you sell vouchers", "out_of_scope")]
PERSON = "I want to talk to a person"
WISH = [visitor(PERSON), desk_says("handed_over", PERSON, "asked_for_person")]


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ([*HANDED, visitor("ok, are you there?")], "do you sell vouchers"),
        ([*HANDED, visitor("hello?"), AGENT], "do you sell vouchers"),
        ([*HANDED, AGENT, visitor("and how much are they?"), visitor("are you there?")], "and how much are they?"),
        ([*HANDED, AGENT, desk_says("resumed"), visitor("my parcel is lost")], "my parcel is lost"),
        ([visitor("my box"), desk_says("suggestion", "my box", "low_confidence"), *WISH], "my box"),
        ([visitor("my box"), desk_says("answer"), *WISH], "my box"),
        ([*WISH, visitor("my box is late"), visitor("are you there?")], "my box is late"),
        (WISH, PERSON),
        ([visitor("where is order"), desk_says("follow_up"), visitor("dunno")], "where is order"),
        ([visitor("hello"), desk_says("small_talk"), *HANDED], "do you sell vouchers"),
        ([*HANDED, AGENT, visitor("thanks!"), visitor("and how much are they?")], "and how much are they?"),
        ([visitor("你好"), desk_says("small_talk")], None),
        ([], None),
    ],
)
def test_an_answer_is_paired_with_the_question_that_was_handed_over(
    said: list[dict[str, Any]], question: str | None
) -> None:
    assert reviews.question_for(said) == question


def test_a_reviewer_may_pick_another_message(desk: Any) -> None:
    def work(connection: Any) -> list[dict[str, Any]]:
        id = store.open_conversation(connection, person="ann", language="en")["id"]
        handed = {"kind": "handed_over", "question": "do you sell vouchers", "reason": "out_of_scope"}
        for one in (
            Said(author="visitor", text="good day to you all", client="12345678"),
            Said(author="desk", text="?", about={"kind": "answer"}),
            Said(author="visitor", text="do you sell vouchers", client="23456789"),
            Said(author="desk", text="?", about=handed),
            Said(author="visitor", text="thanks, are you there?", client="34567890"),
        ):
            store.say(connection, id, [one])
        number = store.say(connection, id, [Said(author="agent", name="alice", text="At the till.")])[-1]["number"]
        store.say(connection, id, [Said(author="visitor", text="a later message", client="45678901")])
        reviews.propose(connection, id, number)
        return reviews.proposals(connection, state="open", limit=9)

    (proposed,) = done(desk, work)
    assert (proposed["question"], proposed["answer"]) == ("do you sell vouchers", "At the till.")
    assert proposed["asked"] == ["good day to you all", "do you sell vouchers", "thanks, are you there?"]


def decided(desk: Any, number: int, *, accepted: bool, outside: bool) -> None:
    more: dict[str, Any] = {"reviewer": "bob", "question": None, "answer": None, "topic": None}
    assert done(desk, lambda c: reviews.decide(c, number, accepted=accepted, outside=outside, **more))


def test_a_question_out_of_scope_is_learned_as_such_and_can_be_taken_back(desk: Any) -> None:
    number = accept(desk, "do you sell live penguins", "We do not.")
    decided(desk, number, accepted=True, outside=True)
    (one,) = done(desk, lambda connection: reviews.proposals(connection, state="outside", limit=9))
    assert one["message"] == number
    found = segue.improve_desk(desk, progress=False)
    assert (found.learned, found.outside, found.switched) == (1, 1, True)
    known = segue.open_desk(desk).knowledge
    assert "do you sell live penguins" in known.outside
    assert "We do not." not in {topic.answer for topic in known.topics}
    decided(desk, number, accepted=False, outside=False)
    found = segue.improve_desk(desk, progress=False)
    assert (found.learned, found.withdrawn) == (0, 1)


def test_an_answer_that_was_learned_goes_when_its_question_is_out_of_scope(desk: Any) -> None:
    numbers = [accept(desk, "are you open at night", "We are always open.", topic="hours")]
    numbers += [accept(desk, "do you sell live penguins", "We do not.")]
    assert segue.improve_desk(desk, progress=False).switched
    for number in numbers:
        decided(desk, number, accepted=True, outside=True)
    found = segue.improve_desk(desk, progress=False)
    assert found.outside == 2
    known = segue.open_desk(desk).knowledge if found.switched else None
    assert known is not None
    answers = {topic.name: topic.answer for topic in known.topics}
    assert answers["hours"] == "We are open from nine to six."
    assert "We do not." not in answers.values()
    assert {"are you open at night", "do you sell live penguins"} <= set(known.outside)
