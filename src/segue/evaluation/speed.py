"""Speedup of evaluation by memory: the comparison of Transformer-XL with the vanilla model of Al-Rfou et al.

In: a causal model, and attention lengths. Out: for each length, the time per token on either side.

- With memory: segment after segment, every token sees exactly `attention length` keys, itself included. Keys and values
  of earlier tokens are cached, not computed again (`model.streaming`).
- Sliding window: a vanilla model of the same layers, widths and heads, with learned positions in every layer and no
  memory. Each token is predicted from the `attention length` tokens before it, read anew, so one token costs a whole
  window. Only the last position has a softmax; the layers are computed for all. The whole text would take hours, so a
  few windows are timed.

Both sides read one row. They alternate, and the median counts. The two do not make the same predictions: with memory a
token of a model with several layers reaches further back than its own keys, through the states in memory; a window does
not. With one layer and the same positions both give the same numbers.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.config import changed
from segue.errors import DataError
from segue.evaluation.perplexity import Progress, TokenSource, last_of_windows
from segue.model import LanguageModel
from segue.model.build import shapes_only
from segue.model.cache import Cache
from segue.model.streaming import Streamer

PUBLISHED = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}
"""Slowdown factor of the sliding window, by attention length: Dai et al. 2019, table 9, on one GPU."""
WARM_WINDOW = 256
"""Length of the window that is read to warm up, before timing starts."""


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """Seconds per token at one attention length."""

    attention_length: int
    segment_length: int
    """Tokens read together on the side with memory."""
    memory_seconds: float
    """Seconds per token: the median over `runs`, each as many tokens as the attention length."""
    window_seconds: float
    """Seconds per token, that is per window: the median over `windows`."""
    runs: int
    windows: int

    @property
    def ratio(self) -> float:
        """Slowdown factor of the sliding window."""
        return self.window_seconds / self.memory_seconds

    @property
    def published(self) -> int | None:
        """The factor in the paper; None at lengths that it does not have."""
        return PUBLISHED.get(self.attention_length)


@dataclass(frozen=True, kw_only=True)
class DrawnTokens:
    """Random ids with a Zipf distribution: the n-th of the vocabulary about as often as 1 / n, so that each bin of an
    adaptive softmax has its share."""

    ids: NDArray[np.int64]

    @property
    def length(self) -> int:
        return len(self.ids)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        return self.ids[start:stop]


@torch.no_grad()
def measure_speed(
    model: LanguageModel,
    *,
    attention_lengths: Sequence[int] = tuple(PUBLISHED),
    segment_length: int | None = None,
    windows: int = 3,
    repeats: int = 3,
    tokens: TokenSource | None = None,
    progress: Progress | None = None,
) -> list[SpeedRow]:
    """Return a row for each attention length. `segment_length`: number of tokens read together on the side with memory.
    Default: as many as possible. `repeats` runs of it are timed, and `windows` of the other side. `tokens` is a text.
    Default: random ids. `progress` is called with the number of tokens processed and the total."""
    _check(model, attention_lengths, segment_length=segment_length, windows=windows, repeats=repeats)
    needed = max((1 + repeats) * length + 1 for length in attention_lengths) + windows
    if tokens is None:
        tokens = draw_tokens(model.config.vocabulary.size, needed)
    elif tokens.length < needed:
        raise DataError(
            f"a text must have {needed:,} tokens for these lengths; got {tokens.length:,}. Leave the store out to use "
            "random ids, or use a longer text."
        )
    rows, done = [], 0
    total = sum((2 + repeats + windows) * length for length in attention_lengths)
    for length in attention_lengths:
        streamer = with_memory(model, length)
        segment = _segment_length(streamer, segment_length)
        cache, vanilla = streamer.new_cache(), vanilla_of(model, length)
        read_on(streamer, cache, tokens, start=0, length=length, segment_length=segment)  # fills the memory
        read_window(vanilla, tokens, target=min(length, WARM_WINDOW), window=min(length, WARM_WINDOW))
        done += 2 * length
        run_times: list[float] = []
        window_times: list[float] = []
        for turn in range(max(windows, repeats)):
            if turn < repeats:
                started = time.perf_counter()
                read_on(streamer, cache, tokens, start=(1 + turn) * length, length=length, segment_length=segment)
                run_times.append(time.perf_counter() - started)
            if turn < windows:
                started = time.perf_counter()
                read_window(vanilla, tokens, target=length + turn, window=length)
                window_times.append(time.perf_counter() - started)
            done += length * ((turn < repeats) + (turn < windows))
            if progress is not None:
                progress(done, total)
        rows.append(
            SpeedRow(
                attention_length=length,
                segment_length=segment,
                memory_seconds=median(run_times) / length,
                window_seconds=median(window_times),
                runs=repeats,
                windows=windows,
            )
        )
    return rows


# ---------------------------------------------------------------------------------------------- the two sides


def with_memory(model: LanguageModel, attention_length: int) -> Streamer:
    """Return a streamer of the model in which each token sees exactly `attention_length` keys, itself included."""
    return Streamer(model.adjusted(attention_span=None), memory_length=attention_length - 1)


def vanilla_of(model: LanguageModel, attention_length: int) -> LanguageModel:
    """Return the vanilla model of this shape: no memory, positions learned in every layer. Weights that both have are
    shared, not copied; the positions are random, because the time does not depend on them."""
    positions = {"kind": "per_layer", "max_length": attention_length}
    config = changed(model.config, memory=None, attention_span=None, auxiliary=None, positions=positions)
    with shapes_only():
        other = LanguageModel(config)
    weights, some = model.state_dict(), next(model.parameters())
    generator = torch.Generator().manual_seed(0)
    for name, value in other.state_dict().items():
        if name not in weights:
            drawn = torch.randn(value.shape, generator=generator) * config.init_std
            weights[name] = drawn.to(dtype=some.dtype, device=some.device)
    kept = {name: weights[name] for name in other.state_dict()}
    other.load_state_dict(kept, assign=True)
    return other.eval()


def read_on(
    streamer: Streamer, cache: Cache, tokens: TokenSource, *, start: int, length: int, segment_length: int
) -> Tensor:
    """Read `length` tokens from `start` on; return -log p of the token that follows each of them."""
    model, losses = streamer.model, []
    for first in range(start, start + length, segment_length):
        stop = min(first + segment_length, start + length)
        ids_BQ = torch.from_numpy(tokens.read(first, stop + 1))[None].to(_device(model))
        hidden_BQD = streamer.read(ids_BQ[:, :-1], cache, places=stop - first)
        losses.append(model.nll(hidden_BQD, ids_BQ[:, 1:])[0])
    return torch.cat(losses).cpu()  # copied to the CPU, so that the device has finished


def read_window(model: LanguageModel, tokens: TokenSource, *, target: int, window: int) -> float:
    """Return -log p of one token, from the `window` tokens before it."""
    batch = last_of_windows(tokens, [target], window=window)
    return float(model(batch.to(_device(model))).nll)


def draw_tokens(vocabulary_size: int, length: int, *, seed: int = 0) -> DrawnTokens:
    """Return a text of random ids."""
    uniform = np.random.default_rng(seed).random(length)
    ids = np.floor(vocabulary_size**uniform).astype(np.int64) - 1
    return DrawnTokens(ids=ids.clip(0, vocabulary_size - 1))


def _segment_length(streamer: Streamer, wanted: int | None) -> int:
    if wanted is None:
        return streamer.most_at_once
    if wanted > streamer.most_at_once:
        raise DataError(
            f"the segment length must be at most {streamer.most_at_once}, the maximum with cached keys; got {wanted}. "
            "Leave it out."
        )
    return wanted


def _device(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


# ----------------------------------------------------------------------------------------------------- checks


def _check(
    model: LanguageModel,
    attention_lengths: Sequence[int],
    *,
    segment_length: int | None,
    windows: int,
    repeats: int,
) -> None:
    config = model.config
    if config.objective != "causal" or config.directions != "forward":
        got = f'objective "{config.objective}", directions "{config.directions}"'
        raise DataError(f"the speed comparison needs a causal model that reads forward; got {got}. Use another.")
    if config.learned_positions is not None:
        raise DataError(
            "memory needs positions that any length of text has; got "
            f'"{config.positions.kind}", learned for {config.learned_positions}. Use a model with relative positions.'
        )
    lowest = min(*attention_lengths, 1 if segment_length is None else segment_length, windows, repeats, 1)
    if not attention_lengths or lowest < 1:
        raise DataError(
            "attention lengths, the segment length and the numbers of windows and repeats must be at least 1; got "
            f"{list(attention_lengths)}, {segment_length}, {windows} and {repeats}. Use 800,1800, for example."
        )
