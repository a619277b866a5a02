"""Beam search over any model that gives the log-probability of every next token after a prefix.

In: the log-probabilities of the first token of each row, a state, and two functions: one reads one more token, one
selects rows of the state. Out: the best hypotheses of each row. The kind of state (a memory, a prefix) is up to the
caller.

Every step considers the `beam` likeliest continuations of a row. Those that end are set aside, and the `beam` likeliest
others stay alive. A row is done when `beam` hypotheses have ended, or when no live one can become better than those
wanted. At `max_length` live hypotheses have to end. So a log-probability is always that of the whole text, its end
included. Hypotheses of different length are compared by log-probability / ((5 + length) / 6) ** length_penalty
(Wu et al. 2016), where the length counts the end.

Besides the letters of `segue.model`: A rows that are not done, W hypotheses of a row, N = A times W, T tokens written
so far, X tokens of a sequence that may not repeat.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.errors import ConfigError, check_positive

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class BeamSettings:
    """The settings of a beam search."""

    end: int
    """The id that ends a text."""
    beam: int
    """Beam width; 1 is greedy decoding."""
    max_length: int
    """Maximum number of tokens of a text, without its end."""
    count: int = 1
    """Number of hypotheses returned for each row."""
    length_penalty: float = 0.0
    """Exponent of the length normalisation: 0 compares log-probabilities, which favours short texts; 1 is close to
    their mean per token."""
    no_repeat: int | None = None
    """Length of the token sequences that may not repeat within a text. Default: no such rule."""

    def __post_init__(self) -> None:
        for name in ("beam", "max_length", "count"):
            check_positive(name, getattr(self, name))
        if self.count > self.beam:
            raise ConfigError(
                f"count must be at most the beam width; got {self.count} for a beam of {self.beam}. Use a beam of "
                f"{self.count}."
            )
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(f"length_penalty must be from 0 to 10; got {self.length_penalty}. 0.6 is usual.")
        if self.no_repeat is not None and self.no_repeat < 1:
            raise ConfigError(f"no_repeat must be at least 1; got {self.no_repeat}. Leave it out to allow repetition.")

    def score(self, log_probability: float, length: int) -> float:
        """Return the score by which hypotheses are compared: higher is better."""
        return log_probability / float(((5 + length) / 6) ** self.length_penalty)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A result of a beam search."""

    tokens: tuple[int, ...]
    """The tokens without the end."""
    log_probability: float
    """Log-probability of all tokens and the end."""
    score: float

    @property
    def mean_log_probability(self) -> float:
        """Mean log-probability over all tokens and the end."""
        return self.log_probability / (len(self.tokens) + 1)


def beam_search(
    first_BV: Tensor,
    state: State,
    *,
    step: Callable[[Tensor, State], tuple[Tensor, State]],
    select: Callable[[State, Tensor], State],
    settings: BeamSettings,
) -> list[list[Hypothesis]]:
    """Return the best `count` hypotheses of each row, best first.

    `step(token_N, state)` reads a token for each row of the state and returns log-probabilities [N, V] with the next
    state; forbidden tokens have -inf. `select(state, rows_N)` returns the state of these rows, which may repeat.
    """
    rows = list(range(len(first_BV)))  # rows that are not done; all have the same number of live hypotheses
    ended: list[list[Hypothesis]] = [[] for _ in rows]
    prefix_NT = np.zeros((len(rows), 0), dtype=np.int64)
    live_AW = torch.zeros(len(rows), 1, dtype=torch.float64, device=first_BV.device)
    next_NV = first_BV
    for length in range(settings.max_length + 1):
        _forbid_repetition(next_NV, prefix_NT, settings)
        total_AWV = live_AW[:, :, None] + next_NV.double().view(*live_AW.shape, -1)
        width = live_AW.shape[1]
        prefixes = [prefix_NT[n * width : (n + 1) * width] for n in range(len(rows))]
        if length == settings.max_length:
            for n, values in enumerate(total_AWV[:, :, settings.end].tolist()):
                for prefix, value in zip(prefixes[n], values, strict=True):
                    _end(ended[rows[n]], prefix, value, settings)
            break
        chosen = [_continue(ended[row], prefixes[n], total_AWV[n], settings) for n, row in enumerate(rows)]
        going = [n for n, row in enumerate(rows) if not _done(ended[row], float(chosen[n].value_W.max()), settings)]
        if not going:
            break
        rows = [rows[n] for n in going]
        parent_N = np.concatenate([n * width + chosen[n].parent_W for n in going])
        token_N = np.concatenate([chosen[n].token_W for n in going])
        live_AW = torch.stack([chosen[n].value_W for n in going])
        prefix_NT = np.concatenate([prefix_NT[parent_N], token_N[:, None]], axis=1)
        state = select(state, torch.from_numpy(parent_N).to(first_BV.device))
        next_NV, state = step(torch.from_numpy(token_N).to(first_BV.device), state)
    return [sorted(found, key=lambda one: -one.score)[: settings.count] for found in ended]


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The live hypotheses of one row after a step."""

    parent_W: NDArray[np.int64]
    token_W: NDArray[np.int64]
    value_W: Tensor


def _continue(
    ended: list[Hypothesis], prefixes: NDArray[np.int64], total_WV: Tensor, settings: BeamSettings
) -> _Chosen:
    """Set aside those of the likeliest continuations that end, and choose those that stay alive."""
    width, size = total_WV.shape
    # At most `width` continuations end, so twice the beam includes a whole beam of others.
    best = total_WV.flatten().topk(min(2 * settings.beam, width * size))
    index = best.indices.cpu().numpy()
    parent, token = index // size, index % size
    for place in np.flatnonzero(token[: settings.beam] == settings.end):
        _end(ended, prefixes[parent[place]], float(best.values[place]), settings)
    others = np.flatnonzero(token != settings.end)[: settings.beam]
    return _Chosen(
        parent_W=parent[others],
        token_W=token[others],
        value_W=best.values[torch.from_numpy(others).to(total_WV.device)],
    )


def _end(ended: list[Hypothesis], prefix: NDArray[np.int64], value: float, settings: BeamSettings) -> None:
    if value > -np.inf:
        ended.append(
            Hypothesis(
                tokens=tuple(prefix.tolist()), log_probability=value, score=settings.score(value, len(prefix) + 1)
            )
        )


def _done(ended: list[Hypothesis], likeliest: float, settings: BeamSettings) -> bool:
    """Return True if a row is done. `likeliest`: log-probability of the best live hypothesis; can only fall."""
    if len(ended) >= settings.beam or likeliest == -np.inf:
        return True
    if len(ended) < settings.count:
        return False
    wanted = sorted((one.score for one in ended), reverse=True)[settings.count - 1]
    return settings.score(likeliest, settings.max_length + 1) <= wanted


def _forbid_repetition(next_NV: Tensor, prefixes_NT: NDArray[np.int64], settings: BeamSettings) -> None:
    """Set tokens that would repeat a sequence to -inf, in place."""
    size = settings.no_repeat
    if size is None or prefixes_NT.shape[1] < size:
        return
    windows_NTX = np.lib.stride_tricks.sliding_window_view(prefixes_NT, size, axis=1)
    tail_N1X = prefixes_NT[:, None, prefixes_NT.shape[1] - size + 1 :]
    row, place = np.nonzero((windows_NTX[:, :, :-1] == tail_N1X).all(axis=2))
    next_NV[torch.from_numpy(row), torch.from_numpy(windows_NTX[row, place, -1].copy())] = -torch.inf
