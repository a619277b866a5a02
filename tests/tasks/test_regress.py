from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from segue.data.tables import open_table
from segue.errors import DataError
from segue.model.heads import SequenceClassifier
from segue.tasks.examples import column_names
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer_rows, answers_in_order
from segue.tasks.regress import REGRESS, Regress, RegressSettings, learn
from segue.tasks.task import Example
from tests.tasks.made import examples_of, run, saved_and_restored, task_model, write_rows

PAIRS: list[dict[str, Any]] = [
    {"text": "两个年轻人正在踢足球。", "second": "年轻人在公园里踢足球。", "number": "4.5"},
    {"text": "他想买大衣。", "second": "房间很干净。", "number": 0},
    {"text": "公司表示，今年第一季度的利润增长了百分之十。" * 3, "second": "利润增长了。", "number": 3.75},
    {"text": "服务员的态度非常好。", "second": "态度好。", "number": " 3 "},
]


def ratings(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Texts whose number is 100 and ten for each kind word in them."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        kind = int(random.integers(0, 5))
        words = ["kind"] * kind + random.choice(["dull", "weak"], 4 - kind).tolist()
        rows.append({"text": " ".join(random.permutation(words).tolist()), "score": 100 + 10 * kind})
    return rows


def test_the_loss_is_the_squared_error_of_standard_scores(chinese_model: Path, tmp_path: Path) -> None:
    made = task_model(REGRESS, chinese_model, PAIRS)
    examples = examples_of(made, PAIRS, tmp_path).examples
    numbers = np.array([4.5, 0, 3.75, 3])
    assert [example.gold for example in examples] == numbers.tolist()
    assert all(len(example.texts) == 2 for example in examples)
    items = [item for example in examples for item in made.task.items(example, made.layout())]
    model = made.model.eval()
    assert isinstance(model, SequenceClassifier)
    with torch.no_grad():
        loss = made.task.loss(model, items, made.reader(), class_weights=None)
        logits = model.logits(made.reader().whole(model.trunk, [item.documents[0] for item in items])).squeeze(1)
    standard = (numbers - numbers.mean()) / numbers.std()
    assert float(loss) == pytest.approx(np.mean((logits.numpy() - standard) ** 2), rel=1e-5)
    assert made.task.chance(examples) == pytest.approx(np.mean(standard**2))
    answers = answers_in_order(made, examples)
    assert [a.value for a in answers] == pytest.approx(logits.numpy() * numbers.std() + numbers.mean(), rel=1e-5)
    compared = made.task.compare(examples[0], answers[0])
    assert compared.gold == "4.5"
    assert compared.badness == pytest.approx(abs(answers[0].value - 4.5))
    assert answers[0].columns == {"prediction": pytest.approx(answers[0].value, rel=1e-5)}


@pytest.mark.parametrize("objective", ["permutation", "causal", "masked"])
def test_rows_are_answered_the_same_alone_and_together(
    model_of_each_objective: dict[str, Path], tmp_path: Path, objective: str
) -> None:
    ends = {1: "kind", 9: "dull", 2: "weak", 5: "new"}  # one to many segments
    rows = [{"text": "The room was clean. " * n + end, "number": n} for n, end in ends.items()]
    made = task_model(REGRESS, model_of_each_objective[objective], rows)
    examples = examples_of(made, rows, tmp_path).examples
    together = [answer.value for answer in answers_in_order(made, examples)]
    alone = [answers_in_order(made, [example])[0].value for example in examples]
    assert together == pytest.approx(alone, abs=1e-5)
    assert max(together) - min(together) > 1e-2


def test_a_run_learns_numbers_and_its_model_gives_them_after_loading(english_model: Path, tmp_path: Path) -> None:
    train = write_rows(tmp_path / "train.jsonl", ratings(160, seed=0))
    rows = ratings(30, seed=1)
    test = write_rows(tmp_path / "test.jsonl", rows)
    end = run(REGRESS, english_model, tmp_path / "run", "train.epochs=9", train=train, test=test)
    judged = end.judged[1]
    assert judged.metrics["pearson"].value > 0.95
    assert judged.metrics["mean_squared_error"].value < 40  # their variance is 200
    made = load_task_model(tmp_path / "run")
    assert isinstance(made.task, Regress)
    assert made.task.roles == ("text",)
    answers = list(answer_rows(made, enumerate(rows, 1)))
    found = [a.prediction.value for a in answers if a.prediction is not None]
    assert found == pytest.approx([prediction.value for prediction in judged.predictions], abs=1e-3)


def test_the_task_comes_back_as_it_was_saved(chinese_model: Path) -> None:
    made = task_model(REGRESS, chinese_model, PAIRS)
    assert saved_and_restored(made) == made.task
    with pytest.raises(ValueError, match="scale above 0"):
        REGRESS.restore(made.task.to_values() | {"scale": 0.0})


def test_a_second_text_is_read_where_the_table_has_one_and_none_forbids_it(tmp_path: Path) -> None:
    one = open_table(write_rows(tmp_path / "one.jsonl", [{"review": "a", "stars": 1}]))
    two = open_table(write_rows(tmp_path / "two.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1}]))
    assert column_names(REGRESS, one, {}, labelled=True) == {"text": "review", "number": "stars"}
    names = {"text": "sentence1", "second": "sentence2", "number": "score"}
    assert column_names(REGRESS, two, {}, labelled=True) == names
    rows = list(enumerate(PAIRS, 1))
    assert learn(rows, RegressSettings()).roles == ("text", "second")
    assert learn(rows, RegressSettings(second=False)).roles == ("text",)
    with pytest.raises(DataError, match="--column second=NAME"):
        learn(rows, RegressSettings()).example(1, {"text": "好"}, labelled=False)


def test_rows_that_cannot_serve_are_counted(english_model: Path, tmp_path: Path) -> None:
    bad = ["four", "", None, "nan", float("inf"), True, [1], "1e999"]
    rows: list[dict[str, Any]] = [
        {"text": "kind", "number": 1},
        {"text": "dull", "number": "2e0"},
        {"text": " ", "number": 3},
    ]
    rows += [{"text": "weak", "number": value} for value in bad]
    made = task_model(REGRESS, english_model, rows)
    assert isinstance(made.task, Regress)
    assert (made.task.mean, made.task.scale) == (1.5, 0.5)  # of the rows that serve
    found = examples_of(made, rows, tmp_path)
    assert found.unusable == {"an empty text": (1, 3), "a label that is not a finite number": (len(bad), 4)}
    assert [example.number for example in found.examples] == [1, 2]
    assert made.task.describe(found.examples) == [
        "2 numbers from 1 to 2, mean 1.5, standard deviation 0.5; one text each"
    ]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([3, "3.0", 3.0], "different numbers to learn; got 3 in all 3 examples"),
        ([0.1 + 0.2, 0.3, 0.3], "different numbers"),  # what is left is rounding
        (["good", "bad"], "got none: the first of that column are 'good', 'bad'"),
    ],
)
def test_numbers_from_which_nothing_can_be_learned_are_an_error(numbers: list[Any], message: str) -> None:
    rows = [(n, {"text": "a", "number": value}) for n, value in enumerate(numbers)]
    with pytest.raises(DataError, match=message):
        learn(rows, RegressSettings())


def test_numbers_far_from_zero_keep_their_digits() -> None:
    task = learn([(n, {"text": "a", "number": 1e9 + n}) for n in range(3)], RegressSettings())
    prediction = task.prediction(Example(number=1, texts=("a",)), [], [1e9 + 1.5])
    assert prediction.value == 1e9 + 1.5
    tiny = learn([(n, {"text": "a", "number": n * 1e-12}) for n in range(3)], RegressSettings())
    assert tiny.prediction(Example(number=1, texts=("a",)), [], [1.5e-12]).columns == {"prediction": 1.5e-12}
