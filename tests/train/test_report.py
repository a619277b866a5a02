"""Reports of fine-tuning runs: what they say is what happened, and what documents hold stays text."""

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from segue.data.tables import TableSettings
from segue.tasks.answer import Answer, AnswerSettings
from segue.tasks.choose import Choose, ChooseSettings
from segue.tasks.classify import Classify, ClassifySettings
from segue.tasks.generate import Generate, GenerateSettings
from segue.tasks.rank import Rank, RankSettings
from segue.tasks.regress import Regress, RegressSettings
from segue.tasks.table import TASKS
from segue.tasks.tag import Tag, TagSettings
from segue.tasks.task import Example, Prediction, Task
from segue.train import report as reports
from segue.train import report_classes
from segue.train.collapse import CollapseDetector
from segue.train.command import finetune_command, written
from segue.train.events import Compared, Ended, Event, Prepared, Request, Updated, Validated
from segue.train.finetune import finetune, finetune_settings
from tests.report.pages import EVIL, parsed
from tests.tasks.models import write_model
from tests.train.test_finetune import reviews, table

WRITABLE = EVIL.replace("\ud800", "")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("report") / "model", language="chinese")


def made(model: Path, folder: Path, rows: list[dict[str, Any]], *overrides: str, **more: Any) -> Request:
    kind = TASKS[more.pop("task", "classify")]
    train = table(folder / "train.jsonl", rows)
    settings = finetune_settings(kind, {}, list(overrides))
    return Request(model=str(model), kind=kind, train=train, settings=settings, **({"wide": False} | more))


def test_every_run_writes_both_reports_and_they_say_what_happened(model: Path, tmp_path: Path) -> None:
    rows = [{"text": f"房间很干净 {WRITABLE if n == 3 else n}", "label": "好" if n % 3 else "差"} for n in range(48)]
    valid = table(tmp_path / "valid.jsonl", rows[:36])
    request = made(model, tmp_path, rows, "train.epochs=2", "train.batch_size=4", valid=valid, test=valid)
    events: list[Event] = list(finetune(request, tmp_path / "run"))
    end = events[-1]
    assert isinstance(end, Ended)
    text = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    accuracy = end.judged[0].metrics["accuracy"]
    assert f"| accuracy | {accuracy.value:.4f} | {accuracy.low:.4f} to {accuracy.high:.4f} |" in text
    assert "examples: train 48, valid 36, test 36" in text
    assert "房间很干净" in text
    assert "train.epochs" in html
    mistakes = sum(
        int(p.value.argmax()) != e.gold for e, p in zip(end.judged[0].examples, end.judged[0].predictions, strict=True)
    )
    assert f"{mistakes} of the 36 validation examples" in text
    for event in events:
        if isinstance(event, Validated):
            assert f"| {event.metrics['accuracy'].value:.4f} |" in text
    tags = parsed(html)
    assert tags.tags.count("svg") == 4  # losses, accuracy, and the calibration of both parts
    assert "script" not in tags.tags
    assert not [name for name, value in tags.attributes if name.startswith("on") or name in {"src", "href"}]
    assert not re.search(r"url\(|@import|https?://", re.sub(r"http://w\b", "", html))
    assert "<script>" not in text


def test_a_report_says_what_its_numbers_are_worth(model: Path, tmp_path: Path) -> None:
    """Simple methods, single classes, validation loss, calibration, and texts that are in two parts."""
    kinds = [("clean", "=good") if n % 3 else ("dull", "bad") for n in range(60)]
    rows = [{"text": f"the {kind} room {n}", "label": label} for n, (kind, label) in enumerate(kinds)]
    valid = table(tmp_path / "valid.jsonl", [*rows[:4], *({**row, "text": row["text"] + "0"} for row in rows[20:60])])
    request = made(model, tmp_path, rows, "train.epochs=2", valid=valid)
    events = list(finetune(request, tmp_path / "run"))
    prepared, compared, end = events[0], events[1], events[-1]
    assert isinstance(prepared, Prepared)
    assert isinstance(compared, Compared)
    assert isinstance(end, Ended)
    assert prepared.warnings == [
        "4 of 44 validation examples have the text of a training example: metrics on them say nothing about new "
        "texts. Remove them from one of the two."
    ]
    majority, counted = compared.methods
    good = [json.loads(line)["label"] == "=good" for line in Path(valid).read_text().splitlines()]
    assert majority.metrics["valid"]["accuracy"].value == pytest.approx(np.mean(good))
    assert counted.metrics["valid"]["accuracy"].value == 1.0
    assert counted.name == "TF-IDF of words, logistic regression"
    assert counted.detail.startswith("C = ")
    text = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    own = end.judged[0].metrics["accuracy"].value
    assert f"accuracy: {own:.4f} on 44 validation examples (most frequent class " in lines[2]
    assert "TF-IDF of words, logistic regression 1.0000)" in lines[2]
    assert lines.index("## Before you trust these numbers") < lines.index("## Comparison with baselines")
    assert any(line.startswith("| TF-IDF of words, logistic regression | 1.0000 | ") for line in lines)
    assert ("The model is not better than a baseline" in text) == (own < 1)
    gold = np.array([example.gold for example in end.judged[0].examples])
    predicted = np.array([int(one.value.argmax()) for one in end.judged[0].predictions])
    recall = ((gold == 0) & (predicted == 0)).sum() / (gold == 0).sum()
    assert any(re.match(rf"\| =good \| .* \| {recall:.4f} \| .* \| {(gold == 0).sum()} \|", line) for line in lines)
    assert f"Expected calibration error {end.judged[0].metrics['calibration_error'].value:.4f}" in text
    losses = [event.loss for event in events if isinstance(event, Validated)]
    assert all(f"| {loss:.4f} |" in text for loss in losses)
    best = -np.mean(np.log([one.value[n] for one, n in zip(end.judged[0].predictions, gold, strict=True)]))
    assert min(losses, key=lambda loss: abs(loss - best)) == pytest.approx(best, rel=1e-5)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["baselines"][counted.name]["valid"]["accuracy"]["value"] == 1.0


def test_a_run_does_without_scikit_learn(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    events = list(finetune(made(model, tmp_path, reviews(12), "train.epochs=1"), tmp_path / "run"))
    (compared,) = [event for event in events if isinstance(event, Compared)]
    assert [method.name.split(" of ")[0] for method in compared.methods] == ["most frequent class", "TF-IDF"]
    assert "2 validation examples are too few" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")


def test_nothing_is_compared_if_not_wanted(model: Path, tmp_path: Path) -> None:
    request = made(model, tmp_path, reviews(12), "train.epochs=1", baselines=False)
    assert not [event for event in finetune(request, tmp_path / "run") if isinstance(event, Compared)]
    assert "--no-baselines" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")


def test_the_command_in_a_report_is_the_run(model: Path, tmp_path: Path) -> None:
    """Read as a shell reads it, it gives the same settings again."""
    kind = TASKS["classify"]
    overrides = ["train.learning_rate=2.5e-05", 'task.separator="true"', "train.class_weights=true"]
    request = Request(
        model="a folder/模型",
        kind=kind,
        train="it's.csv",
        test="t.csv",
        columns={"text": "正文"},
        tables=TableSettings(encoding="gb18030", columns=("正文", "b"), delimiter=";", quoting=False),
        settings=finetune_settings(kind, {}, overrides),
        new_weights=True,
    )
    words = shlex.split(finetune_command(request, tmp_path / "out"))
    assert words[:7] == ["segue", "finetune", "a folder/模型", "--task", "classify", "--train", "it's.csv"]
    assert words[words.index("--column") + 1] == "text=正文"
    assert words[words.index("--columns") + 1] == "正文,b"
    assert words[words.index("--encoding") + 1] == "gb18030"
    assert words[words.index("--delimiter") + 1] == ";"
    assert "--no-quoting" in words
    settings = [word for word in words if re.match(r"(read|train|task)\.", word)]
    assert finetune_settings(kind, {}, settings).model_dump() == request.settings.model_dump()
    assert len(settings) == 3


@pytest.mark.parametrize("value", [1, 1.5, 1e-5, True, "mean", "true", "1", "a b", 'q"', "é\n", [1, 2]])
def test_values_are_read_back_as_they_were(value: Any) -> None:
    import tomllib

    text = written(value)
    try:
        again = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        again = text
    assert again == value
    assert type(again) is type(value)


def test_a_stopped_run_has_a_report_even_before_its_first_validation(model: Path, tmp_path: Path) -> None:
    request = made(model, tmp_path, reviews(64), "train.epochs=9", "train.batch_size=4")
    for event in finetune(request, tmp_path / "late"):
        if isinstance(event, Validated):
            os.kill(os.getpid(), signal.SIGINT)
    assert "Ended: told to stop" in (tmp_path / "late" / "report.md").read_text(encoding="utf-8")
    events = finetune(request, tmp_path / "early")
    while not (isinstance(event := next(events), Updated) and event.step == 2):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    assert isinstance(end := list(events)[-1], Ended)
    assert not end.validated
    text = (tmp_path / "early" / "report.md").read_text(encoding="utf-8")
    assert "did not finish: 2 of 117 updates were made. The weights, not validated, are in" in text
    parsed((tmp_path / "early" / "report.html").read_text(encoding="utf-8"))


def test_restarts_are_told(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def after_step(self: CollapseDetector, *, loss: float, gradient_norm: float) -> str | None:
        asked.append(loss)
        return "told so" if len(asked) == 3 else None

    monkeypatch.setattr(CollapseDetector, "after_step", after_step)
    list(finetune(made(model, tmp_path, reviews(20), "train.epochs=1", "train.batch_size=4"), tmp_path / "run"))
    text = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert "Restart at step 3: told so" in text
    assert "before a restart" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------ its parts


def test_many_classes_are_capped_and_nothing_is_lost() -> None:
    random = np.random.default_rng(0)
    matrix = random.integers(0, 9, size=(30, 30))
    matrix[4] = 0
    small, names = report_classes.capped(matrix, [f"c{n}" for n in range(30)])
    assert small.shape == (21, 21)
    assert small.sum() == matrix.sum()
    assert "c4" not in names
    assert names[-1] == "10 others"
    kept = [int(name[1:]) for name in names[:-1]]
    assert kept == sorted(kept)
    np.testing.assert_array_equal(small[:20, :20], matrix[np.ix_(kept, kept)])
    assert min(matrix[kept].sum(axis=1)) >= max(matrix[n].sum() for n in range(30) if n not in kept)


def test_long_texts_are_shortened_as_the_report_says() -> None:
    text = "".join(chr(0x4E00 + n) for n in range(500))
    assert reports._short(text) == f"{text[:160]} … {text[-76:]}"
    assert reports._short("一" * 240) == "一" * 240
    assert reports._short("a\n\n b\t\u2028c") == "a b c"


def test_classes_are_compared() -> None:
    one = Classify(roles=("text",), labels=("a", "b", "c"), settings=ClassifySettings())
    example = Example(number=1, texts=("x",), gold=1)
    wrong = one.compare(example, Prediction(value=np.array([0.7, 0.2, 0.1]), columns={}))
    assert (wrong.gold, wrong.predicted, wrong.badness) == ("b", "a", 0.7)
    assert one.compare(example, Prediction(value=np.array([0.2, 0.7, 0.1]), columns={})).badness == 0
    several = Classify(roles=("text",), labels=("a", "b", "c"), settings=ClassifySettings(multiple=True))
    example = Example(number=1, texts=("x",), gold=(0, 1))
    missed = several.compare(example, Prediction(value=np.array([0.9, 0.05, 0.6]), columns={}))
    assert (missed.gold, missed.predicted, missed.badness) == ("a, b", "a, c", 0.95)


COMPARED: list[tuple[Any, Any, Any, tuple[str, str, float]]] = [
    (
        Tag(types=("LOC", "PER"), scheme="iob2", unspaced=True, from_text=True, settings=TagSettings()),
        Example(
            number=1,
            texts=("张三在北京",),
            gold=frozenset({("PER", 0, 2), ("LOC", 3, 5)}),
            extra=SimpleNamespace(text="张三在北京"),
        ),
        Prediction(value=frozenset({("PER", 0, 2), ("PER", 3, 5)}), columns={}, confidence=0.8),
        ("LOC: 北京", "PER: 北京", 0.8),
    ),
    (
        Answer(settings=AnswerSettings(script="squad1")),
        Example(number=1, texts=("a b c", "?"), gold=SimpleNamespace(texts=("red car", "red"))),
        Prediction(value=None, columns={"answer": "red house"}, confidence=0.6),
        ("red car / red", "red house", 0.6 * (1 - 2 / 3)),
    ),
    (
        Answer(settings=AnswerSettings(script="squad2", unanswerable=True)),
        Example(number=1, texts=("a b c", "?"), gold=SimpleNamespace(texts=())),
        Prediction(value=None, columns={"answer": ""}, confidence=0.6),
        ("(no answer)", "(no answer)", 0.0),
    ),
    (
        Choose(settings=ChooseSettings(answers="letter")),
        Example(number=1, texts=("c", "q", "yes", "no"), gold=0, extra=(0, 1)),
        Prediction(value=np.array([0.25, 0.75]), columns={}, confidence=0.75),
        ("yes", "no", 0.75),
    ),
    (
        Rank(highest_grade=2, settings=RankSettings()),
        Example(number=1, texts=("q", "a", "b", "c"), gold=(0, 2, 1), extra=True),
        Prediction(value=np.array([1.0, 0.5, -1.0]), columns={}),
        ("b", "a", 0.5),
    ),
    (
        Regress(roles=("text",), mean=0.0, scale=1.0, settings=RegressSettings()),
        Example(number=1, texts=("a",), gold=2.0),
        Prediction(value=3.5, columns={}),
        ("2", "3.5", 1.5),
    ),
    (
        Generate(settings=GenerateSettings()),
        Example(number=1, texts=("a",), gold=("xyz",)),
        Prediction(value="abc", columns={}, confidence=0.5),
        ("xyz", "abc", 100.0),
    ),
    (
        Generate(settings=GenerateSettings()),
        Example(number=1, texts=("a",), gold=("好", "很好")),
        Prediction(value="很好", columns={}, confidence=0.5),
        ("好 / 很好", "很好", 0.0),
    ),
]


@pytest.mark.parametrize(("task", "example", "prediction", "expected"), COMPARED)
def test_answers_of_other_tasks_are_compared(
    task: Task, example: Example, prediction: Prediction, expected: tuple[str, str, float]
) -> None:
    found = task.compare(example, prediction)
    assert (found.gold, found.predicted) == expected[:2]
    assert found.badness == pytest.approx(expected[2])
