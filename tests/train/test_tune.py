"""Searches for settings: they go on where they stopped, make the same trials again, and never see test examples."""

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from segue.errors import ConfigError, DataError
from segue.evaluation.metrics.bootstrap import Metric
from segue.tasks.table import TASKS
from segue.train import tune as tuning
from segue.train.events import Ended, Event, Prepared, Request, Validated
from segue.train.finetune import finetune, finetune_settings
from segue.train.run_folder import Stop
from segue.train.search_space import Choice, Dimension, Range, default_space, dimension, search_space
from segue.train.tune import Began, Inside, Search, SearchEnded, TrialEnded, TuneEvent, tune, usual_space
from segue.train.tune_report import Trial
from tests.tasks.models import write_model
from tests.train.test_finetune import reviews, table
from tests.train.test_report import parsed

pytest.importorskip("optuna")
KIND = TASKS["classify"]
SPACE: tuple[Dimension, ...] = (
    Range(key="train.learning_rate", low=1e-4, high=1e-1, log=True),
    Choice(key="train.batch_size", values=(8, 16)),
)


@pytest.fixture(scope="module")
def request_of(tmp_path_factory: pytest.TempPathFactory) -> Request:
    folder = tmp_path_factory.mktemp("tune")
    model = write_model(folder / "model")
    return Request(
        model=str(model),
        kind=KIND,
        train=table(folder / "train.jsonl", reviews(24)),
        valid=table(folder / "valid.jsonl", reviews(10, seed=1)),
        settings=finetune_settings(KIND, {}, ["train.epochs=1", "read.summary=mean"]),
    )


def ended(events: Iterator[TuneEvent]) -> SearchEnded:
    last = list(events)[-1]
    assert isinstance(last, SearchEnded)
    return last


def drawn(trials: list[Trial]) -> list[tuple[Any, ...]]:
    """What does not hang on the time or on how often a search was stopped."""
    return [(trial.state, trial.value, dict(trial.settings)) for trial in trials]


def test_a_search_goes_on_and_makes_the_trials_that_it_would_have_made(request_of: Request, tmp_path: Path) -> None:
    first = ended(tune(Search(request=request_of, space=SPACE, trials=3), tmp_path / "a"))
    assert first.reason == "3 trials are made"
    whole = ended(tune(Search(request=request_of, space=SPACE, trials=5), tmp_path / "a"))
    again = ended(tune(Search(request=request_of, space=SPACE, trials=2), tmp_path / "b"))
    assert drawn(whole.trials)[:3] == drawn(first.trials)
    assert drawn(whole.trials)[:2] == drawn(again.trials)
    assert len({trial.settings["train.learning_rate"] for trial in whole.trials}) == 5
    assert whole.trials[0].settings == {"train.learning_rate": pytest.approx(1e-3), "train.batch_size": 16}
    assert whole.best is not None
    assert whole.best.value == max(trial.value or 0 for trial in whole.trials)

    kept = [path.parent.name for path in (tmp_path / "a" / "trials").glob("*/best")]
    assert kept == [f"{whole.best.number:04d}"]
    assert len(list((tmp_path / "a" / "trials").glob("*/report.md"))) == 5
    text = (tmp_path / "a" / "report.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| (?:complete|pruned)", text, flags=re.M)
    assert rows[0] == str(whole.best.number)
    assert sorted(rows) == list("01234")
    assert whole.command is not None
    assert whole.command in text
    html = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert parsed(html).tags.count("svg") == 3

    # the recommended command is the best run, to the last digit
    words = [word for word in shlex.split(whole.command) if re.match(r"(read|train|task)\.", word)]
    same = Request(
        model=request_of.model,
        kind=KIND,
        train=request_of.train,
        valid=request_of.valid,
        settings=finetune_settings(KIND, {}, words),
    )
    last = list(finetune(same, tmp_path / "again"))[-1]
    assert isinstance(last, Ended)
    assert last.judged[0].metrics["accuracy"].value == whole.best.value

    other = (Range(key="train.epochs", low=1, high=2, whole=True),)
    with pytest.raises(
        ConfigError, match=r"must be continued with its original settings; got search \['train.epochs=1..2'\]"
    ):
        ended(tune(Search(request=request_of, space=other, trials=6), tmp_path / "a"))


def test_another_seed_is_another_search(request_of: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, peak)
    settings = finetune_settings(KIND, {}, ["train.epochs=1", "train.seed=5"])
    other = Request(model=request_of.model, kind=KIND, train=request_of.train, settings=settings)
    a = ended(tune(Search(request=request_of, space=SPACE, trials=2), tmp_path / "a"))
    b = ended(tune(Search(request=other, space=SPACE, trials=2), tmp_path / "b"))
    assert a.trials[0].settings == b.trials[0].settings  # the defaults
    assert a.trials[1].settings != b.trials[1].settings


# --------------------------------------------------------------------------------- with runs that take no time


Values = Callable[[float], list[float]]


def pretend(monkeypatch: pytest.MonkeyPatch, values: Values) -> list[Request]:
    """Runs that only tell what `values` says of their learning rate."""
    asked: list[Request] = []

    def run(request: Request, run: Path, *, stop: Stop | None = None) -> Iterator[Event]:
        asked.append(request)
        (run / "best").mkdir(parents=True)
        told = values(request.settings.train.learning_rate)
        task: Any = None
        done = Ended(reason="done", best_step=1, judged=[], seconds=0, truncated=0, task=task, place=run / "best")
        counts = {"train": 2, "valid": 1, "test": 0}
        yield Prepared(counts=counts, notes=[], preview=[], steps=len(told), parameters=1, metric="accuracy")
        for step, value in enumerate(told, start=1):
            metric = Metric(name="accuracy", value=value, low=None, high=None)
            yield Validated(step=step, metrics={"accuracy": metric}, best=False)
            if stop is not None and stop.asked:
                yield replace(done, stopped_by=stop.received)
                return
        yield done

    monkeypatch.setattr(tuning, "finetune", run)
    return asked


def peak(rate: float) -> list[float]:
    """Best at 1e-2; grows over three validations."""
    import math

    return [step / 3 - abs(math.log10(rate) + 2) for step in (1, 2, 3)]


def test_it_finds_what_is_good_and_prunes_what_is_not(
    request_of: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pretend(monkeypatch, peak)
    end = ended(tune(Search(request=request_of, space=SPACE, trials=20), tmp_path / "study"))
    states = [trial.state for trial in end.trials]
    assert states[:5] == ["complete"] * 5
    assert states.count("pruned") > 2
    pruned = next(trial for trial in end.trials if trial.state == "pruned")
    assert pruned.validations < 3
    assert end.best is not None
    assert 5e-3 < end.best.settings["train.learning_rate"] < 2e-2
    assert all(request.test is None for request in asked)
    text = (tmp_path / "study" / "report.md").read_text(encoding="utf-8")
    shares = dict(re.findall(r"^\| (train\.\w+) \| ([\d.]+) \|$", text, flags=re.M))
    assert float(shares["train.learning_rate"]) > float(shares["train.batch_size"])


def test_an_interrupt_and_a_killed_process_change_no_trial(
    request_of: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, peak)
    search = Search(request=request_of, space=SPACE, trials=8)
    expected = ended(tune(search, tmp_path / "whole"))
    for stop_at in (0, 3):
        events = []
        for event in tune(search, tmp_path / "study"):
            events.append(event)
            if isinstance(event, Inside) and isinstance(event.event, Prepared) and len(events) == 2 + 7 * stop_at:
                os.kill(os.getpid(), signal.SIGINT)
        last = events[-1]
        assert isinstance(last, SearchEnded)
        assert last.stopped_by == signal.SIGINT
        assert len(last.trials) == stop_at
    killed = tune(search, tmp_path / "study")
    while not isinstance(next(killed), Began):
        pass
    killed.close()  # type: ignore[attr-defined]
    end = ended(tune(search, tmp_path / "study"))
    assert drawn(end.trials) == drawn(expected.trials)


def test_a_trial_without_memory_counts_and_the_search_goes_on(
    request_of: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def values(rate: float) -> list[float]:
        if len(asked) == 2:
            raise torch.OutOfMemoryError("too much\nof it")
        return peak(rate)

    asked = pretend(monkeypatch, values)
    events = list(tune(Search(request=request_of, space=SPACE, trials=4), tmp_path / "study"))
    over = [event.trial for event in events if isinstance(event, TrialEnded)]
    assert [trial.state for trial in over] == ["complete", "failed", "complete", "complete"]
    assert over[1].error == "too much"
    assert len({trial.settings["train.learning_rate"] for trial in over}) == 4
    assert "failed: too much" in (tmp_path / "study" / "report.md").read_text(encoding="utf-8")


def test_time_ends_a_search(request_of: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, peak)
    search = Search(request=request_of, space=SPACE, trials=9, hours=1e-9)
    end = ended(tune(search, tmp_path / "study"))
    assert end.reason == "1e-09 hours are over"
    assert end.best is None
    assert "No trial" in (tmp_path / "study" / "report.md").read_text(encoding="utf-8")


def test_what_is_wrong_with_all_trials_ends_the_search(request_of: Request, tmp_path: Path) -> None:
    wrong = Request(model=request_of.model, kind=KIND, train=str(tmp_path / "none.csv"), settings=request_of.settings)
    with pytest.raises(DataError, match=r"none\.csv"):
        ended(tune(Search(request=wrong, space=SPACE, trials=3), tmp_path / "study"))


# ---------------------------------------------------------------------------------------------------- what is asked


def test_test_examples_are_refused(request_of: Request, tmp_path: Path) -> None:
    request = Request(model="m", kind=KIND, train="t", test="x", settings=request_of.settings)
    with pytest.raises(ConfigError, match="must not see test examples"):
        next(iter(tune(Search(request=request, space=SPACE), tmp_path)))


def test_a_missing_optuna_is_named(request_of: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match="pip install optuna"):
        next(iter(tune(Search(request=request_of, space=SPACE), tmp_path)))


def test_a_file_that_is_no_study_is_named(request_of: Request, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("segue tune\n")
    (tmp_path / "study.db").write_bytes(b"text" * 1000)
    with pytest.raises(DataError, match=r"study.db must be a study"):
        next(iter(tune(Search(request=request_of, space=SPACE), tmp_path)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.learning_rate=1e-5..1e-3:log", Range(key="train.learning_rate", low=1e-5, high=1e-3, log=True)),
        ("train.dropout=0..0.5", Range(key="train.dropout", low=0.0, high=0.5)),
        ("train.epochs=2..6", Range(key="train.epochs", low=2, high=6, whole=True)),
        ("train.batch_size=8,16,32", Choice(key="train.batch_size", values=(8, 16, 32))),
        ("train.class_weights=true, false", Choice(key="train.class_weights", values=(True, False))),
        ("read.pool=last,mean", Choice(key="read.pool", values=("last", "mean"))),
    ],
)
def test_expressions_are_understood(text: str, expected: Dimension) -> None:
    found = dimension(text, kind=KIND, fixed=[])
    assert found == expected
    assert dimension(str(found), kind=KIND, fixed=[]) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.epochs", "must have the form section.key=low..high"),
        ("epochs=1..2", "must have the form section.key=low..high"),
        ("train.epochs=", "must have the form section.key=low..high"),
        ("train.epochs=5..2", "from a lower number to a higher one; got '5..2'"),
        ("train.epochs=1.5..3", "from one whole number to another"),
        ("train.learning_rate=a..b", "from one number to another; got 'a..b'"),
        ("train.learning_rate=1..2..3", "from one number to another"),
        ("train.learning_rate=0..1:log", "must begin above 0; got 0"),
        ("train.learning_rate=1..inf", "from a lower number to a higher one"),
        ("train.learning_rate=1e-4..1e-3:exp", "must be log or nothing; got 'exp'"),
        ("train.batch_size=8,16:log", "choices, which have no scale"),
        ("train.batch_size=8", "at least two different values; got '8'"),
        ("train.batch_size=8,8", "at least two different values"),
        ("train.batch_size=8,,16", "on each side of a comma"),
        ("train.batch_size=8,0", "train.batch_size must be"),
        ("train.layer_decay=0.5..1.5", "train.layer_decay must be"),
        ("train.epoch=1..2", "Did you mean train.epochs?"),
        ("train.class_weights=0..1", "not a number"),
        ("read.pool=last,firsst", "read.pool must be"),
        ("train.seed=1,2", "may not set train.seed"),
        ("train.weight_decay=0..1", "searched or fixed; got both"),
    ],
)
def test_wrong_expressions_are_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as found:
        search_space(["train.dropout=0..0.1", text], kind=KIND, fixed=["train.weight_decay=0.1"])
    assert words in str(found.value)


def test_a_setting_is_searched_once() -> None:
    with pytest.raises(ConfigError, match=r"got train\.epochs twice"):
        search_space(["train.epochs=1..2", "train.epochs=2,3"], kind=KIND, fixed=[])


def test_the_usual_space_fits_the_model_and_leaves_out_what_is_fixed(request_of: Request) -> None:
    rate = usual_space(request_of, {"train.batch_size": "8"})[0]
    assert rate == default_space(32, new_weights=False)[0]
    assert isinstance(rate, Range)
    assert rate.low < 1e-3 < rate.high
    assert [one.key for one in usual_space(request_of, {"train.batch_size": "8"})] == [
        "train.learning_rate",
        "train.layer_decay",
    ]
    for one in default_space(768, new_weights=False):
        assert dimension(str(one), kind=KIND, fixed=[]).key == one.key
    with pytest.raises(ConfigError, match="needs settings to search"):
        next(iter(tune(Search(request=request_of, space=()), Path())))
