"""Attention kernels: one function from projected queries, keys and values, computed by the fastest kernel available.

In: query, key, value, the terms of the score, and a View (mask and query positions). Out: the attention output of each
query, before the output projection. Projections and parameters are in `attention`. `definition` is the reference
implementation; `native` (C++, for float32 and float64 on a CPU) and `banded` (PyTorch operations, for the rest) are
equal to it and fast. Under autocast on a CPU the native kernel computes bfloat16 inputs in float32. Single tokens go
through whole layers in C++ instead, if possible (`step`).
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from segue.model.kernels import banded, definition, native
from segue.model.kernels.dropout import Dropout
from segue.model.kernels.inputs import ScoreTerms, View

__all__ = ["Dropout", "Kernel", "ScoreTerms", "View", "attend", "kernels_for"]

Kernel = Callable[..., Tensor]
"""A function with the arguments and the result of `attend`."""


def attend(
    query_BQHE: Tensor,
    key_BKHE: Tensor,
    value_BKHE: Tensor,
    *,
    terms: ScoreTerms,
    view: View,
    dropout: float,
) -> Tensor:
    """Return the softmax of the scores over visible keys, times the values: mixed_BQHE. Zeros if none is visible."""
    if torch.is_autocast_enabled("cpu") and native.applies_in_float32(query_BQHE, terms):
        with torch.autocast("cpu", enabled=False):
            query_BQHE, key_BKHE, value_BKHE = query_BQHE.float(), key_BKHE.float(), value_BKHE.float()
            if terms.relative is not None and terms.relative.key_SRHE is not None:
                relative = replace(terms.relative, key_SRHE=terms.relative.key_SRHE.float())
                terms = replace(terms, relative=relative)
            return native.attend(query_BQHE, key_BKHE, value_BKHE, terms=terms, view=view, dropout=dropout)
    kernel = next(iter(kernels_for(query_BQHE, key_BKHE, value_BKHE, terms).values()))
    return kernel(query_BQHE, key_BKHE, value_BKHE, terms=terms, view=view, dropout=dropout)


def kernels_for(query_BQHE: Tensor, key_BKHE: Tensor, value_BKHE: Tensor, terms: ScoreTerms) -> dict[str, Kernel]:
    """Return the kernels that support these inputs, by name, the fastest first."""
    found: dict[str, Kernel] = {}
    if native.applies(query_BQHE, key_BKHE, value_BKHE, terms):
        found["native"] = native.attend
    if banded.applies(terms):
        found["banded"] = banded.attend
    found["definition"] = definition.attend
    return found
