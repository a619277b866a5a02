"""Reviews: the question that an answer is paired with, and what a reviewer decides."""

from typing import Any

import pytest

from segue.apps.desk import reviews, store
from segue.apps.desk.store import Said
from tests.apps.desk.test_learning_again import done


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
