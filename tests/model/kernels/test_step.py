"""Products with few rows and layers for one token, in C++, against PyTorch's own operations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from segue.config import model_config
from segue.model import LanguageModel
from segue.model.kernels import library
from segue.model.kernels.step import Product
from segue.model.streaming import Streamer
from tests.examples import examples

needs_library = pytest.mark.skipif(not library.available(), reason="the native library is not built here")


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.integers(1, 20),
    outputs=st.integers(1, 40),
    inputs=st.integers(1, 40),
    with_bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_product_is_a_linear(rows: int, outputs: int, inputs: int, with_bias: bool, dtype: torch.dtype) -> None:
    x, weight = drawn(rows, inputs, dtype=dtype), drawn(outputs, inputs, dtype=dtype, seed=1)
    bias = drawn(outputs, dtype=dtype, seed=2) if with_bias else None
    found = Product(weight, bias, eight_bits=False)(x)
    torch.testing.assert_close(found, F.linear(x, weight, bias), rtol=0, atol=1e-12 if dtype == torch.float64 else 2e-5)


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.integers(1, 20), outputs=st.integers(1, 40), inputs=st.integers(1, 40))
def test_eight_bits_are_rounded_once(rows: int, outputs: int, inputs: int) -> None:
    """The result is that of the rounded matrix, and no weight is off by more than half a step of its output's scale."""
    x, weight = drawn(rows, inputs, dtype=torch.float64), drawn(outputs, inputs, dtype=torch.float64, seed=1)
    weight[0] = 0
    product = Product(weight, None, eight_bits=True)
    torch.testing.assert_close(product(x), F.linear(x, product.dense()), rtol=0, atol=1e-10)
    step_O1 = weight.abs().amax(dim=1, keepdim=True) / 127
    assert bool(((product.dense() - weight).abs() <= step_O1 / 2 + 1e-12).all())
    single = Product(weight.float(), None, eight_bits=True)
    torch.testing.assert_close(single(x.float()).double(), product(x), rtol=0, atol=1e-3)


def test_leading_axes_and_strides() -> None:
    weight, x = drawn(5, 6), drawn(2, 3, 12, seed=3)[..., ::2]
    torch.testing.assert_close(Product(weight, None, eight_bits=False)(x), F.linear(x, weight))


@needs_library
@pytest.mark.parametrize("objective", ["causal", "permutation"])
@pytest.mark.parametrize("eight_bits", [False, True])
@pytest.mark.parametrize(
    "choices",
    [
        {"num_heads": 2, "head_width": 16},
        {"num_heads": 3, "head_width": 10, "norm_first": True, "final_norm": True, "activation": "gelu"},
        {"num_heads": 1, "head_width": 72, "activation": "gelu_tanh", "attention_bias": True},
        {"num_heads": 2, "head_width": 8, "positions": {"kind": "absolute"}, "inner_width": 7},
    ],
)
def test_token_by_token_is_many_at_once(objective: str, eight_bits: bool, choices: dict[str, object]) -> None:
    """One token at a time goes through C++, many through PyTorch: both give the same, in float32 too."""
    base: dict[str, object] = {"num_layers": 2, "width": 20, "inner_width": 33, "dropout": 0.0, "init_std": 0.2}
    config = model_config(
        objective=objective, vocabulary={"size": 29}, memory={"length": 7, "initial": "empty"}, **(base | choices)
    )
    torch.manual_seed(0)
    streamer = Streamer(LanguageModel(config), memory_length=7, eight_bits=eight_bits)
    ids = torch.randint(0, 29, (3, 25), generator=torch.Generator().manual_seed(1))
    many, one = streamer.new_cache(3), streamer.new_cache(3)
    expected = streamer.logits(streamer.read(ids, many, places=25))
    found = torch.cat([streamer.logits(streamer.read(ids[:, n : n + 1], one)) for n in range(25)], dim=1)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@needs_library
def test_the_number_of_threads_changes_nothing() -> None:
    config = model_config(
        objective="causal", vocabulary={"size": 29}, memory={"length": 9}, num_layers=2, width=24, num_heads=3
    )
    torch.manual_seed(0)
    streamer = Streamer(LanguageModel(config), memory_length=9)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            cache = streamer.new_cache()
            for index in range(20):
                state = streamer.read(torch.tensor([[index]]), cache)
            found.append(streamer.logits(state))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@needs_library
def test_nan_stays_nan() -> None:
    config = model_config(objective="causal", vocabulary={"size": 9}, memory={"length": 4}, num_layers=1, width=16)
    model = LanguageModel(config)
    with torch.no_grad():
        model.trunk.vocabulary.tables[0][3] = torch.nan
    streamer = Streamer(model, memory_length=4)
    cache = streamer.new_cache()
    streamer.read(torch.tensor([[1]]), cache)
    assert bool(streamer.logits(streamer.read(torch.tensor([[3]]), cache)).isnan().all())
    assert bool(streamer.logits(streamer.read(torch.tensor([[1]]), cache)).isnan().all())
