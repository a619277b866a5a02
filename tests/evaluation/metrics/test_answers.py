"""The expected numbers are worked out by hand from what the official scripts do, step by step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.errors import DataError
from segue.evaluation.metrics.answers import answer_scores, answers, best_threshold, normalised
from segue.evaluation.metrics.segmentation import english_units, mixed_units, without_punctuation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat's, a dog!", "cats dog"),
        ("an theatre", "theatre"),
        ("A-B", "ab"),
        ("the-end", "theend"),  # punctuation goes before articles
        ("a.b. the", "ab"),
        ("“Quoted” — the", "“quoted” —"),  # ASCII punctuation only
        ("\u00a0the\tend\n", "end"),
        ("", ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1"),
    [
        (["Denver Broncos"], "the denver broncos.", 1, 1),
        (["Denver Broncos"], "Broncos", 0, 2 * 1 * 0.5 / 1.5),
        (["a b c c", "x"], "c c c", 0, 2 * (2 / 3) * (2 / 3) / (4 / 3)),  # "a" is an article; c counts twice
        (["one two", "three"], "three", 1, 1),
        (["one two three", "three four"], "three", 0, 2 / 3),  # the best of the answers
        (["Paris"], "", 0, 0),
        (["the"], "a", 1, 0),  # both empty: equal, no word in common
    ],
)
def test_squad1(gold: list[str], predicted: str, exact: float, f1: float) -> None:
    got = answers([gold], [predicted], script="squad1", resamples=None)
    assert set(got) == {"exact", "f1"}
    assert got["exact"].value == 100 * exact
    assert got["f1"].value == pytest.approx(100 * f1)


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1"),
    [
        ([], "", 1, 1),
        ([], "Paris", 0, 0),
        ([], "the", 1, 1),  # nothing is left of it
        (["Paris"], "", 0, 0),
        (["the", "Paris"], "", 0, 0),  # "the" is no answer, Paris is
        (["the"], "", 1, 1),
        (["Paris France"], "Paris", 0, 2 / 3),
    ],
)
def test_squad2(gold: list[str], predicted: str, exact: float, f1: float) -> None:
    scores = answer_scores([gold], [predicted], script="squad2")
    assert scores.exact_N.tolist() == [exact]
    assert scores.f1_N.tolist() == pytest.approx([f1])


def test_squad2_groups_and_threshold() -> None:
    gold = [["red"], ["blue sky"], [], []]
    predicted = ["red", "sky", "green", ""]
    plain = answers(gold, predicted, script="squad2", resamples=None)
    assert {name: metric.value for name, metric in plain.items()} == pytest.approx(
        {
            "exact": 50,
            "f1": 100 * (1 + 2 / 3 + 0 + 1) / 4,
            "has_answer_exact": 50,
            "has_answer_f1": 100 * (1 + 2 / 3) / 2,
            "no_answer_exact": 50,
            "no_answer_f1": 50,
        }
    )
    # Above 0.5 a question is left unanswered; at 0.5 it is not.
    got = answers(gold, predicted, script="squad2", no_answer=[0.5, 0.6, 0.7, 0.1], threshold=0.5, resamples=None)
    assert {name: metric.value for name, metric in got.items()} == pytest.approx(
        {
            "exact": 75,
            "f1": 75,
            "has_answer_exact": 50,
            "has_answer_f1": 50,
            "no_answer_exact": 100,
            "no_answer_f1": 100,
        }
    )
    assert "no_answer_f1" not in answers([["x"]], ["x"], script="squad2", resamples=None)


def test_best_threshold_by_hand() -> None:
    gold = [["red"], ["blue sky"], [], ["big"]]
    predicted = ["red", "sky", "green", "big"]
    no_answer = [0.1, 0.3, 0.6, 0.8]
    # Answering nothing: 1. Then 1 + 1 = 2, + 2/3, - 1, + 1: the best is after the second, by F1.
    best = best_threshold(gold, predicted, no_answer, by="f1")
    assert best.value == 0.3
    assert best.score == pytest.approx(100 * (2 + 2 / 3) / 4)
    # By exact match 2, 2, 1, 2: the first of the equals.
    assert best_threshold(gold, predicted, no_answer, by="exact").value == 0.1
    # Where no answer is right, all are best left away.
    assert best_threshold(gold, ["no"] * 4, no_answer).value == 0
    nothing = best_threshold(gold, ["no"] * 4, [-2.0, -1.0, 0.0, 3.0])
    assert nothing.value < -2
    assert nothing.score == 25


QUESTION = st.tuples(
    st.sampled_from([[], ["red"], ["blue sky", "sky"]]),
    st.sampled_from(["", "red", "sky", "blue"]),
    st.sampled_from([-1.5, 0.0, 0.2, 0.5, 0.9]),
)


@settings(deadline=None)
@given(st.lists(QUESTION, min_size=1, max_size=10), st.sampled_from(["exact", "f1"]))
def test_the_best_threshold_is_attained_and_best(rows: list[tuple[list[str], str, float]], by: str) -> None:
    gold, predicted, no_answer = ([row[i] for row in rows] for i in range(3))

    def score(threshold: float) -> float:
        got = answers(gold, predicted, script="squad2", no_answer=no_answer, threshold=threshold, resamples=None)
        return got[by].value

    best = best_threshold(gold, predicted, no_answer, by=by)  # type: ignore[arg-type]
    assert score(best.value) == pytest.approx(best.score)
    for threshold in (-9.0, *no_answer):
        assert score(threshold) <= best.score + 1e-9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我爱NBA 2008年", ["我", "爱", "nba", "2008", "年"]),
        ("1990-2000", ["19902000"]),  # what is removed does not separate
        ("《Hello World》", ["hello", "world"]),
        ("约3.5%的人", ["约", "3.5", "%", "的", "人"]),
        ("价格为1,000元", ["价", "格", "为", "1,000", "元"]),
        ("等……", ["等", "……"]),  # the ellipsis is not on the list
        ("A，B", ["ab"]),
        ("", []),
    ],
)
def test_mixed_units(text: str, expected: list[str]) -> None:
    assert mixed_units(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # as nltk 3.10 cuts these
        ("it can't be john's", ["it", "ca", "n't", "be", "john", "'s"]),
        ("we'll (say) yes.", ["we", "'ll", "(", "say", ")", "yes", "."]),
        ('he said "no" twice', ["he", "said", "``", "no", "''", "twice"]),
        ('"no"', ["``", "no", "''"]),
        ("1,000, or more", ["1,000", ",", "or", "more"]),
        ("at&t inc.", ["at", "&", "t", "inc", "."]),
        ("u.s.", ["u.s", "."]),
        ("the u.s. army", ["the", "u.s.", "army"]),
        ("mr. smith cannot", ["mr.", "smith", "can", "not"]),
        ("wait... what?!", ["wait", "...", "what", "?", "!"]),
        ("the dogs' home", ["the", "dogs", "'", "home"]),
        ("the 'best' one", ["the", "'", "best", "'", "one"]),
        ("all change.'", ["all", "change", ".", "'"]),
        ("10–20 #1", ["10", "–", "20", "#", "1"]),
        ("first one. second one", ["first", "one", ".", "second", "one"]),
    ],
)
def test_english_units(text: str, expected: list[str]) -> None:
    assert english_units(text) == expected


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1"),
    [
        (["光荣和ω-force"], "光荣和ω-force开发", 0, 2 * 4 / (4 + 6)),  # 光 荣 和 ωforce: one unit
        (["《战国无双3》"], "战国无双3", 1, 1),
        (["北京大学"], "北大京学", 0, 2 * 1 / 8),  # the longest run, not the characters in common
        (["北京", "北京大学"], "北京大学", 1, 1),
        (["NBA"], "nba", 1, 1),
        (["a b"], "ab", 0, 0),  # spaces count
        (["中国"], "", 0, 0),
        (["，"], "。", 1, 0),  # nothing is left of both
        (["三国"], "（三国）", 1, 1),
    ],
)
def test_cmrc(gold: list[str], predicted: str, exact: float, f1: float) -> None:
    got = answers([gold], [predicted], script="cmrc", resamples=None)
    assert got["exact"].value == 100 * exact
    assert got["f1"].value == pytest.approx(100 * f1)


def test_removed_characters() -> None:
    assert without_punctuation(" A-B：《C》。 d ") == "abc d"


def test_intervals() -> None:
    got = answers([["x"]] * 400, ["x", "y"] * 200, script="squad1")["exact"]
    assert got.value == 50
    assert got.low == pytest.approx(50 - 196 * 0.5 / 20, abs=1)
    assert got.high == pytest.approx(50 + 196 * 0.5 / 20, abs=1)


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="at least one example"):
        answers([], [], script="squad1")
    with pytest.raises(DataError, match="got 1 and 2"):
        answers([["a"]], ["a", "b"], script="squad1")
    for script in ("squad1", "cmrc"):
        with pytest.raises(DataError, match="none in question 1"):
            answers([["a"], []], ["a", "b"], script=script)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="list of texts"):
        answers(["a"], ["a"], script="squad1")
    with pytest.raises(DataError, match="one of squad1"):
        answers([["a"]], ["a"], script="squad")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="go together"):
        answers([["a"]], ["a"], script="squad2", no_answer=[0.5])
    with pytest.raises(DataError, match="go together"):
        answers([["a"]], ["a"], script="squad1", no_answer=[0.5], threshold=0.5)
    with pytest.raises(DataError, match="finite"):
        answers([["a"]], ["a"], script="squad2", no_answer=[np.nan], threshold=0.5)
    with pytest.raises(DataError, match="2 scores for 1 questions"):
        best_threshold([["a"]], ["a"], [0.1, 0.2])
    with pytest.raises(DataError, match="exact"):
        best_threshold([["a"]], ["a"], [0.1], by="em")  # type: ignore[arg-type]
