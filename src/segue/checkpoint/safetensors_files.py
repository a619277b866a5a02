"""Safetensors files of others, one or several with an index: what they hold is known before any number is read.

In: a `.safetensors` file, a folder, or an index. Out: a `TensorSource`. Files of this project are read in `folder`.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from segue.checkpoint.files import read_small
from segue.checkpoint.header import MAX_HEADER, parse_object, read_header
from segue.checkpoint.source import TensorInfo, TensorSource, allocated
from segue.errors import CheckpointError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class SafetensorsFile:
    """One file. See `segue.checkpoint.source.TensorSource`."""

    def __init__(self, path: Path) -> None:
        header = read_header(path)
        self.path = path
        self.files = (path,)
        self.tensors: Mapping[str, TensorInfo] = header.tensors
        self.metadata = header.metadata
        self._starts = header.starts

    def read(self, name: str) -> Tensor:
        """A tensor of its own memory."""
        info = self.tensors[name]
        data = allocated(math.prod(info.shape) * info.dtype.itemsize, what=f"{name} in {self.path}")
        try:
            with self.path.open("rb") as file:
                file.seek(self._starts[name])
                count = file.readinto(data.numpy())  # type: ignore[arg-type]
        except OSError as error:
            raise CheckpointError(f"{self.path} must be readable; got {error}. Check the path.") from None
        if count != len(data):
            raise CheckpointError(f"{name} in {self.path} must have all its numbers; got fewer. Copy the file again.")
        if info.dtype == torch.bool:
            data = (data != 0).view(torch.uint8)  # another value than 0 and 1 is not a bool to PyTorch
        return data.view(info.dtype).reshape(info.shape)


class ShardedFiles:
    """Several files with an index that says which tensor is where. See `segue.checkpoint.source.TensorSource`."""

    tensors: Mapping[str, TensorInfo]

    def __init__(self, path: Path, open_file: Callable[[Path], TensorSource]) -> None:
        self.path = path
        where = _read_index(path)
        self.sources = {name: open_file(path.parent / name) for name in dict.fromkeys(where.values())}
        self.files = (path, *(path.parent / name for name in self.sources))
        self._where = where
        held = [(name, file) for file, source in self.sources.items() for name in source.tensors]
        if len(held) != len(where) or any(where.get(name) != file for name, file in held):
            lost = sorted(set(where.items()) ^ set(held))
            name, file = lost[0]
            raise CheckpointError(
                f"{path} must list exactly the tensors of its files; got {len(lost)} that it does not list or that are "
                f"not there, first {name[:80]!r} in {file}. Copy all files again."
            )
        self.tensors = {name: self.sources[file].tensors[name] for name, file in where.items()}

    def read(self, name: str) -> Tensor:
        """A tensor of its own memory."""
        return self.sources[self._where[name]].read(name)


def open_safetensors(path: str | Path) -> SafetensorsFile | ShardedFiles:
    """Opens a file, an index, or a folder with one of them under its usual name."""
    path = Path(path)
    if path.is_dir():
        path = next((path / name for name in (SINGLE, INDEX) if (path / name).is_file()), path / SINGLE)
    if path.suffix == ".json":
        return ShardedFiles(path, SafetensorsFile)
    return SafetensorsFile(path)


def _read_index(path: Path) -> dict[str, str]:
    """Which tensor is in which file."""
    where = parse_object(path, read_small(path, limit=MAX_HEADER)).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise CheckpointError(f"{path} must have a weight_map; got none. Copy it again.")
    for file in dict.fromkeys(where.values() if all(isinstance(v, str) for v in where.values()) else [""]):
        # Names only: an index may not reach out of its folder.
        if not file or file in (".", "..") or not file.isprintable() or any(mark in file for mark in "/\\:"):
            raise CheckpointError(f"{path} must name files beside it; got {file[:80]!r}. Do not trust this index.")
    return where
