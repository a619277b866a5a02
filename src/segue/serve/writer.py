"""Continuous batching for one language model: texts are generated in a batch, and prompts are read in between.

In: jobs of the model. Out: their events. `step` generates a token of every text in the batch, then reads a slice of the
waiting prompts, tenant by tenant. Texts join and leave the batch at every step, so no request waits for a long prompt
of another, and a cancelled job is gone at the next step.
"""

import copy
import time
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from segue.infer.generation import Generation
from segue.infer.saved_session import Kept
from segue.infer.token_stream import TokenStream
from segue.serve.jobs import Done, Ended, Failed, Job, Read, Task, Token, Took, Waiting, Write
from segue.serve.models import Stream
from segue.serve.pace import Pace
from segue.serve.settings import ServeSettings
from segue.serve.slots import Slots
from segue.serve.turns import Turns
from segue.text.tokenizer import Unfinished

Work = Generator[int | Waiting | Took]
_LEAST = 16
"""Minimum cost of a part of a prompt, in tokens; encoding a part of a text costs as much."""


_TURN = 3 * _LEAST
"""Minimum budget of a turn, in tokens: a short prompt is encoded, read and finished in one turn."""


class Line:
    """A text that is being generated."""

    def __init__(
        self, job: Job[Write], number: int, stream: TokenStream, generation: Generation, tensors: dict[str, Tensor]
    ) -> None:
        self.job, self.number, self.stream, self.generation = job, number, stream, generation
        self.tensors: dict[str, Tensor] | None = tensors
        """Tensors of its cache, while it is not in the batch."""
        self.run = 0
        """Number of tokens since it joined the batch."""


class Writer:
    """The jobs of one model."""

    def __init__(self, model: Stream, settings: ServeSettings) -> None:
        self._model, self._settings = model, settings
        self.tokens_written = 0
        self.tokens_read = 0
        self._pace = Pace()
        self._begin()

    def _begin(self) -> None:
        self._new: Turns[tuple[Job[Any], Work]] = Turns()
        """Jobs that have not started to read."""
        self._new_comes_next = True
        self._reading: Turns[tuple[Job[Any], Work]] = Turns()
        """Jobs that have started to read."""
        self._asleep: dict[Job[Any], Work] = {}
        """Jobs that wait for more text."""
        self._waiting: Turns[Line] = Turns()
        """Texts that wait for a row in the batch."""
        self._paused: list[Line] = []
        """Texts whose clients have not received what was generated."""
        self._slots = Slots(self._model.streamer)
        self._lines: dict[TokenStream, Line] = {}
        """Texts in the batch."""

    # ------------------------------------------------------------------------------------------------- for the engine

    @property
    def busy(self) -> bool:
        """True if a step would do something."""
        self._resume()
        queued = len(self._new) + len(self._reading) + len(self._waiting)
        return bool(self._lines) or bool(queued) or self._has_cancelled()

    @property
    def due(self) -> float | None:
        """0 if a step would do something, otherwise None."""
        return 0.0 if self.busy else None

    @property
    def active(self) -> int:
        """Number of texts in the batch."""
        return len(self._lines)

    def accept(self, job: Job[Task]) -> None:
        """Add a job."""
        self._new.add(job.tenant, (job, job.task.work()))

    def wake(self, job: Job[Task]) -> None:
        """Continue a job that waits for text."""
        work = self._asleep.pop(job, None)
        if work is not None:
            self._reading.add(job.tenant, (job, work))

    def step(self) -> None:
        """Generate a token of each text in the batch, then read a slice of the prompts."""
        self._drop_cancelled()
        self._resume()
        self._join()
        if self._lines:
            self._write()
        self._read()

    def jobs(self) -> list[Job[Any]]:
        """Return all jobs that have not ended."""
        lines = [*self._lines.values(), *self._waiting, *self._paused]
        queued = [*self._new, *self._reading]
        found = [*(job for job, _ in queued), *self._asleep, *(line.job for line in lines)]
        return list(dict.fromkeys(found))

    def fail_all(self, error: BaseException) -> None:
        """End all jobs and start anew, after an error that may have left the batch in any state."""
        for job in self.jobs():
            job.emit(Failed(error=error))
        self._begin()

    # ----------------------------------------------------------------------------------------------------- generation

    def _write(self) -> None:
        logits_BV = self._slots.logits()
        for row, stream in enumerate(list(self._slots.streams)):
            line = self._lines.get(stream)
            if line is None:  # another text of its job has failed
                continue
            try:
                self._put(line, logits_BV[row])
            except Exception as error:  # an error of this text alone: the others continue
                self._fail(line.job, error)
        self._part()
        if self._slots.streams:
            self._advance()

    def _put(self, line: Line, logits_V: Tensor) -> None:
        job, task, generation = line.job, line.job.task, line.generation
        written = generation.put(line.stream, logits_V)
        assert written.id is not None
        task.tokens[line.number].append(written.id)
        task.produced += 1
        line.run += 1
        self.tokens_written += 1
        job.emit(Token(choice=line.number, written=written))
        if generation.done and (rest := generation.finish()) is not None:
            job.emit(Token(choice=line.number, written=rest))

    def _part(self) -> None:
        """Remove texts from the batch that are complete, whose window is full, whose clients are behind, or whose turn
        is over."""
        for stream, line in list(self._lines.items()):
            job, task = line.job, line.job.task
            if line.generation.done:
                tensors = self._take(line, keep=task.how.keep)
                if task.how.keep:
                    task.final = Kept.of(stream, Unfinished(), tensors)
                job.emit(Ended(choice=line.number, reason="stop" if line.generation.stopped else "length"))
                task.open -= 1
                if not task.open:
                    job.emit(Done(result=task.final))
            elif stream.window_is_full:  # the window is read again, like a prompt
                self._take(line, keep=False)
                self._reading.add(job.tenant, (job, self._new_window(line)))
            elif task.behind:
                line.tensors = self._take(line)
                self._paused.append(line)
        if len(self._waiting) and len(self._lines) >= self._settings.max_rows:
            longest = max(self._lines.values(), key=lambda line: line.run)
            if longest.run >= self._settings.turn_tokens:
                longest.tensors = self._take(longest)
                self._waiting.add(longest.job.tenant, longest)

    def _new_window(self, line: Line) -> Work:
        yield from line.stream.reading()
        line.tensors = line.stream.cache.tensors()
        self._waiting.add(line.job.tenant, line)

    def _advance(self) -> None:
        rows = len(self._lines)
        threads, started = self._pace.choose(rows), time.perf_counter()
        all_of_them = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            self._slots.read()
            self._pace.note(rows, threads, time.perf_counter() - started)
        except Exception as error:
            if len(self._lines) == 1:
                self._fail(next(iter(self._lines.values())).job, error)
            else:
                self._advance_alone()
        finally:
            torch.set_num_threads(all_of_them)

    def _advance_alone(self) -> None:
        """Read the next token of each text separately, after the batch failed, so that only the faulty job fails. The
        cache has not advanced, because that comes last."""
        for line in list(self._lines.values()):
            if line.stream in self._lines:  # otherwise another text of its job has failed
                line.tensors = self._take(line)
                if self._read_alone(line):
                    self._waiting.add(line.job.tenant, line)

    def _read_alone(self, line: Line) -> bool:
        """Read the unread token of a text outside the batch; if that fails, end its job and return False."""
        alone = Slots(self._model.streamer)
        alone.join(line.stream, line.tensors)
        try:
            alone.read()
        except Exception as error:
            self._fail(line.job, error)
            return False
        line.tensors = alone.leave(line.stream)
        return True

    def _join(self) -> None:
        while len(self._waiting) and len(self._lines) < self._settings.max_rows:
            line = self._waiting.pop()
            if line.stream.unread and not self._read_alone(line):  # it left the batch with an unread token
                continue
            self._slots.join(line.stream, line.tensors)
            line.tensors, line.run = None, 0
            self._lines[line.stream] = line

    def _take(self, line: Line, *, keep: bool = True) -> dict[str, Tensor]:
        del self._lines[line.stream]
        return self._slots.leave(line.stream, keep=keep)

    # -------------------------------------------------------------------------------------------------------- reading

    def _read(self) -> None:
        spent, limits = 0, self._settings
        while spent < limits.slice_tokens and (len(self._new) or len(self._reading)):
            job, work = self._next()
            if job.cancelled:
                work.close()
                continue
            spent += self._turn(job, work)
            if len(self._waiting) and len(self._lines) < limits.max_rows:
                return  # the first token of a new text comes before other prompts

    def _next(self) -> tuple[Job[Any], Work]:
        """Return a new job and a started job by turns, so that a short prompt need not wait for a long one."""
        self._new_comes_next = bool(len(self._new)) and (self._new_comes_next or not len(self._reading))
        found = (self._new if self._new_comes_next else self._reading).pop()
        self._new_comes_next = not self._new_comes_next
        return found

    def _turn(self, job: Job[Any], work: Work) -> int:
        """Read a slice of one prompt; return its cost in tokens."""
        used = 0
        while used < max(self._settings.slice_tokens // 2, _TURN):
            try:
                done = next(work)
            except StopIteration:
                self._have_read(job)
                return used + _LEAST
            except Exception as error:
                self._fail(job, error)
                return used
            if isinstance(done, Waiting):
                self._asleep[job] = work
                return used
            if isinstance(done, Took):
                job.emit(done)
                continue
            self.tokens_read += done
            used += max(done, _LEAST)
        self._reading.add(job.tenant, (job, work))
        return used

    def _have_read(self, job: Job[Any]) -> None:
        """Continue a job whose input has been read: finish it, or let its texts join the batch."""
        task = job.task
        if not isinstance(task, Write):
            job.emit(Done(result=task.result()))
            return
        if task.generations and task.produced:  # a text started a new window
            return
        job.emit(Read(scored=task.scored))
        if not task.how.max_tokens:
            job.emit(Done(result=task.result()))
            return
        first = task.reading.stream
        tensors = dict(first.cache.tensors())
        if len(task.generations) > 1:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        for number, generation in enumerate(task.generations):
            stream = first if number == 0 else _twin(first)
            generation.begin(stream.recent)
            self._waiting.add(job.tenant, Line(job, number, stream, generation, tensors))

    # --------------------------------------------------------------------------------------- failure and cancellation

    def _fail(self, job: Job[Any], error: BaseException) -> None:
        """End one job with an error."""
        self._remove(job)
        job.emit(Failed(error=error))

    def _remove(self, job: Job[Any]) -> None:
        for line in [line for line in self._lines.values() if line.job is job]:
            self._take(line, keep=False)
        self._waiting.take(lambda line: line.job is job)
        self._paused = [line for line in self._paused if line.job is not job]
        for queue in (self._new, self._reading):
            for _, work in queue.take(lambda pair: pair[0] is job):
                work.close()
        self._asleep.pop(job, None)

    def _has_cancelled(self) -> bool:
        return any(line.job.cancelled for line in self._paused) or any(job.cancelled for job in self._asleep)

    def _drop_cancelled(self) -> None:
        for job in self.jobs():
            if job.cancelled:
                self._remove(job)

    def _resume(self) -> None:
        ready = [line for line in self._paused if not line.job.task.behind]
        for line in ready:
            self._paused.remove(line)
            self._waiting.add(line.job.tenant, line)


def _twin(stream: TokenStream) -> TokenStream:
    """Return a copy of a stream that has read the same; its cache tensors are held elsewhere."""
    other = copy.copy(stream)
    other.recent, other.unread = stream.recent.copy(), list(stream.unread)
    return other
