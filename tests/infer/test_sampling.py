"""Sampling against definitions written with loops over dictionaries, and against frequencies."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from segue.errors import ConfigError, DataError
from segue.infer.sampling import Chosen, Sampler, SamplingSettings
from tests.examples import examples

Probabilities = dict[int, float]
# Thousandths, so that values differ by more than rounding or not at all; whole numbers give many ties.
thousandths = st.integers(-9000, 9000).map(lambda number: number / 1000)
logit_lists = st.one_of(
    st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=30),
    st.lists(thousandths, min_size=1, max_size=30),
)
parts = st.floats(0.01, 1)


def sampler(size: int, **changed: Any) -> Sampler:
    return Sampler(SamplingSettings(**{"top_k": None, **changed}), vocabulary_size=size)


def candidates(one: Sampler, logits: Tensor, history: list[int]) -> Probabilities:
    """What `choose` draws from."""
    ids, weights = one._weights(one._read(logits), history, None)
    found = range(len(weights)) if ids is None else ids.tolist()
    assert list(found) == sorted(set(found))
    return normalised({index: weight for index, weight in zip(found, weights.tolist(), strict=True) if weight})


def drawn_from(logits: list[float], history: list[int] | None = None, **changed: Any) -> Probabilities:
    return candidates(sampler(len(logits), **changed), torch.tensor(logits, dtype=torch.float64), history or [])


def normalised(weights: Probabilities) -> Probabilities:
    total = math.fsum(weights.values())
    return {index: weight / total for index, weight in weights.items()}


def softmax(logits: Probabilities, temperature: float = 1.0) -> Probabilities:
    best = max(logits.values())
    return normalised({index: math.exp((value - best) / temperature) for index, value in logits.items()})


def keep_top_k(p: Probabilities, count: int, nudge: float) -> Probabilities:
    return normalised({i: x for i, x in p.items() if sum(other > x for other in p.values()) < count})


def keep_top_p(p: Probabilities, mass: float, nudge: float) -> Probabilities:
    """A token stays if those that are likelier have less than the mass."""
    likelier = {i: math.fsum(other for other in p.values() if other > x) for i, x in p.items()}
    return normalised({i: x for i, x in p.items() if likelier[i] < mass + nudge})


def keep_min_p(p: Probabilities, part: float, nudge: float) -> Probabilities:
    return normalised({i: x for i, x in p.items() if x >= (part + nudge) * max(p.values()) or x == max(p.values())})


def keep_typical(p: Probabilities, mass: float, nudge: float) -> Probabilities:
    """A token stays if those whose surprise is nearer to the entropy have less than the mass."""
    entropy = math.fsum(-x * math.log(x) for x in p.values())
    distance = {i: abs(-math.log(x) - entropy) for i, x in p.items()}
    nearer = {
        i: math.fsum(p[other] for other in p if distance[other] < distance[i] - max(nudge, 0) and p[other] != p[i])
        for i in p
    }
    return normalised({i: x for i, x in p.items() if nearer[i] < mass + nudge})


def same(found: Probabilities, expected: Probabilities) -> bool:
    return found.keys() == expected.keys() and all(math.isclose(found[i], expected[i], rel_tol=1e-9) for i in found)


@pytest.mark.parametrize(
    ("name", "keep", "values"),
    [
        ("top_k", keep_top_k, st.integers(1, 40)),
        ("top_p", keep_top_p, parts),
        ("min_p", keep_min_p, parts),
        ("typical", keep_typical, parts),
    ],
)
def test_each_filter_keeps_what_its_definition_says(name: str, keep: Any, values: Any) -> None:
    @settings(max_examples=examples(150), deadline=None)
    @given(logits=logit_lists, value=values, temperature=st.floats(0.3, 3))
    def check(logits: list[float], value: float, temperature: float) -> None:
        found = drawn_from(logits, temperature=temperature, **{name: value})
        p = softmax(dict(enumerate(logits)), temperature)
        # Where a sum meets the bound exactly, rounding decides; either answer is right.
        assert any(same(found, keep(p, value, nudge)) for nudge in (0.0, -1e-12, 1e-12))

    check()


@settings(max_examples=examples(150), deadline=None)
@given(
    logits=st.lists(thousandths, min_size=2, max_size=30),
    top_k=st.integers(1, 20),
    top_p=parts,
    min_p=parts,
    typical=parts,
)
def test_filters_follow_one_another(
    logits: list[float], top_k: int, top_p: float, min_p: float, typical: float
) -> None:
    found = drawn_from(logits, top_k=top_k, top_p=top_p, min_p=min_p, typical=typical)
    expected = []
    for nudge in (0.0, -1e-12, 1e-12):
        p = keep_top_p(keep_top_k(softmax(dict(enumerate(logits))), top_k, nudge), top_p, nudge)
        expected.append(keep_typical(keep_min_p(p, min_p, nudge), typical, nudge))
    assert any(same(found, one) for one in expected)


@settings(max_examples=examples(100), deadline=None)
@given(
    logits=st.lists(thousandths, min_size=3, max_size=12),
    history=st.lists(st.integers(0, 2), max_size=6),
    penalty=st.floats(0.5, 3),
    window=st.integers(1, 4),
    bias=st.dictionaries(st.integers(0, 2), st.floats(-5, 5)),
)
def test_bias_then_penalty_then_temperature(
    logits: list[float], history: list[int], penalty: float, window: int, bias: dict[int, float]
) -> None:
    expected = dict(enumerate(logits))
    for index, value in bias.items():
        expected[index] += value
    for index in set(history[-window:]):
        expected[index] = expected[index] / penalty if expected[index] > 0 else expected[index] * penalty
    found = drawn_from(
        logits, history, logit_bias=bias, repetition_penalty=penalty, repetition_window=window, temperature=0.7
    )
    assert same(found, softmax(expected, 0.7))


def test_what_is_drawn_has_the_frequencies_of_the_probabilities() -> None:
    logits = torch.randn(12, generator=torch.Generator().manual_seed(0)).double() * 1.5
    draws, one = 8_000, sampler(12, top_p=0.95, temperature=1.3, seed=7)
    possible = candidates(one, logits, [])
    counts = np.bincount([one.choose(logits).token for _ in range(draws)], minlength=12)
    ids = list(possible)
    assert counts.sum() == counts[ids].sum()
    expected = np.array(list(possible.values())) * draws
    chi_square = float(((counts[ids] - expected) ** 2 / expected).sum())
    freedom = len(ids) - 1
    assert freedom >= 5
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_the_same_seed_gives_the_same_tokens() -> None:
    logits = torch.zeros(1000)
    first, again, other = (sampler(1000, seed=seed) for seed in (3, 3, 4))
    tokens = [first.choose(logits).token for _ in range(20)]
    assert tokens == [again.choose(logits).token for _ in range(20)]
    assert tokens != [other.choose(logits).token for _ in range(20)]


def test_rounding_does_not_change_the_token_where_the_order_of_near_equals_would() -> None:
    logits = torch.zeros(500, dtype=torch.float64)
    noise = torch.randn(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1e-9
    one, other = sampler(500, top_p=0.999), sampler(500, top_p=0.999)
    same_tokens = [one.choose(logits).token == other.choose(logits + noise).token for _ in range(200)]
    assert sum(same_tokens) >= 190


def test_greedy_takes_the_likeliest_token_and_no_random_number() -> None:
    for seed in range(20):
        logits = torch.randn(50, generator=torch.Generator().manual_seed(seed))
        one = sampler(50, greedy=True, top_k=3)
        before = one._generator.get_state()
        assert one.choose(logits).token == int(logits.argmax())
        assert torch.equal(one._generator.get_state(), before)
    assert sampler(4, greedy=True).choose(torch.tensor([0.0, 1, 1, 0])).token == 1
    assert sampler(3, greedy=True, logit_bias={1: -2.0}).choose(torch.tensor([0.0, 1, 0.5])).token == 2
    penalised = sampler(3, greedy=True, repetition_penalty=3)
    assert penalised.choose(torch.tensor([0.5, 1, 0.1]), [1]).token == 0


@pytest.mark.parametrize("temperature", [1e-300, 1e-3])
def test_a_temperature_near_zero_takes_the_likeliest_token(temperature: float) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(5)) * 30
    assert sampler(50, temperature=temperature).choose(logits).token == int(logits.argmax())


def test_forbidden_tokens_are_never_drawn() -> None:
    logits = torch.tensor([9.0, 0, 0, 0])
    one = Sampler(SamplingSettings(logit_bias={2: 1.0}).forbidding([0, 3]), vocabulary_size=4)
    assert {one.choose(logits).token for _ in range(200)} == {1, 2}
    assert {one.choose(logits, allowed=[3, 1, 0, 1]).token for _ in range(50)} == {1}
    assert sampler(4, greedy=True).choose(logits, allowed=[2]).token == 2
    masked = torch.tensor([-math.inf, 0, -math.inf, 0])
    assert {sampler(4, top_k=3, typical=0.9, seed=n).choose(masked).token for n in range(50)} == {1, 3}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_log_probabilities_are_those_of_the_model_itself(dtype: torch.dtype) -> None:
    logits = (torch.randn(300, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 4).to(dtype)
    expected = logits.double().log_softmax(dim=0)
    one = sampler(300, temperature=0.5, top_p=0.5, logit_bias={7: 30.0, 8: 30.0}, top_log_probabilities=5)
    chosen = one.choose(logits, [1, 2])
    assert chosen.token in (7, 8)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert chosen.log_probability == pytest.approx(float(expected[chosen.token]), abs=tolerance)
    best = expected.topk(5)
    if dtype != torch.bfloat16:  # which has ties
        assert [index for index, _ in chosen.alternatives] == best.indices.tolist()
    assert [value for _, value in chosen.alternatives] == pytest.approx(best.values.tolist(), abs=tolerance)


def test_alternatives_of_equal_probability_come_by_their_ids() -> None:
    chosen = sampler(4, top_log_probabilities=9, greedy=True).choose(torch.tensor([0.0, 1, 0, 1]))
    assert [index for index, _ in chosen.alternatives] == [1, 3, 0, 2]
    assert sampler(2).choose(torch.zeros(2)).alternatives == ()
    assert isinstance(chosen, Chosen)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([0.0, math.nan], "the model gave NaN"),
        ([0.0, math.inf], "the model gave inf"),
        ([-math.inf, -math.inf], "the model gave -inf for every token"),
        ([0.0, 0.0, 0.0], r"logits of shape \[2\]"),
    ],
)
def test_logits_that_no_choice_can_come_of(logits: list[float], message: str) -> None:
    for greedy in (False, True):
        with pytest.raises(DataError, match=message):
            sampler(2, greedy=greedy).choose(torch.tensor(logits))


def test_settings_that_leave_nothing() -> None:
    logits = torch.tensor([0.0, 2.0])
    for greedy in (False, True):
        with pytest.raises(DataError, match="leave a token to choose; got 2 allowed tokens"):
            sampler(2, greedy=greedy, logit_bias={0: -math.inf, 1: -math.inf}).choose(logits)
        with pytest.raises(DataError, match="got 0 allowed tokens"):
            sampler(2, greedy=greedy).choose(logits, allowed=[])
        with pytest.raises(DataError, match="must leave logits finite"):
            sampler(2, greedy=greedy, repetition_penalty=5e-324).choose(logits, [1])
    with pytest.raises(DataError, match="allowed must have ids from 0 to 1; got 2"):
        sampler(2).choose(logits, allowed=[2])
    with pytest.raises(DataError, match="history must have ids from 0 to 1; got -1"):
        sampler(2, repetition_penalty=2).choose(logits, [-1])
    with pytest.raises(ConfigError, match="logit_bias must be for ids from 0 to 1; got 5"):
        sampler(2, logit_bias={5: 1.0})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a finite number above 0; got 0.0. Set greedy"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": 0}, "top_k must be at least 1, or None; got 0. Use None to allow all tokens"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"min_p": -0.1}, "min_p must be from 0 to 1"),
        ({"typical": 0.0}, "typical"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be a finite number above 0"),
        ({"repetition_penalty": math.inf}, "repetition_penalty"),
        ({"repetition_window": 0}, "repetition_window"),
        ({"logit_bias": {3: math.inf}}, "got inf for the id 3"),
        ({"logit_bias": {3: math.nan}}, "got nan for the id 3"),
        ({"top_log_probabilities": -1}, "top_log_probabilities"),
        ({"seed": -1}, "seed must be from 0"),
        ({"seed": 2**64}, "seed must be from 0"),
        ({"top_k": -3, "top_p": 2.0}, "top_k .* top_p"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplingSettings(**wrong)
