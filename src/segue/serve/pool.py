"""Dynamic batching of texts to classify, tag or embed, over all requests.

In: jobs, each with parts, such as a text to classify. Out: the result of each part. A part waits a few milliseconds for
others of its kind. Then parts of about the same length are read in one batch, beginning with the tenant that has waited
longest. If a batch raises an exception, its parts are read one by one, so that only the faulty job fails.
"""

import time
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from segue.serve.jobs import Done, Failed, Job, Took, Waiting
from segue.serve.settings import ServeSettings
from segue.serve.turns import Turns

_AT_ONCE = 64
"""Maximum number of parts prepared between two steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A unit of work, which is batched with others of the same `kind`."""

    job: "Job[Parts]"
    number: int
    kind: Hashable
    length: int
    """Approximate number of tokens."""
    content: Any
    compute: Callable[[Sequence[Any]], Sequence[Any]]
    """Computes the results of the contents of several parts."""
    since: float


class Parts(Protocol):
    """Task of a job that consists of parts."""

    def parts(self, job: "Job[Any]") -> Generator[Part | None]:
        """Prepare the parts one by one; None is a pause without a part."""

    def take(self, number: int, result: Any) -> None:
        """Receive the result of a part."""

    def result(self) -> Any:
        """Return the result of `Done`, once all parts have results."""


class Pool:
    """The parts of all jobs."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._preparing: Turns[tuple[Job[Parts], Generator[Part | None]]] = Turns()
        self._parts: Turns[Part] = Turns()
        self._left: dict[Job[Parts], int] = {}
        """Number of parts of a job without a result."""
        self._complete: set[Job[Parts]] = set()
        """Jobs whose parts have all been prepared."""

    @property
    def due(self) -> float | None:
        """Time of the monotonic clock at which a step will do something; None: not before a job arrives."""
        if len(self._preparing):
            return 0.0
        if not len(self._parts):
            return None
        if len(self._parts) >= self._settings.batch_rows:
            return 0.0
        return min(part.since for part in self._parts) + self._settings.batch_window

    @property
    def busy(self) -> bool:
        due = self.due
        return due is not None and due <= time.monotonic()

    def accept(self, job: Job[Parts]) -> None:
        self._left[job] = 0
        self._preparing.add(job.tenant, (job, job.task.parts(job)))

    def wake(self, job: Job[Parts]) -> None:
        """Do nothing: these jobs never wait for input."""

    def jobs(self) -> list[Job[Any]]:
        return list(self._left)

    def fail_all(self, error: BaseException) -> None:
        for job in list(self._left):
            self._fail(job, error)

    def step(self) -> None:
        """Prepare some parts, then read a batch."""
        for job in [job for job in self._left if job.cancelled]:
            self._forget(job)
        self._prepare()
        if len(self._parts) and self.busy:
            self._read(self._batch())

    def _prepare(self) -> None:
        for _ in range(_AT_ONCE):
            if not len(self._preparing):
                return
            job, making = self._preparing.pop()
            try:
                part = next(making)
            except StopIteration:
                self._complete.add(job)
                self._finish(job)
                continue
            except Exception as error:
                self._fail(job, error)
                continue
            if part is not None:
                self._left[job] += 1
                self._parts.add(job.tenant, part)
            self._preparing.add(job.tenant, (job, making))

    def _batch(self) -> list[Part]:
        """Remove and return the next part and those of its kind that are nearest to it in length."""
        first = self._parts.pop()
        others = sorted(
            (part for part in self._parts if part.kind == first.kind), key=lambda part: abs(part.length - first.length)
        )
        chosen, longest = [first], first.length
        for part in others:
            longest = max(longest, part.length)
            if (
                len(chosen) >= self._settings.batch_rows
                or longest * (len(chosen) + 1) > self._settings.batch_tokens
                or longest > 2 * first.length + 32
            ):
                break
            chosen.append(part)
        wanted = set(chosen)
        self._parts.take(lambda part: part in wanted)
        return chosen

    def _read(self, parts: list[Part]) -> None:
        try:
            results = parts[0].compute([part.content for part in parts])
        except Exception as error:
            if len(parts) == 1:
                self._fail(parts[0].job, error)
            else:
                for part in parts:
                    self._read([part])
            return
        for part, result in zip(parts, results, strict=True):
            if part.job not in self._left:  # another part of the job has failed
                continue
            try:
                part.job.task.take(part.number, result)
            except Exception as error:
                self._fail(part.job, error)
                continue
            self._left[part.job] -= 1
            self._finish(part.job)

    def _finish(self, job: Job[Parts]) -> None:
        if job in self._complete and not self._left[job]:
            self._forget(job)
            job.emit(Done(result=job.task.result()))

    def _fail(self, job: Job[Parts], error: BaseException) -> None:
        if job in self._left:
            self._forget(job)
            job.emit(Failed(error=error))

    def _forget(self, job: Job[Parts]) -> None:
        self._left.pop(job, None)
        self._complete.discard(job)
        self._parts.take(lambda part: part.job is job)
        for _, making in self._preparing.take(lambda pair: pair[0] is job):
            making.close()


class Call:
    """Task that calls one function in the worker thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None

    def work(self) -> Generator[int | Waiting | Took]:
        self._result = self._function()
        return
        yield

    def result(self) -> Any:
        return self._result
