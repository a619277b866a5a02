"""A study as a whole: runs that are made once, stopped and killed and resumed; what its report says."""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from segue.errors import ConfigError, DataError
from segue.study import pool
from segue.study.load import open_study
from segue.study.plan import OUTCOME, RUN
from segue.study.pool import JobEnded, JobStarted
from segue.study.report import verdict, write_report
from segue.study.results import read_results
from segue.study.run import Planned, StudyEnded, run_study
from segue.study.schema import PaperConfig
from segue.study.statistics import estimate
from tests.forked import forked_call
from tests.report.pages import parsed
from tests.study.studies import MEASURES, STUDY, TASK, do_jobs, forked_worker, planned, write_study


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "cores", lambda: 1)  # other tests use the other cores: a second thread only waits
    return tmp_path


def test_a_study_is_measured_and_reported(place: Path) -> None:
    path = write_study(place, STUDY.replace("[[variants]]", MEASURES + TASK + "\n[[variants]]", 1))
    plan = planned(path, place / "out")
    assert do_jobs(plan, place / "out") == 8  # four runs, each fine-tuned
    results = read_results(plan, place / "out")
    assert [(one.variant, one.seed, one.state) for one in results] == [
        ("memory", 1, "finished"),
        ("no memory", 1, "finished"),
        ("memory", 2, "finished"),
        ("no memory", 2, "finished"),
    ]
    for one in results:
        assert len(one.curve) == 2
        assert 0 < one.values["validation"] < 20
        assert 0 <= one.values["films"] <= 1
        assert set(one.memory) == {None, 4}
        assert set(one.lengths) == {0.1, 0.5, 1.0}
        assert one.processor is not None
        assert one.processor > 0
    without = [one for one in results if one.variant == "no memory"]
    assert all(one.memory[None] == pytest.approx(one.values["validation"]) for one in without)
    report = write_report(plan, results, place / "out", problems={})
    text = report.with_suffix(".md").read_text(encoding="utf-8")
    for heading in (
        "Results at the end of",
        "Differences from memory",
        "Comparison with the paper",
        "Learning curves",
        "Cost of a run",
    ):
        assert f"## {heading}" in text
    assert "| no memory | 27 |" in text
    assert "2 finished" in text
    assert "svg" in parsed(report.read_text(encoding="utf-8")).tags
    figures = json.loads(report.with_suffix(".json").read_text(encoding="utf-8"))
    films = [one.values["films"] for one in results]
    mean = (films[1] - films[0] + films[3] - films[2]) / 2
    assert figures["differences"]["films"]["no memory"]["mean"] == pytest.approx(mean)
    assert figures["paper"][0]["no memory"] in ("agrees", "differs", "not resolved at this size")


def test_nothing_is_computed_twice_also_by_another_study(place: Path) -> None:
    path = write_study(place)
    plan = planned(path, place / "out")
    assert do_jobs(plan, place / "out") == 4
    before = {one: one.stat().st_mtime_ns for one in (place / "out").rglob("*.safetensors")}
    assert before
    other = place / "other.toml"
    other.write_text(path.read_text() + '[[variants]]\nname = "shaw"\nmodel.positions = {kind = "shaw"}\n')
    assert do_jobs(planned(other, place / "out"), place / "out") == 2
    assert before.items() <= {one: one.stat().st_mtime_ns for one in (place / "out").rglob("*.safetensors")}.items()


def test_a_diverged_variant_is_reported_as_diverged(place: Path) -> None:
    text = STUDY + "train = {learning_rate = 1e12, patience = 1}\n"
    path = write_study(place, text.replace("tokens = 64", "tokens = 320"))
    plan = planned(path, place / "out", ["seeds=[1]"])
    do_jobs(plan, place / "out")
    results = read_results(plan, place / "out")
    assert [one.state for one in results] == ["finished", "diverged"]
    assert do_jobs(plan, place / "out") == 0
    text = write_report(plan, results, place / "out", problems={}).with_suffix(".md").read_text(encoding="utf-8")
    assert "1 diverged" in text
    assert "no memory, seed 1: diverged: " in text


def test_the_order_of_the_paper_is_compared() -> None:
    paper = PaperConfig(source="p", values={"a": 24.0, "b": 27.0, "c": 24.0})
    worse, unclear = estimate([1.0, 1.1, 1.2]), estimate([-1.0, 1.0, 0.5])
    assert verdict(paper, "b", "a", worse, higher=False) == "agrees"
    assert verdict(paper, "b", "a", worse, higher=True) == "differs"
    assert verdict(paper, "b", "a", unclear, higher=False) == "not resolved at this size"
    assert verdict(paper, "b", "a", estimate([1.0]), higher=False) == "not resolved at this size"
    assert verdict(paper, "c", "a", worse, higher=False) == "differs"
    better = PaperConfig(source="p", better="higher", values={"a": 24.0, "b": 27.0})
    assert verdict(better, "b", "a", worse, higher=True) == "agrees"


def test_the_folder_must_be_one_of_studies(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "letter.txt").write_text("mine")
    with pytest.raises(DataError, match=r"must be empty or a folder of studies; got other files: letter\.txt"):
        list(run_study(open_study(write_study(place)), place / "out"))


def test_torchrun_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="without torchrun"):
        next(run_study(open_study(write_study(place)), place / "out"))


# ------------------------------------------------------------------------------------------------ processes


def go_on(settings: list[str]) -> None:
    """What a process does that is stopped."""
    for event in run_study(open_study("study.toml", settings), Path("out"), workers=1):
        print(type(event).__name__, flush=True)


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGKILL], id="killed"),
        pytest.param([signal.SIGKILL, signal.SIGTERM], id="killed and stopped", marks=pytest.mark.long),
    ],
)
def test_killed_stopped_and_resumed_it_ends_as_one_that_was_not(
    place: Path, numbers: list[signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state after each resume is that of a run without a stop, to the bit."""
    monkeypatch.setattr(pool, "_started", forked_worker)  # which saves the start of Python and torch
    write_study(place)
    longer = ["budget.tokens=480", "seeds=[1]", "budget.points=3"]
    straight = planned(place / "study.toml", place / "straight", longer)
    do_jobs(straight, place / "straight")
    for number in numbers:
        process = forked_call(partial(go_on, longer))
        saved = place / "out" / straight.cells[number == signal.SIGTERM].run / RUN / "last"
        while not saved.exists():
            assert process.poll() is None, f"the study was over before it could be stopped: {process.communicate(1)}"
            time.sleep(0.02)
        process.send_signal(number)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == (-number if number == signal.SIGKILL else 0)
        assert ("StudyEnded" in said) == ("JobsStopping" in said) == (number == signal.SIGTERM)
    events = list(run_study(open_study("study.toml", longer), Path("out"), workers=1))
    assert isinstance(events[0], Planned)
    assert isinstance(events[-1], StudyEnded)
    assert events[-1].stopped_by is None
    assert [type(event) for event in events].count(JobStarted) <= 2
    assert all(event.problem is None for event in events if isinstance(event, JobEnded))
    for cell in straight.cells:
        one, other = (place / name / cell.run / RUN / "last" / "model.safetensors" for name in ("straight", "out"))
        assert one.read_bytes() == other.read_bytes()
        assert json.loads((place / "out" / cell.run / OUTCOME).read_bytes())["state"] == "finished"


def test_a_worker_that_is_started_as_users_start_it_does_its_jobs(place: Path) -> None:
    events = list(run_study(open_study(write_study(place), ["seeds=[1]"]), Path("out"), workers=1))
    assert [event.problem for event in events if isinstance(event, JobEnded)] == [None, None]


def test_a_process_that_is_killed_is_a_problem_and_tried_again(place: Path) -> None:
    study = open_study(write_study(place), ["seeds=[1]", "budget.tokens=16000"])
    problem = None
    for event in run_study(study, Path("out"), workers=1):
        if isinstance(event, JobStarted) and problem is None:
            problem = ""
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGKILL)
        if isinstance(event, JobEnded):
            assert event.problem is not None
            assert "signal 9" in event.problem
            break
    plan = planned(Path("study.toml"), Path("out"), ["seeds=[1]", "budget.tokens=16000"])
    assert not plan.jobs[0].is_done(Path("out"))
