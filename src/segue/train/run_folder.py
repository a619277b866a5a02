"""Run folders and signals, shared by all training runs: a lock, lines of metrics, a clean stop."""

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from segue.errors import DataError
from segue.files import is_written, locate, remove_folder, unwritable, write_file
from segue.train.distributed import largest_of_processes, rank
from segue.train.metrics import read_metrics

REPEATED_WITHIN = 5.0
"""Seconds within which a process started by torchrun treats a second signal as a repetition of the first."""

RunKind = Literal["pretrain", "finetune", "tune", "study", "demo"]
LOCK = "lock"
FINETUNE_FILES = ("settings.toml", "metrics.jsonl", "results.json", "report.md", "report.html")
_NAMES: Mapping[RunKind, str] = {
    "pretrain": "a run",
    "finetune": "a fine-tuning run",
    "tune": "a search",
    "study": "a folder of studies",
    "demo": "a demo",
}
_MARKS: Mapping[RunKind, bytes] = {kind: f"segue {kind}\n".encode() for kind in _NAMES}


class Metrics:
    """Writer of a JSON line for each logged step. Lines after the step from which a run resumes are dropped first."""

    def __init__(self, path: Path, *, step: int) -> None:
        self.path = path
        if rank() == 0 and path.exists():
            kept = [values for values in read_metrics(path) if values["step"] <= step]
            write_file(path, "".join(json.dumps(values) + "\n" for values in kept))

    def write(self, values: dict[str, Any]) -> None:
        if rank() == 0:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(values) + "\n")
            except OSError as error:
                raise unwritable(self.path, error) from None


@contextmanager
def one_at_a_time(run: Path, kind: RunKind) -> Iterator[None]:
    """Lock a folder for one run. The folder must be new, empty, or of the same kind of run, which its `lock` names, so
    that nothing is ever written among other files."""
    if rank() != 0:
        yield
        return
    check_folder(run, kind)
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = (run / LOCK).open("ab", buffering=0)
    except OSError as error:
        raise unwritable(run, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{run} is in use by another run. Wait for it to finish, or use another --out.") from None
        except OSError as error:
            raise DataError(
                f"{run} must be on a file system that supports locks; got {error.strerror or error}. Choose another "
                "--out."
            ) from None
        if not file.tell():
            try:
                rest = _MARKS[kind]
                while rest:  # a full disk accepts only a part at first
                    rest = rest[file.write(rest) :]
            except OSError as error:
                (run / LOCK).unlink()
                raise unwritable(run, error) from None
        yield


def check_folder(run: Path, kind: RunKind) -> None:
    """Raise DataError unless a run of this kind may use the folder. Creates nothing."""
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
    """Remove the files of a fine-tuning run, if it is one; other files stay."""
    lock = run / LOCK
    if not lock.is_file() or lock.read_bytes() != _MARKS["finetune"]:
        return
    for model in ("best", "last"):
        remove_folder(run / model)
    for name in (*FINETUNE_FILES, LOCK):
        (run / name).unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        run.rmdir()


@dataclass
class Stop:
    """The signal that requested a stop, if any."""

    received: signal.Signals | None = None

    @property
    def asked(self) -> bool:
        return self.received is not None

    def agreed(self) -> signal.Signals | None:
        """Return the signal that any of the processes received: the same in all of them. Every process must call
        this."""
        number = largest_of_processes(0 if self.received is None else self.received)
        return signal.Signals(number) if number else None


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """Handle signals: the first SIGINT or SIGTERM requests a stop after the current step; a second one ends the process
    at once."""
    stop = Stop()
    received_at = 0.0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal received_at
        now = time.monotonic()
        # A scheduler signals all processes, and torchrun forwards signals to its workers: one request, received twice.
        if stop.asked and (not passed_on or now - received_at > REPEATED_WITHIN):
            os._exit(128 + number)
        if not stop.asked:
            stop.received, received_at = signal.Signals(number), now
            if not passed_on:  # the second signal then also ends a process that is inside a long computation
                for one in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(one, signal.SIG_DFL)

    passed_on = "TORCHELASTIC_RUN_ID" in os.environ
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `processes` leaves it when a process is lost
                signal.signal(number, handler)
