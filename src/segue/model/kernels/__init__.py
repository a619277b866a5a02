"""Attention from projected queries, keys and values: one function, computed by the fastest kernel that can.

In: query, key, value, the terms of the score, and a View (who sees whom, from where). Out: what each query reads,
before the output projection. Projections and parameters are the business of `attention`. `definition` says what the
result is; `native` (C++, for float32 and float64 on a CPU) and `banded` (PyTorch's operations, for the rest) equal it
and are fast. Under autocast on a CPU the native kernel computes in float32 what comes to it in bfloat16. One token at a
time goes through whole layers in C++ instead, where it can (`step`).
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
    """Softmax of the scores over the visible keys, times the values: mixed_BQHE. Zeros where none is visible."""
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
    """The kernels that can compute this, by name, the fastest first."""
    found: dict[str, Kernel] = {}
    if native.applies(query_BQHE, key_BKHE, value_BKHE, terms):
        found["native"] = native.attend
    if banded.applies(terms):
        found["banded"] = banded.attend
    found["definition"] = definition.attend
    return found
