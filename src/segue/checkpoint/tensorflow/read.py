"""Reader of TensorFlow V2 checkpoints: `PREFIX.index` and data files, `PREFIX.data-00000-of-00001` and so on.

In: a path. Out: a TensorSource. Opening reads only the index, and checks every location in it against the sizes of the
data files; reading a tensor verifies its checksum.
"""

import math
import re
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from segue.checkpoint.source import TensorInfo
from segue.checkpoint.tensorflow.crc32c import crc32c, masked
from segue.checkpoint.tensorflow.entries import (
    HEADER_KEY,
    OTHER_TYPES,
    SLICE_MARK,
    Entry,
    Slice,
    read_entry,
    read_header,
    slice_key,
)
from segue.checkpoint.tensorflow.table import read_table
from segue.checkpoint.tensorflow.wire import MalformedError
from segue.errors import CheckpointError

INDEX, STATE = ".index", "checkpoint"
MAX_INDEX: Final = 8 << 20  # bytes; a model with ten thousand tensors needs about one megabyte


def open_tensorflow(path: str | Path) -> "TensorflowCheckpoint":
    """Open a checkpoint. `path` is a prefix, its `.index` file, or a folder: the checkpoint named in its `checkpoint`
    file, or else the only one."""
    index = Path(path)
    try:
        prefix = _find_prefix(index)
        index = prefix.with_name(prefix.name + INDEX)
        if not index.is_file() or index.stat().st_size > MAX_INDEX:
            got = f"{index.stat().st_size} bytes" if index.is_file() else "none"
            raise CheckpointError(
                f"{index} must be a file of at most {MAX_INDEX} bytes; got {got}. Give the path of a checkpoint: "
                f"what its files have in common, without {INDEX} or .data-00000-of-00001."
            )
        return TensorflowCheckpoint(prefix, *_read_index(index.read_bytes()))
    except (MalformedError, OSError) as error:
        raise CheckpointError(f"{index} must be a whole TensorFlow index: {error}. Copy it again.") from None


def shard_path(prefix: Path, shard: int, num_shards: int) -> Path:
    """Return the path of a data file."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")


# Destination of a part of a tensor, and the entry with its bytes.
Part = tuple[tuple[slice, ...], Entry]


class TensorflowCheckpoint:
    """A TensorSource. `skipped` maps names without numbers to their content, such as "string"."""

    def __init__(self, prefix: Path, num_shards: int, entries: dict[bytes, Entry]) -> None:
        _check_places(prefix, num_shards, [entry for entry in entries.values() if not entry.slices])
        self.prefix = prefix
        shards = sorted({entry.shard for entry in entries.values() if not entry.slices})
        index = prefix.with_name(prefix.name + INDEX)
        self.files = (index, *(shard_path(prefix, shard, num_shards) for shard in shards))
        self._num_shards = num_shards
        self._parts = _gather(entries)
        self.tensors: dict[str, TensorInfo] = {}
        self.skipped: dict[str, str] = {}
        for name in self._parts:
            entry = entries[name.encode()]
            if entry.dtype is None:
                self.skipped[name] = OTHER_TYPES.get(entry.type_number, f"TensorFlow's type {entry.type_number}")
            else:
                self.tensors[name] = TensorInfo(shape=entry.shape, dtype=entry.dtype)

    def read(self, name: str) -> Tensor:
        """Read a tensor into separate memory; slices are joined."""
        if name not in self.tensors:
            held = self.skipped.get(name, "no such name")
            raise CheckpointError(f"{name} must be a tensor of {self.prefix}; got {held}. Choose one of its tensors.")
        info, parts = self.tensors[name], self._parts[name]
        if parts[0][0] == ():
            return self._read_bytes(name, parts[0][1])
        result = _allocate(name, info.shape, info.dtype)
        filled = torch.zeros(info.shape, dtype=torch.bool)
        for place, entry in parts:
            result[place] = self._read_bytes(name, entry)
            filled[place] = True
        if not filled.all():
            raise CheckpointError(
                f"{name} of {self.prefix} must be covered by its {len(parts)} slices; "
                f"got {int((~filled).sum())} places without one. Use another copy."
            )
        return result

    def _read_bytes(self, name: str, entry: Entry) -> Tensor:
        path = shard_path(self.prefix, entry.shard, self._num_shards)
        raw = _allocate(name, (entry.size,), torch.uint8)
        try:
            with path.open("rb") as file:
                file.seek(entry.offset)
                count = file.readinto(raw.numpy().data)
        except OSError as error:
            raise CheckpointError(f"{path} must be readable; got {error}. Check the file.") from None
        if count != entry.size:
            raise CheckpointError(f"{path} must hold {entry.size} bytes of {name}; got {count}. Copy it again.")
        checksum = masked(crc32c(raw.numpy()))
        if checksum != entry.checksum:
            raise CheckpointError(
                f"{name} in {path} must have the checksum {entry.checksum:08x}; got {checksum:08x}. "
                "Its bytes have changed: copy the file again."
            )
        assert entry.dtype is not None
        if entry.dtype is torch.bool and entry.size and raw.max() > 1:
            raise CheckpointError(f"{name} in {path} must be 0 or 1; got {int(raw.max())}. Use another copy.")
        return raw.view(entry.dtype).reshape(entry.shape)


def _allocate(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    try:
        return torch.empty(shape, dtype=dtype)
    except RuntimeError as error:  # torch reports a lack of memory like this
        raise CheckpointError(
            f"{name} must fit in memory; got {dtype} of shape {shape}: {error}. Use a larger machine."
        ) from None


def _find_prefix(path: Path) -> Path:
    if not path.is_dir():
        return path.with_name(path.name.removesuffix(INDEX)) if path.suffix == INDEX else path
    if (path / STATE).is_file():
        return path / _named_in(path / STATE)
    names = sorted(index.name.removesuffix(INDEX) for index in path.glob(f"*{INDEX}"))
    if len(names) != 1:
        got = ", ".join(names[:10]) or "none"
        raise CheckpointError(f"{path} must hold one TensorFlow checkpoint; got {got}. Give the path of one of them.")
    return path / names[0]


def _named_in(state: Path) -> str:
    """Return the name of the newest checkpoint, without its folder, which may be that of another machine."""
    try:
        with state.open("rb") as file:
            found = re.search(
                rb'^[ \t]*model_checkpoint_path:[ \t]*"((?:[^"\\\n]|\\.)*)"', file.read(1 << 16), re.MULTILINE
            )
        text = re.sub(rb"\\([0-7]{1,3}|.)", _unescape, found[1]).decode() if found else ""
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{state} must be readable; got {error}. Give the path of a checkpoint.") from None
    name = re.split(r"[/\\]", text)[-1]
    if name in ("", ".", "..") or "\0" in name:
        raise CheckpointError(f"{state} must name a checkpoint; got {text[:200]!r}. Give the path of one.")
    return name


def _unescape(escape: re.Match[bytes]) -> bytes:
    """Return the byte of an escape in a text protocol buffer: an octal number, or a literal character."""
    return bytes([int(escape[1], 8) & 0xFF]) if escape[1][0] in b"01234567" else escape[1]


def _read_index(data: bytes) -> tuple[int, dict[bytes, Entry]]:
    table = read_table(data)
    first, header = next(table, (b"nothing", b""))
    if first != HEADER_KEY:
        raise MalformedError(f"its first key must be the header's, which is empty; got {first[:200]!r}")
    num_shards = read_header(header)
    entries = {}
    for key, value in table:
        try:
            entries[key] = read_entry(value)
        except MalformedError as error:
            raise MalformedError(f"{key[:200]!r}: {error}") from None
    return num_shards, entries


def _check_places(prefix: Path, num_shards: int, entries: list[Entry]) -> None:
    """Raise an error unless every location is inside its data file and none overlap."""
    sizes: dict[int, int] = {}
    end = 0
    for entry in sorted(entries, key=lambda entry: (entry.shard, entry.offset, entry.size)):
        path = shard_path(prefix, entry.shard, num_shards)
        if entry.shard >= num_shards:
            raise MalformedError(f"the number of a data file must be below {num_shards}; got {entry.shard}")
        if entry.shard not in sizes:
            if not path.is_file():
                raise CheckpointError(f"{path} must be a file; got none. Copy all files of the checkpoint.")
            sizes[entry.shard], end = path.stat().st_size, 0
        if entry.offset < end:
            raise MalformedError(
                f"tensors must not overlap; got one at byte {entry.offset} and one before it up to {end}"
            )
        end = entry.offset + entry.size
        if end > sizes[entry.shard]:
            raise CheckpointError(
                f"{path} must have at least {end} bytes; got {sizes[entry.shard]}. "
                "It is cut off or belongs to another index: copy it again."
            )


def _gather(entries: dict[bytes, Entry]) -> dict[str, list[Part]]:
    """Return the parts of each tensor; a tensor without slices is one part with the destination ()."""
    gathered: dict[str, list[Part]] = {}
    slices = {key: entry for key, entry in entries.items() if key.startswith(SLICE_MARK)}
    for key, entry in entries.items():
        if key.startswith(SLICE_MARK):
            continue
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise MalformedError(f"a name must be UTF-8; got {key[:200]!r}") from None
        if not entry.slices:
            gathered[name] = [((), entry)]
            continue
        short = name[:200]
        parts = [_part(short, entry, extents, slices.pop(slice_key(key, extents), None)) for extents in entry.slices]
        elements = sum(math.prod(part.shape) for _, part in parts)
        if elements != math.prod(entry.shape):
            raise MalformedError(
                f"{short}: slices must have {math.prod(entry.shape)} elements together; got {elements}"
            )
        gathered[name] = parts
    if slices:
        raise MalformedError(f"a slice must belong to one tensor; got {len(slices)} more, first {min(slices)[:200]!r}")
    return gathered


def _part(name: str, entry: Entry, extents: Slice, part: Entry | None) -> Part:
    if part is None or part.slices:
        raise MalformedError(
            f"{name}: slices must be there, once each, and not sliced again; got another for {extents}"
        )
    if len(extents) != len(entry.shape):
        raise MalformedError(f"{name}: a slice must have {len(entry.shape)} extents; got {extents}")
    bounds = [
        (start, size if length is None else start + length)
        for (start, length), size in zip(extents, entry.shape, strict=True)
    ]
    shape = tuple(stop - start for start, stop in bounds)
    inside = all(start <= stop <= size for (start, stop), size in zip(bounds, entry.shape, strict=True))
    if not inside or part.shape != shape or part.type_number != entry.type_number:
        raise MalformedError(
            f"{name}: a slice must be of its tensor's type and inside of {entry.shape}; got {extents} with {part.shape}"
        )
    return tuple(slice(start, stop) for start, stop in bounds), part
