"""Checks of a kernel: the distance of each key, and equality of streaming token by token.

In: a LanguageModel whose attention uses one kernel. Out: whether the check passed and the measured value. Both compare
with distances written out pair by pair, independent of the code that they check.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from segue.errors import ConfigError
from segue.model import Batch, LanguageModel
from segue.model.attention import Attention
from segue.model.kernels import Kernel, ScoreTerms, View, attend, definition, kernels_for, library
from segue.model.language_model import order_batch
from segue.model.positions import RelativeTerms
from segue.model.stack import Stack
from segue.model.streaming import Streamer

Finding = tuple[bool | None, str]
TOLERANCE = 1e-4
"""Rounding tolerance in float32, for states of size 1."""
ROUNDING = 5e-6
"""Effect of rounding alone in a small model in float32."""
LENGTH = 8
STEP = "step"
"""Name of the kernel for one token per row, which is not one of `kernels_for`."""


def random_ids(model: LanguageModel, rows: int, length: int = LENGTH) -> Tensor:
    """Return random ids, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    size = model.config.vocabulary.size
    return torch.randint(0, size, (rows, length), generator=generator).to(next(model.parameters()).device)


def attentions(model: LanguageModel) -> Iterator[tuple[Stack, Attention]]:
    """Yield every attention of a model, with its reader."""
    for stack in (model.trunk.reader, model.trunk.backward_reader):
        if isinstance(stack, Stack):
            yield from ((stack, layer.attention) for layer in stack.each_layer())


@contextmanager
def computed_by(model: LanguageModel, make: Callable[[Stack, Attention], Kernel]) -> Iterator[None]:
    """Make every attention of the model use the kernel that `make` returns for it."""
    before = [(attention, attention.kernel) for _, attention in attentions(model)]
    try:
        for stack, attention in attentions(model):
            attention.kernel = make(stack, attention)
        yield
    finally:
        for attention, kernel in before:
            attention.kernel = kernel


def adjusted(model: LanguageModel, **settings: Any) -> LanguageModel:
    """Return `model.adjusted` with these settings and the same kernels."""
    other = model.adjusted(**settings)
    for (_, there), (_, here) in zip(attentions(other), attentions(model), strict=True):
        there.kernel = here.kernel
    return other


# ----------------------------------------------------------------------------------------------- available kernels


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The kernels that support a model, by name, and the reasons why others do not."""

    usable: dict[str, Kernel]
    absent: dict[str, str]
    step: bool
    """Whether a stream of the model reads single tokens with the step kernel."""


def kernels_of(model: LanguageModel) -> Kernels:
    """Return the kernels of a model, found by running it."""
    found: dict[str, Kernel] = {}

    def look(query: Tensor, key: Tensor, value: Tensor, *, terms: ScoreTerms, view: View, dropout: float) -> Tensor:
        found.update(kernels_for(query, key, value, terms))
        return attend(query, key, value, terms=terms, view=view, dropout=dropout)

    with computed_by(model, lambda stack, attention: look):
        model(Batch(ids_BQ=random_ids(model, 1)))
    usable: dict[str, Kernel] = {name: found[name] for name in ("definition", "banded", "native") if name in found}
    positions, weight = model.config.positions.kind, next(model.parameters())
    if not library.available():
        reason = "not built: install segue again where there is a C++ compiler"
    elif not library.supports(weight):
        reason = f"for float32 and float64 on a CPU; the weights are {weight.dtype} on {weight.device.type}"
    else:
        reason = f"not for {positions} positions"
    absent = {name: reason for name in ("banded", "native") if name not in usable}
    if "banded" in absent:
        absent["banded"] = f"not for {positions} positions"
    try:
        step = Streamer(model, memory_length=LENGTH).steps_natively
    except ConfigError:
        step, reason = False, "the model cannot read a stream"
    if not step:
        absent[STEP] = reason
    return Kernels(usable=usable, absent=absent, step=step)


# --------------------------------------------------------------------------------------------- the shift, pair by pair


@dataclass(kw_only=True)
class _Pairs:
    """Query-key pairs that were checked, and those with the terms of another distance."""

    call: int = 0
    seen: set[tuple[int, int, int]] = field(default_factory=set)
    wrong: set[tuple[int, int, int]] = field(default_factory=set)


def shift_direction(model: LanguageModel) -> Finding:
    """Check the distances in two segments: each kernel call is repeated with keys of zero, so that only distances
    decide, and with values that reveal the probability of each key."""
    positions = model.config.positions.kind
    if positions not in ("xl", "shaw", "learned_relative", "alibi"):
        return None, f"positions are {positions}"
    pairs = _Pairs()

    def watch(stack: Stack, attention: Attention) -> Kernel:
        inner = attention.kernel or attend

        def call(query: Tensor, key: Tensor, value: Tensor, *, terms: ScoreTerms, view: View, dropout: float) -> Tensor:
            expected = _terms_by_pair(stack, attention, query, view, num_keys=key.shape[1], reversed_B=reversed_B)
            _compare(inner, query, key, terms=terms, view=view, expected=expected, pairs=pairs)
            return inner(query, key, value, terms=terms, view=view, dropout=dropout)

        return call

    ids_BQ, half = random_ids(model, 2), LENGTH // 2
    reversed_B = None
    with computed_by(model, watch):
        if model.config.objective == "permutation":  # both streams; the second row reads from right to left
            if positions in ("xl", "shaw"):
                reversed_B = torch.tensor([False, True], device=ids_BQ.device)
            order_BQ = torch.arange(half, device=ids_BQ.device).flip(0).expand(2, -1)
            batches = [order_batch(part_BQ, order_BQ) for part_BQ in ids_BQ.chunk(2, dim=1)]
        else:
            batches = [Batch(ids_BQ=part_BQ) for part_BQ in ids_BQ.chunk(2, dim=1)]
        memory = None
        for batch in batches:
            memory = model(replace(batch, reversed_B=reversed_B), memory).memory
    right = len(pairs.seen) - len(pairs.wrong)
    return not pairs.wrong, f"{right} of {len(pairs.seen)} distances right"


def _terms_by_pair(
    stack: Stack, attention: Attention, query: Tensor, view: View, *, num_keys: int, reversed_B: Tensor | None
) -> RelativeTerms:
    """Return the terms of each pair's distance, [B, Q K, ...], from the encoding of that distance alone."""
    assert stack.distance_encoding is not None
    assert attention.relative is not None
    rows, queries = query.shape[:2]
    at_BQ = torch.arange(queries, device=query.device).expand(rows, -1) if view.at_BQ is None else view.at_BQ
    past = num_keys - view.segment_length
    distance_BQK = past + at_BQ[:, :, None] - torch.arange(num_keys, device=query.device)
    if reversed_B is not None:
        distance_BQK = torch.where(reversed_B[:, None, None], -distance_BQK, distance_BQK)
    return cast(RelativeTerms, attention.relative(stack.distance_encoding(distance_BQK.flatten(1), query.dtype)))


def _compare(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    *,
    terms: ScoreTerms,
    view: View,
    expected: RelativeTerms,
    pairs: _Pairs,
) -> None:
    rows, queries, heads, width = query.shape
    keys = key.shape[1]
    generator = torch.Generator().manual_seed(1)
    probe = torch.randn(query.shape, generator=generator, dtype=torch.float64).to(query)
    score_BQKH = query.new_zeros(rows, queries, keys, heads)
    if expected.key_SRHE is not None:
        key_BQKHE = expected.key_SRHE.view(rows, queries, keys, heads, width)
        probe = probe / max(float(torch.einsum("bqhe,bqkhe->bqkh", probe, key_BQKHE).std() / math.sqrt(width)), 1e-6)
        asking = probe if terms.position_bias_HE is None else probe + terms.position_bias_HE
        score_BQKH = torch.einsum("bqhe,bqkhe->bqkh", asking, key_BQKHE) / math.sqrt(width)
    if expected.bias_SRH is not None:
        score_BQKH = score_BQKH + expected.bias_SRH.view(rows, queries, keys, heads)
    right_BHQK = definition.masked_softmax(score_BQKH.permute(0, 3, 1, 2), view.mask_BQK)
    alone = None if terms.relative is None else replace(terms.relative, value_SRHE=None)
    score_terms = ScoreTerms(relative=alone, position_bias_HE=terms.position_bias_HE)
    shown_BHQK = _probabilities(kernel, probe, torch.zeros_like(key), terms=score_terms, view=view)
    wrong_QK = ((shown_BHQK - right_BHQK).abs() > TOLERANCE).any(dim=1).any(dim=0)
    if expected.value_SRHE is not None:
        value_BQKHE = expected.value_SRHE.view(rows, queries, keys, heads, width)
        given = replace(score_terms, relative=terms.relative)
        got_BQHE = kernel(probe, torch.zeros_like(key), torch.zeros_like(key), terms=given, view=view, dropout=0.0)
        right_BQHE = torch.einsum("bhqk,bqkhe->bqhe", right_BHQK, value_BQKHE)
        wrong_QK = wrong_QK | ((got_BQHE - right_BQHE).abs() > TOLERANCE).any(dim=-1).any(dim=-1).any(dim=0)[:, None]
    visible_QK = view.mask_BQK.expand(rows, queries, keys).any(dim=0)
    pairs.seen |= {(pairs.call, i, j) for i, j in visible_QK.nonzero().tolist()}
    pairs.wrong |= {(pairs.call, i, j) for i, j in (wrong_QK & visible_QK).nonzero().tolist()}
    pairs.call += 1


def _probabilities(kernel: Kernel, query: Tensor, key: Tensor, *, terms: ScoreTerms, view: View) -> Tensor:
    """Return the probability of each key for each query, [B, H, Q, K], computed for E keys at a time."""
    keys, width = key.shape[1], key.shape[-1]
    parts = []
    for start in range(0, keys, width):
        value = torch.zeros_like(key)
        shown = min(width, keys - start)
        place = torch.arange(shown, device=key.device)
        value[:, start + place, :, place] = 1.0
        parts.append(kernel(query, key, value, terms=terms, view=view, dropout=0.0)[..., :shown])
    return torch.cat(parts, dim=-1).transpose(1, 2)


# ------------------------------------------------------------------------------------------------- token by token


def token_by_token(model: LanguageModel, *, kernel: Kernel | None) -> Finding:
    """Check a stream of three rows, two tokens at a time through a kernel, or one at a time through the step kernel."""
    if model.config.memory is not None:
        model = model.adjusted(memory={"length": LENGTH, "initial": "empty", "reuse_length": None})
    try:
        streamer = Streamer(model, memory_length=LENGTH)
    except ConfigError as problem:
        return None, str(problem).partition(";")[0]
    at_once = 1
    if kernel is not None:
        at_once = 2
        for _, attention in attentions(streamer.model):
            attention.kernel = kernel
    ids_BQ = random_ids(model, 3)
    cache = streamer.new_cache(rows=3)
    states = [streamer.read(part_BQ, cache, places=at_once) for part_BQ in ids_BQ.chunk(LENGTH // at_once, dim=1)]
    streamed_BQD = torch.cat(states, dim=1)
    with computed_by(model, lambda stack, attention: definition.attend):
        whole_BQD = _states(model, ids_BQ)
    with computed_by(model, lambda stack, attention: _off_by_one):
        moved = float((_states(model, ids_BQ) - whole_BQD).abs().max())
    error = float((streamed_BQD[:, : whole_BQD.shape[1]] - whole_BQD).abs().max())
    shown = f"difference {error:.1e}"
    if moved < ROUNDING:  # absolute positions; and ALiBi, which adds the same to every key
        return error < TOLERANCE, shown
    return error < min(TOLERANCE, max(moved / 4, ROUNDING)), f"{shown}; with distances one off {moved:.1e}"


def _states(model: LanguageModel, ids_BQ: Tensor) -> Tensor:
    """Return the states that predict the next token: of the content stream, or of a query stream from left to right."""
    if model.config.objective != "permutation":
        return cast(Tensor, model(Batch(ids_BQ=ids_BQ)).output.hidden_BQD)
    order_BQ = torch.arange(ids_BQ.shape[1], device=ids_BQ.device).expand_as(ids_BQ)
    predicted_BPD: Tensor = model(order_batch(ids_BQ, order_BQ)).output.predicted_BPD
    return predicted_BPD[:, 1:]


def _off_by_one(query: Tensor, key: Tensor, value: Tensor, *, terms: ScoreTerms, view: View, dropout: float) -> Tensor:
    """Compute the definition with every distance one too long."""
    if terms.relative is not None:
        names = ("key_SRHE", "bias_SRH", "value_SRHE", "bucket_SR")
        here = {name: getattr(terms.relative, name) for name in names}
        moved = {name: None if x is None else x.roll(1, dims=1) for name, x in here.items()}
        terms = replace(terms, relative=replace(terms.relative, **moved))
    return definition.attend(query, key, value, terms=terms, view=view, dropout=dropout)
