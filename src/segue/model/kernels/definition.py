"""Attention in plain PyTorch, term by term: the reference that faster kernels must equal, dropout included."""

import math

import torch
from torch import Tensor

from segue.model.kernels.dropout import draw_seed, keep_mask
from segue.model.kernels.inputs import ScoreTerms, View
from segue.model.positions import RelativeTerms, distance_columns, relative_shift, relative_unshift


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
    score_BHQK = attention_score(query_BQHE, key_BKHE, terms=terms, view=view)
    probability_BHQK = masked_softmax(score_BHQK, view.mask_BQK)
    if dropout > 0:
        B, H, Q, K = probability_BHQK.shape
        keep = keep_mask(draw_seed(), rows=B * H * Q, columns=K, probability=dropout, device=probability_BHQK.device)
        probability_BHQK = probability_BHQK * keep.view(B, H, Q, K) / (1 - dropout)
    return mixed_values(probability_BHQK, value_BKHE, terms=terms, view=view)


def mixed_values(probability_BHQK: Tensor, value_BKHE: Tensor, *, terms: ScoreTerms, view: View) -> Tensor:
    """Return the mean of the values under these probabilities, those of the distances included: mixed_BQHE."""
    mixed_BQHE = torch.einsum("bhqk,bkhe->bqhe", probability_BHQK, value_BKHE)
    if terms.relative is not None and terms.relative.value_SRHE is not None:
        value_SRHE = terms.relative.value_SRHE
        weight_BHQR = _to_distances(probability_BHQK, view, num_distances=value_SRHE.shape[1])
        mixed_BQHE = mixed_BQHE + torch.einsum("bhqr,brhe->bqhe", weight_BHQR, value_SRHE)
    return mixed_BQHE


def attention_score(query_BQHE: Tensor, key_BKHE: Tensor, *, terms: ScoreTerms, view: View) -> Tensor:
    """Return ((q + u) k + (q + v) r + (q + s) g) / sqrt(E) + bias, with a term for the key, the distance and the
    segment. u may depend on the bucket of the distance."""
    score_BHQK = _content_score(_plus(query_BQHE, terms.content_bias_HE), key_BKHE)
    num_keys, relative = key_BKHE.shape[1], terms.relative
    if relative is not None and relative.content_XHE is not None:
        score_BHQK = score_BHQK + _bucket_score(query_BQHE, key_BKHE, relative, view)
    if relative is not None and relative.key_SRHE is not None:
        position_query = _plus(query_BQHE, terms.position_bias_HE)
        score_BHQK = score_BHQK + _position_score(position_query, relative.key_SRHE, view, num_keys=num_keys)
    if terms.segment_key_2HE is not None and view.differs_BQK is not None:
        segment_query = _plus(query_BQHE, terms.segment_bias_HE)
        score_BHQK = score_BHQK + _segment_score(segment_query, terms.segment_key_2HE, view.differs_BQK)
    score_BHQK = score_BHQK / math.sqrt(query_BQHE.shape[-1])
    if relative is not None and relative.bias_SRH is not None:
        score_BHQK = score_BHQK + _distance_bias(query_BQHE, relative.bias_SRH, view, num_keys=num_keys)
    return score_BHQK


def score_parts(query_BQHE: Tensor, key_BKHE: Tensor, *, terms: ScoreTerms, view: View) -> dict[str, Tensor]:
    """Return the terms of `attention_score` separately, by name; their sum is the score. Terms that the model lacks are
    left out."""
    num_keys, relative = key_BKHE.shape[1], terms.relative
    parts = {"content": _content_score(query_BQHE, key_BKHE)}
    if terms.content_bias_HE is not None:
        parts["content_bias"] = _content_score(terms.content_bias_HE.expand_as(query_BQHE), key_BKHE)
    if relative is not None and relative.content_XHE is not None:
        parts["content_bias"] = _bucket_score(query_BQHE, key_BKHE, relative, view)
    if relative is not None and relative.key_SRHE is not None:
        parts["position"] = _position_score(query_BQHE, relative.key_SRHE, view, num_keys=num_keys)
        if terms.position_bias_HE is not None:
            bias_BQHE = terms.position_bias_HE.expand_as(query_BQHE)
            parts["position_bias"] = _position_score(bias_BQHE, relative.key_SRHE, view, num_keys=num_keys)
    if terms.segment_key_2HE is not None and view.differs_BQK is not None:
        parts["segment"] = _segment_score(query_BQHE, terms.segment_key_2HE, view.differs_BQK)
        if terms.segment_bias_HE is not None:
            bias_BQHE = terms.segment_bias_HE.expand_as(query_BQHE)
            parts["segment_bias"] = _segment_score(bias_BQHE, terms.segment_key_2HE, view.differs_BQK)
    parts = {name: part_BHQK / math.sqrt(query_BQHE.shape[-1]) for name, part_BHQK in parts.items()}
    if relative is not None and relative.bias_SRH is not None:
        parts["distance_bias"] = _distance_bias(query_BQHE, relative.bias_SRH, view, num_keys=num_keys)
    return parts


def _content_score(query_BQHE: Tensor, key_BKHE: Tensor) -> Tensor:
    return torch.einsum("bqhe,bkhe->bhqk", query_BQHE, key_BKHE)


def _bucket_score(query_BQHE: Tensor, key_BKHE: Tensor, relative: RelativeTerms, view: View) -> Tensor:
    """Return u k, with the u of their distance's bucket."""
    assert relative.bucket_SR is not None
    rows, length = query_BQHE.shape[:2]
    every_BHXK = torch.einsum("xhe,bkhe->bhxk", relative.content_XHE, key_BKHE)
    bucket_BHQR = relative.bucket_SR[:, None, None].expand(rows, 1, length, -1)
    bucket_BHQK = _to_keys(bucket_BHQR, view, num_keys=key_BKHE.shape[1])
    return every_BHXK.gather(2, bucket_BHQK.expand(-1, every_BHXK.shape[1], -1, -1))


def _position_score(query_BQHE: Tensor, key_SRHE: Tensor, view: View, *, num_keys: int) -> Tensor:
    position_BHQR = torch.einsum("bqhe,brhe->bhqr", query_BQHE, key_SRHE)
    return _to_keys(position_BHQR, view, num_keys=num_keys)


def _segment_score(query_BQHE: Tensor, key_2HE: Tensor, differs_BQK: Tensor) -> Tensor:
    same, other = torch.einsum("bqhe,she->sbhq", query_BQHE, key_2HE)
    return torch.where(differs_BQK[:, None], other[..., None], same[..., None])


def _distance_bias(query_BQHE: Tensor, bias_SRH: Tensor, view: View, *, num_keys: int) -> Tensor:
    rows, length = query_BQHE.shape[:2]
    bias_BHQR = bias_SRH.transpose(1, 2)[:, :, None].expand(rows, -1, length, -1)
    return _to_keys(bias_BHQR, view, num_keys=num_keys)


def masked_softmax(score_BHQK: Tensor, mask_BQK: Tensor) -> Tensor:
    """Return probabilities over the visible keys. A query that sees nothing gets zeros: no NaN, and no leak either
    (subtracting a large number, as the original code does, gives such a query a little of every key)."""
    hidden_B1QK = ~mask_BQK[:, None]
    score_BHQK = score_BHQK.masked_fill(hidden_B1QK, torch.finfo(score_BHQK.dtype).min)
    return score_BHQK.softmax(dim=-1).masked_fill(hidden_B1QK, 0.0)


def _plus(query_BQHE: Tensor, bias_HE: Tensor | None) -> Tensor:
    return query_BQHE if bias_HE is None else query_BQHE + bias_HE


def _to_keys(x_BHQR: Tensor, view: View, *, num_keys: int) -> Tensor:
    """Convert one column per distance to one column per key."""
    if view.at_BQ is None:
        return relative_shift(x_BHQR, num_keys=num_keys)
    column_BQK = distance_columns(view.at_BQ, segment_length=view.segment_length, num_keys=num_keys)
    column_BQK = column_BQK.clamp(max=x_BHQR.shape[-1] - 1)  # keys to the right that have no distance
    return x_BHQR.gather(-1, column_BQK[:, None].expand(-1, x_BHQR.shape[1], -1, -1))


def _to_distances(x_BHQK: Tensor, view: View, *, num_distances: int) -> Tensor:
    """Convert one column per key to one column per distance; masked keys must be zero."""
    if view.at_BQ is None:
        return relative_unshift(x_BHQK, num_distances=num_distances)
    column_BQK = distance_columns(view.at_BQ, segment_length=view.segment_length, num_keys=x_BHQK.shape[-1])
    column_BHQK = column_BQK.clamp(max=num_distances - 1)[:, None].expand_as(x_BHQK)
    return x_BHQK.new_zeros(*x_BHQK.shape[:3], num_distances).scatter_add(-1, column_BHQK, x_BHQK)
