"""What a visitor says when the desk asks for a value."""

import doctest
from typing import Any

import pytest

import segue
from segue.apps.desk import phrases
from segue.apps.desk.reply import reply
from segue.apps.desk.settings import DeskSettings
from segue.apps.desk.slots import told_value
from tests.command import command


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("it is 4711, thanks", "4711"),
        ("4711?", "4711"),
        ("单号是 A-17。", "A-17"),
        ("Ann Smith", "Ann Smith"),
        ("Will Smith.", "Will Smith"),
        ("张三", "张三"),
        ("I do not know", None),
        ("I don’t know", None),
        ("no idea", None),
        ("I have none", None),
        ("hello", None),
        ("my order", None),
        ("the order number", "the order number"),
        ("where do I find it", None),
        ("Is that on the box?", None),
        ("I would like to cancel all of it please", None),
        ("不知道", None),
        ("我不记得了", None),
        ("没有", None),
        ("订单号是什么", None),
        ("在哪里可以看到", None),
        ("我想把所有的东西全部都退掉可以的话", None),
    ],
)
def test_a_value_looks_like_one(said: str, value: str | None) -> None:
    assert told_value(said, "order") == value


@pytest.mark.parametrize(
    ("language", "text", "again_text"),
    [
        (
            "en",
            "I do not know",
            "Sorry, I cannot answer this without your order. If you do not have it, just say so, and a colleague will "
            "help you.",
        ),
        (
            "zh",
            "我不知道",
            "抱歉，没有 order 就无法为您查询。如果您手边没有，请告诉我，我会请同事来处理。",
        ),
    ],
)
def test_the_desk_asks_once_more_then_hands_over(learned: Any, language: str, text: str, again_text: str) -> None:
    model = segue.open_desk(learned)
    talk: dict[str, Any] = {"memory": {}, "language": language, "failures": 0}

    def say(text: str) -> Any:
        found = reply(model, talk, [], text, DeskSettings(), chosen=None)
        talk.update(found.changes)
        return found

    assert say("where is order now please").about["kind"] == "follow_up"
    again = say(text)
    assert again.about["kind"] == "follow_up"
    assert again.text == again_text
    assert "pending" in talk["memory"]
    last = say(text)
    assert (last.about["kind"], last.about["reason"]) == ("handed_over", "repeated_failure")
    assert last.about["question"] == "where is order now please"
    assert talk["state"] == "waiting"
    talk.update({"state": "desk", "failures": 0})
    say("where is order now please")
    say(text)
    assert say("4711").text == "Order 4711 is on its way."
    talk["memory"].clear()
    say("where is order now please")
    assert say("reset password").about["topic"] == "password"


def test_the_question_for_a_value_is_a_sentence(learned: Any) -> None:
    assert doctest.testmod(phrases).attempted == 2
    assert doctest.testmod(phrases).failed == 0
    for language, words in phrases.PHRASES.items():
        assert words.keys() == phrases.PHRASES["en"].keys(), language
    done = command("desk", "ask", learned, "where is order now please")
    assert "your order. Could you send it to me?" in " ".join(done.stdout.split())


def test_the_verb_takes_no_other_words_for_a_value(learned: Any) -> None:
    found = segue.open_desk(learned).ask("where is order now please")
    assert found.told("I do not know") is found
    assert found.told("4711").answer == "Order 4711 is on its way."
    done = command("desk", "ask", learned, "where is order now please", "I do not know")
    assert "Order I do not know" not in done.stdout
