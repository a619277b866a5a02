"""Attention in C++ (`native.cpp`): nothing of the size queries x keys is stored, and the work stays in the cache."""

import ctypes
import math
from ctypes import c_double, c_int64, c_uint64, c_void_p
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from segue.model.kernels.dropout import draw_seed, threshold
from segue.model.kernels.inputs import ScoreTerms, View
from segue.model.kernels.library import NAMES, library, supports

Strides = c_int64 * 3
MaskStrides = c_int64 * 2


class Problem(ctypes.Structure):
    """Arguments of a call: the same fields in the same order as in native.cpp, where they are explained."""

    _fields_ = [
        *((name, c_int64) for name in ("rows", "heads", "queries", "keys", "width", "segment", "distances")),
        *((name, c_int64) for name in ("signs", "threads")),
        *((name, c_void_p) for name in ("query", "key", "value", "position")),
        *((f"{name}_strides", Strides) for name in ("query", "key", "value", "position")),
        *((name, c_void_p) for name in ("content_bias", "position_bias", "segment_score", "mask", "differs")),
        *((f"{name}_strides", MaskStrides) for name in ("mask", "differs")),
        ("at", c_void_p),
        *((name, c_double) for name in ("scale", "dropout")),
        *((name, c_uint64) for name in ("seed", "threshold")),
        *((name, c_void_p) for name in ("out", "log_sum", "grad_out")),
        ("grad_out_strides", Strides),
        *((f"grad_{name}", c_void_p) for name in ("query", "key", "value", "position")),
        *((f"grad_{name}", c_void_p) for name in ("content_bias", "position_bias", "segment_score")),
    ]


def applies(query_BQHE: Tensor, key_BKHE: Tensor, value_BKHE: Tensor, terms: ScoreTerms) -> bool:
    """Return True if `attend` supports these inputs: content, position and segment scores, all of one dtype."""
    if torch.is_autocast_enabled("cpu") or not _knows(terms):
        return False
    relative_key = None if terms.relative is None else terms.relative.key_SRHE
    tensors = [query_BQHE, key_BKHE, value_BKHE, relative_key, *_parameters(terms)]
    return all(x is None or (supports(x) and x.dtype == query_BQHE.dtype) for x in tensors)


def applies_in_float32(query_BQHE: Tensor, terms: ScoreTerms) -> bool:
    """Return True if `attend` supports these inputs with autocast off and projections cast back to float32."""
    parameters = [x for x in _parameters(terms) if x is not None]
    return query_BQHE.is_cpu and _knows(terms) and all(x.dtype == torch.float32 for x in parameters)


def _knows(terms: ScoreTerms) -> bool:
    relative = terms.relative
    return library() is not None and (relative is None or relative.keys_alone)


def _parameters(terms: ScoreTerms) -> list[Tensor | None]:
    return [terms.content_bias_HE, terms.position_bias_HE, terms.segment_key_2HE, terms.segment_bias_HE]


def attend(
    query_BQHE: Tensor,
    key_BKHE: Tensor,
    value_BKHE: Tensor,
    *,
    terms: ScoreTerms,
    view: View,
    dropout: float,
) -> Tensor:
    """Return attention as defined by `definition.attend`."""
    segment_score_BHQ2 = None
    if terms.segment_key_2HE is not None and view.differs_BQK is not None:
        bias_HE = terms.segment_bias_HE
        segment_query = query_BQHE if bias_HE is None else query_BQHE + bias_HE
        segment_score_BHQ2 = torch.einsum("bqhe,she->bhqs", segment_query, terms.segment_key_2HE)
    mixed_BQHE = _Attention.apply(  # type: ignore[no-untyped-call]
        query_BQHE,
        key_BKHE,
        value_BKHE,
        None if terms.relative is None else terms.relative.key_SRHE,
        terms.content_bias_HE,
        terms.position_bias_HE,
        segment_score_BHQ2,
        view,
        dropout,
    )
    return cast(Tensor, mixed_BQHE)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        position: Tensor | None,
        content_bias: Tensor | None,
        position_bias: Tensor | None,
        segment_score: Tensor | None,
        view: View,
        dropout: float,
    ) -> Tensor:
        query, key, value, mask = _dense(query), _dense(key), _dense(value), _dense(view.mask_BQK)
        position = None if position is None else _dense(position)
        content_bias, position_bias, segment_score, at = (
            None if x is None else x.contiguous() for x in (content_bias, position_bias, segment_score, view.at_BQ)
        )
        differs = None if segment_score is None or view.differs_BQK is None else _dense(view.differs_BQK)
        rows, queries, heads, _ = query.shape
        out, log_sum = query.new_empty(query.shape), query.new_empty(rows, heads, queries)
        tensors = (query, key, value, position, content_bias, position_bias, segment_score, out, log_sum)
        ctx.save_for_backward(*tensors)
        ctx.mask, ctx.differs, ctx.at, ctx.segment = mask, differs, at, view.segment_length
        ctx.dropout, ctx.seed = dropout, draw_seed() if dropout > 0 else 0
        _run("forward", _problem(ctx, *tensors), query.dtype)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read only once: under checkpointing these are computed again
        query, key, value, position, content_bias, position_bias, segment_score = saved[:7]
        rows, _, heads, width = query.shape
        grad_query, grad_key, grad_value = (x.new_empty(x.shape) for x in (query, key, value))
        grad_position = None if position is None else query.new_empty(rows, *position.shape[1:])
        grad_content_bias = None if content_bias is None else query.new_empty(rows, heads, width)
        grad_position_bias = None if position is None or position_bias is None else query.new_empty(rows, heads, width)
        grad_segment_score = None if segment_score is None else torch.empty_like(segment_score)
        grad_out = _dense(grad_out)
        problem = _problem(ctx, *saved)
        problem.grad_out, problem.grad_out_strides = grad_out.data_ptr(), Strides(*grad_out.stride()[:3])
        problem.grad_query, problem.grad_key = grad_query.data_ptr(), grad_key.data_ptr()
        problem.grad_value, problem.grad_position = grad_value.data_ptr(), _pointer(grad_position)
        problem.grad_content_bias = _pointer(grad_content_bias)
        problem.grad_position_bias = _pointer(grad_position_bias)
        problem.grad_segment_score = _pointer(grad_segment_score)
        _run("backward", problem, query.dtype)
        if grad_position is not None and problem.signs == 1 and rows > 1:
            grad_position = grad_position.sum(0, keepdim=True)
        return (
            grad_query,
            grad_key,
            grad_value,
            grad_position,
            None if grad_content_bias is None else grad_content_bias.sum(0),
            None if grad_position_bias is None else grad_position_bias.sum(0),
            grad_segment_score,
            None,
            None,
        )


def _problem(
    ctx: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    position: Tensor | None,
    content_bias: Tensor | None,
    position_bias: Tensor | None,
    segment_score: Tensor | None,
    out: Tensor,
    log_sum: Tensor,
) -> Problem:
    """Return the arguments of a call; the tensors must outlive it."""
    rows, queries, heads, width = query.shape
    return Problem(
        rows=rows,
        heads=heads,
        queries=queries,
        keys=key.shape[1],
        width=width,
        segment=ctx.segment,
        distances=0 if position is None else position.shape[1],
        signs=0 if position is None else position.shape[0],
        threads=torch.get_num_threads(),
        query=query.data_ptr(),
        key=key.data_ptr(),
        value=value.data_ptr(),
        position=_pointer(position),
        query_strides=Strides(*query.stride()[:3]),
        key_strides=Strides(*key.stride()[:3]),
        value_strides=Strides(*value.stride()[:3]),
        position_strides=Strides() if position is None else Strides(*position.stride()[:3]),
        content_bias=_pointer(content_bias),
        position_bias=_pointer(position_bias),
        segment_score=_pointer(segment_score),
        mask=ctx.mask.data_ptr(),
        differs=_pointer(ctx.differs),
        mask_strides=MaskStrides(*ctx.mask.stride()[:2]),
        differs_strides=MaskStrides() if ctx.differs is None else MaskStrides(*ctx.differs.stride()[:2]),
        at=_pointer(ctx.at),
        scale=1 / math.sqrt(width),
        dropout=ctx.dropout,
        seed=ctx.seed,
        threshold=threshold(ctx.dropout),
        out=out.data_ptr(),
        log_sum=log_sum.data_ptr(),
    )


def _dense(x: Tensor) -> Tensor:
    """Return the same numbers with a contiguous last dimension."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _pointer(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _run(direction: str, problem: Problem, dtype: torch.dtype) -> None:
    loaded = library()
    assert loaded is not None
    assert loaded.segue_problem_size() == ctypes.sizeof(Problem)
    if getattr(loaded, f"segue_{direction}_{NAMES[dtype]}")(ctypes.byref(problem)):
        raise MemoryError(
            f"attention needs working memory for {problem.keys} keys on each of {problem.threads} threads, and the "
            "system gave none. Use shorter segments, a shorter memory or fewer threads."
        )
