"""Law 6 for the fast kernels: they equal the definition, forward and gradient, dropout included, whatever comes in."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from segue.model.kernels import banded, definition, native
from tests.examples import examples
from tests.model.kernels.cases import (
    F32,
    F64,
    Case,
    Shape,
    bits,
    check,
    check_close,
    check_same_bits,
    each_kernel,
    gradients,
    make,
    needs_library,
)

several = settings(max_examples=examples(150), deadline=None, derandomize=True)

# ---------------------------------------------------------------------------------------------------------- cases


MASKS = ("random", "full", "span", "nothing")

# --------------------------------------------------------------------------------------------- equal to definition


shapes = st.builds(
    Shape,
    rows=st.integers(1, 3),
    heads=st.integers(1, 3),
    width=st.sampled_from([1, 3, 5, 16, 20, 64]),
    queries=st.integers(1, 70),
    memory=st.integers(0, 70),
    bidirectional=st.booleans(),
    mask=st.sampled_from(MASKS),
    at=st.sampled_from(["all", "all", "sorted", "unsorted", "repeated"]),
    relative=st.sampled_from([True, True, False]),
    own_signs=st.booleans(),
    biases=st.booleans(),
    segments=st.booleans(),
    dtype=st.sampled_from([F64, F64, F32]),
    seed=st.integers(0, 999),
)


@each_kernel
@several
@given(shape=shapes, dropout=st.sampled_from([0.0, 0.1, 0.5]))
def test_any_shape(kernel: ModuleType, shape: Shape, dropout: float) -> None:
    check(kernel, make(shape), dropout=dropout)


@pytest.mark.one_in(3)
@each_kernel
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(100, 300), (49, 513), (300, 300), (1, 600), (130, 131)])
def test_sizes_across_blocks(
    kernel: ModuleType, queries: int, keys: int, dtype: torch.dtype, bidirectional: bool
) -> None:
    shape = Shape(queries=queries, memory=keys - queries, bidirectional=bidirectional, dtype=dtype, heads=3, width=8)
    check(kernel, make(shape), dropout=0.1)


@each_kernel
@pytest.mark.parametrize("at", ["sorted", "unsorted", "repeated"])
def test_queries_anywhere_in_a_long_segment(kernel: ModuleType, at: str) -> None:
    check(kernel, make(Shape(queries=290, memory=20, at=at, own_signs=at == "sorted")), dropout=0.1)


@each_kernel
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_masks_over_several_bands(kernel: ModuleType, kind: str, bidirectional: bool) -> None:
    check(kernel, make(Shape(queries=280, memory=40, mask=kind, bidirectional=bidirectional, heads=1)))


@each_kernel
def test_queries_that_see_nothing_read_zeros(kernel: ModuleType) -> None:
    case = make(Shape(queries=9, mask="random"))
    result = case.run(kernel, dropout=0.5)
    blind_BQ = ~case.view.mask_BQK.any(dim=-1)
    assert blind_BQ[:, ::4].all()
    assert torch.equal(result[blind_BQ], torch.zeros_like(result[blind_BQ]))
    assert torch.equal(gradients(result, case)["query"][blind_BQ], torch.zeros_like(result[blind_BQ]))


@each_kernel
def test_large_scores(kernel: ModuleType) -> None:
    """Scores far apart and far from zero, as an untrained or a broken model may have."""
    case = make(Shape(dtype=F32, mask="full"))
    case.leaves["query"].data *= 1e4
    got, want = case.run(kernel), case.to(F64).run(definition)
    torch.testing.assert_close(got.to(F64), want, rtol=0, atol=1e-2)
    assert all(x.isfinite().all() for x in gradients(got, case).values())


gradcheck_shapes = {
    "bidirectional": Shape(rows=2, heads=2, width=3, queries=4, memory=2),
    "causal": Shape(rows=2, heads=1, width=2, queries=5, memory=1, bidirectional=False, mask="full"),
    "gathered": Shape(rows=2, heads=1, width=3, queries=5, memory=2, at="unsorted"),
    "own signs": Shape(rows=2, heads=1, width=3, queries=3, memory=2, own_signs=True, segments=False),
    "content": Shape(rows=1, heads=2, width=3, queries=4, relative=False, biases=False, segments=False),
}


@each_kernel
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["projected", "every"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", gradcheck_shapes)
def test_gradcheck(kernel: ModuleType, name: str, dropout: float, every: bool) -> None:
    """Against differences, in a random direction, or number by number."""
    case = make(gradcheck_shapes[name])

    def function(*tensors: Tensor) -> Tensor:
        return Case(dict(zip(case.leaves, tensors, strict=True)), case.view).run(kernel, dropout=dropout)

    leaves = tuple(case.leaves.values())
    assert torch.autograd.gradcheck(function, leaves, check_undefined_grad=False, fast_mode=not every)


# ----------------------------------------------------------------------------------------------- layouts and modes


def fused(case: Case) -> tuple[Tensor, list[Tensor]]:
    """Query, key and value as thirds of one product."""
    leaf = torch.cat([case.leaves[n] for n in ("query", "key", "value")], dim=-1).detach().requires_grad_()
    return leaf, list(leaf.chunk(3, dim=-1))


def heads_first(case: Case) -> tuple[Tensor, list[Tensor]]:
    """Stored as [.., H, B, Q, E]."""
    leaf = torch.stack([case.leaves[n] for n in ("query", "key", "value")]).permute(0, 3, 1, 2, 4)
    leaf = leaf.detach().contiguous().requires_grad_()
    return leaf, list(leaf.permute(0, 2, 3, 1, 4))


def wide_steps(case: Case) -> tuple[Tensor, list[Tensor]]:
    """Stored with the head width outermost, so that its neighbours are far apart."""
    leaf = torch.stack([case.leaves[n] for n in ("query", "key", "value")]).movedim(-1, 0)
    leaf = leaf.detach().contiguous().requires_grad_()
    return leaf, list(leaf.movedim(0, -1))


def one_for_all(case: Case) -> tuple[Tensor, list[Tensor]]:
    """The same numbers for all rows of the batch, without a copy."""
    leaf = torch.stack([case.leaves[n][:1] for n in ("query", "key", "value")]).detach().requires_grad_()
    return leaf, list(leaf.expand(-1, case.leaves["key"].shape[0], -1, -1, -1))


@each_kernel
@pytest.mark.parametrize("layout", [fused, heads_first, wide_steps, one_for_all])
@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_layouts(kernel: ModuleType, layout: Callable[[Case], tuple[Tensor, list[Tensor]]], dtype: torch.dtype) -> None:
    case = make(Shape(memory=0, queries=50, width=4, dtype=dtype))
    mask_BQK = case.view.mask_BQK.mT.contiguous().mT
    view = replace(case.view, mask_BQK=mask_BQK)
    weight = torch.randn(2, 4, 2, 50, generator=torch.Generator().manual_seed(1), dtype=F64).permute(0, 3, 2, 1)
    results = []
    for which, number in ((kernel, dtype), (definition, F64)):
        same = case.to(number)
        leaf, (query, key, value) = layout(same)
        result = which.attend(query, key, value, terms=same.terms, view=view, dropout=0.0)
        (grad,) = torch.autograd.grad((result * weight.to(number)).sum(), [leaf])
        results.append((result, grad))
    for got, want in zip(*results, strict=True):
        check_close(layout.__name__, got, want)


@each_kernel
@pytest.mark.parametrize(
    "names",
    [
        *(("query",), ("key",), ("value",), ("position_key",), ("content_bias",), ("position_bias",)),
        *(("segment_key",), ("segment_bias",), ("key", "value"), ("query", "segment_key"), ("value", "position_key")),
    ],
    ids="-".join,
)
def test_gradients_for_some(kernel: ModuleType, names: tuple[str, ...]) -> None:
    check(kernel, make(Shape(queries=140, heads=1)).with_gradient_for(*names), dropout=0.1)


@each_kernel
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradient(kernel: ModuleType, context: Callable[[], Any]) -> None:
    case = make(Shape())
    want = case.run(kernel, dropout=0.1)
    with context():
        got = case.run(kernel, dropout=0.1)
    assert got.grad_fn is None
    assert torch.equal(got, want)


@each_kernel
def test_no_second_gradient(kernel: ModuleType) -> None:
    """Said, not silently wrong."""
    case = make(Shape())
    (grad,) = torch.autograd.grad(case.run(kernel).pow(2).sum(), [case.leaves["value"]], create_graph=True)
    with pytest.raises(RuntimeError):
        grad.sum().backward()


@each_kernel
def test_one_draw_of_the_generator_where_something_is_dropped(kernel: ModuleType) -> None:
    case = make(Shape())
    for dropout in (0.0, 0.1):
        case.run(kernel, dropout=dropout)
        got = torch.rand(())
        case.run(definition, dropout=dropout)
        assert got == torch.rand(())


@each_kernel
def test_the_same_bits_twice(kernel: ModuleType) -> None:
    case = make(Shape(queries=200, memory=90, dtype=F32))
    check_same_bits(bits(kernel, case, dropout=0.1), bits(kernel, case, dropout=0.1))


@needs_library
@pytest.mark.parametrize("at", ["all", "unsorted"])
def test_native_gives_the_same_bits_on_any_number_of_threads(at: str) -> None:
    case = make(Shape(rows=3, heads=3, queries=200, memory=90, at=at, dtype=F32))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(bits(native, case, dropout=0.1))
    finally:
        torch.set_num_threads(before)
    check_same_bits(results[0], results[1])
    check_same_bits(results[0], results[2])


@each_kernel
def test_checkpointing_changes_nothing(kernel: ModuleType) -> None:
    case = make(Shape(queries=60, dtype=F32))

    def gradient(run: Callable[[], Tensor]) -> list[Tensor]:
        torch.manual_seed(5)
        result = run()
        return [result, *gradients(result, case).values()]

    def attend() -> Tensor:
        x = case.leaves
        result: Tensor = kernel.attend(x["query"], x["key"], x["value"], terms=case.terms, view=case.view, dropout=0.3)
        return result

    check_same_bits(gradient(attend), gradient(lambda: checkpoint(attend, use_reentrant=False)))


@each_kernel
def test_a_nan_is_not_hidden(kernel: ModuleType) -> None:
    """Who sees it gets it. Who does not, gets none from another's query."""
    case = make(Shape(queries=60, dtype=F32))
    with torch.no_grad():
        case.leaves["query"][0, 5, 1, 0] = torch.nan
    result = case.run(kernel)
    assert case.view.mask_BQK[0, 5].any()
    assert torch.equal(result.isnan(), case.run(definition).isnan())
    for name in ("key", "value"):
        case = make(Shape(queries=60, dtype=F32))
        with torch.no_grad():
            case.leaves[name][0, 5, 1, 0] = torch.nan
        result = case.run(kernel)
        sees_Q = case.view.mask_BQK[0, :, 5]
        assert sees_Q.any()
        assert result[0, sees_Q, 1].isnan().any(dim=-1).all()
        assert result[:, :, 0].isfinite().all()
        assert result[1].isfinite().all()


def saved(run: Callable[[], Tensor]) -> int:
    """How many numbers are kept for the backward pass."""
    sizes = {}

    def pack(x: Tensor) -> Tensor:
        sizes[x.data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = run()  # alive until here, so that no address is used twice
    assert result.grad_fn is not None
    return sum(sizes.values())


@each_kernel
def test_memory_grows_with_the_length_only(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(banded, "MOST_KEPT", 1)
    sizes = []
    for queries in (64, 128, 256):
        case = make(Shape(rows=1, heads=1, queries=queries, memory=0, segments=False, dtype=F32))
        sizes.append(saved(lambda case=case: case.run(kernel, dropout=0.1)))
    assert sizes[2] < 2.1 * sizes[1] < 4.5 * sizes[0]
