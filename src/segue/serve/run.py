"""The jobs of a request, from the first to the last event; cancelled if the client disconnects."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from segue.errors import SegueError
from segue.serve.engine import Engine, Worker
from segue.serve.errors import ApiError, busy
from segue.serve.jobs import Done, Event, Failed, Gone, Job

Receive = Callable[[], Awaitable[Any]]


class GoneError(Exception):
    """Raised when the client has disconnected: no one waits for a response."""


class Run:
    """The jobs of one request. The caller must close it in any case: its jobs end with it."""

    def __init__(self, engine: Engine, receive: Receive, runs: "set[Run]") -> None:
        self._engine, self._receive, self._runs = engine, receive, runs
        self._queue: asyncio.Queue[tuple[Job[Any], Event]] = asyncio.Queue()
        self._jobs: list[Job[Any]] = []
        self._watch: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Cancel all jobs that have not ended."""
        if self._watch is not None:
            self._watch.cancel()
        for job in self._jobs:
            self._engine.release(job)
        self._jobs = []
        self._runs.discard(self)

    def fail(self, error: ApiError) -> None:
        """Make the next call of `next` raise this error."""
        self._queue.put_nowait((Job("", None), Failed(error=error)))

    def submit(self, jobs: Mapping[Job[Any], Worker]) -> None:
        """Submit all jobs, or raise ApiError if the queue has no room for all of them."""
        settings, engine = self._engine.settings, self._engine
        for job in jobs:
            own = engine.running.get(job.tenant, 0)
            if engine.waiting + len(jobs) > settings.max_queue or own + len(jobs) > settings.max_queue_per_tenant:
                raise busy()
        self._runs.add(self)
        for job, worker in jobs.items():
            job.events = self._queue
            self._jobs.append(job)
            engine.submit(job, worker)

    def watch(self) -> None:
        """Start to watch for a disconnect; the request must have been read to the end."""
        self._watch = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._queue.put_nowait((Job("", None), Gone()))

    async def next(self, timeout: float | None = None) -> tuple[Job[Any], Event]:
        """Return the next event of any job. Raise TimeoutError if there is none in time, ApiError if a job failed, and
        GoneError if the client disconnected."""
        async with asyncio.timeout(timeout):
            job, event = await self._queue.get()
        if isinstance(event, Gone):
            raise GoneError
        if isinstance(event, Failed):
            raise explained(event.error)
        return job, event

    async def done(self, job: Job[Any]) -> Any:
        """Return the result of the only job."""
        while True:
            _, event = await self.next()
            if isinstance(event, Done):
                return event.result


def explained(error: BaseException) -> ApiError:
    """Return the error that a client gets for an exception in the engine."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SegueError):
        return ApiError(400, str(error), code="invalid_value")
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return ApiError(
            503, "the request does not fit into memory at present. Send less.", code="out_of_memory", retry_after=5.0
        )
    fault = ApiError(
        500,
        "internal server error, not caused by your request. The traceback is in the server's log.",
        code="internal_error",
    )
    fault.__cause__ = error
    return fault
