"""Two processes, stopped in every way and resumed: to the bit the run that was never stopped.

`make test` stops by signals, with all that a state holds, in one start, and kills one of two processes.
`make test-long` tries every way to stop with every way to divide the work, in runs that torchrun starts.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch.distributed.fsdp  # noqa: F401 (once, and not in each process)
from safetensors.numpy import load_file

from segue.config import dump
from segue.train.metrics import read_metrics
from tests.forked import forked, forked_call, ranks, together
from tests.train import stopped_runs
from tests.train.runs import arguments, config_of, finish, wait_for_step, write_inputs

ROOT = Path(__file__).parents[2]
STEPS, FEW_STEPS = 24, 14
COMMON = [f"train.steps={STEPS}", "model.dropout=0.1", "train.save_every=5", "train.validate_every=8"]
COMMON += ["train.validation_steps=4"]
FEW = [*COMMON, f"train.steps={FEW_STEPS}", "model.num_layers=1"]
SETTINGS = {  # of the work that two processes share
    "plain": [],
    "accumulated": ["train.accumulate=2"],
    "memory": ["model.memory.backprop_segments=1"],
    "sharded": ["train.sharded=true"],
    "all": ["train.accumulate=2", "model.memory.backprop_segments=1"],
    "all-sharded": ["train.accumulate=2", "model.memory.backprop_segments=1", "train.sharded=true"],
}
QUICK = ("all", "all-sharded")
STOPS = [(4, "SIGTERM", 1), (9, "SIGINT", 0)]
LOST = "segue: all processes of a run must keep running; process {} lost the connection"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def launched(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*TORCHRUN, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )


def command(work: Path, run: str, name: str) -> subprocess.Popen[str]:
    return launched("segue", "pretrain", *arguments(work, run, *COMMON, *SETTINGS[name]))


def runs(work: Path, names: Iterable[str], common: Sequence[str], *, stopped: bool) -> None:
    """One that is never stopped for each of the settings, and one that is, all in one start."""
    jobs: list[stopped_runs.Run] = []
    for name in names:
        path = work / f"{name}.toml"
        path.write_text(dump(config_of(work, *common, *SETTINGS[name])), encoding="utf-8")
        jobs.append((path, work / f"straight-{name}", []))
        if stopped:
            jobs.append((path, work / f"stopped-{name}", STOPS))
    together([forked_call(partial(stopped_runs.main, jobs), environment=rank) for rank in ranks(2)])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Runs of a few steps, of those settings that are asked for."""
    folder = write_inputs(tmp_path_factory.mktemp("resume"))
    here = [item for item in request.session.items if item.path == request.path]
    asked = {item.callspec.params["name"] for item in here if "stop_both" in item.name}  # type: ignore[attr-defined]
    runs(folder, [name for name in QUICK if name == QUICK[0] or name in asked], FEW, stopped=True)
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all settings, of more steps."""
    folder = write_inputs(tmp_path_factory.mktemp("resume-often"))
    runs(folder, SETTINGS, COMMON, stopped=False)
    return folder


def assert_equal(work: Path, run: str, name: str, *, steps: int) -> None:
    """All tensors of a run, the random states among them, and its logged losses, to the bit."""
    one, other = work / f"straight-{name}", work / run
    files = {path.relative_to(one) for path in one.rglob("*.safetensors")}
    assert {str(file) for file in files} == {
        *("best/model.safetensors", "last/model.safetensors"),
        *(f"last/training/{part}.safetensors" for part in ("average", "memory", "optimizer", "random")),
    }
    for file in files:
        assert (one / file).read_bytes() == (other / file).read_bytes(), (run, file)
    assert losses(one, steps) == losses(other, steps)


def losses(run: Path, steps: int) -> list[tuple[int, float]]:
    lines = read_metrics(run / "metrics.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, steps + 1))
    return [(line["step"], line.get("loss", line.get("validation_loss"))) for line in lines]


def workers(process: subprocess.Popen[str]) -> dict[int, int]:
    """The process ids of the ranks that torchrun started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found = {}
    for child in children:
        words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {int(word.removeprefix(b"RANK=")): int(child) for word in words if word.startswith(b"RANK=")}
    assert sorted(found) == [0, 1]
    return found


def is_running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def kill_one(process: subprocess.Popen[str], rank: int) -> None:
    """The other one ends by itself, and says why."""
    found = workers(process)
    os.kill(found[rank], signal.SIGKILL)
    end = time.monotonic() + 30  # when torchrun would kill it
    while is_running(found[1 - rank]):
        assert time.monotonic() < end
        time.sleep(0.05)
    code, _, errors = finish(process)
    assert code == 1  # that of torchrun
    assert LOST.format(1 - rank) in errors
    assert "Start the same command again" in errors
    assert "pretrain.py" not in errors  # no traceback besides torchrun's own


def kill_all(process: subprocess.Popen[str]) -> None:
    for number in [process.pid, *workers(process).values()]:
        os.kill(number, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """torchrun passes the signal on; its own exit code is not ours."""
    process.send_signal(number)
    _, output, errors = finish(process)
    assert "The same command resumes from step" in output, errors[-3000:]


WAYS = {  # by the step after which a run is stopped; the first state is that of step 5
    2: lambda process: kill_one(process, 0),
    7: lambda process: stop(process, signal.SIGTERM),
    11: kill_all,
    15: lambda process: stop(process, signal.SIGINT),
    19: lambda process: kill_one(process, 1),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name != QUICK[0])) for name in QUICK])
def test_signals_in_one_of_two_processes_stop_both_and_nothing_is_lost(work: Path, name: str) -> None:
    """Dropout, parts of a batch, gradients through memory, averaged weights; weights whole or divided."""
    assert_equal(work, f"stopped-{name}", name, steps=FEW_STEPS)


def test_one_of_two_processes_is_killed(work: Path) -> None:
    words = ["pretrain", *arguments(work, "killed", *FEW, *SETTINGS["all"])]
    first, second = (forked(*words, environment=rank) for rank in ranks(2))
    wait_for_step(work / "killed", 7, first)
    second.kill()
    assert second.wait(30) == -signal.SIGKILL
    code, _, errors = finish(first)  # which ends by itself
    assert code == 2
    assert LOST.format(0) in errors
    assert "Start the same command again" in errors
    assert "Traceback" not in errors
    _, errors = together([forked(*words, environment=rank) for rank in ranks(2)])
    assert "resumes at step" in errors
    assert_equal(work, "killed", "all", steps=FEW_STEPS)


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_every_way_to_stop_with_every_way_to_divide_the_work(straight: Path, name: str) -> None:
    """All of them in one run, one after the other."""
    run = f"often-{name}"
    for step, way in WAYS.items():
        process = command(straight, run, name)
        wait_for_step(straight / run, step, process)
        way(process)
    code, _, errors = finish(command(straight, run, name))
    assert code == 0, errors[-3000:]
    assert_equal(straight, run, name, steps=STEPS)


@pytest.mark.long
@pytest.mark.parametrize("name", ["all", "all-sharded"])
def test_the_number_of_processes_may_change_twice(straight: Path, name: str) -> None:
    """Two, one, two: without dropout, whose random numbers hang on it, up to rounding in float32."""
    run = f"changed-{name}"
    settings = [*COMMON, *SETTINGS[name], "model.dropout=0.0", "train.schedule=constant"]
    one = [sys.executable, "-m", "segue", "pretrain"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}"}
    subprocess.run(
        [*one, *arguments(straight, f"one-{name}", *settings)], check=True, env=environment, capture_output=True
    )
    for count, steps in ((2, 8), (1, 16), (2, STEPS)):
        chosen = arguments(straight, run, *settings, f"train.steps={steps}")
        if count == 1:
            subprocess.run([*one, *chosen], check=True, env=environment, capture_output=True)
        else:
            code, _, errors = finish(launched("segue", "pretrain", *chosen))
            assert code == 0, errors[-3000:]
    first, second = losses(straight / f"one-{name}", STEPS), losses(straight / run, STEPS)
    # The shorter parts were validated at their ends too, which are multiples of 8.
    assert [step for step, _ in second] == [step for step, _ in first]
    assert [loss for _, loss in second] == pytest.approx([loss for _, loss in first], abs=1e-4)
    one_file, other = (load_file(straight / which / "last/model.safetensors") for which in (f"one-{name}", run))
    assert max(abs(one_file[key] - other[key]).max() for key in one_file) < 1e-3
