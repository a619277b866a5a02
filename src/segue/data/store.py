"""The store: a prepared corpus on disk, read by memory map.

    STORE/manifest.json       counts, checksums, origin (`segue.data.manifest`); written last
    STORE/tokens-00000.bin    ids, little-endian uint16, or uint32 for vocabularies above 65,536
    STORE/documents.bin       uint64 offset of each document's first token
    STORE/lines.bin           uint64 offset of each line's first token
    STORE/word_starts.bin     one byte per id: whether it begins a word
    STORE/tokenizer/          the tokeniser

In: ids, line by line. Out: ids at any position, without loading the rest. Their meaning is left to the tokeniser.

No damaged byte is used: `open` compares every file with its checksum; in a store so large that this would take long,
later shards are verified when their first token is read.
"""

import hashlib
from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.arguments import checks_arguments
from segue.data.manifest import FileRecord, StoreManifest, load_manifest, shard_name
from segue.errors import DataError, kind_of
from segue.files import settle
from segue.text.tokenizer import Tokenizer

_OPEN_SHARDS = 256  # each open memory map holds a file handle, and systems allow about a thousand
_VERIFIED_AT_ONCE = 2**32
"""Bytes of shards that `open` verifies, in a few seconds; later shards are verified when they are first read."""
_PIECE = 2**22
"""Bytes read at a time while a shard is verified."""


class Store:
    """A corpus as one long sequence of ids, with the borders of its documents and lines."""

    manifest: StoreManifest
    length: int
    vocabulary_size: int
    specials: Mapping[str, int]
    document_starts: NDArray[np.uint64]
    line_starts: NDArray[np.uint64]

    def __init__(self, path: Path, manifest: StoreManifest) -> None:
        """Use `open`, which checks the files."""
        self.path = path
        self.manifest = manifest
        self.length = manifest.tokens
        self.vocabulary_size = manifest.vocabulary_size
        self.specials = dict(manifest.specials)
        self.document_starts = _mapped(path / "documents.bin", "<u8", manifest.documents)
        self.line_starts = _mapped(path / "lines.bin", "<u8", manifest.lines)
        self._dtype = "<u2" if manifest.dtype == "uint16" else "<u4"
        self._borders = np.cumsum((0, *manifest.shards), dtype=np.int64)
        self._shards: dict[int, NDArray[Any]] = {}
        self._unverified: set[int] = set()

    def __repr__(self) -> str:
        counts = f"{self.length:,} tokens of {self.manifest.documents:,} documents"
        return f"<Store {str(self.path)!r}: {counts}, vocabulary of {self.vocabulary_size:,}>"

    @classmethod
    @checks_arguments
    def open(cls, path: str | Path, *, verify: bool = True) -> "Store":
        """Open a store; raise DataError if it is incomplete, foreign, or does not match its manifest.

        Every file is compared with its checksum, about a second per gigabyte: the first 4 GiB of tokens now, later
        shards when they are first read, or all of them by calling `verify`. Without `verify` only the manifest and the
        sizes of the files are checked.
        """
        folder = Path(path)
        settle(folder)  # a process that replaced it may have been killed between two moves
        manifest = load_manifest(folder)
        _check_counts(folder, manifest)
        shards = {shard_name(number) for number in range(len(manifest.shards))}
        for name, record in manifest.files.items():
            _check_size(folder / name, record)
            if verify and name not in shards:
                _check_digest(folder / name, record)
        store = cls(folder, manifest)
        if verify:
            store._check_borders()
            store._unverified = set(range(len(manifest.shards)))
            store._verify(limit=_VERIFIED_AT_ONCE)
        return store

    def verify(self) -> None:
        """Compare the shards that have not been verified yet with their checksums."""
        self._verify(limit=None)

    def __reduce__(self) -> tuple[Callable[[Path], "Store"], tuple[Path]]:
        """Make another process open the same folder, instead of sending it the mapped data."""
        return Store.open, (self.path,)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return a copy of the ids from `start` up to `stop`."""
        if not (isinstance(start, Integral) and isinstance(stop, Integral)):
            wrong = stop if isinstance(start, Integral) else start
            raise DataError(f"a range of {self.path} must be whole numbers; got {kind_of(wrong)}. Use read(0, 10).")
        if not 0 <= start <= stop <= self.length:
            raise DataError(
                f"a range of {self.path} must lie within its {self.length} tokens and not run backwards; "
                f"got {start} to {stop}. Ask for less."
            )
        ids = np.empty(stop - start, dtype=np.int64)
        shard = int(np.searchsorted(self._borders, start, side="right")) - 1
        at = start
        while at < stop:
            first, last = int(self._borders[shard]), int(self._borders[shard + 1])
            end = min(stop, last)
            ids[at - start : end - start] = self._shard(shard)[at - first : end - first]
            at, shard = end, shard + 1
        return ids

    def tokenizer(self) -> Tokenizer:
        """Return the tokeniser of the ids."""
        from segue.text.files import load_tokenizer

        tokenizer = load_tokenizer(self.path / "tokenizer")
        if tokenizer.fingerprint() != self.manifest.tokenizer:
            raise DataError(
                f"{self.path / 'tokenizer'} must be the tokeniser that made the store; got another fingerprint. "
                "Copy or prepare the store again."
            )
        return tokenizer

    def word_starts(self) -> NDArray[np.bool_]:
        """Return for each id whether it begins a word."""
        flags: NDArray[np.bool_] = np.fromfile(self.path / "word_starts.bin", dtype=np.uint8) != 0
        return flags

    def _shard(self, number: int) -> NDArray[Any]:
        if number not in self._shards:
            if number in self._unverified:
                self._verify_shard(number)
            while len(self._shards) >= _OPEN_SHARDS:
                del self._shards[next(iter(self._shards))]
            name = self.path / shard_name(number)
            self._shards[number] = _mapped(name, self._dtype, self.manifest.shards[number])
        return self._shards[number]

    def _verify(self, *, limit: int | None) -> None:
        """Verify the first shards, as far as they end within the limit."""
        read = 0
        for number in sorted(self._unverified):
            read += self.manifest.files[shard_name(number)].bytes
            if limit is not None and read > limit:
                return
            self._verify_shard(number)

    def _verify_shard(self, number: int) -> None:
        """Raise DataError unless every byte is unchanged and every id is in the vocabulary."""
        path, record = self.path / shard_name(number), self.manifest.files[shard_name(number)]
        largest = 0

        def look(piece: bytes) -> None:
            nonlocal largest
            ids = np.frombuffer(piece, dtype=self._dtype, count=len(piece) // int(self._dtype[-1]))
            largest = max(largest, int(ids.max(initial=0)))

        _check_size(path, record)
        _check_digest(path, record, look=look)
        if largest >= self.vocabulary_size:
            raise DataError(
                f"{path} must hold ids below {self.vocabulary_size}; got {largest}. Prepare the store again."
            )
        self._unverified.discard(number)

    def _check_borders(self) -> None:
        """Check what checksums cannot show: that the offsets are valid."""
        for name, starts in (("documents.bin", self.document_starts), ("lines.bin", self.line_starts)):
            fine = starts[0] == 0 and starts[-1] < self.length and bool((starts[1:] > starts[:-1]).all())
            if not fine:
                raise DataError(f"{self.path / name} must ascend from 0 within the tokens. Prepare the store again.")


def _mapped(path: Path, dtype: str, count: int) -> NDArray[Any]:
    try:
        return np.memmap(path, dtype=dtype, mode="r", shape=(count,))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} must be a readable file; got {error}. Copy or prepare the store again.") from None


def _check_counts(folder: Path, manifest: StoreManifest) -> None:
    """Raise DataError unless the manifest is consistent and names no file outside the store."""
    width = 2 if manifest.dtype == "uint16" else 4
    sizes = {shard_name(number): tokens * width for number, tokens in enumerate(manifest.shards)}
    sizes |= {"documents.bin": manifest.documents * 8, "lines.bin": manifest.lines * 8}
    sizes |= {"word_starts.bin": manifest.vocabulary_size}
    for name in manifest.files:
        inside = name.startswith("tokenizer/") and not any(part in ("", ".", "..") for part in name.split("/"))
        if name not in sizes and (not inside or "\\" in name):
            raise DataError(f"{folder} must not list other files than a store has; got {name!r}. Prepare it again.")
    agrees = all(name in manifest.files and manifest.files[name].bytes == size for name, size in sizes.items())
    if not agrees or sum(manifest.shards) != manifest.tokens or 0 in (*manifest.shards, manifest.documents):
        raise DataError(f"the manifest of {folder} must agree with itself; got other counts. Prepare it again.")


def _check_size(path: Path, record: FileRecord) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} must exist; got {error}. Copy or prepare the store again.") from None
    if size != record.bytes:
        raise DataError(f"{path} must have {record.bytes} bytes; got {size}. Copy or prepare the store again.")


def _check_digest(path: Path, record: FileRecord, *, look: Callable[[bytes], None] | None = None) -> None:
    """Compare the sha256 of a file with its record. `look` is called with each piece of the file."""
    digest, left = hashlib.sha256(), record.bytes
    try:
        with path.open("rb") as file:
            while left and (piece := file.read(min(left, _PIECE))):
                digest.update(piece)
                left -= len(piece)
                if look is not None:
                    look(piece)
    except OSError as error:
        raise DataError(f"{path} must be readable; got {error}. Copy or prepare the store again.") from None
    found = digest.hexdigest()
    if found != record.sha256:
        raise DataError(
            f"{path} must have the sha256 {record.sha256[:16]}...; got {found[:16]}.... It is damaged: "
            "copy or prepare the store again."
        )
