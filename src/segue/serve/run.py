"""The jobs of one request, from the first to the last event; ended early if the client leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from segue.errors import SegueError
from segue.serve.engine import Engine, Worker
from segue.serve.errors import ApiError, busy
from segue.serve.jobs import Done, Event, Failed, Gone, Job

Receive = Callable[[], Awaitable[Any]]


class GoneError(Exception):
    """The client has left: nobody waits for an answer."""


class Run:
    """Whoever makes one closes it, whatever happens: its jobs end with it."""

    def __init__(self, engine: Engine, receive: Receive, runs: "set[Run]") -> None:
        self._engine, self._receive, self._runs = engine, receive, runs
        self._queue: asyncio.Queue[tuple[Job[Any], Event]] = asyncio.Queue()
        self._jobs: list[Job[Any]] = []
        self._watch: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Ends all jobs that have not ended."""
        if self._watch is not None:
            self._watch.cancel()
        for job in self._jobs:
            self._engine.release(job)
        self._jobs = []
        self._runs.discard(self)

    def fail(self, error: ApiError) -> None:
        """Whoever waits for the next event gets this error."""
        self._queue.put_nowait((Job("", None), Failed(error=error)))

    def submit(self, jobs: Mapping[Job[Any], Worker]) -> None:
        """All of them, or none if there is no room for all."""
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
        """From now on notices when the client leaves; its request must have been read to the end."""
        self._watch = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._queue.put_nowait((Job("", None), Gone()))

    async def next(self, timeout: float | None = None) -> tuple[Job[Any], Event]:
        """The next event of any job; TimeoutError if there is none in time, an error where a job failed."""
        async with asyncio.timeout(timeout):
            job, event = await self._queue.get()
        if isinstance(event, Gone):
            raise GoneError
        if isinstance(event, Failed):
            raise explained(event.error)
        return job, event

    async def done(self, job: Job[Any]) -> Any:
        """The result of the only job."""
        while True:
            _, event = await self.next()
            if isinstance(event, Done):
                return event.result


def explained(error: BaseException) -> ApiError:
    """What a client is told of an error in the engine."""
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
