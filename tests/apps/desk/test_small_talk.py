"""Greetings, thanks and goodbyes: answered politely, neither a failure nor a question without an answer."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.desk import reviews
from segue.apps.desk.decide import small_talk
from segue.apps.desk.knowledge import Asked
from segue.apps.desk.reply import reply
from segue.apps.desk.service import DeskService
from segue.apps.desk.settings import DeskSettings
from tests.apps.desk.test_serving import with_service

NEW: dict[str, Any] = {"memory": {}, "language": "en", "failures": 0}


GREETINGS = ("hello", "Hi!", "hey there", "Good morning", "are you there?", "你好", "您好！", "在吗", "hi 你好")
THANKS = (
    "thanks",
    "Thank you so much!",
    "ok",
    "great, thanks",
    "thank you for your help",
    "谢谢",
    "好的，谢谢您",
    "明白了",
)
GOODBYES = ("bye", "Goodbye!", "thanks, bye", "have a nice day", "that's all, thank you", "再见", "谢谢，拜拜")
OTHERS = (
    *("hello, where is my parcel", "him", "thanks, are you open?", "你好，我要退款", "谢谢，快递呢", "no", "?", ""),
    *("hi " * 40, "high", "the nice card", "好的快递", "thank you for the refund"),
)


@pytest.mark.parametrize(
    ("kind", "texts"), [("greeting", GREETINGS), ("thanks", THANKS), ("goodbye", GOODBYES), (None, OTHERS)]
)
def test_small_talk_is_the_whole_message(kind: str | None, texts: tuple[str, ...]) -> None:
    assert {text: small_talk(text) for text in texts} == dict.fromkeys(texts, kind)


@pytest.mark.parametrize("piece", ["嗯", "明白了", "ok ", "bye ", "all your help ", "!", "thanks, "])
def test_no_repetition_takes_long(piece: str) -> None:
    started = time.process_time()
    for end in ("x", "款"):
        assert small_talk((piece * 80)[:79] + end) is None
    assert time.process_time() - started < 0.5


def test_it_is_answered_in_the_language_of_the_visitor_with_the_text_of_the_operator(learned: Path) -> None:
    model, settings = segue.open_desk(learned), DeskSettings(thanks_en="Any time.")

    def said(text: str, **talk: Any) -> str:
        found = reply(model, {**NEW, **talk}, [], text, settings, chosen=None)
        assert (found.about, found.changes) == ({"kind": "small_talk"}, {"memory": {}})
        return found.text

    assert said("thanks") == "Any time."
    assert said("hello") == settings.greeting_en
    assert said("hello", language="zh") == said("你好") == settings.greeting_zh
    assert said("bye") == settings.goodbye_en


def test_questions_of_the_operator_come_first(learned: Path) -> None:
    model = segue.open_desk(learned)
    own = Asked(text="Hello.", topics=(0,), group="g")
    greeted = replace(model, knowledge=replace(model.knowledge, asked=(*model.knowledge.asked, own)))
    assert reply(greeted, NEW, [], "hello", DeskSettings(), chosen=None).about["kind"] != "small_talk"
    assert reply(greeted, NEW, [], "hello there", DeskSettings(), chosen=None).about["kind"] == "small_talk"


def test_a_value_that_was_asked_for_stays_open(learned: Path) -> None:
    model = segue.open_desk(learned)
    talk = dict(NEW)
    kinds = []
    for text in ("where is order now please", "ok", "hello", "thanks", "4711"):
        found = reply(model, talk, [], text, DeskSettings(), chosen=None)
        talk.update(found.changes)
        kinds.append(found.about["kind"])
    assert kinds == ["follow_up"] * 4 + ["answer"]
    assert found.text == "Order 4711 is on its way."


def test_it_is_neither_a_failure_nor_in_the_statistics(desk: Path) -> None:
    async def work(service: DeskService) -> None:
        id = (await service.open(person="ann", language="en"))["id"]
        for place, text in enumerate(("hello", "你好", "thanks", "谢谢", "bye")):
            said = await service.visitor_says(id, text, client=f"message-{place}", chosen=None)
            assert said[1]["about"]["kind"] == "small_talk"
        found = await service.conversation(id)
        assert (found["state"], found["failures"]) == ("desk", 0)
        numbers = await service.database.run(lambda connection: reviews.statistics(connection, days=1))
        assert (numbers["questions"], numbers["answered"], numbers["share_answered"]) == (5, 0, None)
        assert (numbers["without_answer"], numbers["not_answered"], numbers["topics"]) == ([], [], [])

    with_service(desk, work)
