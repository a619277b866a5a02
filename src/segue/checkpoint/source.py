"""The interface to tensors in a file of any format: names, shapes and dtypes are known before anything is read."""

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
"""Dtypes that weights may be stored in. Numbers of eight bits are quantised: they mean nothing without their scales."""


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """Shape and dtype of a stored tensor, checked against the size of the file."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class TensorSource(Protocol):
    """An open file, or several that belong together. Opening reads no weights, and fails if the file is incomplete."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors by name, in file order."""

    def read(self, name: str) -> Tensor:
        """Read a tensor into separate memory; raise CheckpointError if its bytes are incomplete or corrupted."""


def allocated(size: int, *, what: str) -> Tensor:
    """Return a block of memory of `size` bytes; raise an error that names its purpose if there is not enough."""
    try:
        return torch.empty(size, dtype=torch.uint8)
    except RuntimeError:  # torch reports a lack of memory like this
        raise CheckpointError(
            f"{what} must fit into memory; got {size:,} bytes. Use a machine with more, or another copy."
        ) from None


def check_memory(what: Path, tensors: Mapping[str, TensorInfo]) -> None:
    """Raise CheckpointError if the tensors of a file need more memory than the machine has, before any is read."""
    needed = sum(math.prod(info.shape) * info.dtype.itemsize for info in tensors.values())
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise CheckpointError(
            f"the tensors of {what} must fit into memory; got {needed:,} bytes for a machine with {there:,}. "
            "Use a machine with more, or another copy."
        )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of the operating system, such as a lack of permission, into CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{path} must be readable; got {error.strerror or error}. Check the path and its permissions."
        ) from None
