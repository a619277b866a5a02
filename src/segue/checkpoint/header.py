"""What a safetensors file says of itself, judged by the size of the file before anything is allocated for it.

The file is: eight bytes with the length of the header, the header (JSON: of each tensor its dtype, its shape and where
its bytes begin and end), the bytes of the tensors, without gaps.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from segue.checkpoint.files import shortened
from segue.checkpoint.source import TensorInfo
from segue.errors import CheckpointError

LARGEST_HEADER = 1 << 23
MOST_DIMENSIONS = 16
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, kw_only=True)
class Header:
    """The tensors by name, in the order of their bytes, and the note on their format."""

    format: str | None
    tensors: Mapping[str, TensorInfo]


def read_header(path: Path) -> Header:
    """The header of a safetensors file, if all that it says fits the file."""
    try:
        if not path.is_file():  # a device or a pipe would have no end
            raise CheckpointError(f"{path} must be a safetensors file; there is none. Check the path.")
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise _broken(path, f"{size:,} bytes" if size < 8 else f"{size:,} bytes and a header of {length:,}")
            if length > LARGEST_HEADER:
                raise _broken(path, f"a header of {length:,} bytes, more than {LARGEST_HEADER:,}")
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} must be readable; got {error}. Check the path.") from None
    try:
        entries = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"a header that is not JSON: {shortened(error)}") from None
    if not isinstance(entries, dict):
        raise _broken(path, "a header that is not a table")
    notes = entries.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise _broken(path, "notes that are not strings")
    return Header(format=notes.get("format"), tensors=_checked(entries, path, size=size - 8 - length))


def _checked(entries: dict[str, Any], path: Path, *, size: int) -> dict[str, TensorInfo]:
    """Each tensor has the bytes of its shape, the next begins where it ends, and the last ends with the file."""
    ranges = {name: _entry(name, value, path) for name, value in entries.items()}
    at = 0
    tensors = {}
    for name, (info, start, stop) in sorted(ranges.items(), key=lambda item: item[1][1:]):
        strides = math.prod(max(number, 1) for number in info.shape)  # of an empty tensor they can still overflow
        if start != at or stop - start != math.prod(info.shape) * info.dtype.itemsize or strides >= 1 << 63:
            raise _broken(path, f"{shortened(name)}, {info.shape}, in bytes {start} to {stop} after byte {at}")
        at = stop
        tensors[name] = info
    if at != size:
        raise _broken(path, f"{size:,} bytes of tensors where the header says {at:,}")
    return tensors


def _entry(name: str, value: Any, path: Path) -> tuple[TensorInfo, int, int]:
    match value:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, stop], **rest} if not rest:
            numbers = [*shape, start, stop]
            if dtype in DTYPES and len(shape) <= MOST_DIMENSIONS and all(_is_count(number) for number in numbers):
                return TensorInfo(shape=tuple(shape), dtype=DTYPES[dtype]), start, stop
    raise _broken(path, f"{shortened(name)}: {shortened(json.dumps(value))}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name that stands twice")
    return table


def _broken(path: Path, found: str) -> CheckpointError:
    return CheckpointError(f"{path} must be a whole safetensors file; got {found}. Copy it again.")
