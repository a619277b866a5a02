"""Memory-efficient cross-entropy: the sum of weight * -log p(target) from hidden states and targets, for vocabularies
so large that the logits of a batch would be the largest tensor of a training step.

Logits exist for one chunk of rows at a time. Everything needed from them can be computed then, gradients included: with
p = softmax(logits), d sum / d logits = weight * (p - onehot(target)). So the forward pass also computes the gradients,
and the backward pass only returns them: no logits are stored, and none are computed twice.

Besides the letters of `segue.model`: C rows of a chunk.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from segue.model.kernels import library
from segue.model.uncompiled import uncompiled

CHUNK_BYTES = 2**26
"""Bytes of logits per chunk: 500 rows of 32,000 tokens. With half of it, products with a wide weight are slower."""
NARROW, NARROW_CHUNK_BYTES = 64, 2**21
"""Bytes of logits per chunk up to this width: products are then bound by reading and writing logits, which should stay
in the cache."""
NATIVE_CHUNK_BYTES = 2**24
"""Bytes of logits per chunk for the native kernel, whose logits take half the bytes and should stay in the cache."""
LEAST_ROWS = 64


@uncompiled
def weighted_nll(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor, weights_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sum of weights_N * nll_N, and nll_N = -log softmax(hidden W^T + bias)[target].

    The sum can be differentiated once, for hidden, weight and bias; nll_N has no gradient. Products use the dtype of
    autocast if that is on; sums are accumulated in float32 or more.
    """
    assert not weights_N.requires_grad, "weights_N are constants"
    parameters = (hidden_ND, weight_VD, bias_V)
    if torch.is_grad_enabled() and any(x.requires_grad for x in parameters):
        total, nll_N = _WeightedNll.apply(*parameters, targets_N, weights_N)  # type: ignore[no-untyped-call]
        return total, nll_N
    result = _result(*parameters, targets_N, weights_N, wanted=(False, False, False))
    return result.total, result.nll_N


class _WeightedNll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor, weights_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        wanted: tuple[bool, bool, bool] = ctx.needs_input_grad[:3]  # type: ignore[attr-defined]
        result = _result(hidden_ND, weight_VD, bias_V, targets_N, weights_N, wanted=wanted)
        ctx.save_for_backward(*result.gradients)  # type: ignore[arg-type]
        ctx.mark_non_differentiable(result.nll_N)
        return result.total, result.nll_N

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients: tuple[Tensor | None, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
        if scale.device.type != "cpu" or float(scale) != 1:  # comparing would synchronise other devices
            gradients = tuple(None if x is None else x * scale for x in gradients)
        return *gradients, None, None


class _Result(NamedTuple):
    total: Tensor
    nll_N: Tensor
    gradients: tuple[Tensor | None, ...]
    """Gradients of the total for hidden, weight and bias."""


@torch.no_grad()
def _result(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    *,
    wanted: tuple[bool, bool, bool],
) -> _Result:
    inputs = (hidden_ND, weight_VD, bias_V)
    native = all(library.supports(x) and x.dtype == torch.float32 for x in inputs)
    if native and _cast(hidden_ND).dtype == torch.bfloat16:
        return _natively(*inputs, targets_N, weights_N, wanted=wanted)
    return _chunk_by_chunk(*inputs, targets_N, weights_N, wanted=wanted)


def _natively(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    *,
    wanted: tuple[bool, bool, bool],
) -> _Result:
    """Compute the result from float32 inputs, with products in bfloat16 and the rest in the native kernel."""
    size = len(weight_VD)
    gradients = [torch.zeros_like(x) if any(wanted) else None for x in (hidden_ND, weight_VD, bias_V)]
    d_hidden_ND, d_weight_VD, d_bias_V = gradients
    low_hidden_ND, low_weight_VD = hidden_ND.bfloat16(), weight_VD.bfloat16()
    bias_V, targets_N, weights_N = bias_V.contiguous(), targets_N.contiguous(), weights_N.float().contiguous()
    nll_N = torch.empty_like(weights_N)
    count = _rows(len(hidden_ND), size=size, itemsize=2, most_bytes=NATIVE_CHUNK_BYTES)
    buffer_CV = low_hidden_ND.new_empty(count, size)
    for start in range(0, len(hidden_ND), count):
        rows = slice(start, start + count)
        hidden_CD = low_hidden_ND[rows]
        logits_CV = torch.mm(hidden_CD, low_weight_VD.T, out=buffer_CV[: len(hidden_CD)])
        nll_N[rows] = library.nll_and_gradient(logits_CV, bias_V, targets_N[rows], weights_N[rows], d_bias_V=d_bias_V)
        if wanted[0] and d_hidden_ND is not None:
            d_hidden_ND[rows] = logits_CV @ low_weight_VD
        if wanted[1] and d_weight_VD is not None:
            d_weight_VD += logits_CV.T @ hidden_CD
    return _Result(
        total=(weights_N * nll_N).sum(),
        nll_N=nll_N,
        gradients=tuple(g if want else None for g, want in zip(gradients, wanted, strict=True)),
    )


def _chunk_by_chunk(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    *,
    wanted: tuple[bool, bool, bool],
) -> _Result:
    """Compute the result with the wanted gradients only; total and nll_N do not depend on the choice."""
    inputs = (hidden_ND, weight_VD, bias_V)
    precise = torch.promote_types(weight_VD.dtype, torch.float32)
    gradients = [
        torch.zeros(x.shape, dtype=precise, device=x.device) if want else None
        for x, want in zip(inputs, wanted, strict=True)
    ]
    d_hidden_ND, d_weight_VD, d_bias_V = gradients
    hidden_ND, weight_VD, bias_V = map(_cast, inputs)
    weights_N = weights_N.to(precise)
    nll_N = torch.empty_like(weights_N)
    most_bytes = NARROW_CHUNK_BYTES if hidden_ND.shape[1] <= NARROW else CHUNK_BYTES
    count = _rows(len(hidden_ND), size=len(weight_VD), itemsize=precise.itemsize, most_bytes=most_bytes)
    buffer_CV = hidden_ND.new_empty(count, len(weight_VD))
    for start in range(0, len(hidden_ND), len(buffer_CV)):
        rows = slice(start, start + len(buffer_CV))
        hidden_CD, target_C1, weights_C1 = hidden_ND[rows], targets_N[rows, None], weights_N[rows, None]
        logits_CV = torch.addmm(bias_V, hidden_CD, weight_VD.T, out=buffer_CV[: len(hidden_CD)]).to(precise)
        nll_N[rows], error_CV = _nll_and_error(logits_CV, target_C1)
        if d_bias_V is not None:
            d_bias_V.addmv_(error_CV.T, weights_C1[:, 0])
        error_CV = error_CV.to(hidden_CD.dtype)
        if d_hidden_ND is not None:
            d_hidden_ND[rows] = (error_CV @ weight_VD) * weights_C1
        if d_weight_VD is not None:
            _add_product(d_weight_VD, error_CV.T, (hidden_CD * weights_C1).to(hidden_CD.dtype))
    return _Result(
        total=(weights_N * nll_N).sum(),
        nll_N=nll_N,
        gradients=tuple(None if g is None else g.to(x.dtype) for g, x in zip(gradients, inputs, strict=True)),
    )


def _nll_and_error(logits_CV: Tensor, target_C1: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log p(target), and p - onehot(target), which overwrites the logits."""
    top_C1, target_logit_C1 = logits_CV.amax(dim=1, keepdim=True), logits_CV.gather(1, target_C1)
    p_CV = torch.softmax(logits_CV, dim=1, out=logits_CV)
    # log sum exp(logits) = top logit - log p(top), where p(top) is at least 1 / V: nothing underflows.
    nll_C1 = top_C1 - target_logit_C1 - p_CV.amax(dim=1, keepdim=True).log()
    error_CV = p_CV.scatter_add_(1, target_C1, p_CV.new_full(target_C1.shape, -1.0))
    return nll_C1.squeeze(1), error_CV


def _cast(value: Tensor) -> Tensor:
    """Return the value cast as autocast would, if that is on."""
    device = value.device.type
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return value.to(torch.get_autocast_dtype(device)) if on and value.dtype != torch.float64 else value


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _rows(count: int, *, size: int, itemsize: int, most_bytes: int) -> int:
    """Return the rows per chunk: chunks of about equal size, none with much more than `most_bytes` of logits."""
    most = max(LEAST_ROWS, most_bytes // (size * itemsize))
    return max(1, math.ceil(count / math.ceil(max(1, count) / most)))
