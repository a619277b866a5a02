"""Attention from projected queries, keys and values, in plain PyTorch: the definition that others must equal.

In: query, key, value, the terms of the score, and a View (who sees whom, from where). Out: what each query reads,
before the output projection. Projections and parameters are the business of `attention`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from segue.model.positions import RelativeTerms, distance_columns, relative_shift, relative_unshift


@dataclass(frozen=True, kw_only=True)
class View:
    """What the queries of one stream see."""

    mask_BQK: Tensor
    """True = may attend."""
    differs_BQK: Tensor | None = None
    """Whether query and key are of different segments, for the relative segment encoding; None: no encoding."""
    at_BQ: Tensor | None = None
    """Positions of the queries in a segment; None: all of them, in order."""
    segment_length: int
    """How many positions the segment has (the queries may be fewer)."""


@dataclass(frozen=True, kw_only=True)
class ScoreTerms:
    """All that a score has besides query times key."""

    relative: RelativeTerms | None = None
    content_bias_HE: Tensor | None = None
    """u: what makes a key likely whoever asks."""
    position_bias_HE: Tensor | None = None
    """v: what makes a distance likely whoever asks."""
    segment_key_2HE: Tensor | None = None
    """Keys for "same segment" and "another segment"."""
    segment_bias_HE: Tensor | None = None
    """s: as u and v, for the segment keys."""


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
    score_BHQK = attention_score(query_BQHE, key_BKHE, terms=terms, view=view)
    probability_BHQK = masked_softmax(score_BHQK, view.mask_BQK)
    if dropout > 0:
        probability_BHQK = F.dropout(probability_BHQK, dropout)
    mixed_BQHE = torch.einsum("bhqk,bkhe->bqhe", probability_BHQK, value_BKHE)
    if terms.relative is not None and terms.relative.value_SRHE is not None:
        value_SRHE = terms.relative.value_SRHE
        weight_BHQR = _to_distances(probability_BHQK, view, num_distances=value_SRHE.shape[1])
        mixed_BQHE = mixed_BQHE + torch.einsum("bhqr,brhe->bqhe", weight_BHQR, value_SRHE)
    return mixed_BQHE


def attention_score(query_BQHE: Tensor, key_BKHE: Tensor, *, terms: ScoreTerms, view: View) -> Tensor:
    """((q + u) k + (q + v) r + (q + s) g) / sqrt(E) + bias, each term for its key, distance or segment."""
    num_keys = key_BKHE.shape[1]
    content_query = _plus(query_BQHE, terms.content_bias_HE)
    score_BHQK = torch.einsum("bqhe,bkhe->bhqk", content_query, key_BKHE)
    relative = terms.relative
    if relative is not None and relative.key_SRHE is not None:
        position_query = _plus(query_BQHE, terms.position_bias_HE)
        position_BHQR = torch.einsum("bqhe,brhe->bhqr", position_query, relative.key_SRHE)
        score_BHQK = score_BHQK + _to_keys(position_BHQR, view, num_keys=num_keys)
    if terms.segment_key_2HE is not None and view.differs_BQK is not None:
        segment_query = _plus(query_BQHE, terms.segment_bias_HE)
        same, other = torch.einsum("bqhe,she->sbhq", segment_query, terms.segment_key_2HE)
        differs_B1QK = view.differs_BQK[:, None]
        score_BHQK = score_BHQK + torch.where(differs_B1QK, other[..., None], same[..., None])
    score_BHQK = score_BHQK / math.sqrt(query_BQHE.shape[-1])
    if relative is not None and relative.bias_SRH is not None:
        rows, length = query_BQHE.shape[:2]
        bias_BHQR = relative.bias_SRH.transpose(1, 2)[:, :, None].expand(rows, -1, length, -1)
        score_BHQK = score_BHQK + _to_keys(bias_BHQR, view, num_keys=num_keys)
    return score_BHQK


def masked_softmax(score_BHQK: Tensor, mask_BQK: Tensor) -> Tensor:
    """Probabilities over the visible keys. A query that sees nothing gets zeros: no NaN, and no leak either
    (subtracting a large number, as the original code does, gives such a query a little of every key)."""
    hidden_B1QK = ~mask_BQK[:, None]
    score_BHQK = score_BHQK.masked_fill(hidden_B1QK, torch.finfo(score_BHQK.dtype).min)
    return score_BHQK.softmax(dim=-1).masked_fill(hidden_B1QK, 0.0)


def _plus(query_BQHE: Tensor, bias_HE: Tensor | None) -> Tensor:
    return query_BQHE if bias_HE is None else query_BQHE + bias_HE


def _to_keys(x_BHQR: Tensor, view: View, *, num_keys: int) -> Tensor:
    """From one column a distance to one column a key."""
    if view.at_BQ is None:
        return relative_shift(x_BHQR, num_keys=num_keys)
    column_BQK = distance_columns(view.at_BQ, segment_length=view.segment_length, num_keys=num_keys)
    column_BQK = column_BQK.clamp(max=x_BHQR.shape[-1] - 1)  # keys to the right, where no distance stands for them
    return x_BHQR.gather(-1, column_BQK[:, None].expand(-1, x_BHQR.shape[1], -1, -1))


def _to_distances(x_BHQK: Tensor, view: View, *, num_distances: int) -> Tensor:
    """From one column a key to one column a distance; masked keys must be zero."""
    if view.at_BQ is None:
        return relative_unshift(x_BHQK, num_distances=num_distances)
    column_BQK = distance_columns(view.at_BQ, segment_length=view.segment_length, num_keys=x_BHQK.shape[-1])
    column_BHQK = column_BQK.clamp(max=num_distances - 1)[:, None].expand_as(x_BHQK)
    return x_BHQK.new_zeros(*x_BHQK.shape[:3], num_distances).scatter_add(-1, column_BHQK, x_BHQK)
