"""What every training run does with its folder and its signals: one run at a time, lines of metrics, a clean stop."""

import fcntl
import json
import math
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from segue.errors import DataError
from segue.files import is_written, locate, remove_folder, unwritable, write_file
from segue.train.distributed import rank

RunKind = Literal["pretrain", "finetune", "tune", "demo"]
LOCK = "lock"
FINETUNE_FILES = ("settings.toml", "metrics.jsonl", "results.json", "report.md", "report.html")
_NAMES: Mapping[RunKind, str] = {
    "pretrain": "a run",
    "finetune": "a fine-tuning run",
    "tune": "a search",
    "demo": "a demo",
}
_MARKS: Mapping[RunKind, bytes] = {kind: f"segue {kind}\n".encode() for kind in _NAMES}


class Metrics:
    """A JSON line for each logged step. Lines beyond the step that a run resumes from are dropped first."""

    def __init__(self, path: Path, *, step: int) -> None:
        self.path = path
        if rank() == 0 and path.exists():
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
            write_file(path, "".join(f"{line}\n" for line in lines))

    def write(self, values: dict[str, Any]) -> None:
        if rank() == 0:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")


def _step_of(line: str) -> float:
    try:
        step: float = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line that a killed process left half-written
    return step


@contextmanager
def one_at_a_time(run: Path, kind: RunKind) -> Iterator[None]:
    """One run at a time in a folder, and only in one of its own: a new one, an empty one, or that of the same kind of
    run. Its `lock` says which, so that nothing is ever written among files of others."""
    if rank() != 0:
        yield
        return
    _check_folder(run, kind)
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = (run / LOCK).open("ab", buffering=0)
    except OSError as error:
        raise unwritable(run, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"{run} must be used by one run at a time; got a second one. Wait, or use another --out."
            ) from None
        if not file.tell():
            try:
                rest = _MARKS[kind]
                while rest:  # a full disk takes a part first
                    rest = rest[file.write(rest) :]
            except OSError as error:
                (run / LOCK).unlink()
                raise unwritable(run, error) from None
        yield


def _check_folder(run: Path, kind: RunKind) -> None:
    if run.is_symlink() and not run.is_dir():
        raise DataError(f"{run} must be a folder or not exist yet; got a link to nothing. Choose another --out.")
    if not run.exists():
        return
    if not run.is_dir():
        raise DataError(f"{run} must be a folder or not exist yet; got a file. Choose another --out.")
    try:
        names = sorted(path.name for path in run.iterdir() if not path.name.startswith("."))
        lock = run / LOCK
        mark = lock.read_bytes()[:100] if lock.is_file() else b""
    except OSError as error:
        raise unwritable(run, error) from None
    copied = (
        not mark
        and not lock.is_symlink()
        and any(is_written(locate(run / part), kind="model") for part in ("last", "best"))
    )
    if names and not copied and mark != _MARKS[kind]:
        others = ", ".join([name for name in names if name != LOCK][:3] or [LOCK])
        raise DataError(f"{run} must be empty or {_NAMES[kind]}; got other files: {others}. Choose another --out.")


def remove_run(run: Path) -> None:
    """Removes what a fine-tuning run wrote, if it is one; what others put there stays."""
    lock = run / LOCK
    if not lock.is_file() or lock.read_bytes() != _MARKS["finetune"]:
        return
    remove_folder(run / "best")
    for name in (*FINETUNE_FILES, LOCK):
        (run / name).unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        run.rmdir()


@dataclass
class Stop:
    """Whether someone asked to stop."""

    asked: bool = False


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """The first SIGINT or SIGTERM asks to stop after the step; a second one ends the process at once."""
    stop = Stop()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.asked:
            os._exit(128 + number)
        stop.asked = True

    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
