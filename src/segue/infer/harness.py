"""Adapter for lm-evaluation-harness: its requests, answered by segue's own scoring and generation.

In: requests of the harness. Out: log-likelihoods and texts. `register` registers the name `segue` in the harness, so
that `--model segue --model_args model=FOLDER` finds it; `segue-lm-eval` is the harness's command with that done.

A log-likelihood is the sum over the tokens of a continuation, as `segue.infer.score` returns them for the whole text. A
token that crosses the border belongs to the continuation, and so does white space at the end of a context.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any, Protocol

import torch

from segue.errors import ConfigError, SegueWarning
from segue.infer.sampling import SamplingSettings
from segue.infer.score import ScoreSettings, TextScore, TokenScore, score_texts
from segue.infer.session import Session
from segue.infer.text_model import load_text_model

NAME = "segue"
_MOST_TOKENS = 256
_GENERATION = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p", "seed")


class Request(Protocol):
    """A request of the harness: `args` are a context and a continuation, a text, or a context and settings."""

    args: tuple[Any, ...]


class HarnessModel:
    """The three request types of the harness. `register` combines it with the harness's base class."""

    def __init__(
        self,
        model: str,
        *,
        memory_length: int | None = None,
        batch_tokens: int = 4096,
        device: str | None = None,
        batch_size: object = None,
        max_batch_size: object = None,
    ) -> None:
        """`model` is an argument of `segue.open`. `batch_size` and `max_batch_size` are passed by the harness and
        ignored: batches have up to `batch_tokens` tokens."""
        super().__init__()
        self._source = load_text_model(model)
        objective = self._source.model.config.objective
        if objective == "masked":
            raise ConfigError(
                f'{model} must have objective "causal" or "permutation" for log-likelihoods; got "masked", which has '
                "pseudo-likelihoods only. Use another model."
            )
        if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
            warnings.warn(
                f"the harness asks for {device}, and there is none: the CPU computes.", SegueWarning, stacklevel=2
            )
            device = None
        self._session = Session(self._source, memory_length=memory_length, device=device or "cpu")
        length = self._source.segment_length
        self._tokens = ScoreSettings(by="token", segment_length=length, batch_tokens=batch_tokens)
        self._documents = ScoreSettings(by="document", segment_length=length, batch_tokens=batch_tokens)

    def loglikelihood(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return for each context and continuation the log-likelihood, and whether greedy decoding generates it."""
        pairs = [_moved_space(*request.args) for request in requests]
        found: list[tuple[float, bool]] = []
        for (context, _), tokens in zip(pairs, self._token_scores([a + b for a, b in pairs]), strict=True):
            new = [token for token in tokens if token.end > len(context)]
            before = [token.id for token in tokens[: len(tokens) - len(new)]]
            value = sum(token.log_probability for token in new if token.log_probability is not None)
            found.append((value, self._is_greedy(before, [token.id for token in new])))
        return found

    def loglikelihood_rolling(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[float]:
        """Return for each text its log-likelihood as a document."""
        texts = [request.args[0] for request in requests]
        rows = score_texts(self._source.model, self._source.tokenizer, texts, self._documents)
        return [row.log_probability for row in rows if isinstance(row, TextScore)]

    def generate_until(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[str]:
        """Return for each context and settings the generated text, up to a stop string or the limit."""
        return [self._written(*request.args) for request in requests]

    def _token_scores(self, texts: Sequence[str]) -> Iterator[list[TokenScore]]:
        """Return the tokens of each text; an empty list for a text without any."""
        rows = score_texts(self._source.model, self._source.tokenizer, texts, self._tokens)
        tokens = (row for row in rows if isinstance(row, TokenScore))
        by_text = {number: list(own) for number, own in groupby(tokens, key=lambda token: token.document)}
        return (by_text.get(number, []) for number in range(1, len(texts) + 1))

    def _is_greedy(self, before: Sequence[int], ids: Sequence[int]) -> bool:
        """Return True if greedy decoding, which avoids special tokens, generates these ids after `before`."""
        session = self._session.fork()
        eod = session.tokenizer.specials.get("eod")
        read = [*([] if eod is None else [eod]), *before]
        if not read:
            read, ids = list(ids[:1]), ids[1:]  # nothing predicts the first token
        if not ids:
            return True
        session.feed_tokens(read)
        written = session.write(max_tokens=len(ids), sampling=SamplingSettings(greedy=True))
        found = (one.id for one in written if one.id is not None)
        return all(next(found, None) == index for index in ids)

    def _written(self, context: str, settings: Mapping[str, Any]) -> str:
        if unknown := [name for name in settings if name not in _GENERATION]:
            raise ConfigError(
                f"the settings of a generation must be of {', '.join(_GENERATION)}; got {', '.join(unknown)}. "
                "Take it out of the task's generation_kwargs."
            )
        until = settings.get("until") or []
        stop = [until] if isinstance(until, str) else [text for text in until if text]
        temperature = float(settings.get("temperature") or 0.0)
        sampling = SamplingSettings(greedy=True)
        if settings.get("do_sample") and temperature > 0:
            sampling = SamplingSettings(
                temperature=temperature,
                top_k=settings.get("top_k"),
                top_p=settings.get("top_p"),
                seed=settings.get("seed", 0),
            )
        most = int(settings.get("max_gen_toks", _MOST_TOKENS))
        return "".join(self._session.fork().stream(context, max_tokens=most, sampling=sampling, stop=stop))


def _moved_space(context: str, continuation: str) -> tuple[str, str]:
    """Return the pair with white space at the end of the context moved to the continuation, as in the harness."""
    bare = context.rstrip()
    return bare, context[len(bare) :] + continuation


def register() -> type:
    """Register `segue` as a model of the harness; return its class."""
    try:
        base = import_module("lm_eval.api.model").LM
        registry = import_module("lm_eval.api.registry")
        import_module("lm_eval.models")  # otherwise the harness would not register its own models
    except ImportError:
        raise ConfigError(
            "this needs lm-evaluation-harness; it is not installed. Install it: pip install lm-eval."
        ) from None
    made = type("SegueLM", (HarnessModel, base), {})
    registered: type = registry.register_model(NAME)(made)
    return registered
