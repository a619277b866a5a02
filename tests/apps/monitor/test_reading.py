"""From rows to texts, from texts to terms, entities and repeats."""

from datetime import UTC
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.apps.cells import parse_time, zone_of
from segue.apps.monitor.entities import entities_of, read_entities
from segue.apps.monitor.labelled import read_labelled
from segue.apps.monitor.repeats import Near, fingerprint, known
from segue.apps.monitor.said import around, said_of
from segue.apps.monitor.terms import located, normal, terms_of
from segue.apps.monitor.texts import Rows, language_of, to_text
from segue.errors import ConfigError, DataError
from tests.examples import examples

ROWS = Rows(source="wire")
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2019-02-14T08:00:00+08:00", 1550102400),
        ("2019-02-14", 1550102400),
        ("2019年2月14日", 1550102400),
        ("2019/2/14 01:00", 1550106000),
        ("Thu, 14 Feb 2019 00:00:00 GMT", 1550102400),
        (1550102400, 1550102400),
        ("1550102400000", 1550102400),
        ("yesterday", None),
        (float("nan"), None),
        ("9999-99-99", None),
    ],
)
def test_times_are_read_as_they_are_written(written: object, seconds: float | None) -> None:
    assert parse_time(written, UTC) == seconds


def test_a_time_without_a_zone_is_of_the_zone_of_its_source() -> None:
    assert parse_time("2019-02-14T08:00:00", zone_of("Asia/Shanghai")) == 1550102400
    with pytest.raises(ConfigError, match="time zone"):
        zone_of("Moon/Base")


def test_a_row_is_a_text_or_says_why_not() -> None:
    found = to_text({"标题": "业绩", "正文": "净利润增长", "日期": "2019年2月14日", "作者": "甲"}, ROWS, arrived=NOW)
    assert not isinstance(found, str)
    assert (found.whole, found.time, found.author, found.language) == ("业绩\n净利润增长", 1550102400, "甲", "zh")
    for row, why in (
        ({"body": " "}, "must have a text"),
        ({"text": ["x"]}, "text must be a string or a number; it is list"),
        ({"text": "x", "author": {"name": "y"}}, "author must be a string"),
        ({"text": "x", "time": "soon"}, "must be one that can be read"),
        ({"text": "x", "time": NOW + 100_000}, "later than its arrival"),
        ({"text": "x" * 200_001}, "at most"),
    ):
        reason = to_text(row, ROWS, arrived=NOW)
        assert isinstance(reason, str)
        assert why in reason


def test_the_same_row_has_the_same_id_and_an_own_id_decides() -> None:
    def id_of(**row: object) -> str:
        found = to_text(row, ROWS, arrived=NOW)
        assert not isinstance(found, str)
        return found.id

    assert id_of(text="a", time=1) == id_of(text="a", time=1)
    assert id_of(text="a", time=1) != id_of(text="a", time=2)
    assert id_of(text="a", id="7") == id_of(text="b", id="7")


def test_languages() -> None:
    assert [language_of(text) for text in ("净利润增长", "profit rose", "прибыль выросла")] == ["zh", "en", "other"]


@settings(max_examples=examples(60), deadline=None)
@given(st.text(alphabet="ab Z19.,%$-!净利润增は_İ１，from ", max_size=60))
def test_located_terms_are_the_terms(text: str) -> None:
    places = list(located(text))
    assert sorted(term for term, _, _ in places) == sorted(terms_of(text))
    assert len(normal(text)) == len(text)
    assert all(0 <= start < end <= len(text) for _, start, end in places)


def test_numbers_look_alike_and_comparisons_are_terms() -> None:
    assert terms_of("up 14.5%") == terms_of("UP 9%")
    assert "增#%" in terms_of("净利增14.45%")
    assert "^up" in terms_of("net sales rose to 13.1 mn from 11.2 mn")
    assert "^down loss" in terms_of("the loss was 1.0 mn, compared to 2.5 mn")
    assert not any(term.startswith("^") for term in terms_of("in 2009 from 2008"))


def test_entities_are_found_by_code_and_name_the_longest_first() -> None:
    found = entities_of(
        [("AAPL", ["Apple"]), ("APLE", ["Apple Hospitality"]), ("T", ["AT&T"]), ("300399", ["京天利"]), ("C", [])]
    )

    def codes(text: str) -> list[str]:
        return [one.entity for one in found.mentions(text)]

    assert codes("apple and Apple Hospitality fell") == ["AAPL", "APLE"]
    assert codes("pineapple juice") == []
    assert codes("$ aapl $t rallied, T fell, t rose") == ["AAPL", "T", "T"]
    assert codes("京天利(300399)公告，1300399不算") == ["300399", "300399"]
    assert codes("vitamin c, C major") == ["C"]
    assert codes("aapl") == []
    [mention] = found.mentions("buy AT&T now")
    assert (mention.start, mention.end) == (4, 8)


def test_a_list_of_entities_needs_codes(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("name\nApple\n")
    with pytest.raises(DataError, match="column code"):
        read_entities(tmp_path / "list.csv")


def test_what_is_said_of_each_entity_is_around_its_mentions() -> None:
    text = "Acme rose, a record, but Globex fell. Nothing else. 长江涨，而黄河跌。"
    found = entities_of([("A", ["Acme"]), ("G", ["Globex"]), ("C", ["长江"]), ("H", ["黄河"])])
    said = {code: said_of(text, spans).text.strip() for code, spans in around(text, found.mentions(text)).items()}
    assert said == {"A": "Acme rose, a record, but", "G": "Globex fell.", "C": "长江涨，而", "H": "黄河跌。"}


def test_repeats_share_their_words_and_near_ones_their_numbers() -> None:
    assert fingerprint("RT @ann: Profit rose! https://a.b/c") == fingerprint("profit rose")
    near = Near(3)
    first = known("Acme said on Monday that its profit rose by 14 percent in the last quarter", ["A"])
    near.add(1, first)
    again = known("Acme said on Monday that its profit rose by 14 percent in the past quarter", ["A"])
    assert near.find(again) == 1
    assert near.find(known("Acme said on Monday that its profit rose by 15 percent in the last quarter", ["A"])) is None
    assert near.find(known("Acme said on Monday that its profit rose by 14 percent in the past quarter", ["B"])) is None
    for number in range(2, 5):
        near.add(number, known(f"another text number {number} " * 3, []))
    assert near.find(again) is None  # the oldest has gone


def test_labels_have_many_names() -> None:
    def labels(*values: object) -> list[int | None]:
        return [row.sentiment for row in _read([{"text": f"t{n}", "label": v} for n, v in enumerate(values)])]

    assert labels("Negative", "中性", "利好") == [0, 1, 2]
    assert labels(0, 1) == [0, 2]
    assert labels("0", "1", "2") == [0, 1, 2]
    assert labels(-1, 0, 1) == [0, 1, 2]
    with pytest.raises(DataError, match="two sentiments"):
        labels("positive", "positive")


def _read(rows: list[dict[str, object]]) -> tuple[object, ...]:
    from segue.api.tables import memory_table

    return read_labelled([memory_table(rows, name="rows")]).rows


def test_minhash_estimates_what_texts_share() -> None:
    draw = np.random.default_rng(0)
    words = [f"word{n}" for n in range(400)]
    base = [words[n] for n in draw.integers(0, 400, 60)]
    other = base[:45] + [words[n] for n in draw.integers(0, 400, 15)]
    first, second = " ".join(base), " ".join(other)

    def runs(text: str) -> set[str]:
        return {text[n : n + 5] for n in range(len(text) - 4)}

    exact = len(runs(first) & runs(second)) / len(runs(first) | runs(second))
    told = float((known(first, []).signature == known(second, []).signature).mean())
    assert abs(told - exact) < 0.2
