"""The optimizer and its schedule: AdamW with decoupled decay, warm-up, then a curve."""

import math
import re

import torch
from torch import nn

from segue.config import TrainConfig


def make_optimizer(model: nn.Module, settings: TrainConfig) -> torch.optim.AdamW:
    """Matrices and tables decay; biases, norms and single vectors do not."""
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() >= 2 and ".biases." not in name
        (decayed if matrix else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        # On a CPU the default is a pass over memory for each of a dozen operations; this is one pass for all of them.
        fused=True if all(p.device.type == "cpu" for p in model.parameters()) else None,
    )


def layered_optimizer(
    model: nn.Module, *, num_layers: int, layer_decay: float, weight_decay: float
) -> torch.optim.AdamW:
    """AdamW with bias correction, and true layer-wise rates: each group has a `share` of the rate, 1 for the head and
    the top layer, `layer_decay` times that of the layer above for the others."""
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
    """0 for embeddings, 1 to `num_layers` for layers, one more for what is above them."""
    found = re.match(r"trunk\.(?:reader|backward_reader)\.(layers|per_layer)\.(\d+)\.", name)
    if found:
        return int(found[2]) + 1
    return 0 if name.startswith("trunk.") and ".final_norm." not in name else num_layers + 1


def warm_up_then_line(step: int, *, steps: int, warmup: int) -> float:
    """The share of the highest rate for the update that follows `step` finished ones: up, then down to zero."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


def learning_rate(step: int, settings: TrainConfig) -> float:
    """The rate of the update that follows `step` finished ones."""
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
    """An exponential average of the weights: average = decay * average + (1 - decay) * weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter.detach(), 1 - self.decay)

    @torch.no_grad()
    def exchange(self, model: nn.Module) -> None:
        """Swaps the model's weights with the averaged ones; a second call swaps them back."""
        for name, parameter in model.named_parameters():
            current = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(current)
