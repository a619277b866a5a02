"""A run whose loss is no longer finite: `last/` and `best/` stay sound, and the remedy that the error names works."""

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from segue.errors import ConfigError
from segue.train import loop
from segue.train.loop import DivergedError, StepReport
from segue.train.pretrain import Ended, Event, pretrain
from tests.train.runs import config_of, write_inputs

ABSURD = "train.learning_rate=1e12"
VALIDATED = ["train.validate_every=1", "train.validation_steps=2"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("divergence"))


def events(work: Path, run: str, *overrides: str) -> Iterator[Event]:
    return pretrain(config_of(work, "train.schedule=constant", "train.warmup_steps=0", *overrides), work / run)


def contents(run: Path, *folders: str) -> dict[str, bytes]:
    """The bytes of all files but the cards and configs, which name the run and its settings."""
    files = [path for name in folders for path in (run / name).rglob("*") if path.suffix == ".safetensors"]
    assert files
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}


def assert_finite(run: Path) -> None:
    files = list(run.rglob("*.safetensors"))
    assert files
    for file in files:
        assert all(value.isfinite().all() for value in load_file(file).values()), file


@pytest.mark.parametrize("save_every", [1, 5])
def test_after_divergence_the_remedy_works(work: Path, save_every: int) -> None:
    """The step that spoils the weights is finite itself, and so are the weights that it leaves."""
    run, settings = f"remedy-{save_every}", [f"train.save_every={save_every}", *VALIDATED]
    list(events(work, run, "train.steps=5", *settings))
    before = contents(work / run, "last", "best")
    seen: list[Event] = []
    with pytest.raises(
        DivergedError, match=r"5 steps in a row.*lower train.learning_rate.*last is a sound state, of s"
    ):
        seen.extend(events(work, run, "train.steps=15", ABSURD, *settings))
    reports = [event for event in seen if isinstance(event, StepReport)]
    assert [report.skipped for report in reports] == [False] + [True] * 5
    assert contents(work / run, "last", "best") == before

    ended = list(events(work, run, "train.steps=15", *settings))
    assert [event.step for event in ended if isinstance(event, StepReport)] == list(range(6, 16))
    assert all(math.isfinite(event.loss) and not event.skipped for event in ended if isinstance(event, StepReport))
    assert isinstance(ended[-1], Ended)
    assert ended[-1].finished
    assert_finite(work / run)


def test_divergence_before_the_first_state_leaves_nothing_to_resume(work: Path) -> None:
    settings = ["train.steps=12", "train.save_every=1", *VALIDATED]
    with pytest.raises(DivergedError, match=r"No state had been saved yet.*from the beginning"):
        list(events(work, "early", ABSURD, *settings))
    assert not (work / "early/last").exists()
    assert not (work / "early/best").exists()
    ended = list(events(work, "early", *settings))[-1]
    assert isinstance(ended, Ended)
    assert ended.finished
    assert_finite(work / "early")


def test_weights_spoiled_by_the_last_step_are_not_saved(work: Path) -> None:
    list(events(work, "end", "train.steps=10"))
    before = contents(work / "end", "last", "best")
    with pytest.raises(DivergedError, match="not finite after the last step, 11"):
        list(events(work, "end", "train.steps=11", ABSURD))
    assert contents(work / "end", "last", "best") == before


def test_a_stop_among_skipped_steps_resumes_before_them_to_the_bit(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 9 and 10 are made to fail; the run is stopped after step 9, where a state is due as well."""
    whole = loop._backward

    def failing(module, state, segments, settings):  # type: ignore[no-untyped-def]
        loss, memory = whole(module, state, segments, settings)
        return (loss * math.nan if state.step in (8, 9) else loss), memory

    monkeypatch.setattr(loop, "_backward", failing)
    settings = ["train.steps=16", "train.save_every=3"]
    list(events(work, "straight", *settings))
    last: Event | None = None
    for event in events(work, "stopped", *settings):
        if isinstance(event, StepReport) and event.step == 9:
            assert event.skipped
            os.kill(os.getpid(), signal.SIGTERM)
        last = event
    assert last == Ended(step=9, saved=6, finished=False, stopped_by=signal.SIGTERM)
    resumed = list(events(work, "stopped", *settings))
    assert [event.skipped for event in resumed if isinstance(event, StepReport)] == [False] * 2 + [True] * 2 + [
        False
    ] * 6
    assert contents(work / "stopped", "last", "best") == contents(work / "straight", "last", "best")


def test_too_little_memory_names_the_settings_that_help(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = loop._backward

    def greedy(module, state, segments, settings):  # type: ignore[no-untyped-def]
        if settings.accumulate == 1:
            torch.empty(2**52, dtype=torch.uint8)
        return whole(module, state, segments, settings)

    monkeypatch.setattr(loop, "_backward", greedy)
    with pytest.raises(ConfigError, match=r"must fit into the memory that is free.*Use train.accumulate=2"):
        list(events(work, "memory", "train.steps=3"))
    assert list(events(work, "memory", "train.steps=3", "train.accumulate=2"))[-1].finished  # type: ignore[union-attr]
