"""Worker thread for all computation. It owns all models; no other thread uses them while it runs.

In: jobs, from the event loop. Out: events, to the event loop. The two threads share no lock: jobs arrive through a
deque, and the events of a step are sent together through `call_soon_threadsafe`. An exception in a job ends that job;
an exception in a whole step ends the jobs of that worker, and the thread continues.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

import torch

from segue.serve.jobs import Done, Event, Failed, Job, Task, Took, Waiting
from segue.serve.models import Served
from segue.serve.pool import Pool
from segue.serve.settings import ServeSettings
from segue.serve.turns import Turns
from segue.serve.writer import Writer

log = logging.getLogger("segue.serve")
_LONGEST_SLEEP = 1.0


class Worker(Protocol):
    """Interface of a worker, which runs jobs of one kind, step by step."""

    @property
    def busy(self) -> bool:
        """True if a step would do something."""

    @property
    def due(self) -> float | None:
        """Time of the monotonic clock at which a step will do something; None: not before a job arrives or is woken."""

    def accept(self, job: Any) -> None:
        """Add a job."""

    def wake(self, job: Any) -> None:
        """Continue a job that waits for input, because more has arrived."""

    def step(self) -> None:
        """Do a short piece of work."""

    def jobs(self) -> list[Job[Any]]:
        """Return all jobs that have not ended."""

    def fail_all(self, error: BaseException) -> None:
        """End all jobs with an error, after a step failed."""


class Calls:
    """Worker for jobs that run alone, without batching, of any model."""

    def __init__(self) -> None:
        self._queue: Turns[tuple[Job[Task], Generator[int | Waiting | Took]]] = Turns()

    @property
    def busy(self) -> bool:
        return len(self._queue) > 0

    @property
    def due(self) -> float | None:
        return 0.0 if self.busy else None

    def accept(self, job: Job[Task]) -> None:
        self._queue.add(job.tenant, (job, job.task.work()))

    def wake(self, job: Job[Task]) -> None:
        """Do nothing: these jobs never wait for input."""

    def step(self) -> None:
        job, work = self._queue.pop()
        if job.cancelled:
            work.close()
            return
        try:
            next(work)
        except StopIteration:
            job.emit(Done(result=job.task.result()))
        except Exception as error:
            job.emit(Failed(error=error))
        else:
            self._queue.add(job.tenant, (job, work))

    def jobs(self) -> list[Job[Any]]:
        return [job for job, _ in self._queue]

    def fail_all(self, error: BaseException) -> None:
        while len(self._queue):
            self._queue.pop()[0].emit(Failed(error=error))


class Engine:
    """Runs jobs in a worker thread. Its methods are for the event loop, except where they say otherwise."""

    def __init__(self, models: Mapping[str, Served], settings: ServeSettings) -> None:
        self.settings = settings
        self.writers = {
            name: Writer(served.stream, settings) for name, served in models.items() if served.stream is not None
        }
        self.calls = Calls()
        self.pool = Pool(settings)
        for served in models.values():
            if served.task is not None:  # a long document is read in segments: generation steps run in between
                trunk = served.task.model.get_submodule("trunk")
                trunk.register_forward_pre_hook(lambda *_: self.breathe())
        self._workers: list[Worker] = [*self.writers.values(), self.pool, self.calls]
        self._inbox: deque[Callable[[], None]] = deque()
        self._outbox: list[tuple[Job[Any], Event]] = []
        self._woken = threading.Event()
        self._ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.running: dict[str, int] = {}
        """Number of jobs of each tenant that have not ended; used by the event loop only."""
        self.faults = 0
        """Number of steps that failed as a whole."""
        self.steps = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="segue-compute", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current step. Jobs that have not ended stay unfinished."""
        self._ending = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of jobs that have not ended."""
        return sum(self.running.values())

    def submit(self, job: Job[Any], worker: Worker) -> None:
        """Pass a job to a worker. The caller must call `release` when the job has ended or is no longer needed."""
        self.running[job.tenant] = self.running.get(job.tenant, 0) + 1
        job.emit = lambda event: self._outbox.append((job, event))
        self._send(lambda: worker.accept(job))

    def release(self, job: Job[Any]) -> None:
        """Stop counting a job; if it has not ended, it is cancelled at the next step."""
        job.cancelled = True
        left = self.running[job.tenant] - 1
        if left:
            self.running[job.tenant] = left
        else:
            del self.running[job.tenant]
        self._woken.set()

    def wake(self, job: Job[Any], worker: Worker) -> None:
        """Continue a job that waits for input."""
        self._send(lambda: worker.wake(job))

    def nudge(self) -> None:
        """Wake the thread because a client has received some of the tokens queued for it."""
        self._woken.set()

    def breathe(self) -> None:
        """Run a generation step of every writer in the middle of a long computation; for the worker thread."""
        if threading.current_thread() is not self._thread:
            return
        self._receive()
        for writer in self.writers.values():
            if writer.busy:
                self._step(writer)
        self._flush()

    # -------------------------------------------------------------------------------------------------- worker thread

    def _send(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        self._woken.set()

    def _receive(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    @torch.no_grad()
    def _run(self) -> None:
        while not self._ending:
            self._woken.clear()
            self._receive()
            busy = False
            for worker in self._workers:
                if worker.busy:
                    busy = True
                    self._step(worker)
                    self._flush()
            if not busy and not self._inbox:
                now = time.monotonic()
                dues = [due for worker in self._workers if (due := worker.due) is not None]
                self._woken.wait(max(0.0, min([_LONGEST_SLEEP, *(due - now for due in dues)])))

    def _step(self, worker: Worker) -> None:
        try:
            worker.step()
        except Exception as error:
            log.exception("a step failed")
            self.faults += 1
            worker.fail_all(error)
        self.steps += 1

    def _flush(self) -> None:
        if self._outbox and self._loop is not None:
            events, self._outbox = self._outbox, []
            try:
                self._loop.call_soon_threadsafe(_deliver, events)
            except RuntimeError:  # the loop is closed: nothing can receive the events
                self._ending = True


def _deliver(events: list[tuple[Job[Any], Event]]) -> None:
    for job, event in events:
        job.events.put_nowait((job, event))
