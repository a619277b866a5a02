"""Where things are: sinusoids, distances, the relative shift, and what each encoding makes of a distance.

A trunk encodes the distances of a segment once (`SinusoidalDistances` and the like); each layer turns the encoding
into `RelativeTerms`, what the attention score and its result take from the distance. Rotary and absolute positions
do not work on distances and stand at the end.

Distances run from K down to 1 - Q (to 0 where nobody looks right), so that column c stands for distance K - c.
For the query at position i of the segment, key j is at distance M + i - j, that is in column Q - i + j: each
row needs the same columns, one further left for each query. `relative_shift` reads them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class RelativeTerms:
    """What a layer knows of each distance. S is 1, or B where each row has its own sign of the distance."""

    key_SRHE: Tensor | None = None
    """Multiplied with the query, as a key is."""
    bias_SRH: Tensor | None = None
    """Added to the scaled score."""
    value_SRHE: Tensor | None = None
    """Added to the values."""

    def for_rows(self, reversed_B: Tensor) -> "RelativeTerms":
        """From the terms of (forward, backward) to those of each row."""
        sign_B = reversed_B.long()
        return RelativeTerms(
            key_SRHE=None if self.key_SRHE is None else self.key_SRHE[sign_B],
            bias_SRH=None if self.bias_SRH is None else self.bias_SRH[sign_B],
            value_SRHE=None if self.value_SRHE is None else self.value_SRHE[sign_B],
        )


# ----------------------------------------------------------------------------- distances and the relative shift


def distances(*, num_queries: int, num_keys: int, bidirectional: bool, device: torch.device | None = None) -> Tensor:
    """The distances of a segment in descending order: distance_R."""
    lowest = 1 - num_queries if bidirectional else 0
    return torch.arange(num_keys, lowest - 1, -1, device=device)


def relative_shift(x_BHQR: Tensor, *, num_keys: int) -> Tensor:
    """From one column a distance to one column a key: result[..., i, j] = x[..., i, Q - i + j].

    Row i starts one column further left than row i - 1. In a flat view that is a constant stride of R - 1, so
    dropping the first Q numbers and folding the rest into rows of R - 1 lines the keys up, without arithmetic.
    Where the distances stop at 0, the entries of keys to the right hold numbers of the next row: mask them.
    """
    *lead, Q, R = x_BHQR.shape
    return x_BHQR.reshape(*lead, Q * R)[..., Q:].view(*lead, Q, R - 1)[..., :num_keys]


def relative_unshift(x_BHQK: Tensor, *, num_distances: int) -> Tensor:
    """The other way round: from one column a key to one column a distance, zero where no key has it.

    Where the distances stop at 0, entries of keys to the right must be zero (they have no column).
    """
    *lead, Q, K = x_BHQK.shape
    wide = nn.functional.pad(x_BHQK, (0, num_distances - 1 - K))
    return nn.functional.pad(wide.reshape(*lead, Q * (num_distances - 1)), (Q, 0)).view(*lead, Q, num_distances)


def distance_columns(at_BQ: Tensor, *, segment_length: int, num_keys: int) -> Tensor:
    """For queries at any positions of the segment: the column of each key's distance, column_BQK."""
    key_K = torch.arange(num_keys, device=at_BQ.device)
    return (segment_length - at_BQ)[:, :, None] + key_K


# ------------------------------------------------------------------------------------------- encoding distances


def sinusoid(position: Tensor, *, width: int, dtype: torch.dtype) -> Tensor:
    """sin(p w_n) for all frequencies w_n = 10000^(-2n / width), then cos(p w_n): halves, not interleaved."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    exponent = torch.arange(0, width, 2, device=position.device, dtype=exact) / width
    angle = position[..., None].to(exact) * (1.0 / 10000**exponent)
    return torch.cat([angle.sin(), angle.cos()], dim=-1).to(dtype)


class SinusoidalDistances(nn.Module):
    """distance_SR -> encoding_SRD, the R of the papers; one for all layers."""

    def __init__(self, *, width: int, clamp_distance: int | None) -> None:
        super().__init__()
        self.width = width
        self.clamp_distance = clamp_distance

    def forward(self, distance_SR: Tensor, dtype: torch.dtype) -> Tensor:
        if self.clamp_distance is not None:
            distance_SR = distance_SR.clamp(-self.clamp_distance, self.clamp_distance)
        return sinusoid(distance_SR, width=self.width, dtype=dtype)


class ClippedDistances(nn.Module):
    """distance_SR -> index_SR into a table of the distances lowest ... highest."""

    def __init__(self, *, lowest: int, highest: int) -> None:
        super().__init__()
        self.lowest = lowest
        self.highest = highest

    def forward(self, distance_SR: Tensor, dtype: torch.dtype) -> Tensor:
        return distance_SR.clamp(self.lowest, self.highest) - self.lowest


class PlainDistances(nn.Module):
    """distance_SR -> the same, as numbers of the model's dtype."""

    def forward(self, distance_SR: Tensor, dtype: torch.dtype) -> Tensor:
        return distance_SR.to(dtype)


# ------------------------------------------------------------------------------- what a layer makes of a distance


class XLTerms(nn.Module):
    """Transformer-XL: position keys W_r R. The biases u and v are kept by the trunk, which may share them."""

    def __init__(self, *, width: int, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projection = nn.Linear(width, num_heads * head_width, bias=False)

    def forward(self, encoding_SRD: Tensor) -> RelativeTerms:
        key_SRHE = self.projection(encoding_SRD).unflatten(-1, (self.num_heads, -1))
        return RelativeTerms(key_SRHE=key_SRHE)


class ShawTerms(nn.Module):
    """Shaw et al.: learned vectors on keys and on values, the same for all heads."""

    def __init__(self, *, num_distances: int, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.key = nn.Embedding(num_distances, head_width)
        self.value = nn.Embedding(num_distances, head_width)

    def forward(self, index_SR: Tensor) -> RelativeTerms:
        key_SRHE = self.key(index_SR)[:, :, None, :].expand(-1, -1, self.num_heads, -1)
        value_SRHE = self.value(index_SR)[:, :, None, :].expand(-1, -1, self.num_heads, -1)
        return RelativeTerms(key_SRHE=key_SRHE, value_SRHE=value_SRHE)


class LearnedTerms(nn.Module):
    """The original code's type 1: a learned key and a scalar for each head and distance."""

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
    """2^(-8/n), 2^(-16/n), ... for n heads, a power of two; else those of the power below, then every other
    one of the power above (Press et al. 2021, as their code does it)."""
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (n + 1) / power) for n in range(power)]
    between = [2.0 ** (-4.0 * (n + 1) / power) for n in range(0, 2 * power, 2)]
    return slopes + between[: num_heads - power]


# --------------------------------------------------------------------------------------------- rotary, absolute


def rotary_angles(*, num_keys: int, head_width: int, base: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """cos and sin of the angle of each position and pair: rotation_2KE', E' = E / 2."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    exponent = torch.arange(0, head_width, 2, device=device, dtype=exact) / head_width
    angle = torch.arange(num_keys, device=device, dtype=exact)[:, None] * base**-exponent
    return torch.stack([angle.cos(), angle.sin()]).to(dtype)


def rotary_angles_at(position_BQ: Tensor, *, head_width: int, base: float, dtype: torch.dtype) -> Tensor:
    """The same for positions of any size, as a stream has them: rotation_2BQE'. Only differences between positions
    count in a score, so a stream may go on counting; angles are made in float64, where millions of turns are exact."""
    exponent = torch.arange(0, head_width, 2, device=position_BQ.device, dtype=torch.float64) / head_width
    angle = position_BQ[..., None].double() * base**-exponent
    return torch.stack([angle.cos(), angle.sin()]).to(dtype)


def rotate(x_BQHE: Tensor, rotation_2: Tensor) -> Tensor:
    """Turns the pairs (x[e], x[e + E/2]); rotation is [2, Q, E/2], or [2, B, Q, E/2]."""
    cos, sin = rotation_2[0].unsqueeze(-2), rotation_2[1].unsqueeze(-2)
    first, second = x_BQHE.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class AbsoluteEncoding(nn.Module):
    """position_BQ -> what is added there. A learned table, or sinusoids where there is no table."""

    def __init__(self, *, width: int, max_length: int | None) -> None:
        super().__init__()
        self.width = width
        self.table = None if max_length is None else nn.Embedding(max_length, width)

    def forward(self, position_BQ: Tensor, dtype: torch.dtype) -> Tensor:
        if self.table is None:
            return sinusoid(position_BQ, width=self.width, dtype=dtype)
        encoding_BQD: Tensor = self.table(position_BQ)
        return encoding_BQD
