"""The optimizer against its definition."""

import copy

import pytest
import torch
from torch import nn

from segue.config import TrainConfig
from segue.train.optim import make_optimizer

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
