"""Generation of one text: the choice of tokens, the text that becomes certain with each, and the end.

In: a TokenStream that has read the prompt. Out: tokens, each with its text. A session has a Generation for each text
that it generates; sessions in a batch have one each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from segue.errors import ConfigError, check_positive, kind_of
from segue.infer.choices import Choices
from segue.infer.sampling import Sampler, SamplingSettings
from segue.infer.stops import StopStrings
from segue.infer.token_stream import TokenStream
from segue.text.stream import StreamDecoder
from segue.text.tokenizer import Tokenizer

TAIL = 64
"""Number of ids before the text used in decoding it: a space may depend on them."""


@dataclass(frozen=True, kw_only=True)
class GeneratedToken:
    """A generated token."""

    token: str
    """The token as the tokeniser shows it; empty for held-back text at the end."""
    id: int | None
    text: str
    """Text that has become certain with this token; may be empty, because a character may need several tokens."""
    log_probability: float
    """Natural log-probability under the model itself, independent of the sampling settings."""
    alternatives: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens and their log-probabilities, if requested."""


def make_generation(
    tokenizer: Tokenizer,
    *,
    vocabulary_size: int,
    max_tokens: int,
    sampling: SamplingSettings,
    stop: Sequence[str] = (),
    choices: Sequence[str] = (),
) -> "Generation":
    """Return a generation for a model with `vocabulary_size` ids. It never chooses special tokens, except the ends of
    documents and paragraphs."""
    check_positive("max_tokens", max_tokens)
    if not isinstance(sampling, SamplingSettings):
        raise ConfigError(
            f"sampling must be a SamplingSettings; got {kind_of(sampling)}. Use "
            "segue.SamplingSettings(temperature=0.8), for example."
        )
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
    """The generation of one text."""

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
        """True if the text ended by itself: at the end of the document, at a stop string, or with a choice."""
        ended = bool(self._written) and self._written[-1] == self._end
        return self.done and (ended or self._stops.found is not None or self._choices is not None)

    def begin(self, recent: Iterable[int]) -> None:
        """Start the text; `recent` are the ids before it."""
        self._decoder = StreamDecoder(self._tokenizer, after=list(recent)[-TAIL:])

    def put(self, stream: TokenStream, logits_V: Tensor | None = None) -> GeneratedToken:
        """Choose the next token and append it to the stream, to be read when the next prediction needs it."""
        logits_V = stream.logits() if logits_V is None else logits_V
        allowed = None if self._choices is None else self._choices.allowed(self._written)
        history = [*stream.recent, *stream.unread]
        chosen = self._sampler.choose(logits_V, history, allowed=allowed)
        stream.unread.append(chosen.token)
        self._written.append(chosen.token)
        text = self._stops.feed(self._decoder.feed([chosen.token]))
        if self._choices is None:
            over = chosen.token == self._end or len(self._written) >= self._max_tokens
        else:  # a choice is generated to its end
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
        """Return the text that was held back, after the last token; None if there is none."""
        text = self._stops.feed(self._decoder.finish()) + self._stops.finish()
        return GeneratedToken(token="", id=None, text=text, log_probability=0.0) if text else None
