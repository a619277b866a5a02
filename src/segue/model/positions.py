"""Positional encodings: distances, the relative shift, and the modules of each kind of encoding.

For relative positional encodings, a stack encodes the distances of a segment once (`SinusoidalDistances` and the like),
and each layer turns that encoding into `RelativeTerms`, which enter the attention score and its result. Rotary and
absolute encodings work on positions rather than distances and come last. `build` chooses the encoding of a model.

Distances run from K down to 1 - Q (to 0 if attention is causal), so that column c stands for distance K - c.
For the query at position i of the segment, key j is at distance M + i - j, that is in column Q - i + j: each
row needs the same columns, one further left for each query. `relative_shift` reads them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class RelativeTerms:
    """The terms that relative positions add to attention in one layer, for each distance."""

    key_SRHE: Tensor | None = None
    """Multiplied with the query, like a key."""
    bias_SRH: Tensor | None = None
    """Added to the scaled score."""
    value_SRHE: Tensor | None = None
    """Added to the values."""
    content_XHE: Tensor | None = None
    """Multiplied with the keys, like u: a vector for each of X buckets of distances."""
    bucket_SR: Tensor | None = None
    """The bucket of each distance, if there is `content_XHE`."""

    @property
    def keys_alone(self) -> bool:
        """True if the terms are keys of distances only, which every kernel supports."""
        return self.bias_SRH is None and self.value_SRHE is None and self.content_XHE is None

    def for_rows(self, reversed_B: Tensor) -> "RelativeTerms":
        """Return the terms of each row, chosen from those of (forward, backward)."""
        sign_B = reversed_B.long()
        return self._map(lambda x: x[sign_B])

    def between(self, start: int, stop: int) -> "RelativeTerms":
        """Return the terms of the distances in the columns from `start` up to `stop`."""
        return self._map(lambda x: x[:, start:stop])

    def _map(self, change: Callable[[Tensor], Tensor]) -> "RelativeTerms":
        return RelativeTerms(
            key_SRHE=None if self.key_SRHE is None else change(self.key_SRHE),
            bias_SRH=None if self.bias_SRH is None else change(self.bias_SRH),
            value_SRHE=None if self.value_SRHE is None else change(self.value_SRHE),
            content_XHE=self.content_XHE,
            bucket_SR=None if self.bucket_SR is None else change(self.bucket_SR),
        )


# ------------------------------------------------------------------------------------------------------ positions


def token_positions(ids_BQ: Tensor, real_BQ: Tensor | None, start_B: Tensor | None = None) -> Tensor:
    """Return the absolute position of each token: the number of real tokens before it, `start_B` included."""
    if real_BQ is None:
        position_BQ = torch.arange(ids_BQ.shape[1], device=ids_BQ.device).expand_as(ids_BQ)
    else:
        position_BQ = (real_BQ.long().cumsum(1) - 1).clamp(min=0)
    return position_BQ if start_B is None else start_B[:, None] + position_BQ


def take_positions(x_BQX: Tensor, at_BP: Tensor) -> Tensor:
    """Return the vectors of each row at the given positions: [B, P, X]."""
    return x_BQX.gather(1, at_BP[:, :, None].expand(-1, -1, x_BQX.shape[2]))


# ----------------------------------------------------------------------------- distances and the relative shift


def distances(*, num_queries: int, num_keys: int, bidirectional: bool, device: torch.device | None = None) -> Tensor:
    """Return the distances of a segment in descending order: distance_R."""
    lowest = 1 - num_queries if bidirectional else 0
    return torch.arange(num_keys, lowest - 1, -1, device=device)


def relative_shift(x_BHQR: Tensor, *, num_keys: int) -> Tensor:
    """Convert one column per distance to one column per key: result[..., i, j] = x[..., i, Q - i + j].

    Row i starts one column further left than row i - 1. In a flat view that is a constant stride of R - 1, so
    dropping the first Q numbers and folding the rest into rows of R - 1 aligns the keys, without arithmetic.
    If the distances stop at 0, the entries of keys to the right hold numbers of the next row: mask them.
    """
    *lead, Q, R = x_BHQR.shape
    return x_BHQR.reshape(*lead, Q * R)[..., Q:].view(*lead, Q, R - 1)[..., :num_keys]


def relative_unshift(x_BHQK: Tensor, *, num_distances: int) -> Tensor:
    """Invert `relative_shift`: from one column per key to one column per distance, zero where no key has it.

    If the distances stop at 0, entries of keys to the right must be zero (they have no column).
    """
    *lead, Q, K = x_BHQK.shape
    wide = nn.functional.pad(x_BHQK, (0, num_distances - 1 - K))
    return nn.functional.pad(wide.reshape(*lead, Q * (num_distances - 1)), (Q, 0)).view(*lead, Q, num_distances)


def distance_columns(at_BQ: Tensor, *, segment_length: int, num_keys: int) -> Tensor:
    """Return the column of each key's distance for queries at any positions of the segment: column_BQK."""
    key_K = torch.arange(num_keys, device=at_BQ.device)
    return (segment_length - at_BQ)[:, :, None] + key_K


# ------------------------------------------------------------------------------------------- encoding distances


def sinusoid(position: Tensor, *, width: int, dtype: torch.dtype) -> Tensor:
    """Return sin(p w_n) for all frequencies w_n = 10000^(-2n / width), then cos(p w_n): halves, not interleaved."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    exponent = torch.arange(0, width, 2, device=position.device, dtype=exact) / width
    angle = position[..., None].to(exact) * (1.0 / 10000**exponent)
    return torch.cat([angle.sin(), angle.cos()], dim=-1).to(dtype)


BUCKETS = (*range(1, 9), 12, 16, 24, 32, 48, 64, 96, 128)
"""Lower bounds of the buckets of distances after that of 0: each distance up to 8, then two per doubling."""
NUM_BUCKETS = 2 * len(BUCKETS) + 1
"""Number of buckets for distances to the left, 0 and to the right."""


def distance_buckets(distance: Tensor) -> Tensor:
    """Return the index of each distance's bucket; those to the right come last."""
    bounds = torch.tensor(BUCKETS, device=distance.device)
    found = (distance.abs()[..., None] >= bounds).sum(dim=-1)
    return torch.where(distance < 0, found + len(BUCKETS), found)


class SinusoidalDistances(nn.Module):
    """Transformer-XL: distance_SR -> encoding_SRD, the matrix R of the papers, shared by all layers. With `buckets`,
    there is one more column: the index of the distance's bucket."""

    signed = True
    """Whether distances to the left and to the right have different encodings."""

    def __init__(
        self, *, width: int, clamp_distance: int | None, dropout: nn.Module | None = None, buckets: bool = False
    ) -> None:
        super().__init__()
        self.width = width
        self.clamp_distance = clamp_distance
        self.dropout = dropout
        self.buckets = buckets

    def forward(self, distance_SR: Tensor, dtype: torch.dtype) -> Tensor:
        if self.clamp_distance is not None:
            distance_SR = distance_SR.clamp(-self.clamp_distance, self.clamp_distance)
        encoding_SRD = sinusoid(distance_SR, width=self.width, dtype=dtype)
        if self.dropout is not None:
            encoding_SRD = self.dropout(encoding_SRD)
        if not self.buckets:
            return encoding_SRD
        return torch.cat([encoding_SRD, distance_buckets(distance_SR)[..., None].to(dtype)], dim=-1)


class ClippedDistances(nn.Module):
    """distance_SR -> index_SR into a table of the distances lowest ... highest."""

    def __init__(self, *, lowest: int, highest: int) -> None:
        super().__init__()
        self.lowest = lowest
        self.highest = highest
        self.signed = lowest < 0

    def forward(self, distance_SR: Tensor, dtype: torch.dtype) -> Tensor:
        return distance_SR.clamp(self.lowest, self.highest) - self.lowest


class PlainDistances(nn.Module):
    """distance_SR -> the distances themselves, in the model's dtype."""

    signed = False

    def forward(self, distance_SR: Tensor, dtype: torch.dtype) -> Tensor:
        return distance_SR.to(dtype)


# -------------------------------------------------------------------------------------- relative terms of a layer


class XLTerms(nn.Module):
    """Transformer-XL: position keys W_r R. The biases u and v belong to the stack, which may share them."""

    def __init__(self, *, width: int, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projection = nn.Linear(width, num_heads * head_width, bias=False)

    def forward(self, encoding_SRD: Tensor) -> RelativeTerms:
        key_SRHE = self.projection(encoding_SRD).unflatten(-1, (self.num_heads, -1))
        return RelativeTerms(key_SRHE=key_SRHE)


class BucketTerms(nn.Module):
    """Transformer-XL with u and v for each bucket of distances: W_r R, u k, and the scalars v W_r R."""

    def __init__(self, *, width: int, num_heads: int, head_width: int, zeros: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width**-0.5
        self.projection = nn.Linear(width, num_heads * head_width, bias=False)
        self.content_XHE = nn.Parameter(torch.zeros(NUM_BUCKETS, num_heads, head_width))
        self.position_XHE = nn.Parameter(torch.zeros(NUM_BUCKETS, num_heads, head_width))
        self.roles = {"content_XHE": "bias", "position_XHE": "bias"} if zeros else {}

    def forward(self, encoding_SRX: Tensor) -> RelativeTerms:
        key_SRHE = self.projection(encoding_SRX[..., :-1]).unflatten(-1, (self.num_heads, -1))
        bucket_SR = encoding_SRX[..., -1].long()
        bias_SRH = (self.position_XHE[bucket_SR] * key_SRHE).sum(dim=-1) * self.scale
        return RelativeTerms(key_SRHE=key_SRHE, bias_SRH=bias_SRH, content_XHE=self.content_XHE, bucket_SR=bucket_SR)


class ShawTerms(nn.Module):
    """Shaw et al.: learned vectors on keys and, with `on_values`, on values, the same for all heads."""

    def __init__(self, *, num_distances: int, num_heads: int, head_width: int, on_values: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.key = nn.Embedding(num_distances, head_width)
        self.value = nn.Embedding(num_distances, head_width) if on_values else None

    def forward(self, index_SR: Tensor) -> RelativeTerms:
        return RelativeTerms(
            key_SRHE=self._heads(self.key(index_SR)),
            value_SRHE=None if self.value is None else self._heads(self.value(index_SR)),
        )

    def _heads(self, x_SRE: Tensor) -> Tensor:
        return x_SRE[:, :, None, :].expand(-1, -1, self.num_heads, -1)


class LearnedTerms(nn.Module):
    """The original code's type 1: a learned key and a learned scalar for each head and distance."""

    roles: ClassVar = {"bias": "bias"}

    def __init__(self, *, num_distances: int, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width**-0.5
        self.key = nn.Embedding(num_distances, num_heads * head_width)
        self.bias = nn.Embedding(num_distances, num_heads)

    def forward(self, index_SR: Tensor) -> RelativeTerms:
        key_SRHE = self.key(index_SR).unflatten(-1, (self.num_heads, -1))
        return RelativeTerms(key_SRHE=key_SRHE, bias_SRH=self.bias(index_SR) * self.scale)


class AlibiTerms(nn.Module):
    """Press et al.: -slope * |distance|. Nothing is learned."""

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.slopes = alibi_slopes(num_heads)

    def forward(self, distance_SR: Tensor) -> RelativeTerms:
        slope_H = torch.tensor(self.slopes, device=distance_SR.device, dtype=distance_SR.dtype)
        return RelativeTerms(bias_SRH=-slope_H * distance_SR.abs()[:, :, None])


def alibi_slopes(num_heads: int) -> list[float]:
    """Return 2^(-8/n), 2^(-16/n), ... for n heads, a power of two; otherwise the slopes of the next lower power, then
    every other slope of the next higher one (Press et al. 2021, as in their code)."""
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (n + 1) / power) for n in range(power)]
    between = [2.0 ** (-4.0 * (n + 1) / power) for n in range(0, 2 * power, 2)]
    return slopes + between[: num_heads - power]


# --------------------------------------------------------------------------------------------- rotary, absolute


class RotaryEncoding(nn.Module):
    """Su et al. 2021: cosines and sines of the rotation angle of each pair of a head, [2, ..., E / 2]."""

    def __init__(self, *, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width = head_width
        self.base = base

    def forward(self, *, num_keys: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the angles of the positions of a segment and its memory, counted from 0: [2, K, E / 2]."""
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        exponent = torch.arange(0, self.head_width, 2, device=device, dtype=exact) / self.head_width
        angle = torch.arange(num_keys, device=device, dtype=exact)[:, None] * self.base**-exponent
        return torch.stack([angle.cos(), angle.sin()]).to(dtype)

    def at(self, position_BQ: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the angles of positions of any size: [2, B, Q, E / 2]. Only differences between positions count in a
        score, so a stream may keep counting; angles are computed in float64, which is exact for millions of turns."""
        exponent = torch.arange(0, self.head_width, 2, device=position_BQ.device, dtype=torch.float64)
        angle = position_BQ[..., None].double() * self.base ** -(exponent / self.head_width)
        return torch.stack([angle.cos(), angle.sin()]).to(dtype)


def rotate(x_BQHE: Tensor, rotation_2: Tensor) -> Tensor:
    """Rotate the pairs (x[e], x[e + E/2]); rotation is [2, Q, E/2], or [2, B, Q, E/2]."""
    cos, sin = rotation_2[0].unsqueeze(-2), rotation_2[1].unsqueeze(-2)
    first, second = x_BQHE.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class AbsoluteEncoding(nn.Module):
    """position_BQ -> the vector to add: from a learned table, or sinusoids if there is no table."""

    def __init__(self, *, width: int, max_length: int | None, count_from_end: bool = False) -> None:
        super().__init__()
        self.width = width
        self.table = None if max_length is None else nn.Embedding(max_length, width)
        self.count_from_end = count_from_end
        """Whether position 0 is the last token of a segment rather than the first."""

    def forward(self, position_BQ: Tensor, dtype: torch.dtype) -> Tensor:
        if self.table is None:
            return sinusoid(position_BQ, width=self.width, dtype=dtype)
        return cast(Tensor, self.table(position_BQ))
