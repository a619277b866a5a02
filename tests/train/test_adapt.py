"""Task-adaptive pretraining before fine-tuning: which texts, which weights, stopped and resumed at any moment."""

import json
import os
import signal
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from segue.checkpoint.folder import load
from segue.data.store import Store
from segue.errors import CheckpointError, ConfigError, DataError
from segue.tasks.task import Example
from segue.train.adapt import training_texts
from segue.train.finetune import Adapted, Adapting, AdaptStep, Ended, Event, Prepared, Validated, finetune
from segue.train.loop import StepReport
from segue.train.stages import recorded_origin
from tests.cli.test_pretrain import both
from tests.tasks.models import write_model
from tests.train.test_finetune import request, reviews, table

QUICK = ["train.epochs=2", "train.batch_size=16", "read.summary=mean"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, tables, and a run that was never stopped."""
    folder = tmp_path_factory.mktemp("adapt")
    for objective in ("permutation", "causal", "masked"):
        write_model(folder / objective, objective=objective)
    table(folder / "train.jsonl", reviews(80))
    table(folder / "test.jsonl", reviews(20, seed=1) + reviews(4))  # four of them are training texts too
    go(folder, "straight")
    return folder


def go(work: Path, run: str, *overrides: str, model: str = "causal", epochs: int = 4, stop: int | None = None,
       **more: object) -> list[Event]:  # fmt: skip
    """To its end, or to a step of the adaptation after which a signal asks to stop."""
    asked = request(work / model, str(work / "train.jsonl"), *QUICK, *overrides, adapt=epochs, baselines=False,
                    test=str(work / "test.jsonl"), **more)  # fmt: skip
    events = []
    for event in finetune(asked, work / run):
        events.append(event)
        if isinstance(event, AdaptStep) and isinstance(event.event, StepReport) and event.event.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)
    return events


def tensors(run: Path) -> dict[str, bytes]:
    parts = ("best", "adapt/last")
    return {f"{part}/{path.name}": path.read_bytes() for part in parts for path in (run / part).rglob("*.safetensors")}


# ----------------------------------------------------------------------------------------------------------- texts


def example(*texts: str) -> Example:
    return Example(number=1, texts=texts)


def test_all_columns_of_training_examples_and_no_others() -> None:
    train = [example("a", "b"), example("b", "c"), example(" ", "d"), example("e", "f")]
    found = training_texts(train, [example("d", "x"), example("e")], seed=0)
    assert sorted(found.texts) == ["a", "b", "c", "f"]
    assert found.left_out == 2
    many = [example(str(number)) for number in range(50)]
    orders = [training_texts(many, [], seed=seed).texts for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != [str(number) for number in range(50)]


def test_validation_and_test_texts_are_not_in_the_store(work: Path) -> None:
    """A tenth is kept apart for validation, too."""
    store = Store.open(work / "straight/adapt-store")
    read = store.tokenizer().decode(store.read(0, store.length))
    written = [json.loads(line)["text"] for line in (work / "straight/adapt-texts.jsonl").read_text().splitlines()]
    train = [row["text"] for row in reviews(80)]
    assert set(written) < set(train)
    assert len(written) <= 80 - 16 - 3
    assert not set(written) & {row["text"] for row in reviews(20, seed=1) + reviews(4)}
    assert all(text in read for text in written)


# --------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("model", ["permutation", "causal", "masked"])
def test_fine_tuning_starts_from_the_adapted_model(work: Path, model: str) -> None:
    """With a rate of almost nothing, the trunk stays what the adaptation made of it."""
    run = f"start-{model}"
    events = go(work, run, "train.learning_rate=1e-12", "train.weight_decay=0.0", model=model)
    assert isinstance(events[-1], Ended)
    adapted, best = load(work / run / "adapt/last"), load_file(work / run / "best/model.safetensors")
    source = load_file(work / model / "model.safetensors")
    trunk = {f"trunk.{name}": value for name, value in adapted.trunk.state_dict().items()}
    assert trunk
    for name, value in trunk.items():
        torch.testing.assert_close(best[name], value, rtol=0, atol=1e-7)
    assert any(not torch.equal(source[name], value) for name, value in trunk.items())


def test_summary_report_card_and_settings_say_it(work: Path) -> None:
    run = work / "straight"
    origin = recorded_origin(run / "adapt/last")
    assert origin is not None
    texts = len((run / "adapt-texts.jsonl").read_text().splitlines())
    assert f"adapted to {texts} training texts" in " ".join((run / "report.md").read_text().split())
    assert "--adapt 4" in (run / "report.md").read_text()
    card = (run / "best/README.md").read_text()
    assert (
        f"Training started from causal (weights, sha256 `{origin.sha256}`), adapted to {texts} training texts" in card
    )
    assert tomllib.loads((run / "settings.toml").read_text())["run"]["adapt"] == 4


def test_how_much_there_is_to_read_is_said_first(work: Path) -> None:
    events = go(work, "said", stop=1)
    first, last = events[0], events[-1]
    assert isinstance(first, Adapting)
    assert isinstance(last, Adapted)
    store, data = Store.open(work / "said/adapt-store"), first.config.data
    assert data is not None
    assert first.config.train is not None
    assert f"{store.length:,} tokens, in 4 epochs of {first.config.train.steps // 4:,} steps" in first.notes[0]
    assert f"each of {data.lanes} x {data.segment_length} tokens" in first.notes[0]
    assert any(note.startswith("left out: ") for note in first.notes)
    reports = [e.event for e in events if isinstance(e, AdaptStep) and isinstance(e.event, StepReport)]
    assert reports[0].tokens == data.lanes * data.segment_length


def test_few_tokens_are_pointed_out(work: Path, tmp_path: Path) -> None:
    train, valid = (table(tmp_path / f"{name}.jsonl", reviews(6, seed=seed)) for name, seed in (("t", 2), ("v", 3)))
    asked = request(work / "causal", train, "train.epochs=1", valid=valid, adapt=1, baselines=False)
    adapting = next(iter(finetune(asked, tmp_path / "run")))
    assert isinstance(adapting, Adapting)
    assert any("so few tokens change a model little" in note for note in adapting.notes)
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    asked = request(work / "causal", table(tmp_path / "s.jsonl", rows), valid=valid, adapt=1, baselines=False)
    with pytest.raises(DataError, match="label"):  # those of the validation table are others
        list(finetune(asked, tmp_path / "labels"))
    assert not (tmp_path / "labels").exists()
    labelled = [{**row, "label": name} for row, name in zip(rows, ("good", "bad"), strict=True)]
    asked = request(work / "causal", table(tmp_path / "s.jsonl", labelled), valid=valid, adapt=1, baselines=False)
    with pytest.raises(DataError, match=r"--adapt needs training texts of some 64 tokens or more; got \d+\. Leave it"):
        list(finetune(asked, tmp_path / "few"))


# ---------------------------------------------------------------------------------------------------------- resume


def test_stopped_while_adapting_and_while_fine_tuning_equals_never_stopped(work: Path) -> None:
    for step in (1, 3):
        events = go(work, "stopped", stop=step)
        last = events[-1]
        assert isinstance(last, Adapted)
        assert (last.place, last.stopped_by) == (None, signal.SIGTERM)
        assert not (work / "stopped/best").exists()
    asked = request(work / "causal", str(work / "train.jsonl"), *QUICK, adapt=4, baselines=False,
                    test=str(work / "test.jsonl"))  # fmt: skip
    running = finetune(asked, work / "stopped")
    for event in running:
        if isinstance(event, Validated) and event.best:
            break
    running.close()  # as if killed: best/ is there, and no results
    assert (work / "stopped/best").exists()
    events = go(work, "stopped")
    assert not [e for e in events if isinstance(e, AdaptStep) and isinstance(e.event, StepReport)]  # it was done
    assert isinstance(events[-1], Ended)
    assert tensors(work / "stopped") == tensors(work / "straight")
    assert (work / "stopped/results.json").read_text() == (work / "straight/results.json").read_text()


def test_a_stopped_run_with_other_settings_is_not_replaced(work: Path) -> None:
    running = finetune(request(work / "causal", str(work / "train.jsonl"), *QUICK, baselines=False), work / "killed")
    for event in running:
        if isinstance(event, Validated):
            break
    running.close()
    best = (work / "killed/best/model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="got one with a fine-tuned model of other settings"):
        go(work, "killed")
    assert (work / "killed/best/model.safetensors").read_bytes() == best


def test_other_texts_are_refused_on_resume(work: Path, tmp_path: Path) -> None:
    go(work, "texts", stop=1)
    other = request(work / "causal", table(tmp_path / "o.jsonl", reviews(80, seed=5)), *QUICK, adapt=4, baselines=False,
                    test=str(work / "test.jsonl"))  # fmt: skip
    with pytest.raises(DataError, match=r"adapt-texts.jsonl must hold the training texts of this run; got others"):
        list(finetune(other, work / "texts"))


# -------------------------------------------------------------------------------------------------------- refusals


def test_new_weights_cannot_be_adapted(work: Path) -> None:
    with pytest.raises(ConfigError, match="--adapt continues from the weights of the model; got --new-weights too"):
        go(work, "new", new_weights=True)
    assert not (work / "new").exists()


def test_a_model_with_a_head_cannot_be_adapted(work: Path) -> None:
    with pytest.raises(CheckpointError, match="Give the model that it was fine-tuned from"):
        go(work, "head", model="straight/best")


def test_without_adapt_nothing_of_it_is_there(work: Path, tmp_path: Path) -> None:
    asked = request(work / "causal", str(work / "train.jsonl"), *QUICK, baselines=False)
    events = list(finetune(asked, tmp_path / "run"))
    assert isinstance(events[0], Prepared)
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith("adapt")]


def test_through_the_command(work: Path) -> None:
    words = ["finetune", work / "causal", "--task", "classify", "--train", work / "train.jsonl", "--no-baselines"]
    output, progress = both(*words, "--adapt", 1, "--out", work / "cli", "train.epochs=1")
    assert "Pretraining on the training texts first:" in progress
    assert "adapted to " in progress
    assert "Use it: segue predict" in output
    assert "1 training texts" not in both("inspect", work / "cli")[0]
    assert "started from causal (weights" in " ".join(both("inspect", work / "cli/adapt")[0].split())
