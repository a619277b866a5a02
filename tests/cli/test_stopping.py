"""Verbs that a signal stops: they keep what they have and exit with 128 + the number of the signal."""

import os
import signal
from pathlib import Path

import pytest

from segue.cli.finetune import _LiveView
from segue.cli.tune import _View
from segue.tasks.folder import load_task_model
from segue.train.events import Event, Validated
from segue.train.tune import Inside
from tests.cli.test_pretrain import segue
from tests.tasks.models import write_model
from tests.train.test_finetune import reviews, table

EXIT_CODES = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("stopping") / "model")


@pytest.mark.parametrize(("number", "code"), EXIT_CODES)
def test_finetune(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    train = table(tmp_path / "train.jsonl", reviews(32))
    whole = _LiveView.show

    def show(view: _LiveView, event: Event) -> None:
        whole(view, event)
        if isinstance(event, Validated):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(_LiveView, "show", show)
    options = ("--task", "classify", "--train", train, "--valid", train, "--out", tmp_path / "run")
    segue("finetune", model, "train.epochs=50", *options, code=code)
    load_task_model(tmp_path / "run")


@pytest.mark.parametrize(("number", "code"), [EXIT_CODES[0], pytest.param(*EXIT_CODES[1], marks=pytest.mark.long)])
def test_tune(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int) -> None:
    train = table(tmp_path / "train.jsonl", reviews(32))
    whole = _View.show

    def show(view: _View, event: object) -> None:
        whole(view, event)  # type: ignore[arg-type]
        if isinstance(event, Inside) and isinstance(event.event, Validated):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(_View, "show", show)
    options = ("--task", "classify", "--train", train, "--valid", train, "--out", tmp_path / "study")
    segue("tune", model, "train.epochs=50", *options, code=code)
    assert (tmp_path / "study" / "study.db").exists()
