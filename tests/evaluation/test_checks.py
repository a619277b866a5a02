"""The self-checks pass on every model, and fail on models and kernels that are broken in the way each looks for."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from segue.config import ModelConfig
from segue.evaluation.checks import check_installation, check_model
from segue.model import LanguageModel, masks, stack, streaming
from segue.model.attention import Attention
from segue.model.kernels import ScoreTerms, View, banded, definition, library, native
from segue.model.positions import RelativeTerms
from tests.tiny import MODELS, noisy

KERNELS = {"definition": definition, "banded": banded, "native": native}
BUILT = ["definition", "banded", *(["native"] if library.available() else [])]
needs_native = pytest.mark.skipif(not library.available(), reason="the native kernels are not built here")


def failed(model) -> set[str]:
    return {check.name for check in check_model(model) if check.passed is False}


def failed_through(model) -> set[tuple[str, str | None]]:
    return {(check.name, check.kernel) for check in check_model(model) if check.passed is False}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_passes(name: str) -> None:
    model = noisy(MODELS[name]).train()
    checks = list(check_model(model))
    assert {check.name for check in checks if check.passed is False} == set(), checks
    used = [check.kernel for check in checks if check.name == "kernel" and check.passed]
    unused = [check.kernel for check in checks if check.name == "kernel" and check.passed is None]
    assert {*used, *unused} == {"definition", "banded", "native", "step"}
    for check in ("shift direction", "mask polarity", "memory", "rows apart", "padding", "permutation leak"):
        assert [found.kernel for found in checks if found.name == check] == [one for one in used if one != "step"]
    assert [found.kernel for found in checks if found.name == "stream"] == used
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(part.kernel is None for part in model.modules() if isinstance(part, Attention))


@needs_native
def test_which_kernels_are_checked() -> None:
    def checked(name: str) -> list[str | None]:
        return [check.kernel for check in check_model(noisy(MODELS[name])) if check.name == "kernel" and check.passed]

    assert checked("transformer-xl-enwik8-base") == ["definition", "banded", "native", "step"]
    assert checked("xlnet-base") == ["definition", "banded", "native", "step"]
    assert checked("bert-base") == ["definition", "banded", "native"]
    assert checked("shaw") == ["definition"]


def test_without_the_library_the_check_says_so(monkeypatch) -> None:
    monkeypatch.setattr(library, "library", lambda: None)
    checks = [check for check in check_model(noisy(MODELS["xlnet-base"])) if check.name == "kernel"]
    assert [(check.kernel, check.passed) for check in checks] == [
        ("definition", True),
        ("banded", True),
        ("native", None),
        ("step", None),
    ]
    assert all("C++ compiler" in check.measured for check in checks[2:])


def test_the_installation_passes() -> None:
    assert all(check.passed is not False for check in check_installation())


def test_broken_weights_are_found() -> None:
    model = noisy(MODELS["gpt"])
    with torch.no_grad():
        model.trunk.vocabulary.tables[0][3, 1] = float("nan")
    assert "weights" in failed(model)


# ------------------------------------------------------------------------------------------- every kernel, broken


Break = Callable[[ScoreTerms, View], tuple[ScoreTerms, View]]


def broken(monkeypatch, which: str, change: Break) -> None:
    """Kernel `which` computes with other terms or another view than it is given."""
    right = KERNELS[which].attend

    def attend(query, key, value, *, terms, view, dropout):
        terms, view = change(terms, view)
        return right(query, key, value, terms=terms, view=view, dropout=dropout)

    monkeypatch.setattr(KERNELS[which], "attend", attend)


def one_off(terms: ScoreTerms, view: View) -> tuple[ScoreTerms, View]:
    keys = None if terms.relative is None or terms.relative.key_SRHE is None else terms.relative.key_SRHE.roll(1, 1)
    return replace(terms, relative=RelativeTerms(key_SRHE=keys)), view


def the_wrong_way(terms: ScoreTerms, view: View) -> tuple[ScoreTerms, View]:
    keys = None if terms.relative is None or terms.relative.key_SRHE is None else terms.relative.key_SRHE.flip(1)
    return replace(terms, relative=RelativeTerms(key_SRHE=keys)), view


def everything_seen(terms: ScoreTerms, view: View) -> tuple[ScoreTerms, View]:
    return terms, replace(view, mask_BQK=torch.ones_like(view.mask_BQK))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("which", BUILT)
@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base"])
@pytest.mark.parametrize("change", [one_off, the_wrong_way])
def test_a_shift_the_wrong_way_is_found_in_every_kernel(monkeypatch, which: str, name: str, change: Break) -> None:
    model = noisy(MODELS[name])
    broken(monkeypatch, which, change)
    wrong = failed_through(model)
    assert ("shift direction", which) in wrong
    if which != "definition":  # with which streams are compared
        assert ("stream", which) in wrong
        assert {kernel for _, kernel in wrong} == {which}


@pytest.mark.parametrize("which", BUILT)
def test_a_forgotten_mask_is_found_in_every_kernel(monkeypatch, which: str) -> None:
    broken(monkeypatch, which, everything_seen)
    causal = failed_through(noisy(MODELS["transformer-xl-enwik8-base"]))
    assert {(name, which) for name in ("mask polarity", "padding", "memory")} <= causal
    order = failed_through(noisy(MODELS["xlnet-base"]))
    assert {(name, which) for name in ("permutation leak", "padding")} <= order
    assert {kernel for _, kernel in causal | order} <= {which, *(BUILT if which == "definition" else []), "step"}


@pytest.mark.parametrize("which", BUILT)
def test_a_kernel_that_mixes_rows_is_found(monkeypatch, which: str) -> None:
    right = KERNELS[which].attend
    monkeypatch.setattr(KERNELS[which], "attend", lambda *tensors, **more: right(*tensors, **more).flip(0))
    assert ("rows apart", which) in failed_through(noisy(MODELS["transformer-xl-enwik8-base"]))


@pytest.mark.parametrize("which", BUILT)
def test_a_kernel_without_gradients_is_found(monkeypatch, which: str) -> None:
    right = KERNELS[which].attend
    monkeypatch.setattr(KERNELS[which], "attend", lambda *tensors, **more: right(*tensors, **more).detach())
    assert ("gradient", which) in failed_through(noisy(MODELS["gpt"]))


@needs_native
@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base"])
def test_a_shift_the_wrong_way_is_found_in_the_step_kernel(monkeypatch, name: str) -> None:
    right = streaming._position_keys
    monkeypatch.setattr(streaming, "_position_keys", lambda relative: right(relative).roll(1, 1))
    assert failed_through(noisy(MODELS[name])) == {("stream", "step")}


@needs_native
def test_a_mask_and_a_cache_that_are_wrong_are_found_in_the_step_kernel(monkeypatch) -> None:
    right = streaming.Steps.run

    def blind(self, hidden, *, seen_BK, **more):
        right(self, hidden, seen_BK=seen_BK & (torch.arange(seen_BK.shape[1]) != 0), **more)

    def rows_mixed(self, hidden, *, key_LBHCE, **more):
        right(self, hidden, key_LBHCE=key_LBHCE, **more)
        key_LBHCE[:, [0, 1]] = key_LBHCE[:, [1, 0]]

    for wrong in (blind, rows_mixed):
        monkeypatch.setattr(streaming.Steps, "run", wrong)
        assert failed_through(noisy(MODELS["transformer-xl-enwik8-base"])) == {("stream", "step")}


def test_a_definition_that_reads_the_wrong_columns_is_found(monkeypatch) -> None:
    monkeypatch.setattr(definition, "relative_shift", lambda x, num_keys: x[..., :num_keys])
    assert ("shift direction", "definition") in failed_through(noisy(MODELS["shaw"]))
    assert ("shift direction", "definition") in failed_through(noisy(MODELS["learned-relative"]))


# ----------------------------------------------------------------------------------------------- around the kernels


def test_distances_in_the_wrong_order_are_found(monkeypatch) -> None:
    right = stack.distances
    monkeypatch.setattr(stack, "distances", lambda **sizes: right(**sizes).flip(0))
    wrong = failed_through(noisy(MODELS["transformer-xl-enwik8-base"]))
    assert {("shift direction", which) for which in BUILT} <= wrong


def test_a_mask_of_the_wrong_polarity_is_found(monkeypatch) -> None:
    right = masks.causal_mask
    monkeypatch.setattr(masks, "causal_mask", lambda **sizes: ~right(**sizes))
    assert "mask polarity" in failed(noisy(MODELS["transformer-xl-enwik8-base"]))


class Forgetful(LanguageModel):
    """With a weight that nothing uses."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.forgotten = torch.nn.Parameter(torch.zeros(2))


def test_a_weight_without_gradient_is_found() -> None:
    assert failed_through(Forgetful(MODELS["gpt"])) == {("gradient", which) for which in BUILT}
