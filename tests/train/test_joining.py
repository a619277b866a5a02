"""Runs that join n-grams to their model: when, what is said of it, and that the saved model answers as the run did."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.checkpoint.files import CARD
from segue.checkpoint.folder import NGRAMS
from segue.errors import ConfigError
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answers_in_order
from segue.train.command import finetune_command
from segue.train.events import Compared, Request, Validated
from segue.train.finetune import Ended, Event, finetune
from tests.tasks.models import write_model
from tests.train.test_finetune import FAST, request, reviews, table

SHORT = ["train.epochs=1", "train.batch_size=32", "train.learning_rate=1e-5"]
"""Too short to learn anything."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("joining") / "model")


def asked(model: Path, folder: Path, overrides: list[str], *, valid: int = 60, **more: Any) -> Request:
    train, tested, held = (
        table(folder / f"{name}.jsonl", reviews(count, seed=seed))
        for name, count, seed in (("train", 120, 0), ("test", 80, 2), ("valid", valid, 1))
    )
    return request(model, train, *overrides, valid=held, test=tested, **({"wide": None} | more))


def finished(wanted: Request, folder: Path) -> tuple[list[Event], Ended]:
    events = list(finetune(wanted, folder))
    assert isinstance(events[-1], Ended)
    return events, events[-1]


def test_n_grams_that_are_better_are_joined_and_all_three_are_told(model: Path, tmp_path: Path) -> None:
    events, end = finished(asked(model, tmp_path, SHORT), tmp_path / "run")
    (compared,) = [event for event in events if isinstance(event, Compared)]
    ngrams = compared.methods[1].metrics["valid"]["accuracy"].value
    alone, both = end.alone[0].metrics["accuracy"].value, end.judged[0].metrics["accuracy"].value
    assert alone < 0.8 < ngrams <= both
    assert end.joined is not None
    assert "because they alone are better than the model alone" in end.joined
    assert f"{ngrams:.4f} on the validation examples by n-grams alone, {alone:.4f} by the model alone" in end.joined
    made = load_task_model(tmp_path / "run")
    for part in end.judged:
        again = [one.value for one in answers_in_order(made, part.examples)]
        np.testing.assert_array_equal(again, [one.value for one in part.predictions])
    text = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert f"| this model, combined with n-grams | {both:.4f} |" in text
    assert f"| model alone | {alone:.4f} |" in text
    assert f"| {compared.methods[1].name} | {ngrams:.4f} |" in text
    assert "Chosen: n-grams answer with the model" in text
    card = (tmp_path / "run" / "best" / CARD).read_text(encoding="utf-8")
    assert f"| accuracy | {both:.6g} | {end.best_step} |" in card
    assert f"| accuracy, model alone | {alone:.6g} | {end.best_step} |" in card
    assert f"| accuracy, {compared.methods[1].name} | {ngrams:.6g} |  |" in card
    assert "N-grams are joined to this model" in card
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["valid"]["accuracy"]["value"] == both
    assert results["model_alone"]["test"]["accuracy"]["value"] == end.alone[1].metrics["accuracy"].value


def test_joining_changes_nothing_of_the_training(model: Path, tmp_path: Path) -> None:
    ends, losses = [], []
    for name, wide in (("with", True), ("without", False)):
        events, end = finished(asked(model, tmp_path, SHORT, wide=wide), tmp_path / name)
        ends.append(end)
        losses.append([event.loss for event in events if isinstance(event, Validated)])
    assert losses[0] == losses[1]
    both, pure = ends
    assert pure.alone == []
    assert pure.joined is None
    assert not (pure.place / NGRAMS).exists()
    for own, part in zip(both.alone, pure.judged, strict=True):
        np.testing.assert_array_equal([one.value for one in own.predictions], [one.value for one in part.predictions])
    assert "as --wide asks" in (both.joined or "")


def test_a_model_that_is_better_stays_alone_unless_asked(model: Path, tmp_path: Path) -> None:
    """Which of two words comes first: n-grams of one and two words next to each other cannot tell."""
    random = np.random.default_rng(0)

    def ordered(count: int) -> list[dict[str, Any]]:
        rows = []
        for number in range(count):
            words = random.choice(["the", "film", "was", "story", "and", "park"], 8).tolist()
            first, second = sorted(random.choice(range(0, 8, 2), 2, replace=False))
            words[first], words[second] = ("clean", "dull") if number % 2 else ("dull", "clean")
            rows.append({"text": " ".join(words), "label": "good" if number % 2 else "bad"})
        return rows

    train, valid = (table(tmp_path / f"{name}.jsonl", ordered(n)) for name, n in (("train", 240), ("valid", 60)))
    wanted = request(model, train, *FAST, valid=valid, wide=None)
    events, end = finished(wanted, tmp_path / "alone")
    (compared,) = [event for event in events if isinstance(event, Compared)]
    own = end.judged[0].metrics["accuracy"].value
    assert own > compared.methods[1].metrics["valid"]["accuracy"].value
    assert end.joined is None
    assert load_task_model(tmp_path / "alone").wide is None
    _, joined = finished(request(model, train, *FAST, valid=valid, wide=True), tmp_path / "both")
    assert joined.judged[0].metrics["accuracy"].value >= own
    assert load_task_model(tmp_path / "both").wide is not None


def test_too_few_validation_examples_choose_nothing(model: Path, tmp_path: Path) -> None:
    _, end = finished(asked(model, tmp_path, SHORT, valid=20), tmp_path / "run")
    assert end.joined is None
    assert not (tmp_path / "run" / "best" / NGRAMS).exists()


def test_several_labels_at_once_are_joined_too(model: Path, tmp_path: Path) -> None:
    rows = [
        {"text": f"the {'clean' if n % 2 else 'dull'} {'film' if n % 3 else 'room'}", "labels": labels}
        for n in range(90)
        for labels in [[*(["clean"] if n % 2 else []), *(["film"] if n % 3 else [])]]
    ]
    train = table(tmp_path / "train.jsonl", rows)
    wanted = request(model, train, *SHORT, "task.multiple=true", valid=train, wide=True)
    _, end = finished(wanted, tmp_path / "run")
    assert end.judged[0].metrics["micro_f1"].value == 1.0
    made = load_task_model(tmp_path / "run")
    again = [one.value for one in answers_in_order(made, end.judged[0].examples)]
    np.testing.assert_array_equal(again, [one.value for one in end.judged[0].predictions])


def test_what_cannot_be_joined_is_refused_before_anything_is_done(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--wide combines the classifier with the TF-IDF .* --no-baselines"):
        finished(asked(model, tmp_path, SHORT, wide=True, baselines=False), tmp_path / "run")
    rows = [{"text": "a film", "score": n} for n in range(40)]
    wanted = request(model, table(tmp_path / "scores.jsonl", rows), task="regress", wide=True)
    with pytest.raises(ConfigError, match="classify and pair; got regress"):
        finished(wanted, tmp_path / "run")


def test_the_command_says_what_was_asked(model: Path, tmp_path: Path) -> None:
    for wide, word in ((True, "--wide"), (False, "--no-wide"), (None, None)):
        words = finetune_command(asked(model, tmp_path, [], wide=wide), "out").split()
        assert [one for one in words if one in ("--wide", "--no-wide")] == ([] if word is None else [word])


def test_python_answers_with_both(model: Path, tmp_path: Path) -> None:
    rows = reviews(120)
    settings = {"train.epochs": 1, "train.learning_rate": 1e-5}
    result = segue.finetune(model, rows, valid=reviews(60, seed=1), settings=settings, wide=True, progress=False)
    assert result.model_alone["valid"]["accuracy"].value < 0.8 < result.metrics["valid"]["accuracy"].value
    result.save(tmp_path / "kept")
    texts = [row["text"] for row in rows[:20]]
    assert segue.predict(tmp_path / "kept", texts) == result.predict(texts)
