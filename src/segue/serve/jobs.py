"""What is asked of a language model that reads on: to write, to read, to score. Each is a job.

A job is made on the event loop and done in the thread that computes. What it makes comes back as events, through a
queue. `work` is a generator: it reads a stretch of text, says how many tokens that were, and goes on when it is its
turn again. What a session has read is a value (`Kept`) that never changes. A job makes a new one, and the event loop
decides whether the session has it: a job that fails, or whose client has gone, leaves the session as it was.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from torch import Tensor

from segue.errors import DataError
from segue.infer.generation import GeneratedToken, Generation
from segue.infer.sampling import SamplingSettings
from segue.infer.saved_session import Kept
from segue.infer.token_stream import TokenStream
from segue.serve.models import Served
from segue.text.stream import StreamEncoder
from segue.text.tokenizer import Unfinished

_PIECE = 1 << 14
"""Characters that are encoded at a time."""
WINDOW = 64
"""Tokens that a stream may be ahead of its client."""


class Waiting:
    """What `work` gives when it can do nothing before more comes."""


WAITING = Waiting()


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token that was written."""

    choice: int
    written: GeneratedToken


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A text is complete."""

    choice: int
    reason: str
    """`stop` or `length`."""


@dataclass(frozen=True, kw_only=True)
class ScoredToken:
    """A token of a text that was given, and what the model thought of it."""

    token: str
    id: int
    start: int
    end: int
    log_probability: float | None
    alternatives: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Read:
    """What was given has been read; `scored` where that was asked for."""

    scored: tuple[ScoredToken, ...] | None


@dataclass(frozen=True, kw_only=True)
class Took:
    """A part of a text that is fed has been taken in."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """The job is complete."""

    result: Any = None


@dataclass(frozen=True, kw_only=True)
class Gone:
    """The client has left."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The job has ended with an error; nothing else comes."""

    error: BaseException


Event = Token | Ended | Read | Took | Done | Gone | Failed


def _nobody(event: Event) -> None:
    raise AssertionError(f"a job without an engine has {event}")


class Task(Protocol):
    """What a job does, a little at a time."""

    def work(self) -> Generator[int | Waiting | Took]:
        """Does a part of it, and says how many tokens that took."""

    def result(self) -> Any:
        """What `Done` brings, when `work` has ended."""


T = TypeVar("T")


class Job(Generic[T]):
    """One request to the engine: whose it is, what is to be done, and where its events go."""

    def __init__(self, tenant: str, task: T) -> None:
        self.tenant, self.task = tenant, task
        self.events: asyncio.Queue[tuple[Job[Any], Event]] = asyncio.Queue()
        """Where its events go; several jobs of one request may have one queue."""
        self.cancelled = False
        """Nobody waits for it any more."""
        self.emit: Callable[[Event], None] = _nobody
        """Sends an event to the event loop; from the thread that computes. The engine sets it."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Tokens of a request."""

    reused: int
    """Those that the session had read before."""
    given: int
    """Those of the text that was given, with the mark that begins a document."""
    skipped: int
    """Those of them that the model did not have to read, because nothing later can see them."""


class Reading:
    """How a model reads on, from what a session has read, or from nothing."""

    def __init__(self, served: Served, kept: Kept | None, *, limit: int | None = None) -> None:
        self.served, self.kept = served, kept
        self.given: list[int] = []
        """The ids that were added to what was there."""
        self.limit = limit
        """How many of them there may be."""
        self.skipped = 0
        self._stream: TokenStream | None = None
        self._encoder: StreamEncoder | None = None

    @property
    def stream(self) -> TokenStream:
        """What it reads with; made when it is first needed, in the thread that computes."""
        if self._stream is None:
            how = self.served.streaming()
            if self.kept is None:
                self._stream = TokenStream(how.streamer, window=how.window)
            else:
                self._stream = self.kept.stream(how.streamer, window=how.window)
        return self._stream

    @property
    def encoder(self) -> StreamEncoder:
        """What makes ids of its text."""
        if self._encoder is None:
            state = None if self.kept is None else self.kept.text
            self._encoder = StreamEncoder(self.served.tokenizer, state=state)
        return self._encoder

    @property
    def counted(self) -> Counted:
        """Counts so far."""
        reused = 0 if self.kept is None else self.kept.tokens
        return Counted(reused=reused, given=len(self.given), skipped=self.skipped)

    def put(self, ids: Sequence[int]) -> None:
        """Makes ids part of the stream. What comes first of all comes after the end of another document."""
        eod = self.served.tokenizer.specials.get("eod")
        if len(ids) and eod is not None and not self.stream.count and not self.stream.unread:
            self.given.append(eod)
            self.skipped += self.stream.put([eod])
        self.given.extend(ids)
        if self.limit is not None and len(self.given) > self.limit:
            raise DataError(f"a prompt must have at most {self.limit:,} tokens; got more. Feed it to a session.")
        self.skipped += self.stream.put(ids)

    def put_text(self, text: str) -> Generator[int]:
        """The same for a text, which goes on from the text before."""
        for start in range(0, len(text), _PIECE):
            self.put(self.encoder.feed(text[start : start + _PIECE]).tolist())
            yield 0

    def end_text(self) -> None:
        """What was held back is read as it is."""
        self.put(self.encoder.finish().tolist())

    def begin(self) -> None:
        """Where nothing has been read, the mark after which a document begins, if the tokeniser has one."""
        eod = self.served.tokenizer.specials.get("eod")
        if eod is not None and not self.stream.count and not self.stream.unread:
            self.given.append(eod)
            self.stream.put([eod])

    def read(self) -> Generator[int]:
        """All that was put, but for what nothing later can see."""
        self.skipped += self.stream.skip()
        yield from self.stream.reading()

    def score(self, text: str | Sequence[int], *, top: int, limit: int) -> Generator[int | tuple[ScoredToken, ...]]:
        """Reads a text or ids after all that was put; the last that comes are its tokens."""
        tokenizer = self.served.tokenizer
        if isinstance(text, str):
            encoding = tokenizer.encode_with_offsets(text)
            ids, starts, ends = encoding.ids.tolist(), encoding.starts.tolist(), encoding.ends.tolist()
        else:
            ids, starts, ends = list(text), [0] * len(text), [0] * len(text)
        if len(ids) > limit:
            raise DataError(f"a text to score must have at most {limit:,} tokens; got {len(ids):,}. Send less.")
        yield from self.read()
        found: list[tuple[float | None, tuple[tuple[str, float], ...]]] = [(None, ())] * len(ids)
        for start, predicting_PD in self.stream.predicting_each(ids):
            for offset, one in enumerate(self._likelihoods(predicting_PD, ids[start:], top=top)):
                found[start + offset] = one
            yield len(predicting_PD)
        self.given.extend(ids)
        yield tuple(
            ScoredToken(
                token=tokenizer.token(index),
                id=index,
                start=start,
                end=end,
                log_probability=value,
                alternatives=others,
            )
            for index, start, end, (value, others) in zip(ids, starts, ends, found, strict=True)
        )

    def _likelihoods(
        self, predicting_PD: Tensor, ids: Sequence[int], *, top: int
    ) -> list[tuple[float, tuple[tuple[str, float], ...]]]:
        if not len(predicting_PD):
            return []
        found_PV = self.stream.streamer.logits(predicting_PD).double().log_softmax(dim=-1).numpy()
        if np.isnan(found_PV).any():
            raise DataError("the model must give a probability to every token; got NaN. Its weights are broken.")
        result = []
        token = self.served.tokenizer.token
        for row, index in zip(found_PV, ids, strict=False):
            best = np.argpartition(-row, min(top, len(row) - 1))[:top] if top else np.zeros(0, dtype=np.int64)
            best = best[np.lexsort((best, -row[best]))]
            result.append((float(row[index]), tuple((_shown(token, int(i)), float(row[i])) for i in best)))
        return result

    def finished(self) -> Kept:
        """What has been read, when all of it has been."""
        return Kept.of(self.stream, self.encoder.state)


def _shown(token: Any, index: int) -> str:
    """An id that the tokeniser does not have may still be among the model's."""
    try:
        return str(token(index))
    except (IndexError, DataError):
        return f"<{index}>"


class Feed:
    """Text that comes in parts, of any length."""

    def __init__(self, served: Served, kept: Kept | None) -> None:
        self.reading = Reading(served, kept)
        self.parts: deque[str] = deque()
        self.complete = False
        """All parts have come."""
        self._count = 0

    def work(self) -> Generator[int | Waiting | Took]:
        reading = self.reading
        while self.parts or not self.complete:
            if not self.parts:
                yield WAITING
                continue
            yield from reading.put_text(self.parts[0])
            self._count += len(reading.given)  # they are not kept: a feed that fails leaves the session as it was
            reading.given.clear()
            self.parts.popleft()
            yield Took()
        yield from reading.read()

    @property
    def counted(self) -> Counted:
        """Counts so far."""
        found = self.reading.counted
        return Counted(reused=found.reused, given=self._count, skipped=found.skipped)

    def result(self) -> Kept:
        return self.reading.finished()


class Score:
    """How likely each token of a text is, after what the session has read."""

    def __init__(self, served: Served, kept: Kept | None, text: str, *, top: int, limit: int) -> None:
        self.reading = Reading(served, kept)
        self.text, self.top, self.most = text, top, limit
        self.scored: tuple[ScoredToken, ...] = ()

    def work(self) -> Generator[int | Waiting | Took]:
        self.reading.end_text()
        self.reading.begin()
        for one in self.reading.score(self.text, top=self.top, limit=self.most):
            if isinstance(one, tuple):
                self.scored = one
            else:
                yield one

    def result(self) -> Kept:
        return self.reading.finished()


@dataclass(frozen=True, kw_only=True)
class HowToWrite:
    """What a request to write asks for."""

    max_tokens: int
    sampling: SamplingSettings
    n: int = 1
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    echo: bool = False
    """Score the prompt too."""
    echo_limit: int = 1
    prompt_limit: int | None = None
    keep: bool = False
    """Whether somebody wants what has been read and written at the end: a session."""


class Write:
    """Reads a prompt, then writes one text or several."""

    def __init__(self, served: Served, kept: Kept | None, prompt: str | Sequence[int], how: HowToWrite) -> None:
        self.reading = Reading(served, kept, limit=how.prompt_limit)
        self.prompt, self.how = prompt, how
        self.generations: list[Generation] = []
        self.taken = 0
        """Tokens that the client has been given: those of a stream wait for it."""
        self.flows = False
        """Whether it does."""
        self.produced = 0
        self.tokens: list[list[int]] = [[] for _ in range(how.n)]
        """The ids that were written, for each text."""
        self.open = how.n
        """Texts that are not complete."""
        self.scored: tuple[ScoredToken, ...] | None = None
        """The tokens of the prompt, where they are asked for."""
        self.final: Kept | None = None
        """What has been read and written, at the end."""

    def work(self) -> Generator[int | Waiting | Took]:
        how, reading = self.how, self.reading
        self.generations = [
            reading.served.generation(
                max_tokens=max(1, how.max_tokens),
                sampling=replace(how.sampling, seed=(how.sampling.seed + number) % 2**64),
                stop=how.stop,
                choices=how.choices,
            )
            for number in range(how.n)
        ]
        if how.echo:
            reading.end_text()
            if isinstance(self.prompt, str):
                reading.begin()
            scored: tuple[ScoredToken, ...] = ()
            for one in reading.score(self.prompt, top=how.sampling.top_log_probabilities, limit=how.echo_limit):
                if isinstance(one, tuple):
                    scored = one
                else:
                    yield one
            self.scored = scored
        else:
            if isinstance(self.prompt, str):
                yield from reading.put_text(self.prompt)
                reading.end_text()
                reading.begin()
            else:
                reading.end_text()
                reading.given.extend(self.prompt)
                reading.skipped += reading.stream.put(self.prompt)
            yield from reading.read()
        if how.max_tokens:
            reading.stream.predicting()

    def result(self) -> Kept | None:
        """What a session has read, if one wants it and nothing was to be written."""
        return self.reading.finished() if self.how.keep else None

    @property
    def behind(self) -> bool:
        """Whether the client has to take some of what was written first."""
        return self.flows and self.produced - self.taken >= WINDOW

    def kept_after(self, count: int) -> Kept:
        """What a session has read if only so many of the tokens count: they are read when they are needed."""
        reading = self.reading
        how, start = reading.served.streaming(), reading.kept
        if start is None:
            start = Kept.of(TokenStream(how.streamer, window=how.window), Unfinished())
        tokens = self.tokens[0][:count]
        return replace(start, unread=(*start.unread, *reading.given, *tokens), text=Unfinished())
