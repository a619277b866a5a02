"""Models side by side: the same model differs from itself by nothing, a better one is found to be better, and what is
not comparable is refused."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import segue
from segue.cli.app import app
from segue.errors import ConfigError, DataError
from segue.evaluation.metrics.paired import paired_differences
from tests.api.conftest import labelled_rows
from tests.tasks.models import write_model


def test_a_difference_and_its_interval_are_those_of_the_examples() -> None:
    """For means of paired scores, the interval is narrow where both models are right on the same examples."""
    random = np.random.default_rng(1)
    first = random.integers(0, 2, size=400).astype(float)
    second = first.copy()
    second[:20] = 1 - second[:20]
    chosen = lambda scores: lambda places: {"accuracy": float(scores[places].mean())}  # noqa: E731
    found = paired_differences([chosen(first), chosen(second), chosen(first)], examples=400)
    assert len(found) == 2
    metric = found[0]["accuracy"]
    assert math.isclose(metric.value, second.mean() - first.mean())
    assert metric.low is not None
    assert metric.high is not None
    assert metric.low <= metric.value <= metric.high
    assert metric.high - metric.low < 0.06  # unpaired, it would be 0.14
    same = found[1]["accuracy"]
    assert (same.value, same.low, same.high) == (0.0, None, None)


def test_few_examples_have_no_interval() -> None:
    measure = lambda places: {"x": float(places.sum())}  # noqa: E731
    other = lambda places: {"x": float((places**2).sum())}  # noqa: E731
    found = paired_differences([measure, other], examples=29)[0]["x"]
    assert (found.low, found.high) == (None, None)


def test_fine_tuned_models(place: Path) -> None:
    rows = [*labelled_rows(40), {"text": "The room.", "label": ""}]
    found = segue.compare(["sentiment", segue.load_finetuned("sentiment")], rows, progress=False)
    assert (found.task, found.examples) == ("classify", 40)
    assert "1 of 41 rows" in found.notes[0]
    first, second = found.models
    assert first.differences == {}
    assert first.metrics == second.metrics
    assert first.metrics["accuracy"].value == 1
    assert all(metric.value == 0 for metric in second.differences.values())


def test_language_models_with_different_tokenisers(place: Path) -> None:
    """Bits of all documents together, as `score` counts them."""
    write_model(place / "other", objective="causal", language="chinese")
    texts = ["The room was clean.", "A dull film, 灯光。"]
    found = segue.compare(["model", "other"], texts, progress=False)
    assert (found.task, found.examples) == ("language modelling", 2)
    for name, model in zip(("model", "other"), found.models, strict=True):
        bits = -sum(one.log_probability for one in segue.score(name, texts, progress=False)) / math.log(2)
        assert math.isclose(model.metrics["bits_per_character"].value, bits / sum(map(len, texts)))
        size = sum(len(text.encode()) for text in texts)
        assert math.isclose(model.metrics["bits_per_byte"].value, bits / size)
    values = [model.metrics["bits_per_byte"].value for model in found.models]
    assert math.isclose(found.models[1].differences["bits_per_byte"].value, values[1] - values[0])


def test_what_cannot_be_compared(place: Path) -> None:
    with pytest.raises(ConfigError, match="two or more models"):
        segue.compare(["model"], "a text", progress=False)
    with pytest.raises(ConfigError, match="all be fine-tuned or none; got model"):
        segue.compare(["sentiment", "model"], "a text", progress=False)
    with pytest.raises(DataError, match="never seen"):
        segue.compare(["sentiment"] * 2, [{"text": "The room.", "label": "never seen"}], progress=False)
    with pytest.raises(DataError, match="got none"):
        segue.compare(["model", "model"], [""], progress=False)
    write_model(place / "bert", objective="masked")
    with pytest.raises(ConfigError, match="masked model"):
        segue.compare(["model", "bert"], "The room.", progress=False)


def test_the_command(place: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in labelled_rows(40))
    (place / "rows.jsonl").write_text(lines, encoding="utf-8")
    result = CliRunner().invoke(app, ["compare", "sentiment", "sentiment", "--data", "rows.jsonl"])
    assert result.exit_code == 0, result.output
    assert "accuracy" in result.output
    assert "+0.0000" in result.output
    assert "classify, 40 examples." in " ".join(result.output.split())
    rows = [
        "text,label",
        *(f"The room was clean {number},{label}" for number in range(20) for label in ("good", "bad")),
        '"x,good',
    ]
    (place / "rows.csv").write_text("\n".join(rows), encoding="utf-8")
    result = CliRunner().invoke(app, ["compare", "sentiment", "sentiment", "--data", "rows.csv"])
    assert result.exit_code == 0, result.output
    assert "1 unreadable records, skipped" in " ".join(result.output.split())
    strict = CliRunner().invoke(
        app, ["compare", "sentiment", "sentiment", "--data", "rows.csv", "--malformed-share", "0"]
    )
    assert "must have at most 0% malformed rows" in str(strict.exception)
    result = CliRunner().invoke(app, ["compare", "model", "model", "--data", "texts.txt", "--json"])
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout.splitlines()[-1])
    assert values["models"][1]["differences"]["bits_per_character"]["value"] == 0
