"""Where does the time of a pretraining step go?

    .venv/bin/python -m benchmarks.step_profile

XLNet-base (12 layers; 4 with --quick), 4 rows of 512 tokens, 85 of each predicted, a vocabulary of 32,000, dropout 0.1:
whole updates of the training loop, from building the batch to AdamW, under torch.profiler. The self time of each
operation belongs to the first group whose name fits the operation or, going outwards, its callers: a matrix product
inside the attention kernel is a matrix product, its softmax is the kernel's. A native kernel shows as one operation,
including its products; the time of these at the matrix-product peak is given beside it.
"""

import argparse
from collections.abc import Iterator, Mapping

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.batches import RandomText
from benchmarks.peers import base_xlnet, step_of
from benchmarks.side_by_side import PRODUCT_SIZE, Row, arguments, product_seconds, write
from segue.config import DataConfig, ModelConfig, TrainConfig
from segue.data.batches import Batches
from segue.model import Batch, LanguageModel
from segue.train.loop import TrainState, train
from segue.train.optim import make_optimizer

ROWS, LENGTH, PREDICTED = 4, 512, 85
MOST = 0.15
"""Largest share of the step for anything but matrix products."""
OTHER, KERNEL = "other", "attention kernel"
GROUPS: dict[str, tuple[str, ...]] = {
    "matrix products": (
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::addbmm",
        "aten::mkldnn_linear",
        "mkldnn::_linear_pointwise",
    ),
    KERNEL: (
        "segue::",
        "aten::_softmax",
        "aten::masked_fill",
        "aten::where",
        "aten::gather",
        "aten::_scaled_dot_product",
    ),
    "dropout": ("aten::dropout", "aten::native_dropout", "aten::bernoulli", "aten::bitwise_xor", "aten::__rshift__"),
    "activation": ("aten::gelu", "aten::relu", "aten::threshold_backward"),
    "norm": ("aten::native_layer_norm",),
    "cross-entropy": ("aten::_log_softmax", "aten::nll_loss", "aten::logsumexp"),
    "embedding": ("aten::embedding",),
    "optimizer": ("Optimizer.", "aten::_foreach", "aten::_fused_adam", "aten::linalg_vector_norm"),
    "data": ("data",),
    "Python between operations": ("step",),
}
"""The group of an operation by the prefix of its name."""
OWN_FUNCTIONS = {"dropout": "dropout", "entropy": "cross-entropy", "softmax": "cross-entropy", "norm": "norm"}
"""The group of segue's own autograd functions by a word in module or name; the others are the attention kernel."""


def groups_with_own_functions() -> dict[str, tuple[str, ...]]:
    """Return GROUPS with segue's own autograd functions, which the profiler knows by their class."""
    groups = dict(GROUPS)
    waiting = list(torch.autograd.Function.__subclasses__())
    while waiting:
        function = waiting.pop()
        waiting += function.__subclasses__()
        if function.__module__.startswith("segue."):
            path = f"{function.__module__}.{function.__name__}".lower()
            words = (group for word, group in OWN_FUNCTIONS.items() if word in path)
            group = next(words, KERNEL)
            groups[group] = (*groups[group], function.__name__)
    return groups


def group_of(names: Iterator[str] | list[str], groups: Mapping[str, tuple[str, ...]]) -> str:
    """Return the group of an operation from its name and those of its callers, innermost first."""
    for name in names:
        for group, beginnings in groups.items():
            if name.startswith(beginnings):
                return group
    return OTHER


class Recorded:
    """Batches whose building shows in the profile."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    @property
    def position(self) -> Mapping[str, int]:
        return self._batches.position

    def __next__(self) -> Batch:
        with record_function("data"):
            return next(self._batches)


def profiled_steps(config: ModelConfig, *, rows: int, length: int, steps: int, warm_up: int) -> profile:
    """Run `steps` updates under the profiler, after some without it."""
    settings = TrainConfig(steps=steps + warm_up)
    data = DataConfig(store="", lanes=rows, segment_length=length)
    torch.manual_seed(0)
    model = LanguageModel(config)
    state = TrainState(model=model, optimizer=make_optimizer(model, settings), average=None)
    updates = train(state, Recorded(Batches(RandomText(), data, config, seed=0)), settings)
    for _ in range(warm_up):
        next(updates)
    recorded = profile(activities=[ProfilerActivity.CPU])
    with recorded:
        for _ in range(steps):
            with record_function("step"):
                next(updates)
    return recorded


def shares(recorded: profile) -> tuple[float, dict[str, float], dict[str, list[tuple[str, float]]]]:
    """Return the seconds of all steps, those of each group, and the five longest operations of each group."""
    groups = groups_with_own_functions()
    seconds: dict[str, float] = dict.fromkeys([*groups, OTHER], 0.0)
    operations: dict[str, dict[str, float]] = {group: {} for group in seconds}
    for event in recorded.events():
        callers = [event.name]
        outer = event.cpu_parent
        while outer is not None:
            callers.append(outer.name)
            outer = outer.cpu_parent
        if callers[-1] != "step":  # on another thread, or the profiler's own
            continue
        group = group_of(callers if len(callers) == 1 else callers[:-1], groups)
        itself = event.self_cpu_time_total / 1e6
        seconds[group] += itself
        operations[group][event.name] = operations[group].get(event.name, 0.0) + itself
    longest = {
        group: sorted(names.items(), key=lambda item: -item[1])[:5] for group, names in operations.items() if names
    }
    return sum(seconds.values()), seconds, longest


def measure(config: ModelConfig, *, rows: int, length: int, steps: int) -> tuple[list[Row], float]:
    """Return a row for each group, the largest first, and the seconds of a step."""
    total, seconds, longest = shares(profiled_steps(config, rows=rows, length=length, steps=steps, warm_up=1))
    lines: list[Row] = [
        {
            "group": group,
            "seconds_a_step": value / steps,
            "share": value / total,
            "most": None if group == "matrix products" else MOST,
            "longest": [[name, time / steps] for name, time in longest.get(group, [])],
        }
        for group, value in sorted(seconds.items(), key=lambda item: -item[1])
    ]
    print(f"{'group':28}{'ms a step':>10}{'share':>8}  longest operations")
    for line in lines:
        names = ", ".join(f"{name} {time * 1e3:.0f}" for name, time in line["longest"][:3])
        print(f"{line['group']:28}{line['seconds_a_step'] * 1e3:10.1f}{line['share']:8.1%}  {names}", flush=True)
    return lines, total / steps


def main() -> None:
    options: argparse.Namespace = arguments(__doc__, rounds=2, quick_rounds=1)
    layers = 4 if options.quick else 12
    config = base_xlnet(num_layers=layers)
    lines, seconds = measure(config, rows=ROWS, length=LENGTH, steps=options.rounds)
    attention = 3 * step_of(config, rows=ROWS, length=LENGTH, predicted=PREDICTED).attention()
    write(
        "step_profile",
        f"shares of a permutation pretraining update, {layers} layers, {ROWS} x {LENGTH}",
        lines,
        options,
        layers=layers,
        seconds_a_step=seconds,
        attention_products_seconds=attention * min(product_seconds(10)) / PRODUCT_SIZE**3,
    )


if __name__ == "__main__":
    main()
