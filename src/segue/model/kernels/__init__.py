"""Attention from projected queries, keys and values: one function, computed by the fastest kernel that can.

In: query, key, value, the terms of the score, and a View (who sees whom, from where). Out: what each query reads,
before the output projection. Projections and parameters are the business of `attention`. `definition` says what the
result is; `native` (C++, for float32 and float64 on a CPU) and `banded` (PyTorch's operations, for the rest) equal it
and are fast. Under autocast on a CPU the native kernel computes in float32 what comes to it in bfloat16.
"""

from dataclasses import replace

import torch
from torch import Tensor

from segue.model.kernels import banded, definition, native
from segue.model.kernels.dropout import Dropout
from segue.model.kernels.terms import ScoreTerms, View

__all__ = ["Dropout", "ScoreTerms", "View", "attend"]


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
    if native.applies(query_BQHE, key_BKHE, value_BKHE, terms):
        kernel = native.attend
    elif banded.applies(terms):
        kernel = banded.attend
    else:
        kernel = definition.attend
    return kernel(query_BQHE, key_BKHE, value_BKHE, terms=terms, view=view, dropout=dropout)
