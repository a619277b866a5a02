"""Sampling of the next token from the logits of the model.

In: the logits of one position, and the tokens before it. Out: a token and its log-probability under the model itself,
before any setting changed it. Reading tokens, stopping and text are left to others.

The settings are applied in a fixed order, that of the transformers library, and each acts on the result of the one
before it, with renormalised probabilities:

1. logit_bias is added.
2. repetition_penalty: logits of recent tokens are divided by it if positive, multiplied if negative (CTRL,
   Keskar et al. 2019).
3. temperature divides the logits.
4. top_k keeps the k likeliest tokens.
5. top_p keeps the likeliest tokens with at least this cumulative probability (Holtzman et al. 2020).
6. min_p keeps the tokens with at least this fraction of the probability of the likeliest one.
7. typical keeps the tokens whose surprisal, -log p, is nearest to its expectation, the entropy, with at least this
   cumulative probability (locally typical sampling, Meister et al. 2022).

Tokens of equal value are kept or removed together, so that nothing depends on the order of a sort. With `greedy` only
the first two matter. A token is found by one random number on the cumulative probabilities in the order of the ids:
logits that differ by rounding, as those of a batch and of one row do, give the same token with rare exceptions.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.arguments import check_types
from segue.errors import ConfigError, DataError, kind_of

Floats = NDArray[np.floating[Any]]
_BLOCK = 128


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Sampling settings. Default: top-k sampling with k = 40 at temperature 1."""

    greedy: bool = False
    """Whether to take the most likely token instead of sampling; ties go to the lowest id."""
    temperature: float = 1.0
    """Sampling temperature; values below 1 favour likely tokens, values above 1 unlikely ones."""
    top_k: int | None = 40
    """Sample only from this many most likely tokens; None: from all."""
    top_p: float | None = None
    """Nucleus sampling: sample from the smallest set of most likely tokens with at least this cumulative probability;
    None: from all."""
    min_p: float | None = None
    """Sample only from tokens with at least this fraction of the top token's probability; None: from all."""
    typical: float | None = None
    """Locally typical sampling: sample from the most typical tokens with at least this cumulative probability; None:
    from all."""
    repetition_penalty: float = 1.0
    """Repetition penalty: values above 1 make recent tokens less likely, values below 1 more likely; 1 is off."""
    repetition_window: int = 64
    """Number of recent tokens that the repetition penalty applies to."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Numbers to add to the logits of token ids; -inf forbids a token."""
    top_log_probabilities: int = 0
    """Number of most likely tokens to report with each choice."""
    seed: int = 0
    """Random seed; the same seed gives the same tokens."""

    def __post_init__(self) -> None:
        check_types(self, but={"logit_bias"})
        _check_bias(self.logit_bias)
        problems = [
            f"{name} must be {rule}; got {getattr(self, name)}. {remedy}"
            for name, right, rule, remedy in self._rules()
            if not right
        ]
        for index, bias in self.logit_bias.items():
            if bias != -math.inf and not abs(bias) <= sys.float_info.max:  # NaN is not, either
                problems.append(
                    f"logit_bias must be finite, or -inf to forbid a token; got {bias} for the id {index}. "
                    "Use a large number such as 100 to force a token."
                )
        if problems:
            raise ConfigError(" ".join(problems))

    def _rules(self) -> list[tuple[str, bool, str, str]]:
        top_k, top_p, min_p, typical = self.top_k, self.top_p, self.min_p, self.typical
        warm = math.isfinite(self.temperature) and self.temperature > 0
        penalty = math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0
        all_of_them = "Leave it out to allow all tokens."
        return [
            ("temperature", warm, "a finite number above 0", "Set greedy to take the likeliest token."),
            ("top_k", top_k is None or top_k >= 1, "at least 1, or None", "Use None to allow all tokens."),
            ("top_p", top_p is None or 0 < top_p <= 1, "above 0 and at most 1", all_of_them),
            ("min_p", min_p is None or 0 <= min_p <= 1, "from 0 to 1", all_of_them),
            ("typical", typical is None or 0 < typical <= 1, "above 0 and at most 1", all_of_them),
            ("repetition_penalty", penalty, "a finite number above 0", "Use 1 for no penalty."),
            ("repetition_window", self.repetition_window >= 1, "at least 1", "Use a repetition_penalty of 1 for none."),
            ("top_log_probabilities", self.top_log_probabilities >= 0, "0 or more", "Use 0 to report none."),
            ("seed", 0 <= self.seed < 2**64, "from 0 to 2**64 - 1", "Use another number."),
        ]

    def forbidding(self, ids: Iterable[int]) -> "SamplingSettings":
        """Return the same settings with these tokens also forbidden."""
        return replace(self, logit_bias={**self.logit_bias, **dict.fromkeys(ids, -math.inf)})


def _check_bias(biases: Mapping[int, float]) -> None:
    if not isinstance(biases, Mapping):
        raise ConfigError(
            f"logit_bias must be a dict of token ids and numbers; got {kind_of(biases)}. Use {{5: -1.0}}, for example."
        )
    for index, bias in biases.items():
        if not isinstance(index, Integral) or not isinstance(bias, Real):
            raise ConfigError(
                f"logit_bias must map token ids to numbers; got {index!r:.40}: {bias!r:.40}. Use {{5: -1.0}}, for "
                "example; the bias argument of segue.generate takes texts."
            )


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A chosen token and its log-probability."""

    token: int
    log_probability: float
    """Log-probability under the model, before any setting changed it."""
    alternatives: tuple[tuple[int, float], ...] = ()
    """The model's likeliest tokens with their log-probabilities, likeliest first, as many as the settings request."""


class Sampler:
    """Sampler of the tokens of one stream, with a separate random generator."""

    def __init__(self, settings: SamplingSettings, *, vocabulary_size: int) -> None:
        self.settings = settings
        self.vocabulary_size = vocabulary_size
        wrong = [index for index in settings.logit_bias if not 0 <= index < vocabulary_size]
        if wrong:
            raise ConfigError(
                f"logit_bias must be for ids from 0 to {vocabulary_size - 1}; got {wrong[0]}. "
                "Take the ids from the tokeniser of the model."
            )
        self._biased = np.fromiter(settings.logit_bias.keys(), dtype=np.int64)
        self._bias = np.fromiter(settings.logit_bias.values(), dtype=np.float64)
        self._generator = torch.Generator().manual_seed(settings.seed)

    def choose(self, logits_V: Tensor, history: Sequence[int] = (), *, allowed: Sequence[int] | None = None) -> Chosen:
        """Choose the next token. `history` are the tokens before it, oldest first, for the repetition penalty only.

        `allowed` are the only ids that may come; None: all. Every sampled token takes one random number.
        """
        raw_V = self._read(logits_V)
        if self.settings.greedy:
            scores, ids = self._scores(raw_V, history, allowed)
            place = int(scores.argmax())
            token = place if ids is None else int(ids[place])
        else:
            ids, weights = self._weights(raw_V, history, allowed)
            place = _drawn(weights, self._random())
            token = place if ids is None else int(ids[place])
        return self._chosen(raw_V, token)

    def _random(self) -> float:
        return torch.rand((), generator=self._generator, dtype=torch.float64).item()

    def _read(self, logits_V: Tensor) -> Floats:
        """Return the logits as an array, in float64 if they are, else in float32; raise DataError if no token can be
        chosen from them."""
        if tuple(logits_V.shape) != (self.vocabulary_size,):
            raise DataError(
                f"sampling needs logits of shape [{self.vocabulary_size}], one per token id; got "
                f"{list(logits_V.shape)}. Give the logits of one position, from the model that the sampler was made "
                "for."
            )
        precise = logits_V.dtype == torch.float64
        raw_V: Floats = (logits_V if precise else logits_V.float()).detach().cpu().numpy()
        likeliest = float(raw_V.max())
        if not math.isfinite(likeliest):
            what = {math.inf: "inf", -math.inf: "-inf for every token"}.get(likeliest, "NaN")
            raise DataError(
                f"logits must be finite, or -inf for some tokens; the model gave {what}. Check the weights of the "
                "model."
            )
        return raw_V

    def _scores(
        self, raw_V: Floats, history: Sequence[int], allowed: Sequence[int] | None
    ) -> tuple[Floats, NDArray[np.int64] | None]:
        """Return logits with bias and penalty: those of the allowed tokens with their ids, or those of all with None.
        They are copied only if they change."""
        settings, scores = self.settings, raw_V
        if len(self._biased):
            scores = scores.astype(np.float64)
            scores[self._biased] += self._bias
        if settings.repetition_penalty != 1 and len(history):
            recent = self._checked(history[-settings.repetition_window :], what="history")
            scores = scores.astype(np.float64)
            values, penalty = scores[recent], settings.repetition_penalty
            with np.errstate(over="ignore"):
                scores[recent] = np.where(values > 0, values / penalty, values * penalty)
        ids = None if allowed is None else self._checked(allowed, what="allowed")
        scores = scores if ids is None else scores[ids]
        likeliest = float(scores.max()) if len(scores) else -math.inf
        if likeliest == -math.inf:
            raise DataError(
                f"the settings must leave a token to choose; got {len(scores)} allowed tokens, all of them forbidden. "
                "Forbid fewer tokens."
            )
        if likeliest == math.inf:
            raise DataError(
                f"repetition_penalty must leave logits finite; got {settings.repetition_penalty}. Use one nearer to 1."
            )
        return scores, ids

    def _weights(
        self, raw_V: Floats, history: Sequence[int], allowed: Sequence[int] | None
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
        """Return ids, ascending, and weights proportional to their probabilities; None: all ids. A weight may be 0."""
        settings = self.settings
        scores, ids = self._scores(raw_V, history, allowed)
        if settings.top_k is not None and settings.top_k < len(scores):  # first, because temperature keeps the order
            place = len(scores) - settings.top_k
            kept = np.flatnonzero(scores >= np.partition(scores, place)[place])
            scores, ids = scores[kept], kept if ids is None else ids[kept]
        with np.errstate(over="ignore"):  # near temperature 0 all but the likeliest become -inf, as intended
            weights = np.subtract(scores, scores.max(), dtype=np.float64)
            weights /= settings.temperature
        torch.from_numpy(weights).exp_()  # several times as fast as NumPy's
        if settings.top_p is not None and settings.top_p < 1:
            ids, weights = _only(_within_top_p(weights, settings.top_p), ids, weights)
        if settings.min_p is not None:
            ids, weights = _only(weights >= settings.min_p * weights.max(), ids, weights)
        if settings.typical is not None and settings.typical < 1:
            ids, weights = _only(weights > 0, ids, weights)
            ids, weights = _only(_typical(weights, settings.typical), ids, weights)
        return ids, weights

    def _chosen(self, raw_V: Floats, token: int) -> Chosen:
        likeliest = raw_V.max()
        total = float(likeliest) + math.log(float(np.exp(raw_V - likeliest).sum(dtype=np.float64)))
        count = min(self.settings.top_log_probabilities, len(raw_V))
        best: list[int] = []
        if count == 1:
            best = [int(raw_V.argmax())]
        elif count:
            place = len(raw_V) - count
            found = np.flatnonzero(raw_V >= np.partition(raw_V, place)[place])
            best = found[(-raw_V[found]).argsort(kind="stable")][:count].tolist()
        return Chosen(
            token=token,
            log_probability=float(raw_V[token]) - total,
            alternatives=tuple((index, float(raw_V[index]) - total) for index in best),
        )

    def _checked(self, ids: Sequence[int], *, what: str) -> NDArray[np.int64]:
        """Return the unique ids, ascending."""
        found = np.unique(np.asarray(ids, dtype=np.int64))
        if len(found) and (found[0] < 0 or found[-1] >= self.vocabulary_size):
            wrong = found[0] if found[0] < 0 else found[-1]
            raise DataError(
                f"{what} must have ids from 0 to {self.vocabulary_size - 1}; got {wrong}. "
                "Take the ids from the tokeniser of the model."
            )
        return found


def _drawn(weights: NDArray[np.float64], share: float) -> int:
    """Return the first index at which the cumulative weight exceeds a share of the sum; so never one with a weight of
    0. Blocks of weights are summed first, because cumulative sums of a whole vocabulary are slow."""
    starts = np.arange(0, len(weights), _BLOCK)
    blocks = np.add.reduceat(weights, starts).cumsum()
    wanted = share * float(blocks[-1])
    block = min(int(blocks.searchsorted(wanted, side="right")), len(blocks) - 1)
    before = float(blocks[block - 1]) if block else 0.0
    sums = weights[block * _BLOCK : (block + 1) * _BLOCK].cumsum()
    place = int(sums.searchsorted(wanted - before, side="right"))
    if place == len(sums):  # by rounding
        return int(np.flatnonzero(weights[: (block + 1) * _BLOCK])[-1])
    return block * _BLOCK + place


def _only(
    kept: NDArray[np.bool_], ids: NDArray[np.int64] | None, weights: NDArray[np.float64]
) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
    if kept.all():
        return ids, weights
    places = np.flatnonzero(kept)
    return places if ids is None else ids[places], weights[places]


def _within_top_p(weights: NDArray[np.float64], top_p: float) -> NDArray[np.bool_]:
    """Return the mask of tokens to keep: those for which all likelier tokens have less than `top_p` together."""
    total = weights.sum()
    # All tokens below this weight have less than 1 - top_p together, so the last that is kept is not one of them. Half
    # of it, to be safe from rounding; most of a large vocabulary then needs no sort.
    large = weights[weights >= (1 - top_p) * total / (2 * len(weights))]
    falling = -np.sort(-large)
    last = int(falling.cumsum().searchsorted(top_p * total))
    return np.asarray(weights >= falling[min(last, len(falling) - 1)])


def _typical(weights: NDArray[np.float64], mass: float) -> NDArray[np.bool_]:
    """Return the mask of tokens to keep: those for which all more typical tokens have less than `mass` together."""
    probabilities = weights / weights.sum()
    surprise = -np.log(probabilities)
    distance = np.abs(surprise - (probabilities * surprise).sum())
    order = distance.argsort()
    last = int(probabilities[order].cumsum().searchsorted(mass))
    return np.asarray(distance <= distance[order[min(last, len(order) - 1)]])
