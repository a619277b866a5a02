"""The optimizer against its definition."""

import copy

import pytest
import torch
from torch import nn

from segue.config import TrainConfig
from segue.train.optim import Muon, make_optimizer, orthogonalised

SETTINGS = TrainConfig(steps=9, learning_rate=0.01, weight_decay=0.1, beta1=0.8, beta2=0.9, epsilon=1e-6)


def small(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(37, 5), nn.LayerNorm(5)).to(dtype)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> list[torch.Tensor]:
    gradients = [torch.sin(p.detach() * 9 + step) for p in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()
    return gradients


def test_updates_equal_the_definition() -> None:
    """Loshchilov and Hutter 2019, algorithm 2: decay beside the gradient, on matrices alone."""
    model = small(torch.float64)
    optimizer = make_optimizer(model, SETTINGS)
    want = [p.detach().clone() for p in model.parameters()]
    first, second = ([torch.zeros_like(p) for p in want] for _ in range(2))
    for step in range(1, 6):
        gradients = update(model, optimizer, step)
        for p, m, v, g in zip(want, first, second, gradients, strict=True):
            m.mul_(0.8).add_(0.2 * g)
            v.mul_(0.9).add_(0.1 * g * g)
            decay = 0.1 * p if p.dim() == 2 else 0
            p -= 0.01 * (m / (1 - 0.8**step) / ((v / (1 - 0.9**step)).sqrt() + 1e-6) + decay)
    for got, expected in zip(model.parameters(), want, strict=True):
        torch.testing.assert_close(got.detach(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    """With the tensors that are saved: `state.optimizer.state`, by parameter."""
    model = small(dtype)
    optimizer = make_optimizer(model, SETTINGS)
    for step in range(3):
        update(model, optimizer, step)
    other = copy.deepcopy(model)
    resumed = make_optimizer(other, SETTINGS)
    for own, theirs in zip(other.parameters(), model.parameters(), strict=True):
        resumed.state[own] = {key: value.clone() for key, value in optimizer.state[theirs].items()}
    for step in range(3, 6):
        update(model, optimizer, step)
        update(other, resumed, step)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


# ------------------------------------------------------------------------------------------------------------- Muon

MUON = SETTINGS.model_copy(update={"optimizer": "muon"})


def layered(dtype: torch.dtype) -> nn.Module:
    """Two matrices of one shape and one of another in `layers`, which Muon updates, and what AdamW does."""
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 9)])
    reader = nn.ModuleDict({"layers": layers, "table": nn.Embedding(5, 6)})
    return nn.ModuleDict({"reader": reader}).to(dtype)


def iterated(matrix: torch.Tensor) -> torch.Tensor:
    """The quintic iteration by its polynomial of singular values: a s + b s^3 + c s^5, five times."""
    left, values, right = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ values.diag() @ right


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5)])
def test_orthogonalised_equals_its_definition(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    got = orthogonalised(matrices)
    torch.testing.assert_close(got, torch.stack([iterated(one) for one in matrices]), rtol=0, atol=1e-10)
    values = torch.linalg.svdvals(got)
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_muon_equals_its_definition() -> None:
    model = layered(torch.float64)
    optimizer = make_optimizer(model, MUON)
    assert isinstance(optimizer, Muon)
    names = [name for name, _ in model.named_parameters()]
    want = {name: p.detach().clone() for name, p in model.named_parameters()}
    momentum = {name: torch.zeros_like(p) for name, p in want.items()}
    second = {name: torch.zeros_like(p) for name, p in want.items()}
    for step in range(1, 5):
        for name, g in zip(names, update(model, optimizer, step), strict=True):
            p, m, v = want[name], momentum[name], second[name]
            if ".layers." in name and p.dim() == 2:
                m.mul_(0.95).add_(0.05 * g)
                direction = iterated(0.05 * g + 0.95 * m) * 0.2 * max(p.shape) ** 0.5
                p -= 0.01 * (direction + 0.1 * p)
            else:
                m.mul_(0.8).add_(0.2 * g)
                v.mul_(0.9).add_(0.1 * g * g)
                decay = 0.1 * p if p.dim() == 2 else 0
                p -= 0.01 * (m / (1 - 0.8**step) / ((v / (1 - 0.9**step)).sqrt() + 1e-6) + decay)
    for name, got in model.named_parameters():
        torch.testing.assert_close(got.detach(), want[name], rtol=0, atol=1e-10)


def test_muon_iterates_in_bfloat16_with_mixed_precision() -> None:
    models = [layered(torch.float32) for _ in range(2)]
    mixed = MUON.model_copy(update={"precision": "bfloat16"})
    for model, settings in zip(models, (MUON, mixed), strict=True):
        update(model, make_optimizer(model, settings), 1)
    for name, full in models[0].named_parameters():
        rounded = dict(models[1].named_parameters())[name]
        if ".layers." in name and full.dim() == 2:
            assert rounded.dtype == torch.float32
            assert not torch.equal(full, rounded)
            torch.testing.assert_close(full, rounded, rtol=0, atol=0.01 * 0.2 * max(full.shape) ** 0.5 * 0.03)
        else:
            assert torch.equal(full, rounded)


def test_muon_leaves_a_weight_without_gradient_alone() -> None:
    model = layered(torch.float32)
    optimizer = make_optimizer(model, MUON)
    before = copy.deepcopy(model.state_dict())
    dict(model.named_parameters())["reader.layers.0.weight"].grad = torch.ones(4, 6)
    optimizer.step()
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["reader.layers.0.weight"]
    assert optimizer.param_groups[-1]["orthogonal"] is True  # all groups are there again for the schedule
