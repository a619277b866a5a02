"""Files of torch.save, old and new, read without torch.load: the content is known before any tensor is read.

In: a zip archive (PyTorch 1.6 and later) or the format before it (2019), with a state dict or a whole pickled module.
Out: a `TensorSource`. No foreign object is built and no code runs; every location is checked against the file's size.
"""

import struct
import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from segue.checkpoint.pickles import Name, describe, interpret, read_record
from segue.checkpoint.source import TensorInfo, allocated
from segue.checkpoint.stored_zip import SIGNATURE, ZipEntry, read_entries, verify
from segue.checkpoint.torch_tree import CONSTRUCTORS, STORAGES, Storage, StoredTensor, read_contents
from segue.errors import CheckpointError

MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
MAX_PICKLE = 2**28
"""Maximum size in bytes of the pickle in an archive, which does not include the numbers of tensors."""
_MAGIC_PICKLE = b"\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."


class TorchFile:
    """A file of torch.save that holds tensors. See `segue.checkpoint.source.TensorSource`."""

    path: Path
    root: object
    """The pickled value: plain containers, inert `PickledObject`s, and `StoredTensor`s."""
    tensors: Mapping[str, TensorInfo]
    attributes: Mapping[str, Mapping[str, object]]
    """Plain attributes of the modules by dotted path, "" for the root; or plain values beside the state dict."""
    classes: Mapping[str, str]
    """Class names of the modules by dotted path."""
    calls: frozenset[Name]
    """Functions that the pickle asks to call besides the parts of tensors; none was called."""

    def __init__(
        self, path: Path, root: object, storages: Mapping[str, ZipEntry], *, big_endian: bool, calls: set[Name]
    ) -> None:
        contents = read_contents(root, what=str(path))
        self.path = path
        self.files = (path,)
        self.calls = frozenset(calls)
        self.root = root
        self.attributes = contents.attributes
        self.classes = contents.classes
        self.tensors = {
            name: TensorInfo(shape=tensor.shape, dtype=tensor.dtype) for name, tensor in contents.tensors.items()
        }
        self._places = contents.tensors
        self._storages = storages
        self._swap = big_endian != (sys.byteorder == "big")
        self._verified: set[str] = set()

    def read(self, name: str) -> Tensor:
        """Read a tensor into separate memory. The checksum of its storage, if any, is verified at the first use."""
        tensor = self._places[name]
        entry = self._storages[tensor.storage.key]
        try:
            with self.path.open("rb") as file:
                if tensor.storage.key not in self._verified:
                    verify(file, entry, what=f"{name} in {self.path}")
                    self._verified.add(tensor.storage.key)
                file.seek(entry.start + tensor.storage.start_byte + tensor.offset * tensor.dtype.itemsize)
                return _read_numbers(file, tensor, swap=self._swap, what=f"{name} in {self.path}")
        except OSError as error:
            raise CheckpointError(f"{self.path} must be readable; got {error}. Check the path.") from None


def open_torch(path: str | Path) -> TorchFile:
    """Open a file of torch.save that holds tensors."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            if start == SIGNATURE:
                return _open_zip(file, path)
            if _is_legacy(file):
                return _open_legacy(file, path)
    except OSError as error:
        raise CheckpointError(f"{path} must be a readable file; got {error}. Check the path.") from None
    raise CheckpointError(
        f"{path} must be a file of torch.save; got one that starts with {start!r}. Check the path, or save it again."
    )


def read_object(path: str | Path, *, calls: set[Name] | None = None) -> object:
    """Return an object pickled by torch.save or by pickle itself, as plain containers and inert records. Functions that
    the pickle asks to call are added to `calls`.

    Used for vocabularies, which come in all three forms.
    """
    path, calls = Path(path), set() if calls is None else calls
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            if start == SIGNATURE:
                return _read_zip_pickle(file, path, calls)[0]
            if _is_legacy(file):
                return _read_legacy_pickle(file, path, calls)[0]
    except OSError as error:
        raise CheckpointError(f"{path} must be a readable file; got {error}. Check the path.") from None
    return read_record(path, calls=calls)


# The zip format


def _open_zip(file: BinaryIO, path: Path) -> TorchFile:
    calls: set[Name] = set()
    root, storages, entries, prefix = _read_zip_pickle(file, path, calls)
    for storage in storages:
        entry = entries.get(f"{prefix}data/{storage.key}")
        if entry is None or entry.size != storage.size * storage.dtype.itemsize:
            raise CheckpointError(
                f"{path} must hold each storage as its pickle says; got {entry.size if entry else 'no'} bytes for "
                f"{storage.size} numbers of {storage.dtype} in {describe(storage.key)}. Copy it or save it again."
            )
    written = entries.get(f"{prefix}byteorder")
    order = b"" if written is None else _read_entry(file, written, limit=16, what=str(path))
    if order not in (b"", b"little", b"big"):
        raise CheckpointError(f"{path} must have the byte order little or big; got {order!r}. Save it again.")
    places = {storage.key: entries[f"{prefix}data/{storage.key}"] for storage in storages}
    return TorchFile(path, root, places, big_endian=order == b"big", calls=calls)


def _read_zip_pickle(
    file: BinaryIO, path: Path, calls: set[Name]
) -> tuple[object, list[Storage], dict[str, ZipEntry], str]:
    """Return the pickled value, the storages it names, the entries of the archive, and the folder in it."""
    entries = read_entries(file, what=str(path))
    pickles = [name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise CheckpointError(f"{path} must hold one data.pkl; got {len(pickles)}. Save it with torch.save.")
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in entries:
        raise CheckpointError(f"{path} must be a file of torch.save; got TorchScript. Save model.state_dict().")
    if entries[pickles[0]].size > MAX_PICKLE:
        raise CheckpointError(
            f"{path} must hold a pickle of at most {MAX_PICKLE:,} bytes; got {entries[pickles[0]].size:,}. "
            "Save model.state_dict()."
        )
    data = _read_entry(file, entries[pickles[0]], what=f"the pickle in {path}")
    storages: list[Storage] = []
    persistent = _persistent(storages, size=5)
    root = interpret(BytesIO(data), what=str(path), constructors=CONSTRUCTORS, persistent=persistent, calls=calls)
    return root, storages, entries, prefix


def _read_entry(file: BinaryIO, entry: ZipEntry, *, limit: int = MAX_PICKLE, what: str) -> bytes:
    verify(file, entry, what=what)
    file.seek(entry.start)
    return file.read(min(entry.size, limit))


# The format of 2019: pickles of a magic number, a version, system information, the value and the storages' keys; then
# the numbers.


def _is_legacy(file: BinaryIO) -> bool:
    start = file.read(2 + len(_MAGIC_PICKLE))
    file.seek(0)
    return start[:1] == b"\x80" and start[2:] == _MAGIC_PICKLE


def _open_legacy(file: BinaryIO, path: Path) -> TorchFile:
    calls: set[Name] = set()
    root, storages = _read_legacy_pickle(file, path, calls)
    keys = interpret(file, what=str(path), calls=calls)
    by_key: dict[str, Storage] = {}
    for storage in storages:
        first = by_key.setdefault(storage.key, storage)
        if (first.dtype.itemsize, first.size) != (storage.dtype.itemsize, storage.size):
            raise CheckpointError(f"{path} must have one size for storage {describe(storage.key)}. Save it again.")
    listed = {key for key in keys if isinstance(key, str)} if isinstance(keys, list) else set()
    if not isinstance(keys, list) or len(keys) != len(by_key) or listed != by_key.keys():
        raise CheckpointError(
            f"{path} must list the {len(by_key)} storages of its pickle; got {describe(keys)} of others. Save it again."
        )
    start = file.tell()
    end = file.seek(0, 2)
    places: dict[str, ZipEntry] = {}
    for key in keys:
        storage = by_key[key]
        file.seek(start)
        size = file.read(8)
        length = storage.size * storage.dtype.itemsize
        if size != struct.pack("<Q", storage.size) or start + 8 + length > end:
            raise CheckpointError(
                f"{path} must be whole; got not all of the {length} bytes of storage {describe(key)} at byte {start}. "
                "Copy it again."
            )
        places[key] = ZipEntry(start=start + 8, size=length, checksum=None)
        start += 8 + length
    if start != end:
        raise CheckpointError(f"{path} must end with its last storage; got {end - start} bytes more. Copy it again.")
    return TorchFile(path, root, places, big_endian=False, calls=calls)  # little-endian on every machine


def _read_legacy_pickle(file: BinaryIO, path: Path, calls: set[Name]) -> tuple[object, list[Storage]]:
    """Return the pickled value and the storages it names; the file is positioned behind the pickle."""
    interpret(file, what=str(path), calls=calls)  # the magic number, already checked
    version = interpret(file, what=str(path), calls=calls)
    if version != LEGACY_VERSION:
        raise CheckpointError(f"{path} must have version {LEGACY_VERSION}; got {describe(version)}. Save it again.")
    interpret(file, what=str(path), calls=calls)  # system information, which torch.load does not use either
    storages: list[Storage] = []
    persistent = _persistent(storages, size=6)
    root = interpret(file, what=str(path), constructors=CONSTRUCTORS, persistent=persistent, calls=calls)
    return root, storages


# Both formats


def _persistent(storages: list[Storage], *, size: int) -> Callable[[object], object]:
    """Return the loader of persistent ids: a storage, also added to the list, or the name of a module's class."""

    def load(key: object) -> object:
        if not isinstance(key, tuple) or not key:
            raise ValueError(f"a persistent id must be a tuple; got {describe(key)}")
        if key[0] == "module" and len(key) == 4:
            return key[1]
        if key[0] != "storage" or len(key) != size:
            raise ValueError(f"a persistent id must be of a storage; got {describe(key[0])} and {len(key) - 1} more")
        storage = _storage(key)
        storages.append(storage)
        return storage

    return load


def _storage(key: tuple[object, ...]) -> Storage:
    kind, name, _, count = key[1:5]
    dtype = STORAGES.get(kind.attribute) if isinstance(kind, Name) and kind.module.startswith("torch") else None
    if dtype is None:
        raise ValueError(f"a storage must be of a known type; got {describe(kind)}")
    if not isinstance(name, str) or len(name) > 256:
        raise ValueError(f"a storage must have a key of at most 256 characters; got {describe(name)}")
    if type(count) is not int or not 0 <= count < 2**60:
        raise ValueError(f"a storage must have a size of 0 to 2**60; got {describe(count)}")
    view = key[5] if len(key) > 5 else None
    if view is None:
        return Storage(key=name, dtype=dtype, size=count)
    if not isinstance(view, tuple) or len(view) != 3 or not all(type(part) is int for part in view[1:]):
        raise ValueError(f"a view of a storage must be a key and two numbers; got {describe(view)}")
    start, length = view[1:]
    if min(start, length) < 0 or start + length > count:
        raise ValueError(f"a view must be within its storage; got {describe(start)} and {describe(length)} of {count}")
    return Storage(key=name, dtype=dtype, size=count, view_start=start, view_size=length)


def _read_numbers(file: BinaryIO, tensor: StoredTensor, *, swap: bool, what: str) -> Tensor:
    data = allocated(tensor.span * tensor.dtype.itemsize, what=what)
    if file.readinto(data.numpy()) != len(data):  # type: ignore[attr-defined]
        raise CheckpointError(f"{what} must have all its numbers; got fewer. Copy the file again.")
    if swap:
        width = tensor.dtype.itemsize // (2 if tensor.dtype.is_complex else 1)
        data = data.view(-1, width).flip(1).reshape(-1)
    if tensor.dtype == torch.bool:
        data = (data != 0).view(torch.uint8)  # PyTorch needs bools to be 0 or 1
    numbers = data.view(tensor.dtype)
    if 0 in tensor.shape:
        return numbers.reshape(tensor.shape)
    return numbers.as_strided(tensor.shape, tensor.stride).contiguous()
