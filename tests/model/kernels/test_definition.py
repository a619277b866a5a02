"""Law 6: attention equals the loops of oracles.py, forward and gradient, for every term of the score."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from segue.model.attention import Attention, PositionInputs, ScoreBiases
from segue.model.kernels import ScoreTerms, View
from segue.model.kernels.definition import attend, masked_softmax
from segue.model.masks import causal_mask
from segue.model.positions import (
    NUM_BUCKETS,
    AlibiTerms,
    BucketTerms,
    ClippedDistances,
    LearnedTerms,
    PlainDistances,
    RelativeTerms,
    RotaryEncoding,
    ShawTerms,
    SinusoidalDistances,
    XLTerms,
    alibi_slopes,
    distance_buckets,
    distances,
    rotate,
)
from tests import oracles

F64 = torch.float64
a_few = settings(max_examples=12, deadline=None, derandomize=True)
zero = torch.zeros((), dtype=F64)


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64).requires_grad_()


def check_equal(fast: Tensor, slow: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-11)
    weight = torch.randn(fast.shape, generator=torch.Generator().manual_seed(9), dtype=F64)
    got = torch.autograd.grad((fast * weight).sum(), inputs, retain_graph=True, allow_unused=True)
    want = torch.autograd.grad((slow * weight).sum(), inputs, allow_unused=True)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(
            torch.zeros(()) if x is None else x,
            torch.zeros(()) if y is None else y,
            rtol=0,
            atol=1e-10,
            check_dtype=False,
        )


shapes = {
    "queries": st.integers(1, 5),
    "memory": st.integers(0, 4),
    "bidirectional": st.booleans(),
    "gathered": st.booleans(),
    "seed": st.integers(0, 999),
}


class Case:
    """Random queries, keys, values and a mask for one head and one row; queries in order, or at any positions."""

    def __init__(self, *, queries: int, memory: int, bidirectional: bool, gathered: bool, seed: int) -> None:
        self.segment, self.memory, self.bidirectional = queries, memory, bidirectional
        keys = memory + queries
        generator = torch.Generator().manual_seed(seed)
        self.at = torch.randint(0, queries, (3,), generator=generator).tolist() if gathered else list(range(queries))
        self.query = noise(len(self.at), 4, seed=seed)
        self.key = noise(keys, 4, seed=seed + 1)
        self.value = noise(keys, 4, seed=seed + 2)
        mask_QK = torch.rand(queries, keys, generator=generator) < 0.7
        mask_QK[:, 0] = True
        if not bidirectional:
            mask_QK &= causal_mask(num_queries=queries, num_keys=keys)
        self.mask_QK = mask_QK[self.at]
        self.view = View(
            mask_BQK=self.mask_QK[None],
            at_BQ=torch.tensor([self.at]) if gathered else None,
            segment_length=queries,
        )
        self.distance_SR = distances(num_queries=queries, num_keys=keys, bidirectional=bidirectional)[None]

    def distance(self, i: int, j: int) -> int:
        return self.memory + self.at[i] - j

    def fast(self, terms: ScoreTerms) -> Tensor:
        one_head = [x[None, :, None, :] for x in (self.query, self.key, self.value)]
        return attend(*one_head, terms=terms, view=self.view, dropout=0.0)[0, :, 0]

    def slow(self, *, extra_score=None, extra_value=None, late_score=None) -> Tensor:
        nothing = lambda i, j: zero  # noqa: E731
        return oracles.attention(
            self.query,
            self.key,
            self.value,
            sees=lambda i, j: bool(self.mask_QK[i, j]),
            extra_score=extra_score or nothing,
            extra_value=extra_value or (lambda i, j: torch.zeros(4, dtype=F64)),
            late_score=late_score or nothing,
        )


@a_few
@given(**shapes, clamp=st.none() | st.integers(1, 4), backwards=st.booleans())
def test_xl_score(clamp: int | None, backwards: bool, **shape) -> None:
    case = Case(**shape)
    layer = XLTerms(width=6, num_heads=1, head_width=4).double()
    encode = SinusoidalDistances(width=6, clamp_distance=clamp)
    u, v = noise(1, 4, seed=7), noise(1, 4, seed=8)
    both = torch.cat([case.distance_SR, -case.distance_SR])
    relative = layer(encode(both, F64)).for_rows(torch.tensor([backwards]))
    fast = case.fast(ScoreTerms(relative=relative, content_bias_HE=u, position_bias_HE=v))
    extra = oracles.xl_extra_score(
        case.query,
        case.key,
        projection_ED=layer.projection.weight,
        u_E=u[0],
        v_E=v[0],
        at=case.at,
        memory=case.memory,
        clamp=clamp,
        sign=-1 if backwards else 1,
    )
    check_equal(fast, case.slow(extra_score=extra), [case.query, case.key, case.value, u, v, layer.projection.weight])


@a_few
@given(**shapes, clamp=st.none() | st.integers(1, 12), backwards=st.booleans())
def test_bucket_score(clamp: int | None, backwards: bool, **shape) -> None:
    case = Case(**(shape | {"memory": 4 * shape["memory"]}))  # distances beyond those with a bucket of their own
    layer = BucketTerms(width=6, num_heads=1, head_width=4, zeros=False).double()
    for seed, table in enumerate((layer.content_XHE, layer.position_XHE)):
        table.data = noise(NUM_BUCKETS, 1, 4, seed=seed).detach()
    encode = SinusoidalDistances(width=6, clamp_distance=clamp, buckets=True)
    both = torch.cat([case.distance_SR, -case.distance_SR])
    relative = layer(encode(both, F64)).for_rows(torch.tensor([backwards]))
    sign = -1 if backwards else 1

    def extra(i: int, j: int) -> Tensor:
        distance = sign * case.distance(i, j)
        if clamp is not None:
            distance = max(-clamp, min(clamp, distance))
        u, v = (table[oracles.bucket(distance), 0] for table in (layer.content_XHE, layer.position_XHE))
        own = oracles.xl_extra_score(
            case.query,
            case.key,
            projection_ED=layer.projection.weight,
            u_E=u,
            v_E=v,
            at=case.at,
            memory=case.memory,
            clamp=clamp,
            sign=sign,
        )
        return own(i, j)

    inputs = [case.query, case.key, case.value, layer.content_XHE, layer.position_XHE, layer.projection.weight]
    check_equal(case.fast(ScoreTerms(relative=relative)), case.slow(extra_score=extra), inputs)


def test_buckets_are_those_of_the_definition() -> None:
    far = [*range(-300, 301)]
    assert distance_buckets(torch.tensor(far)).tolist() == [oracles.bucket(distance) for distance in far]
    assert {oracles.bucket(distance) for distance in far} == set(range(NUM_BUCKETS))


@a_few
@given(**shapes, clip=st.integers(1, 4))
def test_shaw_on_keys_alone(clip: int, **shape) -> None:
    case = Case(**shape)
    layer = ShawTerms(num_distances=2 * clip + 1, num_heads=1, head_width=4, on_values=False).double()
    relative = layer(ClippedDistances(lowest=-clip, highest=clip)(case.distance_SR, F64))
    slow = case.slow(
        extra_score=lambda i, j: oracles.dot(
            case.query[i], layer.key.weight[oracles.clipped(case.distance(i, j), clip)]
        )
    )
    check_equal(case.fast(ScoreTerms(relative=relative)), slow, [case.query, case.key, case.value, layer.key.weight])


@a_few
@given(**shapes, clip=st.integers(1, 4))
def test_shaw_score_and_values(clip: int, **shape) -> None:
    case = Case(**shape)
    layer = ShawTerms(num_distances=2 * clip + 1, num_heads=1, head_width=4).double()
    relative = layer(ClippedDistances(lowest=-clip, highest=clip)(case.distance_SR, F64))
    row = lambda table, i, j: table[oracles.clipped(case.distance(i, j), clip)]  # noqa: E731
    slow = case.slow(
        extra_score=lambda i, j: oracles.dot(case.query[i], row(layer.key.weight, i, j)),
        extra_value=lambda i, j: row(layer.value.weight, i, j),
    )
    inputs = [case.query, case.key, case.value, layer.key.weight, layer.value.weight]
    check_equal(case.fast(ScoreTerms(relative=relative)), slow, inputs)


@a_few
@given(**(shapes | {"bidirectional": st.just(False)}), longest=st.integers(1, 5))
def test_learned_relative_score(longest: int, **shape) -> None:
    case = Case(**shape)
    layer = LearnedTerms(num_distances=longest + 1, num_heads=1, head_width=4).double()
    relative = layer(ClippedDistances(lowest=0, highest=longest)(case.distance_SR, F64))
    u = noise(1, 4, seed=7)

    def extra(i: int, j: int) -> Tensor:
        row = min(case.distance(i, j), longest)
        return (
            oracles.dot(case.query[i], layer.key.weight[row])
            + layer.bias.weight[row, 0]
            + oracles.dot(u[0], case.key[j])
        )

    fast = case.fast(ScoreTerms(relative=relative, content_bias_HE=u))
    check_equal(fast, case.slow(extra_score=extra), [case.query, case.key, u, layer.key.weight, layer.bias.weight])


@a_few
@given(**shapes)
def test_alibi_score(**shape) -> None:
    case = Case(**shape)
    relative = AlibiTerms(num_heads=1)(PlainDistances()(case.distance_SR, F64))
    slow = case.slow(late_score=lambda i, j: zero - 2.0**-8 * abs(case.distance(i, j)))
    check_equal(case.fast(ScoreTerms(relative=relative)), slow, [case.query, case.key, case.value])


@a_few
@given(**shapes)
def test_segment_score(**shape) -> None:
    case = Case(**shape)
    generator = torch.Generator().manual_seed(5)
    differs = torch.rand(case.mask_QK.shape, generator=generator) < 0.5
    g, s = noise(2, 1, 4, seed=7), noise(1, 4, seed=8)
    case.view = View(
        mask_BQK=case.view.mask_BQK, differs_BQK=differs[None], at_BQ=case.view.at_BQ, segment_length=case.segment
    )
    slow = case.slow(extra_score=lambda i, j: oracles.dot(case.query[i] + s[0], g[int(differs[i, j]), 0]))
    check_equal(case.fast(ScoreTerms(segment_key_2HE=g, segment_bias_HE=s)), slow, [case.query, case.key, g, s])


def test_alibi_slopes_follow_the_paper() -> None:
    assert alibi_slopes(8) == [2.0**-n for n in range(1, 9)]
    # 12 heads: those of 8, then every other one of 16.
    assert alibi_slopes(12) == [2.0**-n for n in range(1, 9)] + [2.0 ** (-n / 2) for n in (1, 3, 5, 7)]


@a_few
@given(offset=st.integers(0, 9), seed=st.integers(0, 99))
def test_rotary_products_depend_on_the_distance_alone(offset: int, seed: int) -> None:
    rotation = RotaryEncoding(head_width=6, base=100.0)(num_keys=20, device=torch.device("cpu"), dtype=F64)
    q, k = noise(1, 1, 1, 6, seed=seed), noise(1, 1, 1, 6, seed=seed + 1)
    at = lambda x, p: rotate(x, rotation[:, p : p + 1])  # noqa: E731
    torch.testing.assert_close((at(q, 3 + offset) * at(k, offset)).sum(), (at(q, 3) * at(k, 0)).sum())
    # The angle itself: pair (0, 3) turns by 1 at position 1.
    turned = at(torch.tensor([[[[1.0, 0, 0, 0, 0, 0]]]], dtype=F64), 1).flatten()
    torch.testing.assert_close(turned[[0, 3]], torch.tensor([math.cos(1), math.sin(1)], dtype=F64))


def test_a_query_that_sees_nothing_gets_zeros_and_zero_gradient() -> None:
    score = noise(1, 1, 2, 3, seed=0)
    mask_BQK = torch.tensor([[[False, False, False], [True, False, True]]])
    probability = masked_softmax(score, mask_BQK)
    assert torch.equal(probability[0, 0, 0], torch.zeros(3, dtype=F64))
    assert probability[0, 0, 1, 1] == 0
    assert abs(probability[0, 0, 1].sum() - 1) < 1e-12
    probability.pow(2).sum().backward()
    assert torch.equal(score.grad[0, 0, 0], torch.zeros(3, dtype=F64))
    assert score.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_masking_never_overflows(dtype: torch.dtype) -> None:
    score = torch.full((1, 1, 1, 3), -60000.0).to(dtype)
    probability = masked_softmax(score, torch.tensor([[[True, True, False]]]))
    torch.testing.assert_close(probability[0, 0, 0].float(), torch.tensor([0.5, 0.5, 0.0]))


def test_attention_takes_non_contiguous_input_and_any_head_width() -> None:
    torch.manual_seed(0)
    attention = Attention(
        width=10, num_heads=3, head_width=4, bias=True, dropout=0.0, relative=None, segments=False
    ).double()
    hidden = noise(5, 2, 10, seed=1).transpose(0, 1)
    view = View(mask_BQK=causal_mask(num_queries=5, num_keys=5).expand(2, -1, -1), segment_length=5)
    context = attention.context(hidden, positions=PositionInputs(), biases=None)
    result = attention(hidden, context, view=view, positions=PositionInputs())
    same = hidden.contiguous()
    context = attention.context(same, positions=PositionInputs(), biases=None)
    torch.testing.assert_close(result, attention(same, context, view=view, positions=PositionInputs()))
    assert result.shape == (2, 5, 10)


def test_terms_for_rows_pick_the_sign_of_each_row() -> None:
    terms = RelativeTerms(key_SRHE=torch.arange(2.0).view(2, 1, 1, 1), bias_SRH=torch.arange(2.0).view(2, 1, 1))
    rows = terms.for_rows(torch.tensor([True, False, True]))
    assert rows.key_SRHE.flatten().tolist() == rows.bias_SRH.flatten().tolist() == [1.0, 0.0, 1.0]
    assert rows.value_SRHE is None


def test_biases_are_there_only_where_they_are_used() -> None:
    biases = ScoreBiases(num_heads=2, head_width=3, content=True, position=False, segment=True)
    assert {name for name, _ in biases.named_parameters()} == {"content_HE", "segment_HE"}
