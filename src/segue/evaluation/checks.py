"""Checks for the classic mistakes in these models, which a model passes or fails.

In: a LanguageModel. Out: for each check its name, its meaning, whether it passed, and the measured value. The checks
run on short random rows, on the model's own weights, through every kernel that supports the model, and leave the model
unchanged.
"""

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import cast

import torch
from torch import Tensor

from segue.errors import DataError
from segue.evaluation.kernel_checks import (
    LENGTH,
    STEP,
    TOLERANCE,
    Finding,
    adjusted,
    computed_by,
    kernels_of,
    random_ids,
    shift_direction,
    token_by_token,
)
from segue.model import Batch, LanguageModel
from segue.model.attention import Attention
from segue.model.kernels import Kernel, library
from segue.model.language_model import order_batch
from segue.model.stack import Stack

MOVED = 1e-6
"""Minimum change of a state that counts as an effect of a token; tokens that a state may not see change nothing."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of one check. `passed` is None if the check does not apply to the model, or a kernel is missing."""

    name: str
    meaning: str
    passed: bool | None
    measured: str
    kernel: str | None = None
    """The kernel used; None if the check does not depend on one."""


def check_installation() -> Iterator[Check]:
    """Check the installation."""
    yield Check(
        name="python",
        meaning="Python 3.11 or later.",
        passed=sys.version_info >= (3, 11),
        measured=platform.python_version(),
    )
    for package in ("torch", "numpy", "safetensors", "pydantic"):
        yield Check(name=package, meaning="Installed and importable.", passed=True, measured=version(package))
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    elif torch.backends.mps.is_available():
        device = "Apple GPU"
    else:
        device = f"CPU, {torch.get_num_threads()} threads"
    yield Check(name="device", meaning="Where models run.", passed=True, measured=device)
    x = torch.arange(12.0).view(3, 4)
    error = float((x @ x.T - torch.einsum("ik,jk->ij", x, x)).abs().max())
    yield Check(
        name="arithmetic",
        meaning="Two ways to multiply the same matrices agree.",
        passed=error < TOLERANCE,
        measured=f"difference {error:.1e}",
    )
    yield Check(
        name="native kernels",
        meaning="Attention kernels compiled at installation. Without them results are the same, but slower; to build "
        "them, install a C++ compiler, then segue again.",
        passed=True if library.available() else None,
        measured="in use" if library.available() else "absent",
    )


def check_model(model: LanguageModel) -> Iterator[Check]:
    """Run all checks of a model, each through every kernel that supports it, in evaluation mode and without touching
    its gradients."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            passed, measured = _weights(model)
            yield Check(name="weights", meaning=_WEIGHTS, passed=passed, measured=measured)
            kernels = kernels_of(model)
        for name in [*kernels.usable, *([STEP] if kernels.step else [])]:
            yield Check(name="kernel", meaning=_KERNEL, passed=True, measured="checked", kernel=name)
        for name, reason in kernels.absent.items():
            yield Check(name="kernel", meaning=_KERNEL, passed=None, measured=reason, kernel=name)
        for name, meaning, run in _CHECKS:
            for kernel_name, kernel in kernels.usable.items():
                with computed_by(model, partial(_always, kernel)), torch.set_grad_enabled(run is _gradient):
                    passed, measured = run(model)
                yield Check(name=name, meaning=meaning, passed=passed, measured=measured, kernel=kernel_name)
        with torch.no_grad():
            for kernel_name, kernel in kernels.usable.items():
                passed, measured = token_by_token(model, kernel=kernel)
                yield Check(name="stream", meaning=_STREAM, passed=passed, measured=measured, kernel=kernel_name)
            if kernels.step:
                passed, measured = token_by_token(model, kernel=None)
                yield Check(name="stream", meaning=_STREAM, passed=passed, measured=measured, kernel=STEP)
    finally:
        model.train(training)


def _always(kernel: Kernel, stack: Stack, attention: Attention) -> Kernel:
    return kernel


def _with_other(ids_BQ: Tensor, position: int, model: LanguageModel) -> Tensor:
    other = ids_BQ.clone()
    other[0, position] = (other[0, position] + 1) % model.config.vocabulary.size
    return other


def _hidden(model: LanguageModel, ids_BQ: Tensor) -> Tensor:
    return cast(Tensor, model(Batch(ids_BQ=ids_BQ)).output.hidden_BQD)


def _change(before: Tensor, after: Tensor) -> Tensor:
    """Return the change at each position of row 0."""
    return (before - after)[0].abs().amax(dim=-1)


def _weights(model: LanguageModel) -> Finding:
    wrong = [name for name, parameter in model.named_parameters() if not bool(parameter.isfinite().all())]
    count = sum(parameter.numel() for parameter in model.parameters())
    return not wrong, f"not finite: {', '.join(wrong[:3])}" if wrong else f"{count:,} numbers"


def _polarity(model: LanguageModel) -> Finding:
    ids_BQ = random_ids(model, 1)
    before, middle = _hidden(model, ids_BQ), LENGTH // 2
    change_Q = _change(before, _hidden(model, _with_other(ids_BQ, middle, model)))
    moved = [q for q in range(LENGTH) if float(change_Q[q]) > MOVED]
    both = model.config.bidirectional or model.config.directions == "both"
    expected = list(range(LENGTH)) if both else list(range(middle, LENGTH))
    return (
        moved == expected,
        f"token {middle} affects states {moved[0]} to {moved[-1]}" if moved else "no state changed",
    )


def _memory(model: LanguageModel) -> Finding:
    config = model.config
    if config.memory is None:
        return None, "the model has no memory"
    if config.objective != "causal" or config.directions == "both":
        return None, "only a causal reader can be compared with one long segment"
    reader = adjusted(model, memory={"length": LENGTH, "initial": "empty", "reuse_length": None})
    ids_BQ, half = random_ids(model, 2), LENGTH // 2
    first = reader(Batch(ids_BQ=ids_BQ[:, :half]))
    second = reader(Batch(ids_BQ=ids_BQ[:, half:]), first.memory)
    whole = _hidden(reader, ids_BQ)
    error = float((second.output.hidden_BQD - whole[:, half:]).abs().max())
    forgot = float((_hidden(reader, ids_BQ[:, half:]) - whole[:, half:]).abs().max())
    return error < TOLERANCE < forgot, f"difference {error:.1e}; without memory {forgot:.1e}"


def _rows(model: LanguageModel) -> Finding:
    ids_BQ = random_ids(model, 3)
    first = model(Batch(ids_BQ=ids_BQ))
    other = model(Batch(ids_BQ=_with_other(ids_BQ, 0, model)))
    leak = float((first.output.hidden_BQD - other.output.hidden_BQD)[1:].abs().max())
    if first.memory is None:
        return leak < TOLERANCE, f"row 0 changes the others by {leak:.1e}"
    try:
        model(Batch(ids_BQ=ids_BQ[:2]), first.memory)
    except DataError:
        return leak < TOLERANCE, f"row 0 changes the others by {leak:.1e}; a memory of 3 rows for 2 is refused"
    return False, "a memory of 3 rows was accepted for a batch of 2"


def _padding(model: LanguageModel) -> Finding:
    ids_BQ, extra = random_ids(model, 1), 3
    padded = torch.cat([ids_BQ, ids_BQ[:, :extra]], dim=1)
    real_BQ = torch.arange(padded.shape[1], device=padded.device)[None] < LENGTH
    alone = _hidden(model, ids_BQ)
    together: Tensor = model(Batch(ids_BQ=padded, real_BQ=real_BQ)).output.hidden_BQD
    error = float((together[:, :LENGTH] - alone).abs().max())
    return error < TOLERANCE, f"difference {error:.1e}"


def _permutation(model: LanguageModel) -> Finding:
    if model.config.objective != "permutation":
        return None, f"the objective is {model.config.objective}"
    ids_BQ = random_ids(model, 1)
    order = [int(i) for i in torch.randperm(LENGTH, generator=torch.Generator().manual_seed(1))]
    order_BQ = torch.tensor([order], device=ids_BQ.device)
    changed_at, place = order[LENGTH // 2], LENGTH // 2
    before = model(order_batch(ids_BQ, order_BQ)).output.predicted_BPD
    after = model(order_batch(_with_other(ids_BQ, changed_at, model), order_BQ)).output.predicted_BPD
    change_Q = _change(before, after)
    moved = {q for q in range(LENGTH) if float(change_Q[q]) > MOVED}
    count = f"{len(moved)} of {LENGTH - place - 1} later predictions changed"
    return moved == set(order[place + 1 :]), count + ("; the token saw itself" if changed_at in moved else "")


def _gradient(model: LanguageModel) -> Finding:
    ids = random_ids(model, 2, LENGTH + 1)
    if model.config.objective == "permutation":
        batch = order_batch(ids, torch.arange(LENGTH + 1, device=ids.device).expand_as(ids))
    elif model.config.objective == "masked":
        at_BP = torch.arange(LENGTH, device=ids.device).expand(2, -1)
        batch = Batch(ids_BQ=ids, predicted_BP=at_BP, targets=ids.gather(1, at_BP))
    else:
        batch = Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])
    segments = torch.arange(ids.shape[1], device=ids.device).expand_as(ids) % 2
    if model.config.segments is not None:
        batch = replace(batch, segments_BQ=segments[:, : batch.ids_BQ.shape[1]])
    parameters = dict(model.named_parameters())
    loss = model(batch, progress=0.0).loss
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    # Random tokens need not reach every bin of an adaptive vocabulary, nor its projections.
    optional = ("tables", "token_biases", "projections")
    missing = [
        name
        for (name, _), gradient in zip(parameters.items(), gradients, strict=True)
        if (gradient is None or not bool(gradient.abs().sum() > 0)) and not any(part in name for part in optional)
    ]
    return (
        not missing,
        f"none at {', '.join(missing[:3])}" if missing else f"loss {float(loss.detach()):.3f}, all weights",
    )


_WEIGHTS = "All weights are finite. A single NaN spreads to every state."
_KERNEL = (
    "Implementations of attention. The fastest one that supports the model is used; every check below runs with each."
)
_STREAM = (
    "Reading a few tokens at a time with a cache, as in generation, gives the same states as reading all at once, in "
    "every row. The step kernel reads single tokens, the others two at a time."
)
_CHECKS: list[tuple[str, str, Callable[[LanguageModel], Finding]]] = [
    (
        "shift direction",
        "Each key gets the encoding of its own relative distance, positive to the left. A model with a relative "
        "shift in the wrong direction still trains, but worse.",
        shift_direction,
    ),
    (
        "mask polarity",
        "True means may attend: in a causal model a token affects its own and later states only, in a bidirectional "
        "one all states. With inverted polarity a model sees future tokens, and its loss is too low.",
        _polarity,
    ),
    (
        "memory",
        "Reading two segments with memory gives the same states as reading all at once: segment-level recurrence, as "
        "in Transformer-XL.",
        _memory,
    ),
    (
        "rows apart",
        "Row b of a batch continues row b of the memory, and no other row affects it.",
        _rows,
    ),
    ("padding", "Padding does not affect real tokens.", _padding),
    (
        "permutation leak",
        "A token affects the predictions that come after it in the factorisation order, never its own. A leak makes "
        "pretraining trivial and useless.",
        _permutation,
    ),
    ("gradient", "Every weight has a gradient. A weight without one is never trained.", _gradient),
]
