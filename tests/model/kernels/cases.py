"""Cases for the kernels of attention, and comparisons with the definition."""

from dataclasses import dataclass, replace
from types import ModuleType

import pytest
import torch
from torch import Tensor

from segue.model.kernels import ScoreTerms, View, banded, definition, library, native
from segue.model.masks import causal_mask
from segue.model.positions import RelativeTerms, distances

F32, F64 = torch.float32, torch.float64
needs_library = pytest.mark.skipif(not library.available(), reason="the native library is not built here")
each_kernel = pytest.mark.parametrize(
    "kernel", [pytest.param(banded, id="banded"), pytest.param(native, id="native", marks=needs_library)]
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a case looks like; the numbers in it are random."""

    rows: int = 2
    heads: int = 2
    width: int = 5
    queries: int = 6
    memory: int = 3
    bidirectional: bool = True
    mask: str = "random"
    """One of MASKS."""
    at: str = "all"
    """Which positions ask: "all" in order, or "sorted", "unsorted" or "repeated" ones."""
    relative: bool = True
    own_signs: bool = False
    """Whether each row has position keys of its own."""
    biases: bool = True
    segments: bool = True
    dtype: torch.dtype = F64
    seed: int = 0


@dataclass(frozen=True)
class Case:
    """Leaves with a gradient, and what `attend` takes."""

    leaves: dict[str, Tensor]
    view: View

    @property
    def terms(self) -> ScoreTerms:
        get = self.leaves.get
        relative = RelativeTerms(key_SRHE=self.leaves["position_key"]) if "position_key" in self.leaves else None
        return ScoreTerms(
            relative=relative,
            content_bias_HE=get("content_bias"),
            position_bias_HE=get("position_bias"),
            segment_key_2HE=get("segment_key"),
            segment_bias_HE=get("segment_bias"),
        )

    def run(self, kernel: ModuleType, *, dropout: float = 0.0, seed: int = 3) -> Tensor:
        torch.manual_seed(seed)
        x = self.leaves
        result: Tensor = kernel.attend(
            x["query"], x["key"], x["value"], terms=self.terms, view=self.view, dropout=dropout
        )
        return result

    def to(self, dtype: torch.dtype | None = None, device: str | None = None) -> "Case":
        leaves = {n: x.detach().to(device, dtype).requires_grad_(x.requires_grad) for n, x in self.leaves.items()}
        moved = {n: x.to(device) for n, x in vars(self.view).items() if isinstance(x, Tensor)}
        return Case(leaves, replace(self.view, **moved))

    def with_gradient_for(self, *names: str) -> "Case":
        return Case({n: x.detach().requires_grad_(n in names) for n, x in self.leaves.items()}, self.view)


def make(shape: Shape) -> Case:
    generator = torch.Generator().manual_seed(shape.seed)
    keys = shape.memory + shape.queries

    def noise(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=F64).to(shape.dtype).requires_grad_()

    at_BQ = positions(shape, generator)
    asking = shape.queries if at_BQ is None else at_BQ.shape[1]
    mask_BQK = mask(shape, generator)
    if at_BQ is not None:
        mask_BQK = mask_BQK.gather(1, at_BQ[:, :, None].expand(-1, -1, keys))
    head = (shape.heads, shape.width)
    leaves = {
        "query": noise(shape.rows, asking, *head),
        "key": noise(shape.rows, keys, *head),
        "value": noise(shape.rows, keys, *head),
    }
    if shape.relative:
        distance_R = distances(num_queries=shape.queries, num_keys=keys, bidirectional=shape.bidirectional)
        leaves["position_key"] = noise(shape.rows if shape.own_signs else 1, len(distance_R), *head)
    if shape.biases:
        leaves |= {"content_bias": noise(*head), "position_bias": noise(*head)}
    if shape.segments:
        leaves |= {"segment_key": noise(2, *head)}
        leaves |= {"segment_bias": noise(*head)} if shape.biases else {}
    differs_BQK = torch.rand(shape.rows, asking, keys, generator=generator) < 0.4
    view = View(
        mask_BQK=mask_BQK,
        differs_BQK=differs_BQK if shape.segments else None,
        at_BQ=at_BQ,
        segment_length=shape.queries,
    )
    return Case(leaves, view)


def positions(shape: Shape, generator: torch.Generator) -> Tensor | None:
    if shape.at == "all":
        return None
    count = max(1, shape.queries // 2)
    order_BQ = torch.stack([torch.randperm(shape.queries, generator=generator) for _ in range(shape.rows)])
    if shape.at == "repeated":
        return order_BQ[:, :count].repeat(1, 2)
    return order_BQ[:, :count].sort().values if shape.at == "sorted" else order_BQ[:, :count]


def mask(shape: Shape, generator: torch.Generator) -> Tensor:
    keys = shape.memory + shape.queries
    size = (shape.rows, shape.queries, keys)
    mask_BQK = torch.ones(size, dtype=torch.bool)
    if shape.mask == "random":
        mask_BQK = torch.rand(size, generator=generator) < 0.6
        mask_BQK[:, ::4] = False  # these see nothing
    elif shape.mask == "span":
        mask_BQK &= causal_mask(num_queries=shape.queries, num_keys=keys, span=max(1, keys // 3))
    elif shape.mask == "nothing":
        mask_BQK &= False
    if not shape.bidirectional:
        mask_BQK &= causal_mask(num_queries=shape.queries, num_keys=keys)
    return mask_BQK


def gradients(result: Tensor, case: Case) -> dict[str, Tensor]:
    """Gradients of a weighted sum of the result, for each leaf; zeros where the result does not depend on it."""
    leaves = {n: x for n, x in case.leaves.items() if x.requires_grad}
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(9), dtype=F64)
    weight = weight.to(result.device, result.dtype)
    grads = torch.autograd.grad((result * weight).sum(), list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(x) if g is None else g for (n, x), g in zip(leaves.items(), grads, strict=True)}


def check(kernel: ModuleType, case: Case, *, dropout: float = 0.0) -> None:
    """In float64 to 1e-10. In float32 to a few units in the last place of the largest number, against the definition
    in float64."""
    got = case.run(kernel, dropout=dropout)
    exact = case.to(F64)
    want = exact.run(definition, dropout=dropout)
    assert got.dtype == case.leaves["query"].dtype
    check_close("result", got, want)
    for (name, x), y in zip(gradients(got, case).items(), gradients(want, exact).values(), strict=True):
        assert x.dtype == case.leaves[name].dtype
        check_close(f"gradient of {name}", x, y)


def check_close(what: str, got: Tensor, want: Tensor) -> None:
    atol = 1e-10 if got.dtype == F64 else 4e-6 * max(1.0, float(want.detach().abs().max()))
    torch.testing.assert_close(got.to(F64), want, rtol=0, atol=atol, msg=lambda m: f"{what}: {m}")


def bits(kernel: ModuleType, case: Case, *, dropout: float = 0.0) -> list[Tensor]:
    result = case.run(kernel, dropout=dropout)
    return [result, *gradients(result, case).values()]


def check_same_bits(some: list[Tensor], others: list[Tensor]) -> None:
    assert all(torch.equal(x, y) for x, y in zip(some, others, strict=True))
