"""Zip archives with stored, uncompressed entries: location of each entry's bytes in the file.

In: an open file. Out: entries by name, all inside the file and not overlapping, so that reading cannot inflate them.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from segue.errors import CheckpointError

MAX_ENTRIES = 2**18
MAX_DIRECTORY = 2**26
SIGNATURE = b"PK\x03\x04"

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_COMMENT = 2**16


@dataclass(frozen=True, kw_only=True)
class ZipEntry:
    """The location of an entry's bytes in a file, and their CRC-32 if it was written."""

    start: int
    size: int
    checksum: int | None


def read_entries(file: BinaryIO, *, what: str) -> dict[str, ZipEntry]:
    """Return the entries in the order of the archive's directory, without reading their content."""
    return _Archive(file, what).entries()


def verify(file: BinaryIO, entry: ZipEntry, *, what: str) -> None:
    """Raise CheckpointError unless the entry's bytes match their checksum."""
    if entry.checksum is None:
        return
    file.seek(entry.start)
    checksum, left = 0, entry.size
    while left and (block := file.read(min(left, 2**20))):
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    if left or checksum != entry.checksum:
        raise CheckpointError(f"{what} must have the checksum written with it; got another. Copy the file again.")


class _Archive:
    def __init__(self, file: BinaryIO, what: str) -> None:
        self.file = file
        self.what = what
        self.size = file.seek(0, 2)

    def refuse(self, rule: str, value: object) -> NoReturn:
        raise CheckpointError(f"{self.what} must be a zip archive {rule}; got {value}. Copy it or save it again.")

    def take(self, start: int, form: struct.Struct, signature: bytes) -> tuple[int, ...]:
        """Return the numbers of a record, after checking its signature."""
        if not 0 <= start <= self.size - form.size:
            self.refuse("that is whole", f"a place at byte {start} of {self.size}")
        self.file.seek(start)
        found, *numbers = form.unpack(self.file.read(form.size))
        if found != signature:
            self.refuse("that is whole", f"none of its marks at byte {start}")
        return tuple(numbers)

    def entries(self) -> dict[str, ZipEntry]:
        count, size, start = self.directory()
        if count > MAX_ENTRIES or size > MAX_DIRECTORY:
            self.refuse(f"of at most {MAX_ENTRIES} entries", f"{count} in a directory of {size} bytes")
        if start + size > self.size or count * _CENTRAL.size > size:
            self.refuse("that is whole", f"a directory of {count} entries and {size} bytes at byte {start}")
        self.file.seek(start)
        directory = self.file.read(size)
        found: dict[str, ZipEntry] = {}
        position = 0
        for _ in range(count):
            name, entry, position = self.entry(directory, position, data_end=start)
            if name in found:
                self.refuse("with each name once", f"{name!r} twice")
            found[name] = entry
        ends = 0
        for entry in sorted(found.values(), key=lambda entry: (entry.start, entry.size)):
            if entry.start < ends:
                self.refuse("with each entry in a place of its own", f"two at byte {entry.start}")
            ends = entry.start + entry.size
        return found

    def directory(self) -> tuple[int, int, int]:
        """Return number of entries, size and offset of the directory."""
        tail_start = max(0, self.size - _END.size - _MAX_COMMENT)
        self.file.seek(tail_start)
        place = self.file.read().rfind(b"PK\x05\x06")
        if place < 0:
            self.refuse("that is whole", "no end of an archive")
        end = tail_start + place
        *_, count, size, start, _comment = self.take(end, _END, b"PK\x05\x06")
        if count == 0xFFFF or size == 0xFFFFFFFF or start == 0xFFFFFFFF:
            _, end64, _ = self.take(end - _END64_LOCATOR.size, _END64_LOCATOR, b"PK\x06\x07")
            *_, count, size, start = self.take(end64, _END64, b"PK\x06\x06")
        return count, size, start

    def entry(self, directory: bytes, position: int, *, data_end: int) -> tuple[str, ZipEntry, int]:
        """Return the entry at a position of the directory, and the position behind it."""
        if position + _CENTRAL.size > len(directory) or directory[position : position + 4] != b"PK\x01\x02":
            self.refuse("that is whole", f"no entry at byte {position} of its directory")
        fields = _CENTRAL.unpack_from(directory, position)
        flags, method, checksum, packed, size, name_size, extra_size, comment_size = (
            *fields[3:5],
            *fields[7:13],
        )
        offset = fields[16]
        name_start = position + _CENTRAL.size
        name = self.name(directory[name_start : name_start + name_size])
        extra = directory[name_start + name_size : name_start + name_size + extra_size]
        size, packed, offset = self.wide(extra, size, packed, offset)
        if flags & 1 or method != 0 or packed != size:
            self.refuse("of stored entries, as torch.save writes it", f"{name!r} compressed or encrypted")
        local_name_size, local_extra_size = self.take(offset, _LOCAL, SIGNATURE)[8:10]
        start = offset + _LOCAL.size + local_name_size + local_extra_size
        if start + size > data_end:
            self.refuse("with its entries before its directory", f"{name!r} of {size} bytes at byte {start}")
        found = ZipEntry(start=start, size=size, checksum=checksum or None)  # PyTorch writes 0 for none
        return name, found, name_start + name_size + extra_size + comment_size

    def name(self, data: bytes) -> str:
        try:
            name = data.decode("utf-8")
        except UnicodeDecodeError:
            self.refuse("with names in UTF-8", repr(data[:40]))
        parts = name.removesuffix("/").split("/")
        if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in parts):
            self.refuse("with plain relative names", repr(name[:40]))
        return name

    def wide(self, extra: bytes, *numbers: int) -> list[int]:
        """Return the numbers, with those that need 64 bits taken from the extra field."""
        wide, position = b"", 0
        while position + 4 <= len(extra):
            kind, size = struct.unpack_from("<2H", extra, position)
            if kind == 1:
                wide = extra[position + 4 : position + 4 + size]
            position += 4 + size
        result = []
        for number in numbers:
            if number == 0xFFFFFFFF:
                if len(wide) < 8:
                    self.refuse("that is whole", "an entry without its size")
                (number,) = struct.unpack_from("<Q", wide)
                wide = wide[8:]
            result.append(number)
        return result
