"""Encodings used in TensorFlow's index: varints, protocol buffers without a schema, Snappy.

Everything works on bytes in memory and within given limits. Invalid data raises MalformedError; a caller that knows the
file's name turns that into a CheckpointError.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class MalformedError(Exception):
    """Raised for bytes that are not in the format; the message has the rule and the value."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, less than 2^64, and the position after it."""
    value = 0
    for place, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if value >> 64:
                raise MalformedError(f"a number must have 64 bits; got {value:#x}")
            return value, position + place + 1
    raise MalformedError(f"a number must end within 10 bytes and the data; got none at byte {position} of {len(data)}")


def varint(value: int) -> bytes:
    """Encode a number >= 0 with seven bits per byte, the lowest first."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message in order: number, and an int or, for strings and messages, bytes."""
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise MalformedError("a field must have a number from 1; got 0")
        if kind == VARINT:
            value, position = read_varint(data, position)
            yield number, value
            continue
        if kind == BYTES:
            size, position = read_varint(data, position)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise MalformedError(f"field {number} must have wire type 0, 1, 2 or 5; got {kind}")
        if size > len(data) - position:
            raise MalformedError(f"field {number} must end within its message; got {size} bytes at {position}")
        raw = data[position : position + size]
        position += size
        yield number, raw if kind == BYTES else int.from_bytes(raw, "little")


def integer(value: int | bytes) -> int:
    """Return a field as a signed 64-bit integer."""
    if isinstance(value, bytes):
        raise MalformedError(f"a number must stand where {len(value)} bytes do")
    return value - (1 << 64) if value >> 63 else value


def message(value: int | bytes) -> bytes:
    """Return a field as the bytes of an embedded message."""
    if isinstance(value, int):
        raise MalformedError(f"a message must stand where the number {value} does")
    return value


def number_field(number: int, value: int) -> bytes:
    """Encode a field with a number >= 0; zero is the default and not written."""
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def fixed32_field(number: int, value: int) -> bytes:
    """Encode a field of four bytes; zero is the default and not written."""
    return varint(number << 3 | FIXED32) + value.to_bytes(4, "little") if value else b""


def message_field(number: int, value: bytes) -> bytes:
    """Encode an embedded message; written even if empty."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def unsnappy(data: bytes, *, limit: int) -> bytes:
    """Decompress a Snappy block of at most `limit` bytes."""
    size, position = read_varint(data, 0)
    if size > limit:
        raise MalformedError(f"a compressed block must hold at most {limit} bytes; got {size}")
    result = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        if tag & 3 == 0:  # a literal
            length, position = _literal_length(tag, data, position)
            if length > len(data) - position:
                raise MalformedError(
                    f"a literal must end within its compressed block; got {length} bytes at {position}"
                )
            result += data[position : position + length]
            position += length
        else:  # a copy of earlier output
            width = (1, 2, 4)[(tag & 3) - 1]
            offset = int.from_bytes(data[position : position + width], "little")
            length = (tag >> 2) + 1
            if width == 1:
                offset |= tag >> 5 << 8
                length = (tag >> 2 & 7) + 4
            if position + width > len(data) or not 0 < offset <= len(result):
                raise MalformedError(f"a copy must begin in what is decoded; got {offset} back from {len(result)}")
            position += width
            start = len(result) - offset
            chunk = result[start : start + length]
            result += (chunk * (length // len(chunk) + 1))[:length]  # a copy may overlap itself
        if len(result) > size:
            raise MalformedError(f"a compressed block must decode to the {size} bytes it names; got more")
    if len(result) != size:
        raise MalformedError(f"a compressed block must decode to the {size} bytes it names; got {len(result)}")
    return bytes(result)


def _literal_length(tag: int, data: bytes, position: int) -> tuple[int, int]:
    width = (tag >> 2) - 59
    if width <= 0:
        return (tag >> 2) + 1, position
    return int.from_bytes(data[position : position + width], "little") + 1, position + width
