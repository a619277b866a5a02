"""Tensors in a file of anyone's format: what there is is known before anything is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""What weights may be kept in. The numbers of eight bits are quantised: they mean nothing without their scales."""


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """What a file says of a tensor, checked against the size of the file."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class TensorSource(Protocol):
    """An open file, or several that belong together. Opening reads no weights, and fails if the file is not whole."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """By the names of the file, in its order."""

    def read(self, name: str) -> Tensor:
        """A tensor of its own memory; CheckpointError where its numbers are not all there or not as they were."""
