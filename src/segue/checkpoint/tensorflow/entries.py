"""Values of TensorFlow's index: the header, and for each tensor its type, shape and location.

These are the messages BundleHeaderProto and BundleEntryProto of tensor_bundle.proto. They are not trusted: a number
that no valid checkpoint has raises MalformedError. The reader checks the locations against the data files.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch

from segue.checkpoint.tensorflow.wire import (
    MalformedError,
    fixed32_field,
    integer,
    message,
    message_field,
    number_field,
    read_fields,
    varint,
)

HEADER_KEY: Final = b""
VERSION: Final = 1
SLICE_MARK: Final = b"\0"  # prefix of slice keys; no tensor's name begins with it
MAX_DIMENSIONS: Final = 32
MAX_ENTRY: Final = 1 << 20  # bytes; enough for a hundred thousand slices

DTYPES: Final = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    4: torch.uint8,
    5: torch.int16,
    6: torch.int8,
    9: torch.int64,
    10: torch.bool,
    14: torch.bfloat16,
    19: torch.float16,
}
NUMBERS: Final = {dtype: number for number, dtype in DTYPES.items()}
OTHER_TYPES: Final = {7: "string", 8: "complex64", 18: "complex128", 20: "resource", 21: "variant"}

# Start and length for each dimension; a length of None is the whole dimension.
Slice = tuple[tuple[int, int | None], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A tensor or a slice of one, and the location of its bytes; a sliced tensor has slices instead of bytes."""

    type_number: int
    shape: tuple[int, ...]
    shard: int = 0
    offset: int = 0
    size: int = 0
    checksum: int = 0
    """CRC-32C of the bytes, masked as TensorFlow stores it."""
    slices: tuple[Slice, ...] = ()

    @property
    def dtype(self) -> torch.dtype | None:
        """Dtype; None for strings and other types that hold no numbers."""
        return DTYPES.get(self.type_number)


def read_header(value: bytes) -> int:
    """Return the number of data files."""
    num_shards, big_endian, producer, min_consumer = 0, False, 0, 0
    for number, field in read_fields(value):
        if number == 1:
            num_shards = integer(field)
        elif number == 2:
            big_endian = integer(field) != 0
        elif number == 3:
            for key, part in read_fields(message(field)):
                producer = integer(part) if key == 1 else producer
                min_consumer = integer(part) if key == 2 else min_consumer
    if big_endian:
        raise MalformedError("its numbers must be little-endian; got big-endian ones")
    if min_consumer > VERSION:
        raise MalformedError(
            f"its version must be at most {VERSION}; got {producer}, to be read by {min_consumer} or later"
        )
    if not 0 < num_shards <= 99_999:
        raise MalformedError(f"it must have from 1 to 99999 data files; got {num_shards}")
    return num_shards


def write_header(num_shards: int = 1) -> bytes:
    """Return a header: little-endian, version 1."""
    return number_field(1, num_shards) + message_field(3, number_field(1, VERSION))


def read_entry(value: bytes) -> Entry:
    """Parse an entry; raise MalformedError unless numbers are in range, the shape is valid and the size matches it."""
    if len(value) > MAX_ENTRY:
        raise MalformedError(f"an entry must have at most {MAX_ENTRY} bytes; got {len(value)}")
    numbers = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    shape: list[int] = []
    slices: list[Slice] = []
    for number, field in read_fields(value):
        if number in numbers:
            numbers[number] = integer(field)
        elif number == 2:
            shape += _read_shape(message(field))
        elif number == 7:
            slices.append(_read_slice(message(field)))
    if min(numbers.values()) < 0 or numbers[1] == 0 or numbers[6] >> 32:
        raise MalformedError(f"type, data file, place, size and checksum must be numbers; got {list(numbers.values())}")
    if len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise MalformedError(f"a shape must have at most {MAX_DIMENSIONS} sizes, none negative; got {shape[:40]}")
    entry = Entry(
        type_number=numbers[1],
        shape=tuple(shape),
        shard=numbers[3],
        offset=numbers[4],
        size=numbers[5],
        checksum=numbers[6],
        slices=tuple(slices),
    )
    if entry.dtype is not None:
        # Strides must fit in 64 bits even if a size of zero leaves nothing to store.
        if math.prod(max(size, 1) for size in shape) * entry.dtype.itemsize >= 1 << 62:
            raise MalformedError(f"a shape must be one that can be stored; got {shape}")
        needed = 0 if slices else math.prod(shape) * entry.dtype.itemsize
        if entry.size != needed:
            raise MalformedError(f"{entry.dtype} of shape {shape} must take {needed} bytes; got {entry.size}")
    return entry


def write_entry(entry: Entry) -> bytes:
    """Return an entry as TensorFlow writes it: fields in order, zeros left out."""
    shape = b"".join(message_field(2, number_field(1, size)) for size in entry.shape)
    return b"".join(
        (
            number_field(1, entry.type_number),
            message_field(2, shape),
            number_field(3, entry.shard),
            number_field(4, entry.offset),
            number_field(5, entry.size),
            fixed32_field(6, entry.checksum),
            *(message_field(7, _write_slice(extents)) for extents in entry.slices),
        )
    )


def slice_key(name: bytes, extents: Slice) -> bytes:
    """Return the key of a tensor's slice, in TensorFlow's encoding that preserves the order of numbers."""
    escaped = b"".join({0: b"\0\xff", 255: b"\xff\0"}.get(byte, bytes([byte])) for byte in name)
    rank = bytes([1, len(extents)]) if extents else b"\0"
    numbers = (number for start, length in extents for number in (start, -1 if length is None else length))
    return SLICE_MARK + escaped + b"\0\1" + rank + b"".join(map(_ordered, numbers))


def _ordered(number: int) -> bytes:
    """Encode a number with seven bits per byte; the leading equal bits give the length and the sign."""
    magnitude = ~number if number < 0 else number
    length = max(magnitude.bit_length() // 7 + 1, 1)
    head = ((1 << length) - 1) << 7 * length  # `length` ones, then the number
    bits = (number & (1 << 8 * length) - 1) ^ head
    return bits.to_bytes(length, "big")


def _read_shape(value: bytes) -> list[int]:
    sizes = []
    for number, field in read_fields(value):
        if number == 2:
            sizes.append(next((integer(part) for key, part in read_fields(message(field)) if key == 1), 0))
        elif number == 3 and field != 0:
            raise MalformedError("a shape must be known; got one of unknown rank")
    return sizes


def _read_slice(value: bytes) -> Slice:
    extents: list[tuple[int, int | None]] = []
    for number, field in read_fields(value):
        if number == 1:
            start, length = 0, None
            for key, part in read_fields(message(field)):
                start = integer(part) if key == 1 else start
                length = integer(part) if key == 2 else length
            if start < 0 or (length is not None and length < 0) or len(extents) == MAX_DIMENSIONS:
                raise MalformedError(
                    f"a slice must have at most {MAX_DIMENSIONS} extents from 0 up; got {start}, {length}"
                )
            extents.append((start, length))
    return tuple(extents)


def _write_slice(extents: Slice) -> bytes:
    def extent(start: int, length: int | None) -> bytes:
        # A length is a oneof field, so it is written even if zero.
        return number_field(1, start) + (b"" if length is None else b"\x10" + varint(length))

    return b"".join(message_field(1, extent(start, length)) for start, length in extents)
