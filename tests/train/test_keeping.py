"""What fine-tuning learned is not lost: an early stop, a disk that is full for a while, a folder that is gone."""

import os
import re
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import segue.train.updates as updates
from segue.checkpoint.card import Facts
from segue.checkpoint.folder import load, save
from segue.errors import DataError, SegueWarning
from segue.model.reading import TokenDocument
from segue.tasks.folder import load_task_model
from segue.tasks.table import TASKS
from segue.tasks.task import Item
from segue.train.finetune import (
    Ended,
    Event,
    Request,
    Restarted,
    Unsaved,
    Updated,
    Validated,
    finetune,
    finetune_settings,
)
from segue.train.keeper import Keeper, check_room
from segue.train.loop import DivergedError
from segue.train.updates import PATIENCE, parts
from tests.tasks.made import task_model
from tests.tasks.models import write_model
from tests.train.test_finetune import request, reviews, table

KIND = TASKS["classify"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("keeping") / "model", width=16)


def test_a_stop_before_the_first_validation_keeps_the_weights(model: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.jsonl", reviews(32))
    last = None
    for event in finetune(request(model, train, "train.batch_size=8", valid=train), tmp_path / "run"):
        if isinstance(event, Updated):
            os.kill(os.getpid(), signal.SIGINT)
        last = event
    assert isinstance(last, Ended)
    assert (last.reason, last.validated, last.place) == ("told to stop", False, tmp_path / "run" / "last")
    assert last.best_step == 1
    load_task_model(tmp_path / "run")  # also where no best/ is
    assert not (tmp_path / "run" / "best").exists()
    went_on = list(finetune(request(tmp_path / "run", train, "train.epochs=1", valid=train), tmp_path / "next"))
    assert isinstance(went_on[-1], Ended)


def test_a_disk_that_is_full_for_a_while_costs_nothing(model: Path, tmp_path: Path) -> None:
    """No file may grow beyond 8 kB while the first model is written; later there is room again."""
    train = table(tmp_path / "train.jsonl", reviews(32))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    overrides = ["train.batch_size=16", "train.epochs=4", "train.learning_rate=1e-9", "train.restarts=0"]
    events = []
    try:
        for event in finetune(request(model, train, *overrides, valid=train), tmp_path / "run"):
            events.append(event)
            if isinstance(event, Updated) and event.step == 2:  # the validation follows
                resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 13, hard))
            if isinstance(event, Unsaved):
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    unsaved = [event.step for event in events if isinstance(event, Unsaved)]
    assert unsaved == [2]
    end = events[-1]
    assert isinstance(end, Ended)
    assert end.place == tmp_path / "run" / "best"
    assert end.best_step == max(event.step for event in events if isinstance(event, Validated) and event.best)
    load_task_model(tmp_path / "run" / "best")


def test_a_run_folder_that_cannot_be_written_at_the_end_leaves_the_model_elsewhere(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder becomes a file before the first validation, as a lost network disk does."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    train, run = table(tmp_path / "train.jsonl", reviews(32)), tmp_path / "run"

    def spoil() -> None:
        for event in finetune(request(model, train, "train.epochs=1", "train.batch_size=16", valid=train), run):
            if isinstance(event, Updated) and event.step == 1:
                shutil.rmtree(run)
                run.write_text("not a folder")

    with pytest.raises(DataError) as found:
        spoil()
    place = re.search(r"are in (\S+/model)\.", str(found.value))
    assert place is not None
    assert "which no validation has judged" in str(found.value)
    load_task_model(place[1])


def test_room_is_checked_before_training(tmp_path: Path) -> None:
    check_room(tmp_path, 1000)
    with pytest.raises(DataError, match=r"must have room for two copies of the model.*MB free\. Free some space"):
        check_room(tmp_path, 1 << 62)


def test_updates_that_stay_not_finite_end_the_last_attempt(model: Path, tmp_path: Path) -> None:
    """A weight that is not a number makes every loss one; each attempt begins with it."""
    broken = load(model)
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    save(broken, tmp_path / "broken", tokenizer=model / "tokenizer")
    train = table(tmp_path / "train.jsonl", reviews(64))
    settings = finetune_settings(KIND, {}, ["train.batch_size=4", "train.restarts=1", "train.epochs=2"])
    asked = Request(model=str(tmp_path / "broken"), kind=KIND, train=train, valid=train, settings=settings)
    events: list[Event] = []
    words = rf"it was not for {PATIENCE} updates in a row.*Use a lower train.learning_rate"
    with pytest.raises(DivergedError, match=words), pytest.warns(SegueWarning, match="holds NaN"):
        events.extend(finetune(asked, tmp_path / "run"))
    assert sum(isinstance(event, Restarted) for event in events) == 1
    assert sum(isinstance(event, Updated) for event in events) == 1 + PATIENCE
    assert not any(isinstance(event, Validated) for event in events)


def test_long_documents_are_learned_from_in_parts_with_the_same_gradient(model: Path, tmp_path: Path) -> None:
    """A batch whose documents have too many tokens together goes through the model a few documents at a time."""
    rows = [{"text": row["text"] * 6, "label": row["label"]} for row in reviews(8)]
    train = table(tmp_path / "train.jsonl", rows)
    losses, weights = [], []
    limit = updates.GRADIENT_TOKENS
    for name, tokens in (("whole", limit), ("parts", 100)):
        updates.GRADIENT_TOKENS = tokens
        try:
            overrides = [
                "read.segment_length=16",
                "train.epochs=1",
                "train.batch_size=8",
                "train.learning_rate=1e-3",
            ]
            events = list(finetune(request(model, train, *overrides, valid=train), tmp_path / name))
        finally:
            updates.GRADIENT_TOKENS = limit
        losses += [event.loss for event in events if isinstance(event, Updated)]
        weights.append(load_task_model(tmp_path / name).model.state_dict())
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, atol=1e-3, rtol=0)


def test_parts_hold_every_item_once_and_short_documents_stay_together() -> None:
    def item(length: int) -> Item:
        return Item(documents=(TokenDocument(ids=np.zeros(length, np.int64), segments=np.zeros(length, np.int64)),))

    short, long = [item(500) for _ in range(64)], [item(length) for length in (9000, 9000, 6000, 30_000, 10)]
    assert [len(part) for part in parts(short, segment_length=512)] == [64]
    assert [len(part) for part in parts(long, segment_length=512)] == [1, 2, 1, 1]
    assert list(parts([], segment_length=512)) == []


def test_weights_are_those_of_the_best_step(model: Path) -> None:
    """What is kept in memory is a copy: going on with training does not change it."""
    rows = [{"text": "a film", "label": "good"}, {"text": "a room", "label": "bad"}]
    made = task_model(KIND, model, rows)
    keeper = Keeper(made, Path("/dev/null/run"), tokenizer=model / "tokenizer")
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    assert keeper.keep(1, Facts()) is not None
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(1)
    place = keeper.settle()
    try:
        for name, value in load_task_model(place).model.state_dict().items():
            assert torch.equal(value, before[name])
    finally:
        shutil.rmtree(place.parent)
