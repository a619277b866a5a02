"""Writer of TensorFlow V2 checkpoints: an index, one data file, and the `checkpoint` file that names them.

In: named tensors. Out: files identical to those of TensorFlow's own Saver, byte for byte, with the tensors in the order
of their names.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from segue.checkpoint.tensorflow.crc32c import crc32c, masked
from segue.checkpoint.tensorflow.entries import HEADER_KEY, NUMBERS, SLICE_MARK, Entry, write_entry, write_header
from segue.checkpoint.tensorflow.read import INDEX, STATE, shard_path
from segue.checkpoint.tensorflow.table import write_table
from segue.errors import CheckpointError

GLOBAL_STEP = "global_step"


def write_tensorflow(prefix: str | Path, tensors: Mapping[str, Tensor], global_step: int | None = None) -> None:
    """Write the files under temporary names, sync, then move them in place: data, index, and the name in `checkpoint`.

    A process killed between the moves over an older checkpoint leaves an index that does not match its data; the
    checksums reveal that to a reader.
    """
    prefix = Path(prefix)
    named = _by_key(tensors, global_step)
    places = [shard_path(prefix, 0, 1), prefix.with_name(prefix.name + INDEX), prefix.with_name(STATE)]
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with _written_beside(places) as (data, index, state):
            entries = {key: _append(data, value) for key, value in named.items()}
            table = {HEADER_KEY: write_header()} | {key: write_entry(entry) for key, entry in entries.items()}
            index.write(write_table(table.items()))
            name = prefix.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\012")
            state.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'.encode())
    except OSError as error:
        raise CheckpointError(
            f"{prefix} must be writable; got {error}. Free some space, or choose another path."
        ) from error


def _by_key(tensors: Mapping[str, Tensor], global_step: int | None) -> dict[bytes, Tensor]:
    if global_step is not None:
        if GLOBAL_STEP in tensors or not 0 <= global_step < 1 << 63:
            raise CheckpointError(
                f"{GLOBAL_STEP} must be given once, from 0 up; got {global_step} and "
                f"{'a tensor' if GLOBAL_STEP in tensors else 'no tensor'} of that name. Leave one out."
            )
        tensors = {**tensors, GLOBAL_STEP: torch.tensor(global_step)}
    for name, value in tensors.items():
        if not name or name.encode().startswith(SLICE_MARK):
            raise CheckpointError(f"a tensor must have a name without a leading zero byte; got {name!r}. Rename it.")
        if value.dtype not in NUMBERS:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in NUMBERS)
            raise CheckpointError(f"{name} must be one of {known}; got {value.dtype}. Convert it.")
    return dict(sorted((name.encode(), value) for name, value in tensors.items()))


def _append(file: BinaryIO, value: Tensor) -> Entry:
    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    offset = file.tell()
    file.write(raw.data)
    return Entry(
        type_number=NUMBERS[value.dtype],
        shape=tuple(value.shape),
        offset=offset,
        size=raw.nbytes,
        checksum=masked(crc32c(raw)),
    )


@contextmanager
def _written_beside(places: list[Path]) -> Iterator[list[BinaryIO]]:
    """Open temporary files for writing; move them in place when all are written, or remove them on an error."""
    temporary = [place.with_name(f".{place.name}.new") for place in places]
    files: list[BinaryIO] = []
    try:
        for path in temporary:
            files.append(path.open("wb"))
        yield files
        for file in files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for path, place in zip(temporary, places, strict=True):
            path.replace(place)
    finally:
        for file in files:
            file.close()
        for path in temporary:
            path.unlink(missing_ok=True)
