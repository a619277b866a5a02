"""Safetensors files of others, one or several with an index: what they hold is known before any number is read.

In: a `.safetensors` file, a folder, or an index. Out: a `TensorSource`. The header is checked against the size of the
file before anything of that size is taken. Files of this project are read in `folder`.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from segue.checkpoint.source import TensorInfo, TensorSource
from segue.errors import CheckpointError

MAX_HEADER = 2**24
"""Bytes of a header or an index: enough for 100,000 tensors."""
MAX_NAME = 512
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
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
class _Place:
    start: int
    end: int


class SafetensorsFile:
    """One file. See `segue.checkpoint.source.TensorSource`."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    """What the file says of itself, such as the library that wrote it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header, data_start, data_size = _read_header(path)
        self.metadata = _metadata(path, header.pop("__metadata__", {}))
        tensors: dict[str, TensorInfo] = {}
        self._places: dict[str, _Place] = {}
        for name, entry in header.items():
            tensors[name], place = _entry(path, name, entry)
            self._places[name] = _Place(start=data_start + place.start, end=data_start + place.end)
        self.tensors = tensors
        position = data_start
        for place in sorted(self._places.values(), key=lambda place: (place.start, place.end)):
            if place.start != position:
                raise CheckpointError(f"{path} must have its tensors one behind the other; got others. Save it again.")
            position = place.end
        if position != data_start + data_size:
            raise CheckpointError(
                f"{path} must be whole; got {data_size} bytes of numbers where its header says "
                f"{position - data_start}. Copy it again."
            )

    def read(self, name: str) -> Tensor:
        """A tensor of its own memory."""
        info, place = self.tensors[name], self._places[name]
        data = torch.empty(place.end - place.start, dtype=torch.uint8)
        try:
            with self.path.open("rb") as file:
                file.seek(place.start)
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
        self._sources = {name: open_file(path.parent / name) for name in dict.fromkeys(where.values())}
        self._where = where
        held = [(name, file) for file, source in self._sources.items() for name in source.tensors]
        if len(held) != len(where) or any(where.get(name) != file for name, file in held):
            lost = sorted(set(where.items()) ^ set(held))
            name, file = lost[0]
            raise CheckpointError(
                f"{path} must list exactly the tensors of its files; got {len(lost)} that it does not list or that are "
                f"not there, first {name[:80]!r} in {file}. Copy all files again."
            )
        self.tensors = {name: self._sources[file].tensors[name] for name, file in where.items()}

    def read(self, name: str) -> Tensor:
        """A tensor of its own memory."""
        return self._sources[self._where[name]].read(name)


def open_safetensors(path: str | Path) -> SafetensorsFile | ShardedFiles:
    """Opens a file, an index, or a folder with one of them under its usual name."""
    path = Path(path)
    if path.is_dir():
        path = next((path / name for name in (SINGLE, INDEX) if (path / name).is_file()), path / SINGLE)
    if path.suffix == ".json":
        return ShardedFiles(path, SafetensorsFile)
    return SafetensorsFile(path)


def _read_header(path: Path) -> tuple[dict[str, object], int, int]:
    """The header, and where the numbers begin and how long they are."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise CheckpointError(
                    f"{path} must be a safetensors file with a header of at most {MAX_HEADER} bytes, all there; got "
                    f"{length} in a file of {size}. Copy it again."
                )
            header = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} must be a readable file; got {error}. Check the path.") from None
    return _parse(path, header), 8 + length, size - 8 - length


def _read_index(path: Path) -> dict[str, str]:
    """Which tensor is in which file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            data = file.read(min(size, MAX_HEADER))
    except OSError as error:
        raise CheckpointError(f"{path} must be a readable file; got {error}. Check the path.") from None
    if size > MAX_HEADER:
        raise CheckpointError(f"{path} must be at most {MAX_HEADER} bytes; got {size}. It is not an index.")
    where = _parse(path, data).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise CheckpointError(f"{path} must have a weight_map; got none. Copy it again.")
    for file in dict.fromkeys(where.values() if all(isinstance(v, str) for v in where.values()) else [""]):
        # Names only: an index may not reach out of its folder.
        if not file or file in (".", "..") or not file.isprintable() or any(mark in file for mark in "/\\:"):
            raise CheckpointError(f"{path} must name files beside it; got {file[:80]!r}. Do not trust this index.")
    return where


def _parse(path: Path, data: bytes) -> dict[str, object]:
    """An object in JSON, each key once."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must have a header or index in JSON; got {error}. Copy it again.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must have a JSON object; got a {type(value).__name__}. Copy it again.")
    return value


def _unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key[:80]!r} twice")
        result[key] = value
    return result


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} where a number should be")


def _metadata(path: Path, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise CheckpointError(f"{path} must have texts as __metadata__; got others. Save it again.")
    return value


def _entry(path: Path, name: str, entry: object) -> tuple[TensorInfo, _Place]:
    """A tensor as the header has it, if its numbers agree with each other."""
    if not name.isprintable() or len(name) > MAX_NAME:
        raise CheckpointError(f"{path} must have printable names of at most {MAX_NAME} characters; got {name[:80]!r}.")
    fields = entry if isinstance(entry, dict) else {}
    kind = fields.get("dtype")
    dtype = DTYPES.get(kind) if isinstance(kind, str) else None
    shape, place = _sizes(fields.get("shape")), _sizes(fields.get("data_offsets"))
    if dtype is None or shape is None or place is None or len(place) != 2:
        raise CheckpointError(
            f"{path} must give a known dtype, a shape and two offsets of each tensor; got others for {name[:80]!r}. "
            "Save it again."
        )
    start, end = place
    if end - start != math.prod(map(int, shape)) * dtype.itemsize or math.prod(max(1, n) for n in shape) >= 2**63:
        raise CheckpointError(
            f"{path} must give each tensor as many bytes as its shape needs; got {end - start} for {name[:80]!r} of "
            f"shape {shape} and {dtype}. Copy it again."
        )
    return TensorInfo(shape=shape, dtype=dtype), _Place(start=start, end=end)


def _sizes(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > 64:
        return None
    if not all(type(number) is int and 0 <= number < 2**63 for number in value):
        return None
    return tuple(value)
