import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from segue.data.tables import open_table
from segue.errors import DataError
from segue.tasks.choose import CHOOSE, Choose, ChooseSettings, learn, with_option
from segue.tasks.examples import column_names
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer_rows, answers_in_order
from segue.tasks.scores import scores
from tests.tasks.made import examples_of, run, saved_and_restored, task_model, write_rows

QUESTIONS: list[dict[str, Any]] = [
    {
        "context": "The company said that profit rose by ten per cent in the first quarter." * 2,
        "question": "Profit _ in the first quarter.",
        "options": ["rose", "fell", "was new", "was weak"],
        "answer": "A",
    },
    {"context": "He wants a coat.", "question": "What?", "options": ["a coat", "a park"], "answer": "a"},
    {"context": "Two men are playing.", "question": None, "options": ["one", "two", "", "ten"], "answer": "D"},
]
CHINESE: list[dict[str, Any]] = [
    {"context": "男的想买什么？", "question": "他想买_。", "options": '["大衣", "足球", "书"]', "answer": "大衣"},
    {"context": "两个年轻人。", "question": "有几个人？", "options": "一个|两个", "answer": "两个"},
]


@pytest.mark.parametrize("objective", ["permutation", "causal", "masked"])
def test_an_option_is_read_without_the_others(
    model_of_each_objective: dict[str, Path], tmp_path: Path, objective: str
) -> None:
    other: list[dict[str, Any]] = [dict(row) for row in QUESTIONS]
    other[0]["options"] = ["rose", "fell " * 9, "was new", "was weak"]
    made = task_model(CHOOSE, model_of_each_objective[objective], QUESTIONS)
    made.model.eval()
    found = []
    for rows in (QUESTIONS, other):
        items = [item for e in examples_of(made, rows, tmp_path).examples for item in made.task.items(e, made.layout())]
        with torch.no_grad():
            found.append(scores(made.model, items, made.reader()))
    before, after = found[0][0], found[1][0]
    assert [len(part) for part in found[0]] == [4, 2, 3]
    same = torch.isclose(before, after, atol=1e-5)
    assert same.tolist() == [True, False, True, True]
    assert torch.allclose(found[0][2], found[1][2], atol=1e-5)


def test_the_loss_is_the_mean_over_questions_of_different_numbers_of_options(
    english_model: Path, tmp_path: Path
) -> None:
    made = task_model(CHOOSE, english_model, QUESTIONS)
    examples = examples_of(made, QUESTIONS, tmp_path).examples
    assert [example.gold for example in examples] == [0, 0, 2]
    layout = made.layout()
    items = [item for example in examples for item in made.task.items(example, layout)]
    made.model.eval()
    loss = made.task.loss(made.model, items, made.reader(), class_weights=None)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for name, parameter in made.model.named_parameters() if "scorer" in name)
    each = []
    for item in items:  # one document at a time: no padding anywhere
        with torch.no_grad():
            found = [scores(made.model, [replace(item, documents=(one,))], made.reader())[0] for one in item.documents]
        each.append(float(F.cross_entropy(torch.cat(found)[None], torch.tensor([item.gold]))))
    assert float(loss.detach()) == pytest.approx(np.mean(each), abs=1e-5)
    assert made.task.chance(examples) == pytest.approx((math.log(4) + math.log(2) + math.log(3)) / 3)


def test_the_model_reads_the_text_then_the_question_with_the_option(english_model: Path, tmp_path: Path) -> None:
    made = task_model(CHOOSE, english_model, QUESTIONS)
    layout = made.layout()
    shown = []
    for example in examples_of(made, QUESTIONS, tmp_path).examples:
        for document in made.task.items(example, layout)[0].documents:
            text = made.tokenizer.decode(document.ids[document.segments == 1].tolist())
            shown.append(text.removesuffix("<sep>").strip())
            assert layout.preview(document).endswith("<sep> <cls>")
    assert shown[:2] == ["Profit rose in the first quarter.", "Profit fell in the first quarter."]
    assert shown[4:] == ["What? a coat", "What? a park", "one", "two", "ten"]
    assert with_option(r"a __ b ＿", r"\1 c") == r"a \1 c b \1 c"


def test_probabilities_stand_in_the_places_of_the_options(english_model: Path, tmp_path: Path) -> None:
    made = task_model(CHOOSE, english_model, QUESTIONS)
    examples = examples_of(made, QUESTIONS, tmp_path).examples
    together = answers_in_order(made, examples)
    for example, answer in zip(examples, together, strict=True):
        assert answer.value == pytest.approx(answers_in_order(made, [example])[0].value, abs=1e-5)
        assert answer.value.sum() == pytest.approx(1)
    columns = together[2].columns
    assert columns["probabilities"][2] == 0  # the blank one
    assert [len(answer.columns["probabilities"]) for answer in together] == [4, 2, 4]
    assert columns["probabilities"]["ABCD".index(columns["prediction"])] == columns["probability"]
    assert columns["option"] == QUESTIONS[2]["options"]["ABCD".index(columns["prediction"])]
    measured = made.task.measure(examples, together)
    right = [answer.value.argmax() == example.gold for example, answer in zip(examples, together, strict=True)]
    assert measured["accuracy"].value == pytest.approx(np.mean(right))
    assert measured["accuracy"].low is None  # three questions are too few for an interval
    assert set(measured) == {"accuracy", "calibration_error"}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["A", "c", "B"], ("letter", None, [0, 2, 1])),
        ([0, "2", 1.0], ("number", 0, [0, 2, 1])),
        ([1, "3", 2.0], ("number", 1, [0, 2, 1])),
        (["red", "green", " blue "], ("text", None, [0, 2, 1])),
    ],
)
def test_answers_are_letters_numbers_or_texts(answers: list[Any], expected: tuple[Any, ...]) -> None:
    rows = [{"context": "c", "options": ["red", "blue", "green"], "answer": answer} for answer in answers]
    task = learn(list(enumerate(rows)), ChooseSettings())
    assert (task.settings.answers, task.settings.first_number) == expected[:2]
    assert [task.example(1, row, labelled=True).gold for row in rows] == expected[2]


def test_numbers_as_options_are_no_places_where_they_do_not_fit() -> None:
    rows = [{"context": "c", "options": ["10", "2", "3"], "answer": answer} for answer in ("10", "3", "2")]
    assert learn(list(enumerate(rows)), ChooseSettings()).settings.answers == "text"
    chosen = learn(list(enumerate(rows)), ChooseSettings(answers="number", first_number=1))
    assert chosen.example(1, rows[1], labelled=True).gold == 2


def test_chinese_options_as_json_or_with_a_separator(chinese_model: Path, tmp_path: Path) -> None:
    made = task_model(CHOOSE, chinese_model, CHINESE)
    examples = examples_of(made, CHINESE, tmp_path).examples
    assert [example.texts[2:] for example in examples] == [("大衣", "足球", "书"), ("一个", "两个")]
    assert [example.gold for example in examples] == [0, 1]
    assert saved_and_restored(made) == made.task
    assert made.task.describe(examples) == [
        "questions: 1 of 2 options, 1 of 3 options; guessing is right in 41.7%; answers are given as texts"
    ]


RACE: dict[str, Any] = {
    "article": "A text.",
    "id": "high1.txt",
    "questions": ["It is _ .", "What?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "", ""]],
    "answers": ["D", "B"],
    "evidences": [["A"], ["text"]],
}
FLAT = [
    {"context": "A text.", "question": "It is _ .", "options": ["a", "b", "c", "d"], "answer": "D"},
    {"context": "A text.", "question": "What?", "options": ["e", "f", "", ""], "answer": "B"},
]
C3: list[Any] = [
    [["男：你好。", "女：好。"], [{"question": "谁？", "choice": ["男", "女"], "answer": "女"}], "1-1"],
    [["一句。"], [{"question": n, "choice": ["甲", "乙"], "answer": "甲"} for n in ("一？", "二？")], "1-2"],
]


@pytest.mark.parametrize("kind", ["json", "data", "lines"])
def test_nested_race_becomes_a_row_for_each_question(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("race.jsonl" if kind == "lines" else "race.json")
    text = {"json": json.dumps([RACE], indent=1), "data": json.dumps({"version": "1", "data": [RACE]})}
    path.write_text(text.get(kind, json.dumps(RACE) + "\n"), encoding="utf-8")
    table = open_table(path)
    names = column_names(CHOOSE, table, {}, labelled=True)
    assert names == {"context": "article", "question": "question", "options": "options", "answer": "answer"}
    rows = list(table)
    assert [{role: row[name] for role, name in names.items()} for _, row in rows] == FLAT
    assert [number for number, _ in rows] == [1, 1]
    assert rows[1][1]["evidence"] == ["text"]


def test_nested_c3_becomes_a_row_for_each_question(tmp_path: Path) -> None:
    path = tmp_path / "c3.json"
    path.write_text(json.dumps(C3, ensure_ascii=False, indent=1), encoding="utf-8")
    rows = [row for _, row in open_table(path)]
    assert [row["question"] for row in rows] == ["谁？", "一？", "二？"]
    assert rows[0]["context"] == "男：你好。\n女：好。"
    task = learn(list(enumerate(rows)), ChooseSettings())
    assert [task.example(1, row, labelled=True).gold for row in rows] == [1, 0, 0]


def test_a_nested_text_with_too_few_answers_is_malformed(tmp_path: Path) -> None:
    wrong = RACE | {"answers": ["D"]}
    table = open_table(write_rows(tmp_path / "race.jsonl", [RACE] * 30 + [wrong]))
    assert len(list(table)) == 60
    assert "2 questions, 2 options, 1 answers" in str(table.problems.first)


def test_options_in_columns_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("passage,question,A,B,C,D,label\nText.,Who?,me,you,,,B\n", encoding="utf-8")
    table = open_table(path)
    names = column_names(CHOOSE, table, {}, labelled=True)
    (row,) = [{role: row[name] for role, name in names.items()} for _, row in table]
    task = learn([(1, row)], ChooseSettings())
    example = task.example(1, row, labelled=True)
    assert (example.texts, example.gold) == (("Text.", "Who?", "me", "you"), 1)
    with pytest.raises(DataError, match="--column options=NAME"):
        task.example(1, {"context": "Text."}, labelled=False)


def test_rows_that_cannot_serve_are_counted(english_model: Path, tmp_path: Path) -> None:
    good: dict[str, Any] = {"context": "c", "question": "q", "options": ["a", "b", ""], "answer": "A"}
    changes: list[dict[str, Any]] = [
        {"context": " "},
        {"options": ["a", " "]},
        {"options": None},
        {"answer": "C"},
        {"answer": "Z"},
    ]
    changes += [{"answer": None}, {"options": ["x"] * 27}]
    rows = [good, good, *(good | change for change in changes)]
    made = task_model(CHOOSE, english_model, rows)
    found = examples_of(made, rows, tmp_path)
    assert found.unusable == {
        "an empty text": (1, 3),
        "fewer than two options": (2, 4),
        "an answer that is not the letter of an option": (3, 6),
        "more than 26 options": (1, 9),
    }
    with pytest.raises(DataError, match="'maybe' for the options"):
        learn([(1, good | {"answer": "maybe"})], ChooseSettings())
    with pytest.raises(DataError, match="must be a list of texts; got '5'"):
        learn([(1, good | {"options": 5})], ChooseSettings())


def test_a_run_learns_to_choose_and_its_model_does_after_loading(english_model: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = []
    for number in range(90):  # the right option has the word of the kind ones, whatever its place
        options = random.choice(["dull", "weak", "asleep"], 2 + number % 3).tolist()
        right = int(random.integers(len(options)))
        options[right] = str(random.choice(["clean", "kind"]))
        rows.append({"context": "The room", "question": "was", "options": options, "answer": "ABCD"[right]})
    train = write_rows(tmp_path / "train.jsonl", rows[:70])
    test = write_rows(tmp_path / "test.jsonl", rows[70:])
    end = run(CHOOSE, english_model, tmp_path / "run", "train.epochs=4", train=train, test=test)
    judged = end.judged[1]
    assert judged.metrics["accuracy"].value >= 0.95
    made = load_task_model(tmp_path / "run")
    assert isinstance(made.task, Choose)
    answers = list(answer_rows(made, enumerate(rows[70:], 1)))
    found = [a.prediction.columns for a in answers if a.prediction is not None]
    assert [columns["prediction"] for columns in found] == [p.columns["prediction"] for p in judged.predictions]
    assert sum(columns["prediction"] == row["answer"] for columns, row in zip(found, rows[70:], strict=True)) >= 19
