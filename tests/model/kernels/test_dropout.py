"""Dropout by a hash: how often and how independently it drops, and that it behaves as PyTorch's own.

The bounds are those of a fair coin: a count of n throws is within five standard deviations of its mean, which for a
fair one fails once in two million. The seeds are fixed, so what holds once holds always.
"""

import math

import pytest
import torch
from torch import Tensor

from segue.model.kernels import library
from segue.model.kernels.dropout import Dropout, draw_seed, dropout, keep_mask, keep_rows, threshold

needs_library = pytest.mark.skipif(not library.available(), reason="the native library is not built here")
MASK_64 = 2**64 - 1


def check_fair(keep: Tensor, probability: float) -> None:
    """As many are kept as a coin would keep."""
    n = keep.numel()
    deviation = math.sqrt(n * probability * (1 - probability))
    assert abs(int(keep.sum()) - n * (1 - probability)) <= 5 * deviation


# ----------------------------------------------------------------------------------------------------- the mask


def hashed(seed: int, row: int, column: int) -> int:
    """The definition again, in Python's integers: a number below 2^32."""
    key = (seed + row * 0x9E3779B97F4A7C15) & MASK_64
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
    key = (key ^ key >> 27) * 0x94D049BB133111EB & MASK_64
    x = (key >> 32) ^ (column * 0x9E3779B1 & 0xFFFFFFFF)
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**62 + 12345, 2**63 - 1])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_mask_is_a_hash_of_seed_row_and_column(seed: int, probability: float) -> None:
    keep = keep_mask(seed, rows=7, columns=9, probability=probability)
    want = [[hashed(seed, row, column) >= threshold(probability) for column in range(9)] for row in range(7)]
    assert keep.tolist() == want


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_rows_and_columns_of_a_mask(seed: int) -> None:
    whole = keep_mask(seed, rows=40, columns=30, probability=0.4)
    row = torch.tensor([[3, 39], [0, 17]])
    assert torch.equal(keep_rows(seed, row, columns=slice(5, 21), probability=0.4), whole[row, 5:21])


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_how_often(probability: float, seed: int) -> None:
    keep = keep_mask(seed, rows=1000, columns=1000, probability=probability)
    check_fair(keep, probability)
    # Every row and every column for itself: the counts spread as those of a coin, neither more nor less.
    for counts in (keep.sum(0).double(), keep.sum(1).double()):
        assert 0.8 < float(counts.var()) / (1000 * probability * (1 - probability)) < 1.2


@pytest.mark.parametrize("probability", [0.1, 0.5])
@pytest.mark.parametrize(("down", "right"), [(0, 1), (1, 0), (1, 1), (0, 2), (0, 64), (64, 0), (1, -1), (512, 512)])
def test_neighbours_are_independent(probability: float, down: int, right: int) -> None:
    """Both are dropped as often as the square of the probability says. Each one is in two pairs, which widens the
    deviation of the count."""
    p, size = probability, 1536
    drop = ~keep_mask(11, rows=size, columns=size, probability=p)
    pairs = int((drop & drop.roll((down, right), (0, 1))).sum())
    deviation = size * math.sqrt(p**2 * (1 - p**2) + 2 * p**3 * (1 - p))
    assert abs(pairs - size**2 * p**2) <= 5 * deviation


@pytest.mark.parametrize("other", [12, 11 + 2**32, 11 + 2**62])
def test_seeds_are_independent(other: int) -> None:
    drop, another = (~keep_mask(seed, rows=1000, columns=1000, probability=0.3) for seed in (11, other))
    check_fair(~(drop & another), 0.09)


def test_calls_that_follow_are_independent() -> None:
    torch.manual_seed(0)
    masks = [~keep_mask(draw_seed(), rows=500, columns=500, probability=0.3) for _ in range(6)]
    for i, drop in enumerate(masks):
        for another in masks[:i]:
            check_fair(~(drop & another), 0.09)


def test_threshold() -> None:
    assert [threshold(p) for p in (0.0, 0.5, 1.0)] == [0, 2**31, 2**32 - 1]
    assert keep_mask(5, rows=50, columns=50, probability=0.0).all()


# ---------------------------------------------------------------------------------------------------- the function


def expected(x: Tensor, probability: float, seed: int) -> Tensor:
    """By the definition, with the seed that the next call draws."""
    torch.manual_seed(seed)
    columns = x.shape[-1] if x.dim() else 1
    keep = keep_mask(draw_seed(), rows=x.numel() // max(1, columns), columns=columns, probability=probability)
    return torch.where(keep.view(x.shape), x / (1 - probability), torch.zeros((), dtype=x.dtype))


def example(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 7), (40,), (2, 1), (), (0,), (3, 0), (0, 4), (1, 1000)], ids=str)
@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_forward(shape: tuple[int, ...], dtype: torch.dtype, probability: float) -> None:
    x = example(*shape, dtype=dtype)
    want = expected(x, probability, seed=4)
    torch.manual_seed(4)
    got = dropout(x, probability, training=True)
    assert got.shape == x.shape
    assert torch.equal(got == 0, want == 0)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_backward_drops_the_same(dtype: torch.dtype) -> None:
    x = example(30, 40, dtype=dtype).requires_grad_()
    result = dropout(x, 0.3, training=True)
    weight = example(40, 30, dtype=dtype).T  # a gradient that is not contiguous
    (grad,) = torch.autograd.grad(result, x, weight)
    assert grad.dtype == dtype
    torch.testing.assert_close(grad, torch.where(result == 0, 0.0, weight / 0.7).to(dtype))


def test_gradcheck() -> None:
    def function(x: Tensor) -> Tensor:
        torch.manual_seed(2)
        return dropout(x, 0.4, training=True)

    assert torch.autograd.gradcheck(function, example(4, 5, dtype=torch.float64).requires_grad_())


def test_non_contiguous_input_is_dropped_by_its_indices() -> None:
    x = example(8, 6, 5)
    for y in (x.transpose(0, 2), x[:, ::2], x[:1].expand(4, -1, -1)):
        want = expected(y, 0.5, seed=6)
        torch.manual_seed(6)
        torch.testing.assert_close(dropout(y, 0.5, training=True), want)


def test_nothing_happens_without_training_or_probability() -> None:
    x = example(5, 5)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert dropout(x, 0.0, training=True) is x
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 1.0, training=False) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_everything_is_dropped_with_probability_one() -> None:
    x = example(5, 5).requires_grad_()
    result = dropout(x, 1.0, training=True)
    assert torch.equal(result, torch.zeros(5, 5))
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.zeros(5, 5))


def test_the_input_stays_as_it_is() -> None:
    x = example(9, 9)
    before = x.clone()
    dropout(x, 0.5, training=True)
    assert torch.equal(x, before)


def test_the_seed_of_pytorch_decides() -> None:
    x = torch.ones(50, 50)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append([dropout(x, 0.5, training=True) for _ in range(2)])
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[1], strict=True))
    assert not torch.equal(results[0][0], results[0][1])
    assert not torch.equal(results[0][0], results[2][0])


@pytest.mark.parametrize("shape", [(3,), (200, 300)], ids=str)
def test_one_draw_a_call(shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    dropout(torch.ones(shape).requires_grad_(), 0.5, training=True).sum().backward()
    got = torch.rand(())
    torch.manual_seed(3)
    draw_seed()
    assert got == torch.rand(())


def test_a_module_as_that_of_pytorch() -> None:
    module, x = Dropout(0.5), example(20, 20)
    torch.manual_seed(8)
    got = module(x)
    torch.manual_seed(8)
    assert torch.equal(got, dropout(x, 0.5, training=True))
    assert module.eval()(x) is x
    assert list(module.state_dict()) == []


def test_the_mean_stays() -> None:
    torch.manual_seed(0)
    mean = float(dropout(torch.ones(1000, 1000), 0.1, training=True).mean())
    assert abs(mean - 1) < 5 * math.sqrt(0.1 / 0.9) / 1000  # a million numbers that are 0 or 1 / 0.9


# ------------------------------------------------------------------------------------------------------ the library


@needs_library
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(17, 33), (1, 1), (300, 256), (5, 0), (2, 3, 1001)], ids=str)
@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_native_masks_are_the_same_bits(
    shape: tuple[int, ...], dtype: torch.dtype, probability: float, seed: int
) -> None:
    x = torch.ones(shape, dtype=dtype)
    scale = 1 / (1 - probability)
    got = library.drop(x, seed=seed, threshold=threshold(probability), scale=scale)
    rows = math.prod(shape[:-1])
    keep = keep_mask(seed, rows=rows, columns=shape[-1], probability=probability).view(shape)
    assert torch.equal(got, keep.to(dtype) * scale)


@needs_library
def test_native_dropout_is_the_same_on_any_number_of_threads() -> None:
    x, before = example(301, 207), torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(library.drop(x, seed=9, threshold=threshold(0.3), scale=2.0))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@needs_library
def test_plain_and_native_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    x = example(60, 70)
    results = []
    for supported in (True, False):
        monkeypatch.setattr(library, "supports", lambda x, supported=supported: supported)
        torch.manual_seed(2)
        results.append(dropout(x, 0.25, training=True))
    torch.testing.assert_close(*results, rtol=1e-6, atol=0)
