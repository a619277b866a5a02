"""Dropout with computed masks: a hash of a seed, a row and a column decides what is kept.

PyTorch draws masks on a CPU one number at a time on one core, which for the probabilities of attention costs as much as
the products around them. A hash runs on all cores, needs no mask to be stored for the backward pass, and is the same in
every kernel, so that a fast kernel equals the definition with dropout, too. One number per call is drawn from PyTorch's
generator, so its seed determines everything as usual.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from segue.model.kernels import library


def draw_seed() -> int:
    """Return a new seed for one call, from the generator of the CPU."""
    return int(torch.randint(2**63 - 1, ()))


def threshold(probability: float) -> int:
    """Return the bound below which a hash, from 0 up to 2^32, means that a number is dropped."""
    return min(round(probability * 2**32), 2**32 - 1)


def keep_mask(seed: int, *, rows: int, columns: int, probability: float, device: torch.device | None = None) -> Tensor:
    """Return the dropout mask: keep[row, column]."""
    return keep_rows(seed, torch.arange(rows, device=device), columns=slice(0, columns), probability=probability)


def keep_rows(seed: int, row: Tensor, *, columns: slice, probability: float) -> Tensor:
    """Return keep[..., column] for the given rows: the definition. SplitMix64 makes a key from seed and row;
    MurmurHash3's finaliser makes a number from key and column (both in wrapping arithmetic, with unsigned shifts)."""
    key = row * _signed(0x9E3779B97F4A7C15, 64) + _signed(seed % 2**64, 64)
    key = (key ^ _shift(key, 30, 64)) * _signed(0xBF58476D1CE4E5B9, 64)
    key = (key ^ _shift(key, 27, 64)) * _signed(0x94D049BB133111EB, 64)
    key = (key >> 32).to(torch.int32)
    column = torch.arange(columns.start, columns.stop, device=row.device, dtype=torch.int32) * _signed(0x9E3779B1, 32)
    x = key[..., None] ^ column
    x.bitwise_xor_(_shift(x, 16, 32)).mul_(_signed(0x85EBCA6B, 32))
    x.bitwise_xor_(_shift(x, 13, 32)).mul_(_signed(0xC2B2AE35, 32))
    x.bitwise_xor_(_shift(x, 16, 32)).bitwise_xor_(_signed(0x80000000, 32))
    return x >= threshold(probability) - 2**31  # an unsigned comparison


def dropout(x: Tensor, probability: float, *, training: bool) -> Tensor:
    """Apply dropout like F.dropout: zero with this probability, scaled to keep the mean."""
    if not training or probability == 0:
        return x
    if x.device.type != "cpu" or not 0 < probability < 1:
        return F.dropout(x, probability)
    return cast(Tensor, _Dropout.apply(x, probability, draw_seed()))  # type: ignore[no-untyped-call]


class Dropout(nn.Module):
    """Dropout as a module, like nn.Dropout."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.probability, training=self.training)


def _signed(value: int, bits: int) -> int:
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def _shift(x: Tensor, by: int, bits: int) -> Tensor:
    """Return a logical shift to the right."""
    return (x >> by).bitwise_and_(2 ** (bits - by) - 1)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float, seed: int) -> Tensor:
        ctx.probability, ctx.seed = probability, seed
        return _drop(x, probability, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _drop(grad, ctx.probability, ctx.seed), None, None


def _drop(x: Tensor, probability: float, seed: int) -> Tensor:
    scale = 1 / (1 - probability)
    if library.supports(x):
        return library.drop(x, seed=seed, threshold=threshold(probability), scale=scale)
    columns = x.shape[-1] if x.dim() else 1
    keep = keep_mask(seed, rows=x.numel() // max(columns, 1), columns=columns, probability=probability, device=x.device)
    return x * keep.view(x.shape) * scale
