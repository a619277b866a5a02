"""Generation, feeding and scoring jobs of language models.

A job is created on the event loop and run in the worker thread; its events return to the event loop through a queue.
`work` is a generator: it reads part of the text, yields the number of tokens read, and continues at its next turn. The
state of a session is an immutable value (`Kept`). A job creates a new one, and the event loop decides whether the
session takes it: a job that fails, or whose client has disconnected, leaves the session as it was.
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
"""Number of characters encoded at a time."""
WINDOW = 64
"""Maximum number of streamed tokens that the client has not received yet."""


class Waiting:
    """Type of the value that `work` yields while it waits for input."""


WAITING = Waiting()


@dataclass(frozen=True, kw_only=True)
class Token:
    """Event: a generated token."""

    choice: int
    written: GeneratedToken


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Event: a generated text is complete."""

    choice: int
    reason: str
    """`stop` or `length`."""


@dataclass(frozen=True, kw_only=True)
class ScoredToken:
    """A token of a given text, with its log-probability and the most likely alternatives."""

    token: str
    id: int
    start: int
    end: int
    log_probability: float | None
    alternatives: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Read:
    """Event: the prompt has been read; `scored` are its tokens if they were requested."""

    scored: tuple[ScoredToken, ...] | None


@dataclass(frozen=True, kw_only=True)
class Took:
    """Event: a part of a text fed to a session has been encoded."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """Event: the job is complete."""

    result: Any = None


@dataclass(frozen=True, kw_only=True)
class Gone:
    """Event: the client has disconnected."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Event: the job has failed; no further events follow."""

    error: BaseException


Event = Token | Ended | Read | Took | Done | Gone | Failed


def _nobody(event: Event) -> None:
    raise AssertionError(f"a job without an engine has {event}")


class Task(Protocol):
    """The work of a job, which is done in parts."""

    def work(self) -> Generator[int | Waiting | Took]:
        """Do the work in parts, and yield the number of tokens read in each."""

    def result(self) -> Any:
        """Return the result of `Done`, once `work` has ended."""


T = TypeVar("T")


class Job(Generic[T]):
    """A request to the engine: its tenant, its task and the queue of its events."""

    def __init__(self, tenant: str, task: T) -> None:
        self.tenant, self.task = tenant, task
        self.events: asyncio.Queue[tuple[Job[Any], Event]] = asyncio.Queue()
        """Queue of its events; the jobs of a request share one."""
        self.cancelled = False
        """True once no one waits for the job."""
        self.emit: Callable[[Event], None] = _nobody
        """Sends an event to the event loop, from the worker thread; set by the engine."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Token counts of a request."""

    reused: int
    """Tokens that the session had read before."""
    given: int
    """Tokens of the given text, with the special token that begins a document."""
    skipped: int
    """Given tokens that the model did not have to read, because no later token can attend to them."""


class Reading:
    """Reads text with a model, starting from the state of a session or from an empty memory."""

    def __init__(self, served: Served, kept: Kept | None, *, limit: int | None = None) -> None:
        self.served, self.kept = served, kept
        self.given: list[int] = []
        """Ids added since the start."""
        self.limit = limit
        """Maximum number of these ids; None: no limit."""
        self.skipped = 0
        self._stream: TokenStream | None = None
        self._encoder: StreamEncoder | None = None

    @property
    def stream(self) -> TokenStream:
        """The token stream; created on first use, in the worker thread."""
        if self._stream is None:
            how = self.served.streaming()
            if self.kept is None:
                self._stream = TokenStream(how.streamer, window=how.window)
            else:
                self._stream = self.kept.stream(how.streamer, window=how.window)
        return self._stream

    @property
    def encoder(self) -> StreamEncoder:
        """The encoder of its text."""
        if self._encoder is None:
            state = None if self.kept is None else self.kept.text
            self._encoder = StreamEncoder(self.served.tokenizer, state=state)
        return self._encoder

    @property
    def counted(self) -> Counted:
        """Token counts so far."""
        reused = 0 if self.kept is None else self.kept.tokens
        return Counted(reused=reused, given=len(self.given), skipped=self.skipped)

    def put(self, ids: Sequence[int]) -> None:
        """Add ids to the stream, after the end-of-document token if they are the first."""
        eod = self.served.tokenizer.specials.get("eod")
        if len(ids) and eod is not None and not self.stream.count and not self.stream.unread:
            self.given.append(eod)
            self.skipped += self.stream.put([eod])
        self.given.extend(ids)
        if self.limit is not None and len(self.given) > self.limit:
            raise DataError(f"a prompt must have at most {self.limit:,} tokens; got more. Feed it to a session.")
        self.skipped += self.stream.put(ids)

    def put_text(self, text: str) -> Generator[int]:
        """Add a text, as the continuation of the text before; yields after each encoded part."""
        for start in range(0, len(text), _PIECE):
            self.put(self.encoder.feed(text[start : start + _PIECE]).tolist())
            yield 0

    def end_text(self) -> None:
        """Encode the text that was held back because further text could have changed its tokens."""
        self.put(self.encoder.finish().tolist())

    def begin(self) -> None:
        """Add the end-of-document token, if nothing has been read and the tokeniser has one."""
        eod = self.served.tokenizer.specials.get("eod")
        if eod is not None and not self.stream.count and not self.stream.unread:
            self.given.append(eod)
            self.stream.put([eod])

    def read(self) -> Generator[int]:
        """Read all ids in the stream, except those that no later token can attend to."""
        self.skipped += self.stream.skip()
        yield from self.stream.reading()

    def score(self, text: str | Sequence[int], *, top: int, limit: int) -> Generator[int | tuple[ScoredToken, ...]]:
        """Read a text or ids after everything in the stream, and yield token counts, then its scored tokens."""
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
        """Return the new state, once everything has been read."""
        return Kept.of(self.stream, self.encoder.state)


def _shown(token: Any, index: int) -> str:
    """Return the token of an id; the model's vocabulary may have ids that the tokeniser lacks."""
    try:
        return str(token(index))
    except (IndexError, DataError):
        return f"<{index}>"


class Feed:
    """Job that reads a text of any length, which arrives in parts."""

    def __init__(self, served: Served, kept: Kept | None) -> None:
        self.reading = Reading(served, kept)
        self.parts: deque[str] = deque()
        self.complete = False
        """True once all parts have arrived."""
        self._count = 0

    def work(self) -> Generator[int | Waiting | Took]:
        reading = self.reading
        while self.parts or not self.complete:
            if not self.parts:
                yield WAITING
                continue
            yield from reading.put_text(self.parts[0])
            self._count += len(reading.given)  # not needed again: a feed that fails leaves the session as it was
            reading.given.clear()
            self.parts.popleft()
            yield Took()
        yield from reading.read()

    @property
    def counted(self) -> Counted:
        """Token counts so far."""
        found = self.reading.counted
        return Counted(reused=found.reused, given=self._count, skipped=found.skipped)

    def result(self) -> Kept:
        return self.reading.finished()


class Score:
    """Job that computes the log-probability of each token of a text, given what the session has read."""

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
    """Settings of a generation request."""

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
    """Return the final state, for a session."""


class Write:
    """Job that reads a prompt, then generates one or more texts."""

    def __init__(self, served: Served, kept: Kept | None, prompt: str | Sequence[int], how: HowToWrite) -> None:
        self.reading = Reading(served, kept, limit=how.prompt_limit)
        self.prompt, self.how = prompt, how
        self.generations: list[Generation] = []
        self.taken = 0
        """Number of tokens that the client has received, for streams."""
        self.flows = False
        """True for streams: generation pauses if the client falls behind."""
        self.produced = 0
        self.tokens: list[list[int]] = [[] for _ in range(how.n)]
        """Generated ids of each text."""
        self.open = how.n
        """Number of texts that are not complete."""
        self.scored: tuple[ScoredToken, ...] | None = None
        """Tokens of the prompt, if they were requested."""
        self.final: Kept | None = None
        """State after the prompt and the generated text, once it is complete."""

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
        """Return the state after the prompt, if a session needs it and nothing is to be generated."""
        return self.reading.finished() if self.how.keep else None

    @property
    def behind(self) -> bool:
        """True if the client must receive some tokens before generation continues."""
        return self.flows and self.produced - self.taken >= WINDOW

    def kept_after(self, count: int) -> Kept:
        """Return the state of a session after only the first `count` generated tokens, which are read when they are
        needed."""
        reading = self.reading
        how, start = reading.served.streaming(), reading.kept
        if start is None:
            start = Kept.of(TokenStream(how.streamer, window=how.window), Unfinished())
        tokens = self.tokens[0][:count]
        return replace(start, unread=(*start.unread, *reading.given, *tokens), text=Unfinished())
