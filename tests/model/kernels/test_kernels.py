"""Law 6 for the fast kernels: they equal the definition, forward and gradient, dropout included, whatever comes in."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from segue.model import Batch, LanguageModel, kernels
from segue.model.kernels import ScoreTerms, View, banded, definition, library, native
from segue.model.masks import causal_mask, order_to_rank, permutation_mask
from segue.model.positions import RelativeTerms, distances
from tests.examples import examples
from tests.tiny import MODELS, random_ids

F32, F64 = torch.float32, torch.float64
needs_library = pytest.mark.skipif(not library.available(), reason="the native library is not built here")
each_kernel = pytest.mark.parametrize(
    "kernel", [pytest.param(banded, id="banded"), pytest.param(native, id="native", marks=needs_library)]
)
several = settings(max_examples=examples(150), deadline=None, derandomize=True)


# ---------------------------------------------------------------------------------------------------------- cases


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


MASKS = ("random", "full", "span", "nothing")


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


# ------------------------------------------------------------------------------------------------------- checking


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


# ------------------------------------------------------------------------------------------------------ whole models


def permutation_batch(rows: int, length: int) -> Batch:
    ids_BQ = random_ids(rows, length)
    order_BQ = torch.stack([torch.randperm(length, generator=torch.Generator().manual_seed(i)) for i in range(rows)])
    rank_BQ = order_to_rank(order_BQ)
    predicted_BP = order_BQ[:, -length // 3 :].sort().values
    target_BQ = torch.zeros_like(ids_BQ, dtype=torch.bool).scatter(1, predicted_BP, True)
    return Batch(
        ids_BQ=ids_BQ,
        targets=ids_BQ.gather(1, predicted_BP),
        predicted_BP=predicted_BP,
        visible_BQQ=permutation_mask(rank_BQ.masked_fill(~target_BQ, -1), target_BQ),
        segments_BQ=(torch.arange(length) > length // 2).long().expand(rows, -1),
    )


def losses(model: LanguageModel, batch: Batch, *, autocast: bool) -> list[float]:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    result = []
    for _ in range(12):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = model(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


@pytest.mark.parametrize("name", ["xlnet-base", "transformer-xl-enwik8-base"])
def test_banded_trains_a_model_under_autocast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.model.attention.attend", banded.attend)
    if name == "xlnet-base":
        batch = permutation_batch(2, 12)
    else:
        batch = Batch(ids_BQ=random_ids(2, 12), targets=random_ids(2, 12, seed=1))
    runs = {}
    for autocast in (False, True):
        torch.manual_seed(1)
        runs[autocast] = losses(LanguageModel(MODELS[name]).train(), batch, autocast=autocast)
    assert runs[True][-1] < runs[True][0] - 0.3
    torch.testing.assert_close(runs[True], runs[False], rtol=0.02, atol=0)


@each_kernel
@pytest.mark.parametrize("name", ["xlnet-base", "transformer-xl-enwik8-base"])
def test_models_are_the_same_with_every_kernel(kernel: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = (
        permutation_batch(2, 12) if name == "xlnet-base" else Batch(ids_BQ=random_ids(2, 12), targets=random_ids(2, 12))
    )
    torch.manual_seed(1)
    model = LanguageModel(MODELS[name]).double()
    grads = []
    for attend in (kernel.attend, definition.attend):
        monkeypatch.setattr("segue.model.attention.attend", attend)
        model.zero_grad()
        model(batch).loss.backward()
        grads.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    for parameter in grads[0]:
        torch.testing.assert_close(grads[0][parameter], grads[1][parameter], rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------------------------ banded alone


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
