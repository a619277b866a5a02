"""The generation of one text: which token comes next, what text it makes certain, and when to stop.

In: a TokenStream that has read what comes before. Out: tokens, each with its text. A session has a Generation for each
text that it writes; sessions that write side by side have one each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from segue.errors import ConfigError
from segue.infer.choices import Choices
from segue.infer.sampling import Sampler, SamplingSettings
from segue.infer.stops import StopStrings
from segue.infer.token_stream import TokenStream
from segue.text.stream import StreamDecoder
from segue.text.tokenizer import Tokenizer

TAIL = 64
"""How many ids before the text its decoding takes into account: a space may depend on them."""


@dataclass(frozen=True, kw_only=True)
class GeneratedToken:
    """A token that the model generated."""

    token: str
    """The token as the tokeniser shows it; empty for text that had been held back, at the end."""
    id: int | None
    text: str
    """The text that has become certain with it; it may be empty, because a character may need several tokens."""
    log_probability: float
    """Natural logarithm under the model itself, whatever the settings are."""
    alternatives: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens and their log-probabilities, where they were asked for."""


def make_generation(
    tokenizer: Tokenizer,
    *,
    vocabulary_size: int,
    max_tokens: int,
    sampling: SamplingSettings,
    stop: Sequence[str] = (),
    choices: Sequence[str] = (),
) -> "Generation":
    """A generation for a model with `vocabulary_size` ids. It never chooses special tokens, except the ends of
    documents and paragraphs."""
    if max_tokens < 1:
        raise ConfigError(f"max_tokens must be at least 1; got {max_tokens}. Use 1 or more.")
    specials = tokenizer.specials
    end = specials.get("eod")
    kept = {end, specials.get("eop")}
    hidden = [index for index in specials.values() if index not in kept]
    settings = sampling.forbidding([*hidden, *range(tokenizer.size, vocabulary_size)])
    return Generation(
        tokenizer=tokenizer,
        sampler=Sampler(settings, vocabulary_size=vocabulary_size),
        stops=StopStrings(stop),
        choices=Choices(tokenizer, choices, end=end) if choices else None,
        end=end,
        max_tokens=max_tokens,
    )


class Generation:
    """Generates one text."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        sampler: Sampler,
        stops: StopStrings,
        choices: Choices | None,
        end: int | None,
        max_tokens: int,
    ) -> None:
        self._tokenizer, self._sampler, self._stops, self._choices = tokenizer, sampler, stops, choices
        self._end, self._max_tokens = end, max_tokens
        self._decoder = StreamDecoder(tokenizer)
        self._written: list[int] = []
        self.done = False

    @property
    def stopped(self) -> bool:
        """Whether the text has ended by itself: at the end of the document, at a stop string, or with a choice."""
        ended = bool(self._written) and self._written[-1] == self._end
        return self.done and (ended or self._stops.found is not None or self._choices is not None)

    def begin(self, recent: Iterable[int]) -> None:
        """Starts the text; `recent` are the ids before it."""
        self._decoder = StreamDecoder(self._tokenizer, after=list(recent)[-TAIL:])

    def put(self, stream: TokenStream, logits_V: Tensor | None = None) -> GeneratedToken:
        """Chooses the next token and makes it part of the stream, to be read when what follows it is needed."""
        logits_V = stream.logits() if logits_V is None else logits_V
        allowed = None if self._choices is None else self._choices.allowed(self._written)
        history = [*stream.recent, *stream.unread]
        chosen = self._sampler.choose(logits_V, history, allowed=allowed)
        stream.unread.append(chosen.token)
        self._written.append(chosen.token)
        text = self._stops.feed(self._decoder.feed([chosen.token]))
        if self._choices is None:
            over = chosen.token == self._end or len(self._written) >= self._max_tokens
        else:  # a choice is written to its end
            over = not self._choices.allowed(self._written)
        self.done = over or self._stops.found is not None
        return GeneratedToken(
            token=self._tokenizer.token(chosen.token),
            id=chosen.token,
            text=text,
            log_probability=chosen.log_probability,
            alternatives=tuple((self._tokenizer.token(index), value) for index, value in chosen.alternatives),
        )

    def finish(self) -> GeneratedToken | None:
        """The text that was held back, when the last token has been written."""
        text = self._stops.feed(self._decoder.finish()) + self._stops.finish()
        return GeneratedToken(token="", id=None, text=text, log_probability=0.0) if text else None
