"""One fine-tuned model on labelled examples, in Python and on the command line."""

import json
from pathlib import Path

import pytest

import segue
from segue.errors import ConfigError, DataError
from tests.api.conftest import labelled_rows
from tests.command import command


def write_table(path: Path, *, wrong: int = 0) -> Path:
    rows = [(row["text"], row["label"]) for row in labelled_rows(40)]
    other = {"good": "bad", "bad": "good"}
    lines = [f"{text},{other[label] if number < wrong else label}" for number, (text, label) in enumerate(rows)]
    path.write_text("review,stars\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_metrics_are_those_of_the_labels(place: Path) -> None:
    columns = {"label": "stars"}
    done: list[int] = []
    for wrong in (0, 10):
        file = write_table(place / f"{wrong}.csv", wrong=wrong)
        found = segue.evaluate_task(
            "sentiment",
            str(file),
            columns=columns,
            progress=False,
            batch_size=4,
            on_event=lambda e: done.append(e.done),
        )
        accuracy = found.metrics["accuracy"]
        assert (found.task, found.examples, accuracy.value) == ("classify", 40, 1 - wrong / 40)
        model = segue.load_finetuned("sentiment")
        assert segue.evaluate_task(model, file, columns=columns, progress=False, batch_size=4) == found
        at_once = segue.evaluate_task(model, file, columns=columns, progress=False)  # rounds in another order
        for name, metric in found.metrics.items():
            assert at_once.metrics[name].value == pytest.approx(metric.value, abs=1e-6), name
    assert done == [32, 40] * 2
    assert accuracy.low is not None
    assert accuracy.low < 0.75 < accuracy.high  # type: ignore[operator]
    assert segue.evaluate_task("sentiment", labelled_rows(8), progress=False).metrics["accuracy"].value == 1


def test_the_command_prints_the_same(place: Path) -> None:
    file = write_table(place / "test.csv", wrong=10)
    result = command("evaluate", "sentiment", "--table", file, "--column", "label=stars")
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0][:3] == ["classify,", "40", "examples"]
    assert lines[1][:2] == ["accuracy", "0.7500"]
    whole = command("evaluate", "sentiment", "--table", file, "--column", "label=stars", "--json")
    assert json.loads(whole.stdout)["metrics"]["accuracy"]["value"] == 0.75


def test_what_cannot_be_evaluated_is_refused(place: Path) -> None:
    file = write_table(place / "test.csv")
    with pytest.raises(DataError, match=r"""Name one of them with columns=\{"label": NAME\}"""):
        segue.evaluate_task("sentiment", [{"text": "a", "stars": "good"}], progress=False)
    with pytest.raises(DataError, match=r"nofile\.csv must exist"):
        segue.evaluate_task("sentiment", "nofile.csv", progress=False)
    with pytest.raises(
        ConfigError, match=r"got sentiment, which .* segue\.evaluate_task\('sentiment', 'test\.csv'\)\.$"
    ):
        segue.evaluate("sentiment", "test.csv", progress=False)
    assert command("evaluate", "sentiment", file).stderr.endswith(f"segue evaluate sentiment --table {file}.\n")
    refused = command("evaluate", "sentiment", "--table", file, "--limit", 3)
    assert refused.returncode == 2
    assert "--table accepts only" in refused.stderr
