"""What every training run does with its folder and its signals: one run at a time, lines of metrics, a clean stop."""

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from segue.errors import DataError
from segue.train.distributed import largest_of_processes, rank
from segue.train.metrics import read_metrics

REPEATED_WITHIN = 5.0
"""Seconds in which a process that torchrun started takes a second signal for a repetition of the first."""


# -------------------------------------------------------------------------------------------------------- metrics


class Metrics:
    """A JSON line for each logged step. Lines beyond the step that a run resumes from are dropped first."""

    def __init__(self, path: Path, *, step: int) -> None:
        self.path = path
        if rank() == 0 and path.exists():
            kept = [values for values in read_metrics(path) if values["step"] <= step]
            write_whole(path, "".join(json.dumps(values) + "\n" for values in kept))

    def write(self, values: dict[str, Any]) -> None:
        if rank() == 0:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(values) + "\n")
            except OSError as error:
                raise _not_writable(self.path, error) from None


# ---------------------------------------------------------------------------------------------------------- files


def write_whole(path: Path, text: str) -> None:
    """Writes a file beside its place and moves it in, so that what was there stays until the new one is complete."""
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise _not_writable(path, error) from None


def _not_writable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path} must be writable; got {error.strerror or error}. Make room or allow writing, then start the run "
        "again; what was saved before is untouched."
    )


@contextmanager
def one_at_a_time(run: Path) -> Iterator[None]:
    """One run at a time in a folder, which is made if it is not there."""
    if rank() != 0:
        yield
        return
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = (run / "lock").open("w")
    except OSError as error:
        raise DataError(
            f"{run} must be a folder that can be written to; got {error.strerror or error}. Choose another --out."
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{run} must be used by one run at a time; got a second one. Wait, or use another --out."
            ) from None
        except OSError as error:
            raise DataError(
                f"{run} must be on a file system with locks; got {error.strerror or error}. Choose another --out."
            ) from None
        yield


# -------------------------------------------------------------------------------------------------------- signals


@dataclass
class Stop:
    """Whether a signal asked to stop, and which one."""

    received: signal.Signals | None = None

    @property
    def asked(self) -> bool:
        return self.received is not None

    def agreed(self) -> signal.Signals | None:
        """The signal that any of the processes received: the same answer in all of them. Every process must call
        this."""
        number = largest_of_processes(0 if self.received is None else self.received)
        return signal.Signals(number) if number else None


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """The first SIGINT or SIGTERM asks to stop after the step; a second one ends the process at once."""
    stop = Stop()
    received_at = 0.0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal received_at
        now = time.monotonic()
        # A scheduler signals all processes, and torchrun passes on to its workers what it gets: one request, twice.
        if stop.asked and (not passed_on or now - received_at > REPEATED_WITHIN):
            os._exit(128 + number)
        if not stop.asked:
            stop.received, received_at = signal.Signals(number), now
            if not passed_on:  # the second one then also ends a process that is inside a long computation
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
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `processes` leaves it when one of them is lost
                signal.signal(number, handler)
