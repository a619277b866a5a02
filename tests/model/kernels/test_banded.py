"""The banded kernel: what it supports, recomputation, half precision, autocast; and the native one under autocast."""

import pytest
import torch
from torch import Tensor

from segue.model import kernels
from segue.model.kernels import ScoreTerms, banded, definition, native
from segue.model.positions import RelativeTerms
from tests.model.kernels.cases import (
    F32,
    F64,
    Case,
    Shape,
    bits,
    check,
    check_same_bits,
    gradients,
    make,
    needs_library,
)


def test_banded_applies_to_content_positions_and_segments() -> None:
    case = make(Shape())
    assert banded.applies(case.terms)
    assert banded.applies(ScoreTerms())
    assert not banded.applies(ScoreTerms(relative=RelativeTerms(bias_SRH=torch.zeros(1, 15, 2))))
    both = RelativeTerms(key_SRHE=case.leaves["position_key"], value_SRHE=case.leaves["position_key"])
    assert not banded.applies(ScoreTerms(relative=both))


@pytest.mark.parametrize("shape", [Shape(queries=300), Shape(queries=300, bidirectional=False), Shape(at="unsorted")])
def test_banded_computes_again_what_it_does_not_keep(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make(shape)
    kept = bits(banded, case, dropout=0.2)
    monkeypatch.setattr(banded, "MOST_KEPT", 0)
    check_same_bits(kept, bits(banded, case, dropout=0.2))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("at", ["all", "unsorted"])
@pytest.mark.parametrize("relative", [True, False])
def test_banded_as_on_a_gpu(bidirectional: bool, at: str, relative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it knows the mask by its shape only, and takes other tiles: here with the numbers of a CPU."""
    monkeypatch.setattr(banded, "_on_cpu", lambda x: False)
    shape = Shape(queries=530, memory=7, bidirectional=bidirectional, at=at, relative=relative, heads=1, rows=1)
    check(banded, make(shape), dropout=0.1)


@pytest.mark.parametrize("dtype", [F32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("at", ["all", "unsorted"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_banded_never_asks_a_device_for_numbers(dtype: torch.dtype, at: str, bidirectional: bool) -> None:
    """The meta device has shapes only: a kernel that reads a number, or mixes devices, fails on it."""
    case = make(Shape(queries=530, at=at, bidirectional=bidirectional)).to(dtype, device="meta")
    result = case.run(banded, dropout=0.1)
    assert result.shape == case.leaves["query"].shape
    assert result.device.type == "meta"
    for name, grad in gradients(result, case).items():
        assert grad.shape == case.leaves[name].shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("at", ["all", "unsorted"])
def test_banded_in_half_precision(dtype: torch.dtype, at: str) -> None:
    case = make(Shape(queries=150, memory=10, at=at, width=16, dtype=dtype))
    exact = case.to(F64)
    got, want = case.run(banded, dropout=0.1), exact.run(definition, dropout=0.1)
    check_near(got, want, error=0.02)
    for x, y in zip(gradients(got, case).values(), gradients(want, exact).values(), strict=True):
        assert x.dtype == dtype
        check_near(x, y, error=0.03)


def check_near(got: Tensor, want: Tensor, *, error: float) -> None:
    assert (got.to(F64) - want).norm() < error * want.norm()


def test_banded_under_autocast() -> None:
    """Inputs as the projections give them, biases as the parameters are: products in bfloat16, gradients as inputs."""
    case = make(Shape(queries=60, width=16, dtype=F32))
    exact = case.to(F64)
    leaves = {n: x if "bias" in n else x.detach().bfloat16().requires_grad_() for n, x in case.leaves.items()}
    mixed = Case(leaves, case.view)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = mixed.run(banded)
    assert got.dtype == torch.bfloat16
    want = exact.run(definition)
    check_near(got, want, error=0.02)
    exact_grads = gradients(want, exact)
    for name, grad in gradients(got, mixed).items():
        assert grad.dtype == leaves[name].dtype
        check_near(grad, exact_grads[name], error=0.03)


@needs_library
def test_native_under_autocast_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was projected in bfloat16 is read by the native kernel; its own sums are those of float32."""
    monkeypatch.delattr(banded, "attend")
    monkeypatch.delattr(definition, "attend")
    case = make(Shape(queries=60, width=16, dtype=F32))
    projected = ("query", "key", "value", "position_key")
    leaves = {n: x.detach().bfloat16().requires_grad_() if n in projected else x for n, x in case.leaves.items()}
    mixed = Case(leaves, case.view)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = mixed.run(kernels)
    same = Case({n: x.detach().float().requires_grad_() for n, x in leaves.items()}, case.view)
    want = same.run(native)
    assert got.dtype == F32
    assert torch.equal(got, want)
    want_gradients = gradients(want, same)
    for name, gradient in gradients(got, mixed).items():
        assert gradient.dtype == leaves[name].dtype
        assert torch.equal(gradient, want_gradients[name].to(gradient.dtype))


def test_banded_opts_out_of_compilation() -> None:
    case = make(Shape())
    compiled = torch.compile(lambda: case.run(banded) * 2, backend="eager")
    torch.testing.assert_close(compiled(), case.run(definition) * 2, rtol=0, atol=1e-10)
