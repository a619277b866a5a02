"""Writing of a store, atomically.

Everything is written into a hidden folder beside the target, hashed on the way, synced, the manifest last; then moved
in place.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from segue.data.manifest import NAME, FileRecord, InputRecord, StoreManifest, dump_manifest, shard_name
from segue.errors import DataError
from segue.files import Staging, check_folder, sync
from segue.text.tokenizer import Tokenizer

SHARD_TOKENS = 2**27  # 256 MB of uint16


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Ids that follow those written before, with their borders; offsets count from the first of these ids."""

    ids: NDArray[np.uint32]
    line_starts: NDArray[np.int64]
    document_starts: NDArray[np.int64]
    """Starts of documents; a document that began earlier and continues here has none."""
    characters: int = 0
    bytes: int = 0
    words: int = 0


class _HashedFile:
    """A file that computes the checksum of its content."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.bytes = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO = path.open("xb")

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.bytes += len(data)

    def finish(self) -> FileRecord:
        """Sync and close the file; return its record."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return FileRecord(bytes=self.bytes, sha256=self._hash.hexdigest())

    def drop(self) -> None:
        """Close the file, ignoring errors such as a full disk."""
        try:
            self._file.close()
        except OSError:
            return


@dataclass
class _Totals:
    tokens: int = 0
    documents: int = 0
    lines: int = 0
    characters: int = 0
    bytes: int = 0
    words: int = 0
    shards: list[int] = field(default_factory=list)
    files: dict[str, FileRecord] = field(default_factory=dict)


class StoreWriter:
    """Writer that seals and publishes a store; leaving the `with` block before that leaves nothing behind."""

    def __init__(
        self,
        target: str | Path,
        tokenizer: Tokenizer,
        *,
        settings: Mapping[str, JsonValue] | None = None,
        shard_tokens: int = SHARD_TOKENS,
        replace: bool = False,
        inputs: Iterable[str | Path] = (),
    ) -> None:
        """`inputs`: the sources of the text; a store that contains one of them, or lies in one, is not replaced."""
        if shard_tokens < 1:
            raise DataError(f"shard_tokens must be at least 1; got {shard_tokens}.")
        self.target = Path(target)
        self.totals = _Totals()
        self._tokenizer = tokenizer
        self._settings = dict(settings or {})
        self._shard_tokens = shard_tokens
        self._replace, self._inputs = replace, list(inputs)
        self._size = tokenizer.size
        self._dtype = "uint16" if tokenizer.size <= 2**16 else "uint32"
        self._check_target()
        self._work = Staging(self.target)
        self._open: list[_HashedFile] = []
        try:
            self._check_target()  # that of a killed writer may have been moved in place
            self._folder = self._work.new
            self.tokenizer_folder = self._folder / "tokenizer"
            self.tokenizer_folder.mkdir(parents=True)
            tokenizer.save(self.tokenizer_folder)
            self._shard = self._create(shard_name(0))
            self._documents = self._create("documents.bin")
            self._lines = self._create("lines.bin")
        except BaseException:
            self.abort()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def abort(self) -> None:
        """Remove everything that was not published; does nothing after `publish`."""
        for file in self._open:
            file.drop()
        self._open.clear()
        self._work.remove()

    def extend(self, encoded: Encoded) -> None:
        """Append many documents, or a part of one, with their ends among the ids."""
        totals = self.totals
        if len(encoded.ids) and int(encoded.ids.max()) >= self._size:
            raise DataError(f"ids must be below {self._size}; got {int(encoded.ids.max())}. Is it another tokeniser?")
        try:
            self._lines.write((encoded.line_starts + totals.tokens).astype("<u8").tobytes())
            self._documents.write((encoded.document_starts + totals.tokens).astype("<u8").tobytes())
            self._write_ids(encoded.ids)
        except OSError as error:
            raise self._failed(error) from None
        totals.tokens += len(encoded.ids)
        totals.lines += len(encoded.line_starts)
        totals.documents += len(encoded.document_starts)
        totals.characters += encoded.characters
        totals.bytes += encoded.bytes
        totals.words += encoded.words

    def seal(self, *, inputs: Sequence[InputRecord] = (), problems: Mapping[str, int] | None = None) -> StoreManifest:
        """Complete and sync the hidden folder; the target does not exist yet."""
        if not self.totals.documents:
            raise DataError(f"{self.target} must get at least one document; got none. Check the inputs.")
        try:
            self._finish_shard()
            for file in (self._documents, self._lines):
                self.totals.files[file.name] = file.finish()
            flags = self._create("word_starts.bin")
            flags.write(self._tokenizer.word_starts().astype(np.uint8).tobytes())
            self.totals.files[flags.name] = flags.finish()
            self.totals.files |= _synced_records(self._folder, self.tokenizer_folder)
            manifest = self._manifest(inputs, problems or {})
            file = self._create(NAME)
            file.write(dump_manifest(manifest).encode())
            file.finish()
            sync(self._folder)
        except OSError as error:
            raise self._failed(error) from None
        return manifest

    def publish(self, *partners: "StoreWriter") -> None:
        """Move the store and its partners in place: all or none, even if the process is killed in between."""
        for writer in (self, *partners):
            writer._check_target()
        self._work.publish(*(writer._work for writer in partners))
        for writer in (self, *partners):
            writer._work.remove()

    def _check_target(self) -> None:
        check_folder(self.target, kind="store", replace=self._replace, inputs=self._inputs)

    def _manifest(self, inputs: Sequence[InputRecord], problems: Mapping[str, int]) -> StoreManifest:
        totals = self.totals
        return StoreManifest(
            dtype="uint16" if self._dtype == "uint16" else "uint32",
            vocabulary_size=self._size,
            specials=dict(self._tokenizer.specials),
            tokenizer=self._tokenizer.fingerprint(),
            tokens=totals.tokens,
            documents=totals.documents,
            lines=totals.lines,
            characters=totals.characters,
            bytes=totals.bytes,
            words=totals.words,
            shards=tuple(totals.shards),
            files=totals.files,
            settings=self._settings,
            inputs=tuple(inputs),
            problems=dict(problems),
        )

    def _create(self, name: str) -> _HashedFile:
        file = _HashedFile(self._folder / name)
        self._open.append(file)
        return file

    def _write_ids(self, ids: NDArray[np.uint32]) -> None:
        data = ids.astype("<u2" if self._dtype == "uint16" else "<u4")
        written = 0
        while written < len(data):
            room = self._shard_tokens - self._shard.bytes // data.itemsize
            if not room:
                self._finish_shard()
                self._shard = self._create(shard_name(len(self.totals.shards)))
                continue
            self._shard.write(data[written : written + room].tobytes())
            written += room

    def _finish_shard(self) -> None:
        self.totals.files[self._shard.name] = self._shard.finish()
        self.totals.shards.append(self._shard.bytes // (2 if self._dtype == "uint16" else 4))

    def _failed(self, error: OSError) -> DataError:
        return DataError(
            f"{self.target} must be written to disk; got {error.strerror or error}. Nothing was kept: free some space "
            "or choose another path, and prepare again."
        )


def _synced_records(folder: Path, tokenizer_folder: Path) -> dict[str, FileRecord]:
    """Return the records of the tokeniser's files, which it wrote itself."""
    records = {}
    for path in sorted(tokenizer_folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
            record = FileRecord(bytes=path.stat().st_size, sha256=digest)
            records[path.relative_to(folder).as_posix()] = record
    sync(tokenizer_folder)
    return records
