"""Safetensors files, single or sharded with an index: the content is known before any tensor is read.

In: a `.safetensors` file, a folder, or an index. Out: a `TensorSource`. Also used for model folders of segue and for
saved sessions.

The file is: eight bytes with the length of the header, the header (JSON: for each tensor its dtype, its shape and the
begin and end of its bytes), the bytes of the tensors, without gaps. The header is checked against the size of
the file before anything is allocated for it.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.checkpoint.files import read_small, shortened
from segue.checkpoint.source import TensorInfo, TensorSource, allocated
from segue.errors import CheckpointError, kind_of

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER = 2**23
"""Maximum size in bytes, enough for 50,000 tensors."""
MAX_DIMENSIONS = 16
MAX_NAME = 512
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class SafetensorsFile:
    """A single safetensors file. See `segue.checkpoint.source.TensorSource`."""

    def __init__(self, path: Path) -> None:
        header = read_header(path)
        self.path = path
        self.files = (path,)
        self.metadata, self.tensors, self._starts = header.metadata, header.tensors, header.starts

    def read(self, name: str) -> Tensor:
        """Read a tensor into separate memory."""
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
            data = (data != 0).view(torch.uint8)  # PyTorch needs bools to be 0 or 1
        return data.view(info.dtype).reshape(info.shape)


class ShardedFiles:
    """Several files with an index that maps tensors to files. See `segue.checkpoint.source.TensorSource`."""

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
        """Read a tensor into separate memory."""
        return self.sources[self._where[name]].read(name)


def open_safetensors(path: str | Path) -> SafetensorsFile | ShardedFiles:
    """Open a file, an index, or a folder with one of them under its usual name."""
    path = Path(path)
    if path.is_dir():
        path = next((path / name for name in (SINGLE, INDEX) if (path / name).is_file()), path / SINGLE)
    if path.suffix == ".json":
        return ShardedFiles(path, SafetensorsFile)
    return SafetensorsFile(path)


def _read_index(path: Path) -> dict[str, str]:
    """Return the file of each tensor."""
    where = _parse_object(path, read_small(path, limit=MAX_HEADER)).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise CheckpointError(f"{path} must have a weight_map; got none. Copy it again.")
    for file in dict.fromkeys(where.values() if all(isinstance(v, str) for v in where.values()) else [""]):
        # Plain names only: an index may not refer to files outside its folder.
        if not file or file in (".", "..") or not file.isprintable() or any(mark in file for mark in "/\\:"):
            raise CheckpointError(f"{path} must name files beside it; got {file[:80]!r}. Do not trust this index.")
    return where


# -------------------------------------------------------------------------------------------------- header


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a safetensors file: tensors by name, in file order, and metadata."""

    metadata: Mapping[str, str]
    """Metadata of the file, such as its format."""
    tensors: Mapping[str, TensorInfo]
    starts: Mapping[str, int]
    """Offset of each tensor's bytes in the file."""


def read_header(path: Path) -> Header:
    """Return the header of a safetensors file after checking it against the file's size."""
    return _header(path, *_read(path))


def header_of(path: Path, data: bytes) -> Header:
    """Return the header of a safetensors file in memory; `path` names it in errors."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(MAX_HEADER, len(data) - 8):
        raise CheckpointError(
            f"{path} must be safetensors with a header of at most {MAX_HEADER:,} bytes, all there; got "
            f"{len(data):,} bytes. Copy it again."
        )
    return _header(path, data[8 : 8 + length], len(data))


def _header(path: Path, text: bytes, size: int) -> Header:
    entries = _parse_object(path, text)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{path} must have texts as __metadata__; got others. Save it again.")
    found = {name: _entry(path, name, entry) for name, entry in entries.items()}
    _check_places(path, [(start, end) for _, start, end in found.values()], size=size - 8 - len(text))
    return Header(
        metadata=metadata,
        tensors={name: info for name, (info, _, _) in found.items()},
        starts={name: 8 + len(text) + start for name, (_, start, _) in found.items()},
    )


def _parse_object(path: Path, data: bytes) -> dict[str, Any]:
    """Parse a JSON object; duplicate keys, NaN and infinity are errors."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} must have a header or index in JSON; got {shortened(error)}. Copy it again."
        ) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must have a JSON object; got {kind_of(value)}. Copy it again.")
    return value


def _read(path: Path) -> tuple[bytes, int]:
    """Return the text of the header, and the size of the file."""
    try:
        if not path.is_file():  # a device or a pipe has no end
            raise CheckpointError(f"{path} must be a readable file; it does not exist. Check the path.")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
                got = f"a header of {length:,} bytes in a file of {size:,}" if size >= 8 else f"{size} bytes"
                raise CheckpointError(
                    f"{path} must be a safetensors file with a header of at most {MAX_HEADER:,} bytes, all there; got "
                    f"{got}. Copy it again."
                )
            return file.read(length), size
    except OSError as error:
        raise CheckpointError(f"{path} must be a readable file; got {error}. Check the path.") from None


def _entry(path: Path, name: str, entry: object) -> tuple[TensorInfo, int, int]:
    """Return a tensor of the header with the begin and end of its bytes, after checking that they are consistent."""
    if not name.isprintable() or len(name) > MAX_NAME:
        raise CheckpointError(
            f"{path} must have printable names of at most {MAX_NAME} characters; got {name[:80]!r}. Save it again."
        )
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end], **rest} if (
            not rest
            and dtype in DTYPES
            and len(shape) <= MAX_DIMENSIONS
            and all(type(number) is int and 0 <= number < 2**63 for number in [*shape, start, end])
        ):
            info = TensorInfo(shape=tuple(shape), dtype=DTYPES[dtype])
        case _:
            raise CheckpointError(
                f"{path} must give a known dtype, a shape of at most {MAX_DIMENSIONS} sizes and two offsets of each "
                f"tensor; got others for {name[:80]!r}. Save it again."
            )
    strides = math.prod(max(size, 1) for size in shape)  # even the strides of an empty tensor can overflow
    if end - start != math.prod(shape) * info.dtype.itemsize or strides >= 2**63:
        raise CheckpointError(
            f"{path} must give each tensor as many bytes as its shape needs; got {end - start} for {name[:80]!r} of "
            f"shape {list(shape)} and {info.dtype}. Copy it again."
        )
    return info, start, end


def _check_places(path: Path, places: Iterable[tuple[int, int]], *, size: int) -> None:
    """Raise CheckpointError unless tensors follow each other without gaps and the last one ends with the file."""
    position = 0
    for start, end in sorted(places):
        if start != position:
            raise CheckpointError(
                f"{path} must have its tensors one behind the other; got one at byte {start} after byte {position}. "
                "Save it again."
            )
        position = end
    if position != size:
        raise CheckpointError(
            f"{path} must be whole; got {size:,} bytes of numbers where its header says {position:,}. Copy it again."
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key[:80]!r} twice")
        result[key] = value
    return result


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} where a number should be")
