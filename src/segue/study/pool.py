"""A pool of worker processes, each with its share of the cores.

In: jobs. Out: their events. A signal stops all processes without loss; if this process is killed, they notice it and
stop by themselves (`worker`).
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from segue.study.plan import Job
from segue.train.run_folder import Stop

PATIENCE = 0.2
"""Seconds between two checks of the processes."""
LAST_WORDS = 300
"""Number of characters of standard error that are reported when a process failed."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class JobStarted:
    """A job begins, or resumes."""

    job: Job


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """Progress of a job."""

    job: Job
    phase: str
    """Current phase: training, measuring or fine-tuning. The count starts from 0 for each evaluation."""
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class JobEnded:
    """A job ended."""

    job: Job
    problem: str | None = None
    """Why it has no result; None: it has one."""


@dataclass(frozen=True, kw_only=True)
class JobsStopping:
    """A signal arrived: each job finishes its step or its evaluation, and saves its state."""

    running: int
    """Number of jobs that are still running."""


PoolEvent = JobStarted | JobProgress | JobEnded | JobsStopping


@dataclass(kw_only=True)
class _Worker:
    """A worker process and its current job."""

    process: subprocess.Popen[bytes]
    said: IO[bytes]
    """Its standard error."""
    job: Job | None = None
    rest: bytes = b""
    """An incomplete line of its output."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(jobs: Sequence[Job], folder: Path, *, workers: int, stop: Stop) -> Generator[PoolEvent, None, None]:
    """Run jobs until all are done, or a signal arrived and all processes have stopped. A job that depends on a run
    waits for it, and is skipped if the run did not finish."""
    waiting, team = list(jobs), list[_Worker]()
    threads, stopping = max(1, cores() // workers), False
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                while not stop.asked and (idle := _idle(team, workers)) and (job := _next(waiting, folder)):
                    worker = idle[0] if idle[0] is not None else _started(folder, threads=threads)
                    if worker not in team:
                        team.append(worker)
                        selector.register(_output(worker), selectors.EVENT_READ, worker)
                    _tell(worker, job, threads=threads)
                    yield JobStarted(job=job)
                if not any(worker.job for worker in team):
                    return  # the remaining jobs depend on runs without a result
                for key, _ in selector.select(PATIENCE):
                    yield from _heard(key.data, folder, quiet=stop.asked)
                for worker in [worker for worker in team if worker.process.poll() is not None]:
                    yield from _heard(worker, folder, quiet=stop.asked)
                    selector.unregister(_output(worker))
                    team.remove(worker)
                    yield from _gone(worker, folder, quiet=stop.asked)
                if stop.asked and not stopping:
                    stopping = True
                    for worker in team:
                        worker.process.terminate()
                    yield JobsStopping(running=sum(worker.job is not None for worker in team))
        finally:
            for worker in team:  # a working process was not told to stop yet: an error or the caller ended this
                if worker.job is not None and not stopping:
                    worker.process.terminate()
                elif worker.process.stdin is not None:
                    _close(worker.process.stdin)
            for worker in team:
                _last_words(worker)


def _idle(team: Sequence[_Worker], workers: int) -> list[_Worker | None]:
    """Return the processes without a job; None is one that may be started."""
    found: list[_Worker | None] = [worker for worker in team if worker.job is None and worker.process.poll() is None]
    return found or ([None] if len(team) < workers else [])


def _next(waiting: list[Job], folder: Path) -> Job | None:
    """Remove and return the first job that can begin: the run on which it depends has finished."""
    for job in list(waiting):
        if job.is_done(folder) or (job.after is not None and _diverged(folder / job.after)):
            waiting.remove(job)
        elif job.after is None or (folder / job.after).is_file():
            waiting.remove(job)
            return job
    return None


def _diverged(outcome: Path) -> bool:
    return outcome.is_file() and json.loads(outcome.read_bytes())["state"] != "finished"


def _started(folder: Path, *, threads: int) -> _Worker:
    said = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
    environment = os.environ | dict.fromkeys(THREADS, str(threads))
    if "PYTHONPATH" in environment:  # the process has another current folder
        places = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in places)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "segue.study.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        cwd=folder,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches this process alone, which tells the others
    )
    return _Worker(process=process, said=said)


def _tell(worker: _Worker, job: Job, *, threads: int) -> None:
    worker.job = job
    assert worker.process.stdin is not None
    with suppress(BrokenPipeError):  # the process is gone, which is noticed elsewhere
        worker.process.stdin.write(json.dumps({**job.order, "threads": threads}).encode("utf-8") + b"\n")
        worker.process.stdin.flush()


def _output(worker: _Worker) -> IO[bytes]:
    assert worker.process.stdout is not None
    return worker.process.stdout


def _heard(worker: _Worker, folder: Path, *, quiet: bool) -> Iterator[PoolEvent]:
    """Yield the events that a process has sent since the last call; after its end, all that are left. With `quiet`,
    jobs without a result are not reported, because they were stopped."""
    handle, ended = _output(worker).fileno(), worker.process.poll() is not None
    data = os.read(handle, 2**16)
    while ended and (more := os.read(handle, 2**16)):
        data += more
    *lines, worker.rest = (worker.rest + data).split(b"\n")
    for line in lines:
        values: dict[str, Any] = json.loads(line)
        job = worker.job
        if job is None:
            continue
        if "ended" not in values:
            yield JobProgress(job=job, phase=values["phase"], done=values["done"], total=values["total"])
            continue
        worker.job = None
        done = job.is_done(folder)
        if done or not quiet:
            yield JobEnded(job=job, problem=None if done else values.get("problem", "it left no result"))


def _gone(worker: _Worker, folder: Path, *, quiet: bool) -> Iterator[PoolEvent]:
    """Report the end of a process, and of its job, if any."""
    words = _last_words(worker)
    if worker.job is None or (quiet and not worker.job.is_done(folder)):
        return
    code = worker.process.returncode
    how = f"signal {-code}" if code < 0 else f"code {code}"
    problem = f"its process ended with {how}{': ' + words[-1] if words else ''}"
    yield JobEnded(job=worker.job, problem=None if worker.job.is_done(folder) else problem)


def _last_words(worker: _Worker) -> list[str]:
    """Wait for the end of a process; return the last lines that it wrote to standard error."""
    worker.process.wait()
    for pipe in (worker.process.stdin, worker.process.stdout):
        if pipe is not None:
            _close(pipe)
    with worker.said as said:
        said.seek(0, os.SEEK_END)
        said.seek(max(0, said.tell() - LAST_WORDS))
        return said.read().decode("utf-8", "replace").strip().splitlines()


def _close(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):
        pipe.close()
