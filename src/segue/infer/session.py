"""A session: the state of one stream of text through a model. It reads text of any length at constant cost per token,
generates, scores, forks and saves.

In: text. Out: text, scores. Ids are handled in `token_stream`, the choice of tokens in `sampling`.

Encoding: text that is fed in several pieces is one text, so `feed("ab")` is `feed("a")` then `feed("b")`. The part that
the next piece may still change is held back (see `StreamEncoder`). `stream`, `score` and `search` end the text: the
held-back part is read as it is, and the next input begins a new piece of text in the same memory.

A session begins as after the end of another document: if the tokeniser has a token for that, eod, it is read first.

One thread at a time uses a session (`turns`); forks are separate sessions.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
import torch

from segue.arguments import Positive, checks_arguments
from segue.config import ModelConfig
from segue.errors import ConfigError, DataError, kind_of
from segue.infer.beam import BeamSettings, Hypothesis, beam_search
from segue.infer.generation import TAIL, GeneratedToken, Generation, make_generation
from segue.infer.sampling import SamplingSettings
from segue.infer.saved_session import read_session, write_session
from segue.infer.text_model import TextModel, load_text_model
from segue.infer.token_stream import TokenStream
from segue.infer.turns import Turn, Turns
from segue.model.cache import Cache
from segue.model.streaming import Streamer
from segue.text.coverage import LanguageWatch
from segue.text.stream import StreamDecoder, StreamEncoder
from segue.text.tokenizer import Tokenizer

_PIECE = 1 << 16
"""Maximum number of characters to encode at once."""
_LONGEST_MEMORY = 1_000_000


def open_session(
    source: str | Path, *, memory_length: int | None = None, int8: bool = False, device: str = "cpu"
) -> "Session":
    """Open a session with a model: a model folder, a run folder, a checkpoint of another library, or a name on the Hub.

    `memory_length` is the memory length in tokens. Default: as in training. `int8` quantises the weights to 8 bits: a
    quarter of the memory, faster on a CPU, with nearly the same results.
    """
    return Session(load_text_model(source), memory_length=memory_length, int8=int8, device=device)


@dataclass(frozen=True, kw_only=True)
class ScoredToken:
    """A token of a scored text."""

    token: str
    id: int
    start: int
    end: int
    """Character offset of the end of the token; `start` is that of its beginning."""
    log_probability: float | None
    """Natural log-probability; None if nothing was read before the token."""


@dataclass(frozen=True, kw_only=True)
class ScoredText:
    """The log-probability of a text, given everything that the session had read."""

    tokens: tuple[ScoredToken, ...]

    @property
    def log_probability(self) -> float:
        """Sum over all tokens that have a log-probability."""
        return math.fsum(token.log_probability for token in self.tokens if token.log_probability is not None)

    @property
    def perplexity(self) -> float:
        """Perplexity per token; NaN if no token has a log-probability."""
        counted = sum(token.log_probability is not None for token in self.tokens)
        return math.exp(-self.log_probability / counted) if counted else math.nan


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A continuation found by beam search."""

    text: str
    tokens: tuple[int, ...]
    log_probability: float
    score: float
    """Log-probability with the length penalty, by which continuations are ranked."""


class Session:
    """The state of one stream of text through a model."""

    @checks_arguments
    def __init__(
        self, source: TextModel, *, memory_length: int | None = None, int8: bool = False, device: str = "cpu"
    ) -> None:
        check_device(device)
        model = source.model.to(device)
        if device == "cpu" and next(model.parameters()).dtype in (torch.float16, torch.bfloat16):
            model = model.float()  # a CPU computes slowly with these
        window = None
        if memory_length is None:
            memory_length, window = source.reach()
        else:
            _check_memory_length(memory_length, model.config)
        self.tokenizer = source.tokenizer
        self._streamer = Streamer(model, memory_length=memory_length, eight_bits=int8)
        self._window, self._int8 = window, int8
        self._stream = TokenStream(self._streamer, window=window)
        self._encoder = StreamEncoder(self.tokenizer)
        self._watch = LanguageWatch(self.tokenizer)
        self._turns = Turns()

    def __repr__(self) -> str:
        config = self._streamer.model.config
        shape = f"{config.num_layers} layers of {config.width}, vocabulary of {config.vocabulary.size:,}"
        return f"<Session: {shape}, {self.tokens_read:,} tokens read, reach of {self.reach:,}>"

    @property
    def tokens_read(self) -> int:
        """Number of tokens read and generated, including the mark at the beginning."""
        return self._stream.count + len(self._stream.unread)

    @property
    def reach(self) -> int:
        """Number of latest tokens that can affect the prediction: with memory, layers times memory length, plus one."""
        return self._stream.reach

    @checks_arguments
    def shares_weights_with(self, other: "Session") -> bool:
        """Return True if both sessions share the same weights in memory, because one was forked from the other or both
        from a third."""
        return self._streamer is other._streamer

    @property
    def waiting(self) -> str:
        """Text that was fed but not read yet, because the next input may change its tokens."""
        return self._encoder.waiting

    # ------------------------------------------------------------------------------------------- reading and writing

    def feed(self, text: str | Iterable[str], *, progress: Callable[[int, int], None] | None = None) -> int:
        """Read text of any length, whole or in parts, as a continuation of the text fed before.

        For a long text, the model reads only the last tokens, those that can affect its predictions (`reach`); the
        results are those of reading all of it, up to rounding. Returns the number of tokens skipped. `progress` is
        called with the number of tokens read and the total. An interruption loses no input: the model reads the rest
        when needed.
        """
        if progress is not None and not callable(progress):
            raise ConfigError(f"progress must be a function; got {kind_of(progress)}. Give one that takes two numbers.")
        with self._turns.changing():
            return self._feed(text, progress)

    def _feed(self, text: str | Iterable[str], progress: Callable[[int, int], None] | None = None) -> int:
        skipped = 0
        if not isinstance(text, Iterable) or isinstance(text, Mapping):
            raise DataError(f"feed takes a text or parts of a text; got {kind_of(text)}. Give a str.")
        for part in [text] if isinstance(text, str) else text:
            if not isinstance(part, str):
                raise DataError(f"feed takes a text or parts of a text; got {kind_of(part)}. Use feed_tokens for ids.")
            for start in range(0, len(part), _PIECE):
                ids = self._encoder.feed(part[start : start + _PIECE])
                if len(ids):
                    self._begin()
                    skipped += self._stream.put(ids)
                    self._watch.read(ids)
        return skipped + self._stream.read(progress=progress)

    def feed_tokens(self, ids: Sequence[int]) -> None:
        """Read token ids as given, special ones included. Ends the text fed before."""
        with self._turns.changing():
            self._end_text()
            self._stream.read(_checked_ids(ids, self.tokenizer))

    def stream(
        self,
        prompt: str = "",
        *,
        max_tokens: Positive = 200,
        sampling: SamplingSettings | None = None,
        stop: Sequence[str] = (),
        choices: Sequence[str] = (),
    ) -> Iterator[str]:
        """Read the prompt, then generate text, yielded as it becomes certain and never in half characters. The session
        reads the generated text, and continues from there.

        Generation ends after `max_tokens`, at the end of the document if the tokeniser has a token for it, or at a
        `stop` string, which is not yielded, although the session has read the token that completed it. With `choices`,
        exactly one of these texts is generated, whatever `max_tokens` is. The loop may be left early: the session has
        then read the yielded text, and the tokens of text still held back.
        """
        written = self.write(prompt, max_tokens=max_tokens, sampling=sampling, stop=stop, choices=choices)
        return (one.text for one in written if one.text)

    @checks_arguments
    def write(
        self,
        prompt: str = "",
        *,
        max_tokens: Positive = 200,
        sampling: SamplingSettings | None = None,
        stop: Sequence[str] = (),
        choices: Sequence[str] = (),
    ) -> Iterator[GeneratedToken]:
        """Generate as `stream` does, token by token, with the log-probability of each."""
        generation, turn = self.generation(max_tokens=max_tokens, sampling=sampling, stop=stop, choices=choices), Turn()
        with self._turns.changing():
            self._feed(prompt)
            self._ready()
            self._turns.give(turn)
        return self._write(generation, turn)

    @checks_arguments
    def generation(
        self,
        *,
        max_tokens: Positive = 200,
        sampling: SamplingSettings | None = None,
        stop: Sequence[str] = (),
        choices: Sequence[str] = (),
    ) -> Generation:
        """Return the generation of one text with these settings, which are checked before anything is read."""
        return make_generation(
            self.tokenizer,
            vocabulary_size=self._streamer.model.config.vocabulary.size,
            max_tokens=max_tokens,
            sampling=sampling or SamplingSettings(),
            stop=stop,
            choices=choices,
        )

    def ready(self, turn: Turn | None = None) -> TokenStream:
        """Return the token stream, with all text read and the next token predicted. With a `turn`, the session is
        locked until it is over."""
        with self._turns.changing():
            self._ready()
            if turn is not None:
                self._turns.give(turn)
            return self._stream

    def _ready(self) -> None:
        self._end_text()
        self._begin()
        self._stream.predicting()

    def _write(self, generation: Generation, turn: Turn) -> Iterator[GeneratedToken]:
        try:
            generation.begin(self._stream.recent)
            while not generation.done:
                with self._turns.changing(turn):
                    written = generation.put(self._stream)
                turn.over = generation.done
                yield written
            rest = generation.finish()
            if rest is not None:
                yield rest
        finally:
            turn.over = True

    def score(self, text: str) -> ScoredText:
        """Read a text and return the log-probability of each of its tokens. To score a text without keeping it, fork
        first."""
        if not isinstance(text, str):
            raise DataError(f"score takes a text; got {kind_of(text)}. Give a str.")
        tokens: list[ScoredToken] = []
        encoding = self.tokenizer.encode_with_offsets(text)
        with self._turns.changing():
            self._end_text()
            self._begin()
            found = self._stream.score(encoding.ids)
        for index, start, end, value in zip(encoding.ids, encoding.starts, encoding.ends, found, strict=True):
            tokens.append(
                ScoredToken(
                    token=self.tokenizer.token(int(index)),
                    id=int(index),
                    start=int(start),
                    end=int(end),
                    log_probability=None if np.isnan(value) else float(value),
                )
            )
        return ScoredText(tokens=tuple(tokens))

    @checks_arguments
    def search(
        self,
        *,
        beam: Positive = 4,
        count: Positive = 1,
        max_tokens: Positive = 64,
        length_penalty: float = 0.0,
        no_repeat: Positive | None = None,
    ) -> list[Continuation]:
        """Search for the most likely continuations up to the end of the document with beam search, best first. The
        session itself does not advance: feed it the continuation you choose."""
        end = next((self.tokenizer.specials[name] for name in ("eod", "eop") if name in self.tokenizer.specials), None)
        if end is None:
            raise ConfigError(
                "beam search needs a tokeniser with eod or eop, where a text can end; got one without. Use stream."
            )
        settings = BeamSettings(
            end=end,
            beam=beam,
            max_length=max_tokens,
            count=count,
            length_penalty=length_penalty,
            no_repeat=no_repeat,
        )
        with self._turns.changing():
            self._ready()
            stream = self._stream.copy()
        stream.make_room(max_tokens + 1)
        size, specials = self._streamer.model.config.vocabulary.size, self.tokenizer.specials
        hidden = [index for index in specials.values() if index != end] + list(range(self.tokenizer.size, size))

        def log_probabilities(logits_NV: torch.Tensor) -> torch.Tensor:
            found_NV = logits_NV.float().log_softmax(dim=-1)
            found_NV[:, hidden] = -torch.inf
            return found_NV

        def step(token_N: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
            hidden_ND = self._streamer.read(token_N[:, None], cache)[:, 0]
            return log_probabilities(self._streamer.logits(hidden_ND)), cache

        first_1V = log_probabilities(stream.logits()[None])
        found = beam_search(first_1V, stream.cache, step=step, select=Cache.select, settings=settings)[0]
        return [self._continuation(one, after=list(stream.recent)) for one in found]

    # ------------------------------------------------------------------------------------------ copies, files, start

    def fork(self) -> "Session":
        """Return a copy of the session with the same history. The two are independent, and may be used in different
        threads."""
        other = object.__new__(Session)
        other.tokenizer, other._streamer = self.tokenizer, self._streamer
        other._window, other._int8 = self._window, self._int8
        other._watch = self._watch
        other._turns = Turns()
        with self._turns.looking():
            other._stream = self._stream.copy()
            other._encoder = StreamEncoder(self.tokenizer, state=self._encoder.state)
        return other

    def reset(self) -> None:
        """Forget everything, as in a new session."""
        with self._turns.changing():
            self._stream = TokenStream(self._streamer, window=self._window)
            self._encoder = StreamEncoder(self.tokenizer)

    @checks_arguments
    def save(self, path: str | Path) -> None:
        """Save the state to a file, atomically and with a checksum; a session with the same model can `load` it. An
        existing file is replaced."""
        with self._turns.looking():
            write_session(Path(path), self._stream, self._encoder.state, self.tokenizer)

    @checks_arguments
    def load(self, path: str | Path) -> None:
        """Continue from a saved session. A damaged file, or one of another model, is refused and leaves the session
        unchanged."""
        with self._turns.changing():
            stream, state = read_session(Path(path), self._streamer, self.tokenizer, window=self._window)
            self._encoder = StreamEncoder(self.tokenizer, state=state)
            self._stream = stream

    # ---------------------------------------------------------------------------------------------------- internals

    def _begin(self) -> None:
        """Start the session as if another document had just ended."""
        eod = self.tokenizer.specials.get("eod")
        if eod is not None and self.tokens_read == 0:
            self._stream.put([eod])

    def _end_text(self) -> None:
        rest = self._encoder.finish()
        if len(rest):
            self._begin()
            self._stream.read(rest)

    def _continuation(self, one: Hypothesis, *, after: Sequence[int]) -> Continuation:
        decoder = StreamDecoder(self.tokenizer, after=after[-TAIL:])
        text = decoder.feed(one.tokens) + decoder.finish()
        return Continuation(text=text, tokens=one.tokens, log_probability=one.log_probability, score=one.score)


def check_device(device: str) -> None:
    """Raise ConfigError for a device that torch does not know, or that this machine does not have."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120].rstrip(".")
        raise ConfigError(
            f'device must be one that torch can use here; got {device!r} ({reason}). Use "cpu", for example.'
        ) from None


def _check_memory_length(memory_length: int, config: ModelConfig) -> None:
    if not 1 <= memory_length <= _LONGEST_MEMORY:
        raise ConfigError(
            f"memory_length must be from 1 to {_LONGEST_MEMORY:,}; got {memory_length:,}. Lengths beyond a few times "
            "that of training do not help."
        )
    if config.learned_positions is not None:
        raise ConfigError(
            f"memory_length needs a model without learned absolute positions; got one with {config.learned_positions} "
            "learned positions. Leave it out."
        )


def _checked_ids(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise DataError(f"feed_tokens takes a list of ids; got {kind_of(ids)}. Use feed for a text.")
    ids = list(ids.tolist() if isinstance(ids, torch.Tensor | np.ndarray) else ids)
    other = next((index for index in ids if not isinstance(index, Integral) or isinstance(index, bool)), None)
    if other is not None or None in ids:
        raise DataError(f"feed_tokens takes a list of ids; got {kind_of(other)} in it. Use whole numbers.")
    wrong = next((index for index in ids if not 0 <= int(index) < tokenizer.size), None)
    if wrong is not None:
        raise DataError(f"ids must be from 0 to {tokenizer.size - 1}; got {wrong}. They belong to another tokeniser.")
    return [int(index) for index in ids]
