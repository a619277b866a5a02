"""Optimizers and learning rate schedules: AdamW or Muon with decoupled weight decay, warm-up, then a decay curve."""

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from segue.config import TrainConfig


def make_optimizer(model: nn.Module, settings: TrainConfig) -> torch.optim.AdamW:
    """Return the optimizer. Weight decay applies to matrices and tables, not to biases, norms and single vectors. With
    Muon, the updates of the layers' matrices are orthogonalised."""
    muon = settings.optimizer == "muon"
    orthogonal: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() >= 2 and ".biases." not in name
        of_layer = muon and parameter.dim() == 2 and ".layers." in name
        (orthogonal if of_layer else decayed if matrix else others).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
        {
            "params": orthogonal,
            "weight_decay": settings.weight_decay,
            ORTHOGONAL: True,
            "iterate_in": torch.bfloat16 if settings.precision == "bfloat16" else None,
        },
    ]
    return (Muon if muon else torch.optim.AdamW)(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        # On a CPU the default is a pass over memory for each of a dozen operations; this is one pass for all of them.
        fused=True if all(p.device.type == "cpu" for p in model.parameters()) else None,
    )


ORTHOGONAL = "orthogonal"
MUON_MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration (Jordan et al. 2024): after five steps the singular values are near 1."""


class Muon(torch.optim.AdamW):
    """AdamW, and Muon (Jordan et al. 2024) for the groups marked `orthogonal`.

    Muon's step is the orthogonal matrix closest to the momentum, scaled to the size of a step of Adam (Liu et al.
    2025), so that both share a learning rate.

    That matrix is found by an iteration: with mixed precision in bfloat16, as in `torch.optim.Muon`, otherwise in the
    data type of the weights, since many CPUs emulate bfloat16. Matrices of one shape are one batched product.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get(ORTHOGONAL)]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if group.get(ORTHOGONAL):
                self._orthogonal_step(group)
        return loss

    def _orthogonal_step(self, group: dict[str, Any]) -> None:
        shapes: dict[torch.Size, list[Any]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                shapes.setdefault(parameter.shape, []).append(parameter)
        for shape, parameters in shapes.items():
            directions = []
            for parameter in parameters:
                gradient = parameter.grad
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(gradient))
                momentum.lerp_(gradient, 1 - MUON_MOMENTUM)
                directions.append(gradient.lerp(momentum, MUON_MOMENTUM))
            stacked = torch.stack(directions)
            steps = orthogonalised(stacked.to(group["iterate_in"] or stacked.dtype)).to(stacked.dtype)
            size = 0.2 * math.sqrt(max(shape))
            for parameter, step in zip(parameters, steps, strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-group["lr"] * size)


def orthogonalised(matrices_NRC: Tensor, *, steps: int = 5) -> Tensor:
    """Return each matrix with its singular values moved to about 1, by a Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices_NRC.shape[-2] > matrices_NRC.shape[-1]
    x = matrices_NRC.mT if tall else matrices_NRC
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def layered_optimizer(
    model: nn.Module, *, num_layers: int, layer_decay: float, weight_decay: float
) -> torch.optim.AdamW:
    """Return AdamW with bias correction and layer-wise learning rates: each group has a `share` of the rate, 1 for the
    head and the top layer, and for each lower layer `layer_decay` times that of the layer above."""
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() >= 2 and ".biases." not in name
        groups.setdefault((_height(name, num_layers), matrix), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "weight_decay": weight_decay if matrix else 0.0,
                "share": layer_decay ** max(0, num_layers - height),
            }
            for (height, matrix), parameters in groups.items()
        ],
        fused=True if all(p.device.type == "cpu" for p in model.parameters()) else None,
    )


def _height(name: str, num_layers: int) -> int:
    """Return 0 for embeddings, 1 to `num_layers` for layers, and `num_layers` + 1 for everything above them."""
    found = re.match(r"trunk\.(?:reader|backward_reader)\.(layers|per_layer)\.(\d+)\.", name)
    if found:
        return int(found[2]) + 1
    return 0 if name.startswith("trunk.") and ".final_norm." not in name else num_layers + 1


def warm_up_then_line(step: int, *, steps: int, warmup: int) -> float:
    """Return the share of the peak rate for the update after `step` finished ones: linear warm-up, then linear decay to
    zero."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


def learning_rate(step: int, settings: TrainConfig) -> float:
    """Return the learning rate of the update after `step` finished ones."""
    warmup, peak = settings.warmup_steps, settings.learning_rate
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, settings.steps - warmup)
    match settings.schedule:
        case "constant":
            share = 1.0
        case "linear":
            share = settings.final_share + (1 - settings.final_share) * (1 - progress)
        case "cosine":
            share = settings.final_share + (1 - settings.final_share) * (1 + math.cos(math.pi * progress)) / 2
        case "inverse_sqrt":
            share = math.sqrt(max(1, warmup) / (step + 1))
        case "warmup_stable_decay":
            left = min(1.0, (settings.steps - step) / settings.resolved_decay_steps)
            share = settings.final_share + (1 - settings.final_share) * left
    return peak * share


class WeightAverage:
    """An exponential moving average of the weights: average = decay * average + (1 - decay) * weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter.detach(), 1 - self.decay)

    @torch.no_grad()
    def exchange(self, model: nn.Module) -> None:
        """Swap the model's weights with the averaged ones; a second call swaps them back."""
        for name, parameter in model.named_parameters():
            current = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(current)
