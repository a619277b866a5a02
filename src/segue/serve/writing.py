"""Validation of generation requests and their conversion to jobs; generated text in the form of the responses."""

import math
import secrets
from collections.abc import Sequence
from typing import Any

from segue.infer.generation import GeneratedToken
from segue.infer.sampling import SamplingSettings
from segue.serve.errors import ApiError, shown, too_large
from segue.serve.jobs import Counted, HowToWrite, ScoredToken
from segue.serve.models import Served
from segue.serve.schemas import Sampling, Writing
from segue.serve.settings import ServeSettings

DEFAULT_TOKENS = 16
_FORBIDDEN = -100.0
"""Bias at or below which a token is forbidden, as in OpenAI's API."""
_LEAST = -9999.0
"""Replaces the logarithm of 0, which JSON cannot represent."""


def sampling_of(body: Sampling, served: Served, settings: ServeSettings, *, logprobs: int) -> SamplingSettings:
    """Return the sampling settings of a request; without a seed, with a random one."""
    if logprobs > settings.max_logprobs:
        raise too_large("logprobs", logprobs, settings.max_logprobs, setting="max_logprobs")
    bias = _bias(body.logit_bias or {}, served, settings)
    greedy = body.temperature is not None and body.temperature == 0
    return SamplingSettings(
        greedy=greedy,
        temperature=1.0 if greedy or body.temperature is None else body.temperature,
        top_k=body.top_k,
        top_p=_above_zero("top_p", body.top_p),
        min_p=body.min_p,
        typical=_above_zero("typical", body.typical),
        repetition_penalty=body.repetition_penalty or 1.0,
        logit_bias=bias,
        top_log_probabilities=logprobs,
        seed=secrets.randbits(63) if body.seed is None else body.seed % 2**64,
    )


def how_to_write(
    body: Writing,
    served: Served,
    settings: ServeSettings,
    *,
    logprobs: int | None,
    n: int = 1,
    echo: bool = False,
    keep: bool,
) -> HowToWrite:
    """Return the generation settings of a request; raise ApiError if they exceed a limit."""
    max_tokens = DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens
    if max_tokens > settings.max_tokens:
        raise too_large("max_tokens", max_tokens, settings.max_tokens, setting="max_tokens")
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    for name, texts in (("stop", stop), ("choices", body.choices or [])):
        if len(texts) > settings.max_stop:
            raise too_large(name, len(texts), settings.max_stop, what="texts", setting="max_stop")
        longest = max((len(text) for text in texts), default=0)
        if longest > settings.max_stop_characters:
            raise too_large(
                name, longest, settings.max_stop_characters, what="characters each", setting="max_stop_characters"
            )
    return HowToWrite(
        max_tokens=max_tokens,
        sampling=sampling_of(body, served, settings, logprobs=logprobs or 0),
        n=n,
        stop=tuple(stop),
        choices=tuple(body.choices or ()),
        echo=echo,
        echo_limit=settings.max_echo_tokens,
        prompt_limit=settings.max_prompt_tokens,
        keep=keep,
    )


def _above_zero(name: str, value: float | None) -> float | None:
    if value == 0:
        raise ApiError(
            400,
            f"{name} must be above 0 and at most 1; got 0. Set temperature to 0 for greedy decoding.",
            code="invalid_value",
            param=name,
        )
    return value


def _bias(given: dict[str, float], served: Served, settings: ServeSettings) -> dict[int, float]:
    if len(given) > settings.max_logit_bias:
        raise too_large("logit_bias", len(given), settings.max_logit_bias, what="tokens", setting="max_logit_bias")
    found = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < served.vocabulary_size):
            raise ApiError(
                400,
                f"logit_bias must be for ids from 0 to {served.vocabulary_size - 1}, as texts; got {shown(key)}. POST "
                "/tokenize gives the ids of a text.",
                code="invalid_value",
                param="logit_bias",
            )
        found[int(key)] = -math.inf if value <= _FORBIDDEN else value
    return found


# ---------------------------------------------------------------------------------------------------------- responses


def finite(value: float) -> float:
    """Return a logarithm that JSON can represent."""
    return max(value, _LEAST)


def usage_of(counts: Sequence[Counted], written: int) -> dict[str, Any]:
    """Return the token counts of a request."""
    reused = sum(one.reused for one in counts)
    given = sum(one.given for one in counts)
    skipped = sum(one.skipped for one in counts)
    return {
        "prompt_tokens": reused + given,
        "completion_tokens": written,
        "total_tokens": reused + given + written,
        "prompt_tokens_details": {
            "cached_tokens": reused,
            "read_tokens": given - skipped,
            "skipped_tokens": skipped,
        },
    }


def token_body(written: GeneratedToken) -> dict[str, Any]:
    """Return a token generated by a session."""
    return {
        "token": written.token,
        "id": written.id,
        "text": written.text,
        "logprob": None if written.id is None else finite(written.log_probability),
        "top": top_body(written.alternatives),
    }


def top_body(alternatives: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """Return the most likely tokens."""
    return [{"token": token, "logprob": finite(value)} for token, value in alternatives]


class Text:
    """A text during generation, with its log-probabilities in the form of OpenAI's completions."""

    def __init__(self, *, logprobs: bool, at: int = 0) -> None:
        self.logprobs = logprobs
        self.text = ""
        self.written = 0
        self._at = at
        """Number of characters before the next token."""
        self._tokens: list[str] = []
        self._values: list[float | None] = []
        self._top: list[dict[str, float] | None] = []
        self._offsets: list[int] = []

    def add(self, written: GeneratedToken) -> dict[str, Any] | None:
        """Add a generated token; return its log-probabilities, for a stream."""
        self.text += written.text
        self._at += len(written.text)
        if written.id is None:
            return self.part(0) if self.logprobs else None
        self.written += 1
        if not self.logprobs:
            return None
        self._put(written.token, finite(written.log_probability), written.alternatives, self._at - len(written.text))
        return self.part(1)

    def scored(self, tokens: Sequence[ScoredToken], text: str) -> dict[str, Any] | None:
        """Add the prompt, for a request with `echo`."""
        self.text += text
        if self.logprobs:
            for one in tokens:
                value = None if one.log_probability is None else finite(one.log_probability)
                self._put(one.token, value, one.alternatives if value is not None else None, self._at + one.start)
        self._at += len(text)
        return self.part(len(tokens)) if self.logprobs else None

    def part(self, count: int | None = None) -> dict[str, Any]:
        """Return the log-probabilities of the last `count` tokens, or of all."""
        start = 0 if count is None else len(self._tokens) - count
        return {
            "tokens": self._tokens[start:],
            "token_logprobs": self._values[start:],
            "top_logprobs": self._top[start:],
            "text_offset": self._offsets[start:],
        }

    def _put(self, token: str, value: float | None, top: Sequence[tuple[str, float]] | None, offset: int) -> None:
        self._tokens.append(token)
        self._values.append(value)
        self._top.append(None if top is None else {shown: finite(number) for shown, number in top})
        self._offsets.append(offset)
