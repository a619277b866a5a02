"""The thread that computes. All models belong to it; nothing else touches them while it runs.

In: jobs, from the event loop. Out: events, to the event loop. The two sides share no lock: jobs come through a deque,
events go out through `call_soon_threadsafe`, together for all that one step has made. Whatever a job raises ends that
job; a fault of a whole step ends the jobs of that model, and the thread goes on.
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
    """What does jobs of one kind, a step at a time."""

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""

    @property
    def due(self) -> float | None:
        """When a step will do something, by the monotonic clock; None: not before something comes."""

    def accept(self, job: Any) -> None:
        """Takes a job."""

    def wake(self, job: Any) -> None:
        """Something has come for it."""

    def step(self) -> None:
        """Does a little."""

    def jobs(self) -> list[Job[Any]]:
        """All that have not ended."""

    def fail_all(self, error: BaseException) -> None:
        """After a fault: all jobs end."""


class Calls:
    """Jobs that are done by one call after the other, whatever model they are of."""

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
        """Nothing to do: they are awake."""

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
    """Runs jobs in a thread of its own. Its methods are for the event loop, but where they say otherwise."""

    def __init__(self, models: Mapping[str, Served], settings: ServeSettings) -> None:
        self.settings = settings
        self.writers = {
            name: Writer(served.stream, settings) for name, served in models.items() if served.stream is not None
        }
        self.calls = Calls()
        self.pool = Pool(settings)
        for served in models.values():
            if served.task is not None:  # a long document is read in segments: others get on in between
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
        """Jobs of each tenant that have not ended; of the event loop."""
        self.faults = 0
        """Steps that failed as a whole."""
        self.steps = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the thread."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="segue-compute", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step that it is in. Jobs that have not ended stay so."""
        self._ending = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Jobs that have not ended."""
        return sum(self.running.values())

    def submit(self, job: Job[Any], worker: Worker) -> None:
        """Hands a job to a worker. Whoever submits it calls `release` when it has ended, or is of no interest."""
        self.running[job.tenant] = self.running.get(job.tenant, 0) + 1
        job.emit = lambda event: self._outbox.append((job, event))
        self._send(lambda: worker.accept(job))

    def release(self, job: Job[Any]) -> None:
        """The job counts no more. If it has not ended, it does at the next step."""
        job.cancelled = True
        left = self.running[job.tenant] - 1
        if left:
            self.running[job.tenant] = left
        else:
            del self.running[job.tenant]
        self._woken.set()

    def wake(self, job: Job[Any], worker: Worker) -> None:
        """Something has come for a job."""
        self._send(lambda: worker.wake(job))

    def nudge(self) -> None:
        """A client has taken some of what waited for it."""
        self._woken.set()

    def breathe(self) -> None:
        """In the middle of a long computation, in its thread: those who write get a token."""
        if threading.current_thread() is not self._thread:
            return
        self._receive()
        for writer in self.writers.values():
            if writer.busy:
                self._step(writer)
        self._flush()

    # ------------------------------------------------------------------------------------------------- the thread

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
            except RuntimeError:  # the loop is closed: nobody is there any more
                self._ending = True


def _deliver(events: list[tuple[Job[Any], Event]]) -> None:
    for job, event in events:
        job.events.put_nowait((job, event))
