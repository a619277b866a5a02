"""The self-checks pass on every model, and fail on models that are broken in the way each looks for."""

import pytest
import torch

from segue.evaluate.checks import check_installation, check_model
from segue.model import attention, trunk
from segue.model.kernels import definition
from tests.tiny import MODELS, noisy


def failed(model) -> set[str]:
    return {check.name for check in check_model(model) if check.passed is False}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_passes(name: str) -> None:
    model = noisy(MODELS[name]).train()
    checks = list(check_model(model))
    assert {check.name for check in checks if check.passed is False} == set(), checks
    assert len(checks) == 8
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_installation_passes() -> None:
    assert all(check.passed for check in check_installation())


def test_broken_weights_are_found() -> None:
    model = noisy(MODELS["gpt"])
    with torch.no_grad():
        model.trunk.vocabulary.tables[0][3, 1] = float("nan")
    assert "weights" in failed(model)


def test_a_shift_the_wrong_way_is_found(monkeypatch) -> None:
    monkeypatch.setattr("segue.evaluate.checks.relative_shift", lambda x, num_keys: x[..., :num_keys])
    assert failed(noisy(MODELS["xlnet-base"])) == {"shift direction"}


def test_a_mask_of_the_wrong_polarity_is_found(monkeypatch) -> None:
    right = trunk.causal_mask
    monkeypatch.setattr(trunk, "causal_mask", lambda **sizes: ~right(**sizes))
    assert "mask polarity" in failed(noisy(MODELS["transformer-xl-enwik8-base"]))


def test_a_forgotten_mask_is_found(monkeypatch) -> None:
    monkeypatch.setattr(attention, "attend", definition.attend)
    monkeypatch.setattr(definition, "masked_softmax", lambda score, mask: score.softmax(dim=-1))
    assert {"mask polarity", "padding", "memory"} <= failed(noisy(MODELS["transformer-xl-enwik8-base"]))
    assert {"permutation leak", "padding"} <= failed(noisy(MODELS["xlnet-base"]))


def test_a_weight_without_gradient_is_found() -> None:
    model = noisy(MODELS["gpt"])
    model.register_parameter("forgotten", torch.nn.Parameter(torch.zeros(2)))
    assert failed(model) == {"gradient"}
