"""A run folder that cannot be written or read: the error names the file, the state stays, and the run goes on to the
bit once the folder is mended. Signals: the first one asks, the second one ends."""

import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segue.errors import DataError
from segue.train import run_folder
from segue.train.distributed import LostProcessError
from segue.train.metrics import read_metrics
from segue.train.pretrain import Ended, pretrain
from segue.train.run_folder import stop_signal
from tests.train.runs import config_of, write_inputs


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run of 4 steps, and one of 12 that was never stopped."""
    folder = write_inputs(tmp_path_factory.mktemp("folder"))
    train(folder, "short", 4)
    train(folder, "straight", 12)
    return folder


def train(work: Path, run: str, steps: int) -> None:
    config = config_of(work, "train.schedule=constant", "train.save_every=1000", f"train.steps={steps}")
    config = config.model_copy(update={"data": config.data.model_copy(update={"validation": None})})  # type: ignore[union-attr]
    ended = list(pretrain(config, work / run))[-1]
    assert isinstance(ended, Ended)
    assert ended.finished


def test_the_last_step_is_logged_however_seldom_others_are(work: Path) -> None:
    config = config_of(work, "train.steps=3", "train.log_every=1000")
    list(pretrain(config, work / "seldom"))
    assert [line["step"] for line in read_metrics(work / "seldom/metrics.jsonl") if "loss" in line] == [3]


def state(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "last").rglob("*.safetensors")}


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file grows beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def goes_on(work: Path, run: str) -> None:
    """Equal to the run that was never stopped."""
    train(work, run, 12)
    assert state(work / run) == state(work / "straight")
    assert [line["step"] for line in read_metrics(work / run / "metrics.jsonl")] == list(range(1, 13))
    assert not [path.name for path in (work / run).iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("place", ["text.txt/run", "/proc/segue/run", "occupied"])
def test_a_folder_that_cannot_be_made_is_named(work: Path, place: str) -> None:
    """Permissions do not bind the administrator: a path below a file, one in /proc, a lock that is a folder."""
    (work / "occupied/lock").mkdir(parents=True, exist_ok=True)
    with pytest.raises(DataError, match=rf"{place} must be (writable|empty or a run); got .* [Cc]hoose another"):
        train(work, place, 4)


def test_a_full_disk_while_the_config_is_written(work: Path) -> None:
    with full_disk(100), pytest.raises(DataError, match=r"new/config.toml must be writable; got File too large"):
        train(work, "new", 12)
    goes_on(work, "new")
    shutil.copytree(work / "short", work / "config")
    files = {name: (work / "config" / name).read_bytes() for name in ("config.toml", "metrics.jsonl")}
    with full_disk(100), pytest.raises(DataError, match=r"config/config.toml must be writable"):
        train(work, "config", 12)
    assert state(work / "config") == state(work / "short")
    assert {name: (work / "config" / name).read_bytes() for name in files} == files
    goes_on(work, "config")


def test_a_full_disk_while_metrics_are_written(work: Path) -> None:
    shutil.copytree(work / "short", work / "metrics")
    size = (work / "metrics/metrics.jsonl").stat().st_size * 2 - 10  # the line of step 8 does not fit
    assert size > (work / "metrics/config.toml").stat().st_size
    with (
        full_disk(size),
        pytest.raises(DataError, match=r"metrics.jsonl must be writable; got File too large. Free some space"),
    ):
        train(work, "metrics", 12)
    assert state(work / "metrics") == state(work / "short")
    goes_on(work, "metrics")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [lines[0], lines[1][:20] + b"\xff" + lines[1][20:], *lines[2:]], "the byte 0xff.* in line 2"),
        (lambda lines: [lines[0][:30], *lines[1:]], "something else in line 1"),
        (lambda lines: [lines[0], b"[" * 100_000, *lines[1:]], "something else in line 2"),
    ],
    ids=["not UTF-8", "cut", "deep"],
)
def test_damaged_metrics_are_named(
    work: Path, tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], message: str
) -> None:
    run = work / tmp_path.name
    shutil.copytree(work / "short", run)
    path = run / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"\n".join(damage(whole.splitlines())) + b"\n")
    with pytest.raises(
        DataError, match=rf"metrics.jsonl must hold a JSON object with a step in each line; got {message}"
    ):
        train(work, tmp_path.name, 12)
    assert state(run) == state(work / "short")
    path.write_bytes(whole)
    goes_on(work, tmp_path.name)


def test_a_line_that_a_killed_process_left_half_written_is_dropped(work: Path) -> None:
    shutil.copytree(work / "short", work / "torn")
    with (work / "torn/metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "lo')
    goes_on(work, "torn")


# -------------------------------------------------------------------------------------------------------- signals


def child(work: Callable[[Callable[[bytes], None]], None]) -> tuple[int, Callable[[], bytes]]:
    """A process that does the work, to which it gives a function to say a byte with; its id, and how to hear it."""
    hear, say = os.pipe()
    number = os.fork()
    if number == 0:
        try:
            work(lambda byte: os.write(say, byte) and None)
        finally:
            os._exit(99)
    os.close(say)
    return number, lambda: os.read(hear, 1)


def wait_for_signals(say: Callable[[bytes], None]) -> None:
    with stop_signal() as stop:
        say(b"r")
        while not stop.asked:
            time.sleep(0.005)
        say(b"a")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.005)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process_at_once(second: signal.Signals) -> None:
    number, hear = child(wait_for_signals)
    assert hear() == b"r"
    os.kill(number, signal.SIGTERM)
    assert hear() == b"a"
    os.kill(number, second)
    _, status = os.waitpid(number, 0)
    assert os.WTERMSIG(status) == second  # what a shell calls 128 + the number


def test_under_torchrun_the_same_signal_may_come_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the scheduler, and from torchrun, which passes on what it got."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setattr(run_folder, "REPEATED_WITHIN", 1.0)
    number, hear = child(wait_for_signals)
    assert hear() == b"r"
    os.kill(number, signal.SIGTERM)
    assert hear() == b"a"
    os.kill(number, signal.SIGTERM)
    time.sleep(1.2)
    assert os.waitpid(number, os.WNOHANG) == (0, 0)
    os.kill(number, signal.SIGTERM)
    _, status = os.waitpid(number, 0)
    assert os.waitstatus_to_exitcode(status) == 143


def test_what_listened_before_listens_again() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_signal() as stop:
        assert stop.agreed() is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.agreed() == signal.SIGTERM
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# --------------------------------------------------------------------------------------------------- a lost state


def test_a_run_without_its_state_does_not_write_over_its_best_model(work: Path) -> None:
    steps = ["train.schedule=constant", "train.save_every=2", "train.validate_every=2", "train.steps=6"]
    list(pretrain(config_of(work, *steps), work / "lost"))
    best = (work / "lost/best/model.safetensors").read_bytes()
    shutil.rmtree(work / "lost/last")
    with pytest.raises(
        DataError, match=r"must contain last/ to be resumed; it has only best/ and metrics up to step 6"
    ):
        list(pretrain(config_of(work, *steps), work / "lost"))
    assert (work / "lost/best/model.safetensors").read_bytes() == best


@pytest.mark.parametrize("value", ["abc", "2"])
def test_an_environment_that_torchrun_did_not_make_is_named(
    work: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", value)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(LostProcessError, match="Start the command again with torchrun, or unset WORLD_SIZE"):
        next(pretrain(config_of(work), work / "environment"))
