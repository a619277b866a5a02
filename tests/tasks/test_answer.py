"""Question answering: answers in rows, windows, training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segue.data.tables import open_table
from segue.errors import ConfigError, DataError
from segue.tasks.answer import ANSWER, AnswerSettings, learn
from segue.tasks.answer.rows import given_answers, locate
from segue.tasks.answer.windows import characters, token_span, windows
from segue.tasks.examples import column_names
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer, answer_rows, answers_in_order
from segue.tasks.task import Example
from segue.text.files import load_tokenizer
from tests.tasks.answer_rows import ENGLISH, ROWS
from tests.tasks.made import examples_of, run, saved_and_restored, task_model, write_rows

CHINESE = "他出生于北京，后来随父母搬到上海，在那里读完了大学。公司表示，今年第一季度的利润增长了百分之十。"
CHINESE_ROWS: list[dict[str, Any]] = [
    {"context": CHINESE, "question": "他出生在哪里？", "answer": [{"text": "北京", "start": 4}]},
    {"context": "男的想买什么？他想给妻子买一件新大衣。", "question": "他想买什么？", "answer": "一件新大衣"},
]


def travels(count: int, *, seed: int, impossible: bool = False) -> list[dict[str, Any]]:
    """Passages with a city and a person; the question says which of the two is wanted, and it may be missing."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        words = random.permutation(["the", "film", "was", "story"]).tolist()
        there = not (impossible and number % 3 == 0)
        for kind, names in enumerate((["Paris", "London"], ["wife", "staff"])):
            name = str(random.choice(names))
            if kind == number % 2:
                wanted = name
            if there or kind != number % 2:
                words.insert(int(random.integers(len(words) + 1)), name)
        context = " ".join(words)
        answers = [{"text": wanted, "start": context.index(wanted)}] if there else []
        question = "company" if number % 2 else "park"
        rows.append({"context": context, "question": question, "answers": answers, "impossible": not there})
    return rows


# ------------------------------------------------------------------------------------------------- answers in rows


def test_an_answer_is_looked_for_where_it_should_be_and_then_next_to_it() -> None:
    context = "ab cd ab cd ab"
    assert locate(context, "ab", 6) == (6, 8)
    assert locate(context, "ab", 4) == (6, 8)  # two before the second, four after the first
    assert locate(context, "ab", 1) == (0, 2)
    assert locate(context, "ab", 99) == (12, 14)
    assert locate(context, "ab", -1) == (0, 2)
    assert locate(context, "ab", None) == (0, 2)
    assert locate(context, " cd ", 8) == (9, 11)  # without the spaces around it
    assert locate(context, "ef", 3) is None
    assert locate(CHINESE, "上海", 0) == (14, 16)


@pytest.mark.parametrize(
    ("row", "answers", "impossible"),
    [
        ({"answer": [{"text": "1906", "start": 25}], "impossible": None}, (("1906", 25),), None),
        ({"answer": [], "impossible": True}, (), True),
        ({"answer": {"text": ["a", "b"], "answer_start": [3, 5]}}, (("a", 3), ("b", 5)), None),
        ({"answer": {"text": [], "answer_start": []}}, (), True),
        ({"answer": "1906", "answer_start": "25", "impossible": "false"}, (("1906", 25),), False),
        ({"answer": "1906", "answer_start": ""}, (("1906", None),), None),
        ({"answer": 1906, "answer_start": 25.0}, (("1906", 25),), None),
        ({"answer": " ", "impossible": 1}, (), True),
        ({"answer": ["a", "b"], "answer_start": [1, 2]}, (("a", 1), ("b", 2)), None),
        ({"answer": ["a", "b"]}, (("a", None), ("b", None)), None),
        ({"answer": None}, (), None),
    ],
)
def test_answers_are_read_however_tables_write_them(row: dict[str, Any], answers: Any, impossible: bool | None) -> None:
    given = given_answers(row)
    assert (given.answers, given.impossible) == (answers, impossible)


def test_rows_that_cannot_serve_are_counted_by_their_rule(english_model: Path, tmp_path: Path) -> None:
    made = task_model(ANSWER, english_model, ROWS)
    good = {"context": "ab cd", "question": "?", "answer": [{"text": "ab", "start": 0}, {"text": "zz", "start": 3}]}
    bad = [
        good | {"answer": "ef"},
        good | {"answer": "ab", "answer_start": "x"},
        good | {"context": " "},
        good | {"question": None},
        good | {"impossible": True},
        good | {"answer": []},
        good | {"answer": [], "impossible": True},
    ]
    found = examples_of(made, [good, *bad], tmp_path)
    assert {rule: count for rule, (count, _) in found.unusable.items()} == {
        "an answer that is not in its context": 1,
        "an answer_start that is not a whole number": 1,
        "an empty context": 1,
        "an empty question": 1,
        "a question that is marked as impossible and has an answer": 1,
        "a question without an answer": 2,
    }
    assert found.examples[0].gold.texts == ("ab", "zz")  # all count, those that are there are learned
    assert found.examples[0].gold.spans == ((0, 2),)


def test_what_training_rows_show_and_what_they_must_have() -> None:
    def learned(*rows: dict[str, Any], **settings: Any) -> AnswerSettings:
        return learn(list(enumerate(rows, 1)), AnswerSettings(**settings)).settings

    marked = ROWS[1] | {"answer": [], "impossible": True}
    unmarked = ROWS[1] | {"answer": {"text": [], "answer_start": []}}
    assert (learned(*ROWS).script, learned(*ROWS).unanswerable) == ("squad1", False)
    assert (learned(*CHINESE_ROWS).script, learned(*CHINESE_ROWS).unanswerable) == ("cmrc", False)
    for none in (marked, unmarked):
        assert (learned(*ROWS, none).script, learned(*ROWS, none).unanswerable) == ("squad2", True)
    assert learned(*ROWS, marked, unanswerable=False).script == "squad1"
    with pytest.raises(DataError, match="must have answers; got 2 rows, none with one"):
        learned(marked, ROWS[1] | {"answer": None})
    with pytest.raises(ConfigError, match=r"task\.script must be squad2"):
        learned(*ROWS, marked, script="cmrc")
    with pytest.raises(ConfigError, match=r"task\.stride must be less than task\.window"):
        learned(*ROWS, window=64)


def test_columns_of_squad_and_of_flat_tables_are_found(tmp_path: Path) -> None:
    (tmp_path / "flat.csv").write_text("question,passage,answer\nWhere?,In the park.,the park\n", encoding="utf-8")
    table = open_table(tmp_path / "flat.csv")
    assert column_names(ANSWER, table, {}, labelled=True) == {
        "context": "passage",
        "question": "question",
        "answer": "answer",
    }
    assert "answer" not in column_names(ANSWER, table, {}, labelled=False)
    squad = '{"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "1", "question": "b?", "answers": []}]}]}]}'
    (tmp_path / "squad.json").write_text(squad, encoding="utf-8")
    names = column_names(ANSWER, open_table(tmp_path / "squad.json"), {}, labelled=True)
    assert (names["answer"], names["impossible"]) == ("answers", "impossible")


# ------------------------------------------------------------------------------------------- characters and tokens


@pytest.mark.parametrize(("language", "text"), [("english", ENGLISH), ("chinese", CHINESE)])
def test_every_span_of_characters_has_the_fewest_tokens_that_cover_it(
    language: str, text: str, english_model: Path, chinese_model: Path
) -> None:
    made = task_model(ANSWER, english_model if language == "english" else chinese_model, ROWS)
    encoding = made.tokenizer.encode_with_offsets(text)
    whole, *others = windows(made.layout(), encoding, encoding, longest=999, stride=9, question_first=True)
    assert not others
    for begin in range(len(text)):
        for end in range(begin + 1, len(text) + 1):
            span = token_span(whole.part, begin, end)
            assert span is not None
            first, last = (place - whole.part.begin for place in span)
            assert encoding.starts[first] <= begin < encoding.ends[first]
            assert encoding.starts[last] < end <= encoding.ends[last]
            found = characters(text, whole.part, *span)
            covered = text[encoding.starts[first] : encoding.ends[last]]
            assert text[slice(*found)] == covered.strip() or not covered.strip()


def test_a_character_of_several_bytes_is_one_answer(chinese_model: Path) -> None:
    text = "他出生于鑫鑫。"  # the tokeniser has never seen 鑫
    tokenizer = load_tokenizer(chinese_model / "tokenizer")
    encoding = tokenizer.encode_with_offsets(text)
    assert len(encoding.ids) > len(text)
    made = task_model(ANSWER, chinese_model, CHINESE_ROWS)
    (window,) = windows(made.layout(), encoding, encoding, longest=99, stride=9, question_first=False)
    for begin, end in ((4, 5), (5, 6), (4, 6), (3, 7)):
        span = token_span(window.part, begin, end)
        assert span is not None
        assert characters(text, window.part, *span) == (begin, end)


@pytest.mark.parametrize("question_first", [True, False])
@pytest.mark.parametrize(("longest", "stride"), [(40, 10), (40, 17), (40, 39), (30, 12), (999, 128)])
def test_windows_hold_the_whole_question_and_together_the_whole_passage(
    english_model: Path, question_first: bool, longest: int, stride: int
) -> None:
    made = task_model(ANSWER, english_model, ROWS)
    passage = made.tokenizer.encode_with_offsets(ENGLISH)
    question = made.tokenizer.encode_with_offsets("When was she born?")
    found = windows(made.layout(), passage, question, longest=longest, stride=stride, question_first=question_first)
    seen: set[int] = set()
    for number, window in enumerate(found):
        ids = window.document.ids
        assert len(ids) <= longest
        assert ids[window.cls] == made.tokenizer.specials["cls"]
        at = 0 if question_first else window.part.begin + len(window.part) + 1
        assert (window.part.begin == 0) == (not question_first)
        assert ids[at : at + len(question.ids)].tolist() == question.ids.tolist()
        start = int(np.flatnonzero(passage.starts == window.part.starts[0])[0])
        own = passage.ids[start : start + len(window.part)]
        assert ids[window.part.begin : window.part.begin + len(window.part)].tolist() == own.tolist()
        seen |= set(range(start, start + len(own)))
        if stride < len(found[0].part):
            assert start == number * stride
    assert seen == set(range(len(passage.ids)))
    assert len({tuple(window.part.starts) for window in found}) == len(found)


def test_a_very_long_question_still_meets_the_whole_passage(english_model: Path) -> None:
    made = task_model(ANSWER, english_model, ROWS)
    example = Example(number=1, texts=(ENGLISH, ENGLISH * 9))
    items = made.task.items(example, made.layout())
    covered = {int(start) for item in items for start in item.extra[0].part.starts}
    assert covered == set(made.tokenizer.encode_with_offsets(ENGLISH).starts.tolist())


def test_windows_without_the_answer_point_at_cls(english_model: Path, tmp_path: Path) -> None:
    made = task_model(ANSWER, english_model, ROWS, window=40, stride=10)
    example = examples_of(made, ROWS, tmp_path).examples[0]
    layout = made.layout()
    items = made.task.items(example, layout)
    golds = [item.gold for item in items]
    inside = [gold for gold, item in zip(golds, items, strict=True) if gold[0] != item.extra[0].cls]
    assert 0 < len(inside) < len(items)
    for item in items:
        window, context = item.extra
        if item.gold == (window.cls, window.cls):
            assert window.part.starts[0] > 25 or window.part.ends[-1] < 29
        else:
            assert context[slice(*characters(context, window.part, *item.gold))] == "1906"
    assert layout.remarks["passages are read in several windows"] == 1
    assert layout.remarks["windows do not contain the answer, and are trained to predict none"] == len(items) - len(
        inside
    )


def test_answers_inside_pieces_are_covered_and_counted(english_model: Path, tmp_path: Path) -> None:
    row = {"context": "The family moved.", "question": "Who?", "answer": "famil"}
    made = task_model(ANSWER, english_model, [row])
    encoding = made.tokenizer.encode_with_offsets(row["context"])
    layout = made.layout()
    (item,) = made.task.items(examples_of(made, [row], tmp_path).examples[0], layout)
    window, context = item.extra
    found = context[slice(*characters(context, window.part, *item.gold))]
    inside = not any(int(end) == 9 for end in encoding.ends)
    assert inside, "the piece family must be one for this test"
    assert found == "family"
    assert sum(count for what, count in layout.remarks.items() if "inside a subword" in what) == 1


def test_the_question_comes_first_where_the_passage_could_not_see_it_otherwise(
    model_of_each_objective: dict[str, Path],
) -> None:
    example = Example(number=1, texts=("in the park", "Where?"))

    def is_first(objective: str, *, segment_length: int, **settings: Any) -> bool:
        made = task_model(ANSWER, model_of_each_objective[objective], ROWS, **settings)
        (item,) = made.task.items(example, replace(made, segment_length=segment_length).layout())
        return item.extra[0].part.begin > 1  # CLS may be before it

    assert is_first("causal", segment_length=512)
    assert is_first("masked", segment_length=64)
    assert not is_first("permutation", segment_length=512)
    assert is_first("permutation", segment_length=100)  # windows of several segments
    assert is_first("permutation", segment_length=512, question_first=True)
    assert not is_first("causal", segment_length=512, question_first=False)


def test_models_without_memory_have_windows_of_a_segment(model_of_each_objective: dict[str, Path]) -> None:
    example = Example(number=1, texts=(ENGLISH, "Where?"))
    for objective, most in (("masked", 30), ("causal", 384)):
        made = replace(task_model(ANSWER, model_of_each_objective[objective], ROWS), segment_length=30)
        lengths = [item.length for item in made.task.items(example, made.layout())]
        assert max(lengths) <= most
        assert (len(lengths) > 1) == (objective == "masked")


# ---------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("objective", ["permutation", pytest.param("causal", marks=pytest.mark.long)])
def test_a_run_learns_what_the_question_asks_for(
    model_of_each_objective: dict[str, Path], tmp_path: Path, objective: str
) -> None:
    train = write_rows(tmp_path / "train.jsonl", travels(160, seed=0))
    test = write_rows(tmp_path / "test.jsonl", travels(40, seed=1))
    end = run(ANSWER, model_of_each_objective[objective], tmp_path / "run", "train.epochs=6", train=train, test=test)
    judged = end.judged[-1]
    assert judged.metrics["exact"].value > 80
    made = load_task_model(tmp_path / "run")
    assert made.task == end.task
    again = answers_in_order(made, judged.examples)
    assert [one.columns for one in again] == [one.columns for one in judged.predictions]


def test_a_run_learns_when_there_is_no_answer_in_windows_longer_than_a_segment(
    english_model: Path, tmp_path: Path
) -> None:
    train = write_rows(tmp_path / "train.jsonl", travels(160, seed=0, impossible=True))
    test = write_rows(tmp_path / "test.jsonl", travels(60, seed=1, impossible=True))
    overrides = ["train.epochs=9", "read.segment_length=8"]
    end = run(ANSWER, english_model, tmp_path / "run", *overrides, train=train, test=test)
    metrics = {name: metric.value for name, metric in end.judged[-1].metrics.items()}
    assert metrics["f1"] > 75
    assert metrics["no_answer_f1"] > 60
    assert metrics["has_answer_f1"] > 60
    assert metrics["best_f1"] >= metrics["f1"] - 1e-6


def test_a_saved_task_comes_back_and_rows_need_no_answers(chinese_model: Path, tmp_path: Path) -> None:
    made = task_model(ANSWER, chinese_model, CHINESE_ROWS, window=40, stride=10, n_best=2)
    assert saved_and_restored(made) == made.task
    rows = [{"context": row["context"], "question": row["question"]} for row in CHINESE_ROWS]
    rows.insert(1, {"context": "", "question": "？"})
    answered = list(answer_rows(made, enumerate(rows, 1)))
    assert [one.problem for one in answered] == [None, "an empty context", None]
    for row, one in zip(rows, answered, strict=True):
        if one.prediction is not None:
            columns = one.prediction.columns
            assert row["context"][columns["start"] : columns["end"]] == columns["answer"]
            assert len(columns["n_best"]) == 2
    examples = examples_of(made, CHINESE_ROWS, tmp_path).examples
    assert dict(answer(made, examples))[0].columns == answered[0].prediction.columns  # type: ignore[union-attr]
