"""Whole fine-tuning runs on small tables: they learn, stop, restart, save and reload; wrong data is named."""

import json
import os
import re
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from segue.errors import ConfigError, DataError
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer_rows, answers_in_order
from segue.tasks.table import TASKS
from segue.train.collapse import CollapseDetector
from segue.train.events import STOPPED
from segue.train.finetune import (
    Ended,
    Event,
    Prepared,
    Request,
    Restarted,
    Updated,
    Validated,
    _Best,
    finetune,
    finetune_settings,
)
from segue.train.optim import layered_optimizer, warm_up_then_line
from tests.tasks.models import write_model

GOOD = ["clean", "kind", "new", "young"]
BAD = ["dull", "weak", "asleep", "nearly"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("finetune") / "model")


def reviews(count: int, *, seed: int = 0, words: int = 6) -> list[dict[str, Any]]:
    """Texts whose class is which kind of word is in them."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = number % 2
        filler = random.choice(["the", "film", "was", "story", "room", "and", "park"], words).tolist()
        filler[int(random.integers(words))] = str(random.choice(GOOD if label else BAD))
        rows.append({"text": " ".join(filler), "label": "good" if label else "bad"})
    return rows


def table(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def request(model: Path, train: str, *overrides: str, task: str = "classify", **more: Any) -> Request:
    """Without n-grams, unless asked for: they would answer for a model that has learned nothing. So baselines, which
    take as long as a short run, are measured where n-grams may be joined, or if asked for."""
    kind = TASKS[task]
    settings = finetune_settings(kind, {}, list(overrides))
    plain = {"wide": False, "baselines": more.get("wide", False) is not False}
    return Request(model=str(model), kind=kind, train=train, settings=settings, **(plain | more))


def ended(events: Iterator[Event]) -> Ended:
    last = list(events)[-1]
    assert isinstance(last, Ended)
    return last


FAST = ["train.epochs=8", "train.batch_size=8", "train.learning_rate=1e-2", "read.summary=mean"]
FAST += ["train.early_stopping=50"]


def test_a_run_learns_and_its_model_answers_the_same_after_loading(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(240))
    test = table(tmp_path / "test.jsonl", reviews(40, seed=1))
    events = list(finetune(request(model, train, *FAST, test=test), tmp_path / "run"))
    prepared, end = events[0], events[-1]
    assert isinstance(prepared, Prepared)
    assert isinstance(end, Ended)
    assert prepared.counts == {"train": 210, "valid": 30, "test": 40}
    assert len(prepared.preview) == 3
    assert prepared.preview[0].endswith("<sep> <cls>")
    judged = {part.name: part for part in end.judged}
    assert judged["test"].metrics["accuracy"].value > 0.9
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["test"]["accuracy"]["value"] == judged["test"].metrics["accuracy"].value

    made = load_task_model(tmp_path / "run")
    again = answers_in_order(made, judged["test"].examples)
    np.testing.assert_array_equal([one.value for one in again], [one.value for one in judged["test"].predictions])
    settings = tomllib.loads((tmp_path / "run" / "settings.toml").read_text())
    assert settings["train"]["epochs"] == 8
    assert settings["run"]["task"] == "classify"


def test_the_same_seed_gives_the_same_run(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(32))
    lines = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        list(finetune(request(model, train, "train.epochs=1", f"train.seed={seed}"), tmp_path / name))
        lines.append((tmp_path / name / "metrics.jsonl").read_text())
    assert lines[0] == lines[1] != lines[2]


@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_other_objectives_learn_too(objective: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", objective=objective)
    train = table(tmp_path / "train.jsonl", reviews(96))
    end = ended(finetune(request(model, train, *FAST, valid=train), tmp_path / "run"))
    assert end.judged[0].metrics["accuracy"].value > 0.9


@pytest.mark.parametrize(
    "pool", ["last", *(pytest.param(name, marks=pytest.mark.long) for name in ("mean", "max", "attention"))]
)
def test_long_documents_are_read_to_their_end(pool: str, model: Path, tmp_path: Path) -> None:
    """The word that decides is far behind the first segment."""
    rows = [
        {"text": "the film was and the story " * 4 + row["text"], "label": row["label"]} for row in reviews(64, words=2)
    ]
    train = table(tmp_path / "train.jsonl", rows)
    overrides = [*FAST, "read.segment_length=16", f"read.pool={pool}", "train.epochs=10"]
    end = ended(finetune(request(model, train, *overrides, valid=train), tmp_path / "run"))
    assert end.judged[0].metrics["accuracy"].value > 0.9
    assert end.truncated == 0


def test_truncation_is_asked_for_and_counted(model: Path, tmp_path: Path) -> None:
    rows = [
        {"text": row["text"] * (9 if n % 4 == 0 else 1), "label": row["label"]} for n, row in enumerate(reviews(20))
    ]
    train = table(tmp_path / "train.jsonl", rows)
    events = list(finetune(request(model, train, "train.epochs=1", "read.max_length=40", valid=train), tmp_path / "r"))
    assert isinstance(events[0], Prepared)
    assert any("5 documents were cut" in note for note in events[0].notes)
    assert isinstance(events[-1], Ended)
    assert events[-1].truncated == 5


def test_a_document_longer_than_a_segment_uses_memory_only_if_it_may(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(16))
    for name, overrides, memory in (
        ("carry", [], 32),
        ("other", ["read.memory_length=7"], 7),
        ("alone", ["read.carry=false"], None),
    ):
        list(finetune(request(model, train, "train.epochs=1", *overrides), tmp_path / name))
        config = load_task_model(tmp_path / name).config
        assert (config.memory.length if config.memory else None) == memory


def test_windows_that_overlap_are_for_reading_without_memory(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", [{"text": row["text"] * 4, "label": row["label"]} for row in reviews(16)])
    windows = ["read.segment_length=16", "read.overlap=8"]
    list(finetune(request(model, train, "train.epochs=1", "read.carry=false", *windows), tmp_path / "run"))
    made = load_task_model(tmp_path / "run")
    assert made.config.memory is None
    example = made.task.example(1, {"text": "the film was " * 20}, labelled=False)
    (item,) = made.task.items(example, made.layout())
    reader = made.reader()
    reader.whole(made.model.get_submodule("trunk"), item.documents)
    assert reader.positions > 1.5 * reader.tokens
    for wrong, message in (
        (windows, "got 8, and memory is carried. Set read.carry to false"),
        (["read.carry=false", "read.segment_length=8", "read.overlap=8"], "segments of 8 tokens. Use 4,"),
    ):
        with pytest.raises(ConfigError, match=message):
            list(finetune(request(model, train, "train.epochs=1", *wrong), tmp_path / "wrong"))


def test_collapse_restarts_with_half_the_rate(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector is told when; that the run goes back to its first weights and halves the rate is real."""
    train = table(tmp_path / "train.jsonl", reviews(32))
    asked = []

    def after_step(self: CollapseDetector, *, loss: float, gradient_norm: float) -> str | None:
        asked.append(loss)
        return "told so" if len(asked) == 2 else None

    monkeypatch.setattr(CollapseDetector, "after_step", after_step)
    overrides = ["train.epochs=1", "train.batch_size=8", "train.learning_rate=1e-3", "train.warmup_share=0.0"]
    events = list(finetune(request(model, train, *overrides, valid=train), tmp_path / "run"))
    restarts = [event for event in events if isinstance(event, Restarted)]
    updates = [event for event in events if isinstance(event, Updated)]
    assert [(event.step, event.learning_rate) for event in restarts] == [(2, 5e-4)]
    assert [update.step for update in updates] == [1, 2, 1, 2, 3, 4]
    assert updates[0].loss == pytest.approx(updates[2].loss, abs=1e-6)  # the same weights, the same first batch
    assert updates[2].learning_rate == pytest.approx(5e-4)


def test_early_stopping_and_more_validations(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(32))
    overrides = ["train.epochs=50", "train.batch_size=8", "train.validations=2", "train.early_stopping=2"]
    # So small that no weight changes in its last bit, which the loss would show on some machines.
    overrides += ["train.learning_rate=1e-13", "train.restarts=0"]
    events = list(finetune(request(model, train, *overrides, valid=train), tmp_path / "run"))
    assert [event.step for event in events if isinstance(event, Validated)] == [2, 4, 6]
    assert isinstance(events[-1], Ended)
    assert events[-1].reason == "no better in 2 validations"
    assert events[-1].best_step == 2


@pytest.mark.parametrize(("rows", "steps"), [(100, [50, 100]), (99, [99])])
def test_a_long_first_epoch_is_validated_early(model: Path, tmp_path: Path, rows: int, steps: list[int]) -> None:
    train = table(tmp_path / "train.jsonl", reviews(rows))
    valid = table(tmp_path / "valid.jsonl", reviews(30, seed=1))
    made = request(model, train, "train.epochs=1", "train.batch_size=1", valid=valid)
    found = [event for event in finetune(made, tmp_path / "run") if isinstance(event, Validated)]
    assert [event.step for event in found] == steps
    assert [event.early for event in found] == [True, False][-len(steps) :]


def test_an_interrupt_keeps_the_best_model(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(32))
    last = None
    for event in finetune(request(model, train, "train.epochs=50", valid=train), tmp_path / "run"):
        if isinstance(event, Validated):
            os.kill(os.getpid(), signal.SIGINT)
        last = event
    assert isinstance(last, Ended)
    assert last.stopped_by == signal.SIGINT
    load_task_model(tmp_path / "run")


def test_a_new_best_model_replaces_all_that_a_stopped_run_left(model: Path, tmp_path: Path) -> None:
    """Also if the second run is killed after it."""
    train, run = table(tmp_path / "train.jsonl", reviews(32)), tmp_path / "run"
    asked = request(model, train, "train.epochs=2", "train.batch_size=8", valid=train)
    for event in finetune(asked, run):
        if isinstance(event, Updated):
            os.kill(os.getpid(), signal.SIGINT)
    older = [run / name for name in ("last", "report.md", "report.html", "results.json")]
    assert older[0].is_dir()
    assert older[1].is_file()
    older[3].write_text(json.dumps({"ended": STOPPED}))
    events = finetune(asked, run)
    while not isinstance(next(events), Validated):
        pass
    assert (run / "best").is_dir()
    assert not any(path.exists() for path in older)
    events.close()


def test_equal_texts_are_held_out_together(model: Path, tmp_path: Path) -> None:
    """The validation examples that are taken from the training table share no text with the others."""
    rows = [one for row in reviews(30) for one in (row, {**row, "text": row["text"].upper() + " "})]
    train = table(tmp_path / "train.jsonl", rows)
    prepared = next(finetune(request(model, train), tmp_path / "run"))
    assert isinstance(prepared, Prepared)
    assert not [one for one in prepared.warnings if "text of a training example" in one]
    assert prepared.counts["valid"] in (11, 12)  # a fifth of 60, in pairs or more


def test_fine_tuning_goes_on_from_a_fine_tuned_model_and_from_its_shape(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(64))
    first = ended(finetune(request(model, train, *FAST, valid=train), tmp_path / "first"))
    again = [*FAST, "train.epochs=1", "train.learning_rate=1e-9"]
    same = ended(finetune(request(tmp_path / "first", train, *again, valid=train), tmp_path / "same"))
    assert same.judged[0].metrics["accuracy"] == first.judged[0].metrics["accuracy"]
    new = ended(finetune(request(tmp_path / "first", train, *again, valid=train, new_weights=True), tmp_path / "new"))
    assert new.judged[0].metrics["accuracy"].value < 0.8


def test_several_labels_at_once(model: Path, tmp_path: Path) -> None:
    rows = []
    for row in reviews(96):
        labels = ["film"] * ("film" in row["text"]) + ["room"] * ("room" in row["text"])
        rows.append({"text": row["text"], "labels": labels})
    train = table(tmp_path / "train.jsonl", rows)
    overrides = [*FAST, "train.epochs=20", "train.learning_rate=3e-3", "task.multiple=true", "train.class_weights=true"]
    end = ended(finetune(request(model, train, *overrides, valid=train), tmp_path / "run"))
    assert end.judged[0].metrics["micro_f1"].value > 0.9


def test_pairs(model: Path, tmp_path: Path) -> None:
    rows = [{"sentence1": row["text"], "sentence2": "a dull film", "label": row["label"]} for row in reviews(96)]
    train = table(tmp_path / "train.jsonl", rows)
    end = ended(finetune(request(model, train, *FAST, task="pair", valid=train), tmp_path / "run"))
    assert end.judged[0].metrics["accuracy"].value > 0.9


# ---------------------------------------------------------------------------------------------------- prediction


def test_rows_of_a_stream_get_their_answers_in_order(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(16))
    list(finetune(request(model, train, "train.epochs=1"), tmp_path / "run"))
    made = load_task_model(tmp_path / "run")
    random = np.random.default_rng(0)
    texts = [row["text"] * int(random.integers(1, 20)) for row in reviews(30)]
    texts[7] = "  "
    rows = [(number, {"text": text}) for number, text in enumerate(texts)]
    answered = list(answer_rows(made, iter(rows), batch_size=4))
    assert [one.number for one in answered] == list(range(30))
    assert answered[7].prediction is None
    assert answered[7].problem == "an empty text"
    for number in (0, 13, 29):
        alone = next(answer_rows(made, [rows[number]], batch_size=1))
        assert alone.prediction is not None
        found = answered[number].prediction
        assert found is not None
        np.testing.assert_allclose(found.value, alone.prediction.value, atol=1e-5)


# ------------------------------------------------------------------------------------------------------ bad data


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"text": "a", "label": "x"}] * 4, "at least two classes; got only 'x'"),
        ([{"txt": "a", "label": "x"}, {"txt": "b", "label": "y"}], "column"),
        ([{"text": "", "label": "x"}, {"text": " ", "label": "y"}], "2 with an empty text"),
        ([{"text": "a", "label": ["x", "y"]}] * 2, "task.multiple=true"),
        ([{"text": "a", "label": "x"}, {"text": "", "label": "y"}], "at least two examples"),
    ],
)
def test_wrong_tables_are_named(rows: list[dict[str, Any]], words: str, model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", rows)
    with pytest.raises(DataError) as found:
        list(finetune(request(model, train), tmp_path / "run"))
    assert words in str(found.value)


def test_a_label_that_training_does_not_know(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(8))
    valid = table(tmp_path / "valid.jsonl", [*reviews(4), {"text": "a film", "label": "odd"}])
    with pytest.raises(DataError, match=r"valid.jsonl, line 5: a label must be one of .*bad, good.*got 'odd'"):
        list(finetune(request(model, train, valid=valid), tmp_path / "run"))


def test_rows_left_out_are_counted(model: Path, tmp_path: Path) -> None:
    rows = [*reviews(20), {"text": " ", "label": "good"}, {"text": "a film", "label": None}]
    train = table(tmp_path / "train.jsonl", rows)
    prepared = next(iter(finetune(request(model, train), tmp_path / "run")))
    assert isinstance(prepared, Prepared)
    notes = "\n".join(prepared.notes)
    assert re.search("left out for an empty text: 1, first .*train.jsonl, line 21", notes)
    assert re.search("left out for an empty label: 1, first .*train.jsonl, line 22", notes)


def test_uneven_classes_are_pointed_out(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "a film", "label": "often"}] * 40 + [{"text": "a room", "label": "rare"}] * 2
    prepared = next(iter(finetune(request(model, table(tmp_path / "t.jsonl", rows)), tmp_path / "run")))
    assert isinstance(prepared, Prepared)
    assert any("Uneven: often has 40 examples, rare has 2" in note for note in prepared.notes)


def test_class_weights_without_classes_are_refused(model: Path, tmp_path: Path) -> None:
    rows = [{"text": row["text"], "score": number % 5} for number, row in enumerate(reviews(12))]
    train = table(tmp_path / "train.jsonl", rows)
    with pytest.raises(ConfigError, match="only to tasks with classes; got regress"):
        list(finetune(request(model, train, "train.class_weights=true", task="regress"), tmp_path / "run"))


def test_a_folder_with_a_model_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(16))
    list(finetune(request(model, train, "train.epochs=1"), tmp_path / "run"))
    with pytest.raises(ConfigError, match="must be a new folder"):
        list(finetune(request(model, train), tmp_path / "run"))


def test_settings_that_do_not_exist_are_named() -> None:
    with pytest.raises(ConfigError) as found:
        finetune_settings(TASKS["classify"], {}, ["train.epoch=3", "task.multi=true", "read.pool=first"])
    text = str(found.value)
    assert "train.epochs?" in text
    assert "task.multiple?" in text
    assert "read.pool must be" in text


# -------------------------------------------------------------------------------------------------- optimisation


def test_layers_learn_at_rates_of_their_own(model: Path) -> None:
    from segue.checkpoint.folder import load

    language_model = load(model)
    optimizer = layered_optimizer(language_model, num_layers=2, layer_decay=0.5, weight_decay=0.01)
    share = {id(p): group["share"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: share[id(parameter)] for name, parameter in language_model.named_parameters()}
    assert found["trunk.vocabulary.tables.0"] == 0.25
    assert {found[name] for name in found if ".layers.0." in name} == {0.5}
    assert {found[name] for name in found if ".layers.1." in name} == {1.0}
    assert {found[name] for name in found if name.startswith("softmax.")} == {1.0}
    assert len(share) == len(list(language_model.parameters()))


def test_the_rate_rises_and_falls_in_lines() -> None:
    shares = [warm_up_then_line(step, steps=10, warmup=2) for step in range(10)]
    assert shares[:3] == [0.5, 1.0, 1.0]
    assert shares[-1] == pytest.approx(1 / 8)
    torch.testing.assert_close(torch.tensor(shares[2:]).diff(), torch.full((7,), -1 / 8))


def test_equal_accuracy_is_decided_by_the_loss() -> None:
    best = _Best(value=0.8, loss=0.6, step=1, judged=None)  # type: ignore[arg-type]
    assert best.is_behind(0.9, 9.0)
    assert best.is_behind(0.8, 0.5)
    assert not best.is_behind(0.8, 0.6)
    assert not best.is_behind(0.7, 0.1)


@pytest.mark.parametrize(("rows", "valid"), [(200, 30), (100, 20), (400, 40)])
def test_a_small_table_keeps_enough_apart_for_an_interval(model: Path, tmp_path: Path, rows: int, valid: int) -> None:
    train = table(tmp_path / "train.jsonl", reviews(rows))
    events = finetune(request(model, train), tmp_path / "run")
    prepared = next(event for event in events if isinstance(event, Prepared))
    events.close()
    assert prepared.counts["valid"] == valid
