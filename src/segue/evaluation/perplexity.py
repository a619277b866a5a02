"""Perplexity of a model on a text, and bits per token, character and byte.

A text is split into segments on one grid. Lanes are runs of segments that are read in one batch to save time; each lane
first reads, without counting, as much of the preceding text as its states can depend on. So the result does not depend
on the number of lanes. Models without memory can be evaluated with a sliding window instead.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.errors import DataError
from segue.model import Batch, LanguageModel
from segue.model.language_model import order_batch
from segue.model.masks import mask_without
from segue.model.segmenting import Span, pad_rows, segments, windows

Order = Literal["forward", "backward", "random"]
Progress = Callable[[int, int], None]
WINDOW_TOKENS = 4096
"""Tokens read together when each target has its own window; affects the speed, not the result."""


class TokenSource(Protocol):
    """A text as ids that can be read in parts."""

    @property
    def length(self) -> int:
        """Number of ids."""

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the ids from `start` up to `stop`."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Summed loss of a text, -log p in nats, and its number of targets."""

    nll: float
    targets: int

    @property
    def loss(self) -> float:
        """Mean loss in nats."""
        return self.nll / self.targets

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))

    @property
    def bits(self) -> float:
        """Bits per token."""
        return self.loss / math.log(2)

    def bits_per(self, units: float) -> float:
        """Return the bits per character or byte, given the number of these units in the text."""
        return self.nll / math.log(2) / units


@torch.no_grad()
def evaluate_causal(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    segment_length: int,
    lanes: int = 8,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Score:
    """Return the loss of a causal model at every token except the first, given the tokens in segment and memory."""
    nll, targets = 0.0, 0
    for _, batch, nll_BQ in _read_lanes(
        model, tokens, segment_length=segment_length, lanes=lanes, limit=limit, progress=progress
    ):
        nll += _counted(nll_BQ, batch)
        targets += batch.count_targets()
    return Score(nll=nll, targets=targets)


@torch.no_grad()
def causal_losses(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    segment_length: int,
    lanes: int = 8,
    limit: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Return the losses that `evaluate_causal` sums: entry n is -log p of token n + 1."""
    length = tokens.length if limit is None else min(limit, tokens.length)
    losses = np.full(max(0, length - 1), np.nan)
    for spans, batch, nll_BQ in _read_lanes(
        model, tokens, segment_length=segment_length, lanes=lanes, limit=limit, progress=progress
    ):
        assert batch.target_mask is not None
        for row, span in enumerate(spans):
            counts_Q = batch.target_mask[row]
            if span is not None and bool(counts_Q.any()):
                losses[span.start : span.stop] = nll_BQ[row].double().cpu()[counts_Q].numpy()
    return losses


@torch.no_grad()
def window_losses(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    window: int,
    first: int,
    stop: int,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Return -log p of the tokens from `first` up to `stop`, each from exactly the `window` tokens before it, read anew
    for each of them. So it takes `window` times as long as reading the text once."""
    _check_objective(model, "causal")
    if not 1 <= window <= first < stop <= tokens.length:
        raise DataError(
            f"the first token must have a whole window before it and come before the end; got token {first} of "
            f"{min(stop, tokens.length)} and a window of {window}. Use a shorter window, or a longer text."
        )
    model = _for_evaluation(model, memory=False)
    rows = max(1, WINDOW_TOKENS // window)
    losses = np.empty(stop - first)
    for start in range(first, stop, rows):
        end = min(stop, start + rows)
        batch = last_of_windows(tokens, range(start, end), window=window)
        losses[start - first : end - first] = model(batch.to(_device(model))).nll[:, 0].double().cpu().numpy()
        if progress is not None:
            progress(end - first, stop - first)
    return losses


def last_of_windows(tokens: TokenSource, targets: Iterable[int], *, window: int) -> Batch:
    """Return a batch with a row for each target: the `window` tokens before it, of which only the last predicts."""
    rows = [tokens.read(target - window, target + 1) for target in targets]
    ids = torch.from_numpy(np.stack(rows))
    return Batch(
        ids_BQ=ids[:, :-1].contiguous(),
        predicted_BP=torch.full((len(rows), 1), window - 1),
        targets=ids[:, -1:].contiguous(),
    )


@torch.no_grad()
def evaluate_window(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    window: int,
    stride: int,
    rows: int = 8,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Score:
    """Return the loss with a window that slides by `stride`: every token has at least `window - stride` tokens before
    it, except near the start."""
    _check_objective(model, "causal")
    if not 1 <= stride <= window:
        raise DataError(f"stride must be from 1 to the window; got {stride} and {window}. Use a smaller stride.")
    model = _for_evaluation(model, memory=False)
    length = tokens.length if limit is None else min(limit, tokens.length)
    _check_length(length, 2)
    spans = windows(length - 1, window, stride=stride)
    nll, targets = 0.0, 0
    for start in range(0, len(spans), rows):
        batch = _next_token_batch(tokens, spans[start : start + rows], width=window)
        result = model(batch.to(_device(model)))
        nll += _counted(result.nll, batch)
        targets += batch.count_targets()
        if progress is not None:
            progress(min(start + rows, len(spans)), len(spans))
    return Score(nll=nll, targets=targets)


@torch.no_grad()
def evaluate_order(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    segment_length: int,
    order: Order = "forward",
    seed: int = 0,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Score:
    """Return the loss of a permutation model at every token of every segment, in one pass under one order of the
    segment, with memory."""
    _check_objective(model, "permutation")
    model = _for_evaluation(model)
    length = tokens.length if limit is None else min(limit, tokens.length)
    _check_length(length, 1)
    generator = torch.Generator().manual_seed(seed)
    spans = segments(length, segment_length)
    nll, memory = 0.0, None
    for number, span in enumerate(spans, start=1):
        ids_BQ = torch.from_numpy(tokens.read(span.start, span.stop))[None]
        positions = torch.arange(ids_BQ.shape[1])
        if order == "backward":
            positions = positions.flip(0)
        elif order == "random":
            positions = torch.randperm(ids_BQ.shape[1], generator=generator)
        result = model(order_batch(ids_BQ, positions[None]).to(_device(model)), memory)
        memory = result.memory
        nll += float(result.nll.double().sum())
        if progress is not None:
            progress(number, len(spans))
    return Score(nll=nll, targets=length)


@torch.no_grad()
def evaluate_pseudo(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    segment_length: int,
    mask: int | None = None,
    rows: int = 16,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Score:
    """Return the pseudo-likelihood of a masked or permutation model: each token from all others of its segment.

    A masked model needs the id of its mask token. A pseudo-likelihood is not a probability of the text, and can only be
    compared with other pseudo-likelihoods.
    """
    if model.config.objective == "causal":
        raise DataError('pseudo-likelihood needs objective "masked" or "permutation"; got "causal". Use perplexity.')
    if model.config.objective == "masked" and mask is None:
        raise DataError("a masked model needs the id of its mask token; got none. Use its own tokeniser.")
    model = _for_evaluation(model, memory=False)
    length = tokens.length if limit is None else min(limit, tokens.length)
    _check_length(length, 1)
    nll = 0.0
    for span in segments(length, segment_length):
        ids_Q = torch.from_numpy(tokens.read(span.start, span.stop))
        for first in range(0, len(ids_Q), rows):
            at_B = torch.arange(first, min(len(ids_Q), first + rows))
            batch = _one_hidden(ids_Q, at_B, mask=mask if model.config.objective == "masked" else None)
            nll += float(model(batch.to(_device(model))).nll.double().sum())
            if progress is not None:
                progress(span.start + int(at_B[-1]) + 1, length)
    return Score(nll=nll, targets=length)


# ------------------------------------------------------------------------------------------------------ lanes


def _read_lanes(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    segment_length: int,
    lanes: int,
    limit: int | None,
    progress: Progress | None,
) -> Iterator[tuple[list[Span | None], Batch, Tensor]]:
    """Yield for each step the segment of each lane, their batch, and -log p of its targets; `target_mask` marks those
    that count. The caller must have disabled gradients."""
    _check_objective(model, "causal")
    model = _for_evaluation(model)
    length = tokens.length if limit is None else min(limit, tokens.length)
    _check_length(length, 2)
    spans = segments(length - 1, segment_length)  # of the tokens that are read; each predicts the next
    plan = list(_lane_plan(len(spans), lanes, warm=_warm_segments(model, segment_length)))
    memory = model.new_memory(len(plan[0][0]))
    if memory is not None:  # absolute positions count from the start of the text, not of the lane
        first = [next(s[lane] or 0 for s, _ in plan if s[lane] is not None) for lane in range(memory.rows)]
        memory = replace(memory, position_B=torch.tensor(first, device=_device(model)) * segment_length)
    for number, (chosen, counted) in enumerate(plan):
        row_spans = [None if segment is None else spans[segment] for segment in chosen]
        batch = _next_token_batch(tokens, row_spans, width=segment_length, counted=counted)
        result = model(batch.to(_device(model)), memory)
        memory = result.memory
        yield row_spans, batch, result.nll
        if progress is not None:
            progress(number + 1, len(plan))


def _lane_plan(count: int, lanes: int, *, warm: int) -> Iterator[tuple[list[int | None], list[bool]]]:
    """Yield for each step the segment of each lane (None: nothing to read), and whether it counts."""
    lanes = min(lanes, count)
    bounds = [count * lane // lanes for lane in range(lanes + 1)]
    longest = max(stop - start for start, stop in pairwise(bounds))
    for step in range(-warm if lanes > 1 else 0, longest):
        chosen: list[int | None] = []
        for start, stop in pairwise(bounds):
            segment = start + step
            chosen.append(segment if 0 <= segment < stop else None)
        counted = [step >= 0 and segment is not None for segment in chosen]
        if any(segment is not None for segment in chosen):
            yield chosen, counted


def _warm_segments(model: LanguageModel, segment_length: int) -> int:
    """Return the number of earlier segments that the state of a token can depend on."""
    config = model.config
    if config.memory is None:
        return 0
    back = config.memory.length
    if config.attention_span is not None:
        back = min(back, config.attention_span - 1)
    return math.ceil(back * config.num_layers / segment_length) + 1


def _next_token_batch(
    tokens: TokenSource, spans: Sequence[Span | None], *, width: int, counted: Sequence[bool] | None = None
) -> Batch:
    """Return a batch with a row for each span, in which every token predicts the next one. The new tokens of a span
    count, if `counted` is True for it; None is a row of padding."""
    texts = [np.zeros(0, np.int64) if span is None else tokens.read(span.start, span.stop + 1) for span in spans]
    ids, real = pad_rows([text[:-1] for text in texts], width=width)
    targets, _ = pad_rows([text[1:] for text in texts], width=width)
    repeated = np.array([0 if span is None else span.new - span.start for span in spans])
    counts = real & (np.arange(width) >= repeated[:, None])
    if counted is not None:
        counts &= np.array(counted)[:, None]
    return Batch(
        ids_BQ=torch.from_numpy(ids),
        targets=torch.from_numpy(targets),
        target_mask=torch.from_numpy(counts),
        real_BQ=None if real.all() else torch.from_numpy(real),
    )


def _one_hidden(ids_Q: Tensor, at_B: Tensor, *, mask: int | None) -> Batch:
    """Return a batch with a row for each position in `at_B`, whose token is replaced, or invisible to all."""
    rows = len(at_B)
    ids_BQ = ids_Q.repeat(rows, 1)
    at_BP = at_B[:, None]
    targets = ids_Q[at_BP]
    if mask is not None:
        return Batch(ids_BQ=ids_BQ.scatter(1, at_BP, mask), predicted_BP=at_BP, targets=targets)
    return Batch(ids_BQ=ids_BQ, predicted_BP=at_BP, targets=targets, visible_BQQ=mask_without(at_B, length=len(ids_Q)))


# ----------------------------------------------------------------------------------------------------- checks


def _for_evaluation(model: LanguageModel, *, memory: bool = True) -> LanguageModel:
    """Return the model in evaluation mode; segments do not overlap here, so the whole segment goes into memory."""
    if model.config.memory is None:
        return model.eval()
    if not memory:
        return model.adjusted(memory=None).eval()
    return model.adjusted(memory={"reuse_length": None}).eval()


def _counted(nll: Tensor, batch: Batch) -> float:
    assert batch.target_mask is not None
    return float((nll.double() * batch.target_mask.to(nll.device)).sum())


def _device(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


def _check_objective(model: LanguageModel, objective: str) -> None:
    if model.config.objective != objective:
        raise DataError(
            f'this evaluation is for objective "{objective}"; got "{model.config.objective}". '
            "Use perplexity for causal models, an order for permutation models, pseudo-likelihood for masked ones."
        )


def _check_length(length: int, least: int) -> None:
    if length < least:
        raise DataError(f"a text must have at least {least} tokens; got {length}. Use a longer one.")
