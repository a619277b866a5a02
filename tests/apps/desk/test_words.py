"""Words of the pages: the same in both languages, and some for everything that the server can say."""

import re
from pathlib import Path
from typing import get_args

import segue.apps.desk
from segue.apps.desk.phrases import PHRASES
from segue.apps.desk.reply import Kind
from segue.apps.desk.store import State

PAGE = Path(segue.apps.desk.__file__).parent / "page"
WORD = re.compile(r'"([\w.]+)": "((?:[^"\\]|\\.)*)"')
NAMED = re.compile(r'"((?:visitor|inbox|review|statistics|people)\.[\w.]+)"')
REASONS = {"asked_for_person", "anger", "out_of_scope", "low_confidence", "no_answer", "repeated_failure"}


def words() -> tuple[dict[str, str], dict[str, str]]:
    english, chinese = (PAGE / "words.js").read_text(encoding="utf-8").split("  zh: {")
    return dict(WORD.findall(english)), dict(WORD.findall(chinese))


def test_both_languages_have_the_same_words_and_values() -> None:
    english, chinese = words()
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", chinese[name])), name
    assert not [name for name, text in chinese.items() if "用户" in text]  # visitors are 访客


def test_everything_that_is_shown_has_a_word() -> None:
    english, _ = words()
    assert PHRASES["en"].keys() > REASONS
    needed = {f"kind.{kind}" for kind in (*get_args(Kind), "resumed")} | {f"reason.{reason}" for reason in REASONS}
    needed |= {f"state.{state}" for state in get_args(State)} | {f"state.{state}.count" for state in get_args(State)}
    for script in PAGE.glob("*.js"):
        if script.name != "words.js":
            needed |= set(NAMED.findall(script.read_text(encoding="utf-8")))
    assert len(needed) > 60
    assert needed <= english.keys()
