"""Tensors in a file of anyone's format: what there is is known before anything is read."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from segue.errors import CheckpointError

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


def allocated(size: int, *, what: str) -> Tensor:
    """A block of memory of `size` bytes, or an error that names what needs it."""
    try:
        return torch.empty(size, dtype=torch.uint8)
    except RuntimeError:  # how torch reports that there is no more
        raise CheckpointError(
            f"{what} must fit into memory; got {size:,} bytes. Use a machine with more, or another copy."
        ) from None


def check_memory(what: Path, tensors: Mapping[str, TensorInfo]) -> None:
    """Raises where a file holds more numbers than the machine has memory, before any of them is read."""
    needed = sum(math.prod(info.shape) * info.dtype.itemsize for info in tensors.values())
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise CheckpointError(
            f"the tensors of {what} must fit into memory; got {needed:,} bytes for a machine with {there:,}. "
            "Use a machine with more, or another copy."
        )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the system says against reading a path, such as a lack of permission, as a CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{path} must be readable; got {error.strerror or error}. Check the path and its permissions."
        ) from None
