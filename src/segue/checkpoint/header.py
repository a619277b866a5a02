"""What a safetensors file says of itself, judged by the size of the file before anything is allocated for it.

The file is: eight bytes with the length of the header, the header (JSON: of each tensor its dtype, its shape and where
its bytes begin and end), the bytes of the tensors, without gaps.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from segue.checkpoint.files import shortened
from segue.checkpoint.source import TensorInfo
from segue.errors import CheckpointError

MAX_HEADER = 2**23
"""Bytes: enough for 50,000 tensors."""
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


@dataclass(frozen=True, kw_only=True)
class Header:
    """The tensors by name, in the order of the header, and the notes on them."""

    metadata: Mapping[str, str]
    """What the file says of itself, such as its format."""
    tensors: Mapping[str, TensorInfo]
    starts: Mapping[str, int]
    """Where in the file the bytes of each tensor begin."""


def read_header(path: Path) -> Header:
    """The header of a safetensors file, if all that it says fits the file."""
    return _header(path, *_read(path))


def header_of(path: Path, data: bytes) -> Header:
    """The same of bytes that are in memory already; `path` is what an error calls them."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(MAX_HEADER, len(data) - 8):
        raise CheckpointError(
            f"{path} must be safetensors with a header of at most {MAX_HEADER:,} bytes, all there; got "
            f"{len(data):,} bytes. Copy it again."
        )
    return _header(path, data[8 : 8 + length], len(data))


def _header(path: Path, text: bytes, size: int) -> Header:
    entries = parse_object(path, text)
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


def parse_object(path: Path, data: bytes) -> dict[str, Any]:
    """An object in JSON, each key once, without the numbers that JSON does not have."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} must have a header or index in JSON; got {shortened(error)}. Copy it again."
        ) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must have a JSON object; got a {type(value).__name__}. Copy it again.")
    return value


def _read(path: Path) -> tuple[bytes, int]:
    """The text of the header, and the size of the file."""
    try:
        if not path.is_file():  # a device or a pipe would have no end
            raise CheckpointError(f"{path} must be a readable file; there is none. Check the path.")
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
    """A tensor as the header has it, and where its bytes begin and end, if its numbers agree with each other."""
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
    strides = math.prod(max(size, 1) for size in shape)  # of an empty tensor they can still overflow
    if end - start != math.prod(shape) * info.dtype.itemsize or strides >= 2**63:
        raise CheckpointError(
            f"{path} must give each tensor as many bytes as its shape needs; got {end - start} for {name[:80]!r} of "
            f"shape {list(shape)} and {info.dtype}. Copy it again."
        )
    return info, start, end


def _check_places(path: Path, places: Iterable[tuple[int, int]], *, size: int) -> None:
    """Each tensor begins where the one before ends, and the last one ends with the file."""
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
