"""The chunked cross-entropy against the plain one, which has all logits at once: values and every gradient."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from segue.config import changed
from segue.model import Batch, cross_entropy
from segue.model.cross_entropy import weighted_nll
from segue.model.language_model import masked_mean
from tests.examples import examples
from tests.tiny import MODELS, noisy, random_ids


@pytest.fixture(autouse=True)
def few_rows_in_a_chunk(monkeypatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK_BYTES", 1)
    monkeypatch.setattr(cross_entropy, "NARROW_CHUNK_BYTES", 1)
    monkeypatch.setattr(cross_entropy, "NATIVE_CHUNK_BYTES", 1)
    monkeypatch.setattr(cross_entropy, "LEAST_ROWS", 3)


def plain(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor, weights_N: Tensor):
    nll_N = F.cross_entropy(F.linear(hidden_ND, weight_VD, bias_V), targets_N, reduction="none")
    return (weights_N * nll_N).sum(), nll_N.detach()


def example(rows: int, width: int, size: int, *, seed: int = 0, dtype=torch.float64, wanted=(True, True, True)):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, width), (size, width), (size,))
    inputs = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    for value, want in zip(inputs, wanted, strict=True):
        value.requires_grad_(want)
    targets_N = torch.randint(0, size, (rows,), generator=generator)
    weights_N = torch.rand(rows, generator=generator, dtype=dtype) * (torch.arange(rows) % 3 > 0)
    return [*inputs, targets_N, weights_N]


def gradients(function, arguments, scale: float = 1.0) -> list[Tensor]:
    inputs = [x for x in arguments[:3] if x.requires_grad]
    return list(torch.autograd.grad(function(*arguments)[0] * scale, inputs))


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 11),
    width=st.integers(1, 9),
    size=st.integers(1, 13),
    seed=st.integers(0, 99),
    wanted=st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any),
    scale=st.sampled_from([1.0, -0.3]),
)
def test_equals_the_plain_form(rows: int, width: int, size: int, seed: int, wanted, scale: float) -> None:
    arguments = example(rows, width, size, seed=seed, wanted=wanted)
    torch.testing.assert_close(weighted_nll(*arguments), plain(*arguments))
    torch.testing.assert_close(gradients(weighted_nll, arguments, scale), gradients(plain, arguments, scale))
    with torch.no_grad():
        torch.testing.assert_close(weighted_nll(*arguments), plain(*arguments))


def test_gradients_by_finite_differences() -> None:
    *inputs, targets_N, weights_N = example(7, 4, 5)
    assert torch.autograd.gradcheck(lambda *inputs: weighted_nll(*inputs, targets_N, weights_N)[0], inputs)


def test_inputs_that_are_not_contiguous() -> None:
    hidden_ND, weight_VD, *others = example(8, 6, 10)
    strided = [hidden_ND.detach().T.contiguous().T, weight_VD.detach().repeat(1, 2)[:, 6:], *others]
    for value in strided[:2]:
        assert not value.is_contiguous()
        value.requires_grad_()
    want = gradients(weighted_nll, [hidden_ND, weight_VD, *others])
    torch.testing.assert_close(gradients(weighted_nll, strided), want)


def test_no_rows() -> None:
    arguments = example(0, 4, 5)
    total, nll_N = weighted_nll(*arguments)
    assert total == 0
    assert nll_N.shape == (0,)
    assert all(not g.any() for g in gradients(weighted_nll, arguments))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 340, 2048, 100_000])
@pytest.mark.parametrize("size", [23, 32_000, 267_735])
def test_chunks_are_equal_and_small(count: int, size: int, monkeypatch) -> None:
    monkeypatch.undo()
    rows = cross_entropy._rows(count, size=size, itemsize=4, most_bytes=cross_entropy.CHUNK_BYTES)
    assert rows * size * 4 <= max(2**26, 64 * size * 4)
    last = count - rows * (math.ceil(count / rows) - 1)
    assert rows - last < math.ceil(count / rows)


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """The number of elements of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("name", ["gpt", "transformer-xl-lm1b", "xlnet-base"])
def test_a_model_never_has_all_logits(name: str) -> None:
    model = noisy(changed(MODELS[name], vocabulary={"size": 2000}))
    hidden, targets = torch.randn(2, 40, 12, dtype=torch.float64), torch.randint(0, 2000, (2, 40))
    with Largest() as largest:
        model.loss(hidden.requires_grad_(), targets, None)[0].backward()
        model.nll(hidden, targets)
        assert largest.elements <= 2000 * 12
        model.logits(hidden)
        assert largest.elements >= 80 * 2000


@pytest.mark.parametrize(
    "name", ["gpt", "untied", "transformer-xl-lm1b", "transformer-xl-wt103", "bert-memory", "projected"]
)
@pytest.mark.parametrize("shrink", [1, 2])
def test_the_loss_of_a_model_has_the_gradients_of_its_log_probabilities(name: str, shrink: int) -> None:
    model = noisy(changed(MODELS[name], vocabulary={"shrink": shrink} if MODELS[name].vocabulary.cutoffs else {}))
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 9, 12, generator=generator, dtype=torch.float64, requires_grad=True)
    targets, mask = random_ids(2, 9), random_ids(2, 9, seed=1) % 3 > 0
    found = []
    for chunked in (True, False):
        if chunked:
            loss, nll = model.loss(hidden, targets, mask)
            assert not nll.requires_grad
        else:
            nll = -model.logits(hidden).log_softmax(-1).gather(2, targets[..., None]).squeeze(2)
            loss = masked_mean(nll, mask)
        inputs = {"hidden": hidden} | dict(model.named_parameters())
        got = torch.autograd.grad(loss, inputs.values(), allow_unused=True)
        found.append((loss, nll, {name: g for name, g in zip(inputs, got, strict=True) if g is not None and g.any()}))
    torch.testing.assert_close(*found)


def test_auxiliary_losses() -> None:
    """Each classifier of a layer and a target, as the definition says."""
    model = noisy(next(c for c in MODELS.values() if c.auxiliary is not None))
    layers = [torch.randn(2, 7, 12, dtype=torch.float64) for _ in range(3)]
    targets, mask = random_ids(2, 7), random_ids(2, 7, seed=1) % 3 > 0
    want = 0.0
    for layer, classifiers in zip(layers[1:], model.auxiliary.classifiers, strict=True):
        for ahead, classifier in enumerate(classifiers, start=1 if layer is layers[-1] else 0):
            logits = classifier(layer[:, : 7 - ahead])
            nll = F.cross_entropy(logits.transpose(1, 2), targets[:, ahead:], reduction="none")
            want = want + (0.5 if ahead else 1.0) * masked_mean(nll, mask[:, ahead:])
    got = model.auxiliary(tuple(layers), targets, mask, progress=0.0)
    torch.testing.assert_close(got, want)
    parameters = list(model.auxiliary.parameters())
    torch.testing.assert_close(torch.autograd.grad(got, parameters), torch.autograd.grad(want, parameters))


# ------------------------------------------------------------------------------------------- numbers at the edge


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("where", ["hidden", "bias", "target bias"])
def test_what_is_not_finite_shows_where_it_would(value: float, where: str) -> None:
    arguments = example(5, 3, 4)
    with torch.no_grad():
        if where == "hidden":
            arguments[0][3, 1] = value
        else:
            arguments[2][arguments[3][3] if where == "target bias" else (arguments[3][3] + 1) % 4] = value
    got, want = weighted_nll(*arguments), plain(*arguments)
    torch.testing.assert_close(got, want, equal_nan=True)
    found, expected = gradients(weighted_nll, arguments), gradients(plain, arguments)
    assert [bool(g.isfinite().all()) for g in found] == [bool(g.isfinite().all()) for g in expected]


def test_improbable_targets() -> None:
    """exp(-1000) is 0 in float32, its logarithm is not."""
    bias_V = torch.tensor([0.0, 1000.0, -1000.0])
    total, nll_N = weighted_nll(torch.zeros(2, 1), torch.zeros(3, 1), bias_V, torch.tensor([0, 2]), torch.ones(2))
    assert nll_N.tolist() == [1000.0, 2000.0]
    assert total == 3000.0


# ------------------------------------------------------------------------------------- the company it must keep


def test_autocast(monkeypatch) -> None:
    """Products in bfloat16: the same logits as a linear layer has, sums and gradients in float32."""
    monkeypatch.setattr(cross_entropy.library, "supports", lambda _: False)
    arguments = example(40, 16, 30, dtype=torch.float32)
    exact = gradients(plain, arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = weighted_nll(*arguments), plain(*arguments)
        found, expected = gradients(weighted_nll, arguments), gradients(plain, arguments)
    assert {x.dtype for x in [*got, *found]} == {torch.float32}
    torch.testing.assert_close(got, want)
    for g, w, e in zip(found, expected, exact, strict=True):
        assert (g - e).norm() < max(1e-2 * e.norm(), 2 * (w - e).norm())


def rounded_product(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor, weights_N: Tensor):
    """What the native kernel computes: only the product is in bfloat16, its bias is added in float32."""
    logits_NV = (hidden_ND.bfloat16() @ weight_VD.bfloat16().T).float() + bias_V
    nll_N = F.cross_entropy(logits_NV, targets_N, reduction="none")
    return (weights_N * nll_N).sum(), nll_N.detach()


@pytest.mark.skipif(not cross_entropy.library.available(), reason="the native kernels were not built")
class TestNative:
    """Logits in bfloat16, on a CPU."""

    @pytest.mark.parametrize("size", [1, 7, 8, 30, 1023, 2500])
    @pytest.mark.parametrize("wanted", [(True, True, True), (True, False, False), (False, False, True)])
    def test_equals_the_plain_form(self, size: int, wanted) -> None:
        arguments = example(40, 16, size, dtype=torch.float32, wanted=wanted)
        exact, rounded = gradients(plain, arguments), gradients(rounded_product, arguments)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got, found = weighted_nll(*arguments), gradients(weighted_nll, arguments)
            with torch.no_grad():
                assert all(torch.equal(a, b) for a, b in zip(weighted_nll(*arguments), got, strict=True))
        torch.testing.assert_close(got, rounded_product(*arguments))
        assert {x.dtype for x in [*got, *found]} == {torch.float32}
        for g, r, e in zip(found, rounded, exact, strict=True):
            assert (g - e).norm() < max(1e-2 * e.norm(), 2 * (r - e).norm(), 1e-6)

    def test_is_used(self, monkeypatch) -> None:
        monkeypatch.setattr(cross_entropy, "_chunk_by_chunk", None)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            weighted_nll(*example(4, 4, 9, dtype=torch.float32))[0].backward()

    def test_the_number_of_threads_changes_nothing(self) -> None:
        arguments = example(64, 16, 5000, dtype=torch.float32)
        before, found = torch.get_num_threads(), []
        try:
            for threads in (1, 3):
                torch.set_num_threads(threads)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    found.append([*weighted_nll(*arguments), gradients(weighted_nll, arguments)[2]])
        finally:
            torch.set_num_threads(before)
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

    @pytest.mark.parametrize("value", [math.inf, math.nan])
    @pytest.mark.parametrize("size", [4, 8, 19])
    def test_what_is_not_finite_shows(self, value: float, size: int) -> None:
        arguments = example(5, 3, size, dtype=torch.float32)
        with torch.no_grad():
            arguments[0][3, 1] = value
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total, nll_N = weighted_nll(*arguments)
            found = gradients(weighted_nll, [*arguments[:4], torch.ones(5)])
        assert nll_N.isnan().tolist() == [False, False, False, True, False]
        assert total.isnan()
        assert not any(g.isfinite().all() for g in found)

    def test_improbable_targets(self) -> None:
        bias_V = torch.tensor([0.0, 1000.0, -1000.0])
        targets_N = torch.tensor([0, 2])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total, nll_N = weighted_nll(torch.zeros(2, 1), torch.zeros(3, 1), bias_V, targets_N, torch.ones(2))
        assert (nll_N.tolist(), total) == ([1000.0, 2000.0], 3000.0)

    def test_inputs_that_are_not_contiguous(self) -> None:
        hidden_ND, weight_VD, bias_V, targets_N, weights_N = example(8, 6, 10, dtype=torch.float32)
        strided = [hidden_ND.detach().T.contiguous().T, weight_VD.detach().repeat(1, 2)[:, 6:]]
        strided += [x.detach().repeat_interleave(2)[::2] for x in (bias_V, targets_N, weights_N)]
        for value in strided[:3]:
            value.requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            want = gradients(weighted_nll, [hidden_ND, weight_VD, bias_V, targets_N, weights_N])
            torch.testing.assert_close(gradients(weighted_nll, strided), want)


def test_a_model_in_bfloat16() -> None:
    arguments = example(40, 16, 30, dtype=torch.bfloat16)
    want = plain(*(x.float() if x.is_floating_point() else x for x in arguments))
    total, nll_N = weighted_nll(*arguments)
    assert total.dtype == nll_N.dtype == torch.float32
    torch.testing.assert_close(nll_N, want[1], rtol=2e-2, atol=5e-2)
    assert {g.dtype for g in gradients(weighted_nll, arguments)} == {torch.bfloat16}


def test_other_devices_have_the_same_shapes() -> None:
    arguments = [x.detach().to("meta").requires_grad_(x.requires_grad) for x in example(7, 4, 5)]
    total, nll_N = weighted_nll(*arguments)
    assert (total.shape, nll_N.shape, total.device.type) == ((), (7,), "meta")
    total.backward()
    assert [x.grad.shape for x in arguments[:3]] == [x.shape for x in arguments[:3]]


def test_recomputed() -> None:
    arguments = example(8, 6, 10)
    got = gradients(lambda *x: checkpoint(weighted_nll, *x, use_reentrant=False), arguments)
    torch.testing.assert_close(got, gradients(weighted_nll, arguments), rtol=0, atol=0)


def test_compiled() -> None:
    """The code around is compiled, this is left as it is."""
    arguments = example(8, 6, 10)
    compiled = torch.compile(lambda h, *x: weighted_nll(h * 2, *x)[0] * 2, backend="aot_eager")
    want = weighted_nll(arguments[0] * 2, *arguments[1:])[0] * 2
    torch.testing.assert_close(compiled(*arguments), want)
    inputs = arguments[:3]
    torch.testing.assert_close(torch.autograd.grad(compiled(*arguments), inputs), torch.autograd.grad(want, inputs))


def test_the_graph_may_be_kept_and_gradients_are_not_shared() -> None:
    arguments = example(8, 6, 10)
    total, _ = weighted_nll(*arguments)
    first = [g.clone() for g in torch.autograd.grad(total, arguments[:3], retain_graph=True)]
    total.backward(retain_graph=True)
    for value in arguments[:3]:
        value.grad.zero_()
    torch.testing.assert_close(list(torch.autograd.grad(total, arguments[:3])), first, rtol=0, atol=0)


def test_the_gradient_of_the_gradient_is_refused() -> None:
    arguments = example(8, 6, 10)
    (gradient,) = torch.autograd.grad(weighted_nll(*arguments)[0] ** 2, arguments[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_same_input_gives_the_same_bits() -> None:
    model = noisy(MODELS["transformer-xl-wt103"]).float()
    ids = random_ids(2, 20)
    results = []
    for _ in range(2):
        model.zero_grad()
        loss = model(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])).loss
        loss.backward()
        results.append([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    with torch.no_grad():
        assert model(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])).loss == results[0][0]
