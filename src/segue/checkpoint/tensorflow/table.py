"""TensorFlow's index as a table (LevelDB's format): sorted keys with values, in blocks with checksums.

In: the bytes of a file, or keys and values. Out: keys and values, or bytes. Their meaning is left to entries.py.

A block is entries (length of the prefix shared with the previous key, rest of the key, value), then the restart points,
where a whole key is stored, then, outside of it, a byte for the compression and a masked checksum. The index block has
a key and a handle for each data block, and a footer at the end of the file has the handle of the index block.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from segue.checkpoint.tensorflow.crc32c import crc32c, masked
from segue.checkpoint.tensorflow.wire import MalformedError, read_varint, unsnappy, varint

MAGIC: Final = 0xDB4775248B80FB57.to_bytes(8, "little")
FOOTER_SIZE: Final = 48
TRAILER_SIZE: Final = 5
PLAIN, SNAPPY = 0, 1

# The values that TensorFlow uses.
BLOCK_SIZE: Final = 256 << 10
RESTART_INTERVAL: Final = 16

# More than any model needs, and small enough to hold in memory whatever the file claims.
MAX_BLOCK: Final = 4 << 20
MAX_ENTRIES: Final = 100_000
MAX_KEY_BYTES: Final = 16 << 20


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values in the order of the keys; each block is verified before its first entry."""
    if len(data) < FOOTER_SIZE or data[-len(MAGIC) :] != MAGIC:
        raise MalformedError(
            f"it must end in a footer with {MAGIC.hex()}; got {data[-len(MAGIC) :].hex() or 'nothing'}"
        )
    footer = data[-FOOTER_SIZE : -len(MAGIC)]
    metaindex, position = _read_handle(footer, 0)
    index, _ = _read_handle(footer, position)
    _block(data, *metaindex)  # unused, but must be intact in a complete file
    entries = key_bytes = 0

    def counted(block: bytes) -> Iterator[tuple[bytes, bytes]]:
        nonlocal entries, key_bytes
        for key, value in _read_entries(block):
            entries += 1
            key_bytes += len(key)
            if entries > MAX_ENTRIES or key_bytes > MAX_KEY_BYTES:
                raise MalformedError(
                    f"there must be at most {MAX_ENTRIES} keys of {MAX_KEY_BYTES} bytes in total; got more"
                )
            yield key, value

    end, last = 0, None
    for _, handle in counted(_block(data, *index)):
        (offset, size), _ = _read_handle(handle, 0)
        if offset < end:
            raise MalformedError(f"a block must begin after the one before, at byte {end}; got {offset}")
        end = offset + size + TRAILER_SIZE
        for key, value in counted(_block(data, offset, size)):
            if last is not None and key <= last:
                raise MalformedError(f"keys must ascend; got {key[:80]!r} after {last[:80]!r}")
            last = key
            yield key, value


def write_table(entries: Iterable[tuple[bytes, bytes]], *, block_size: int = BLOCK_SIZE) -> bytes:
    """Return the bytes of a table; keys must be ascending."""
    result, block, index = bytearray(), _Block(RESTART_INTERVAL), _Block(1)
    last, handle = b"", b""
    for key, value in entries:
        if handle:  # a block's key in the index is the shortest between its last key and the first of the next block
            index.add(_between(last, key), handle)
            handle = b""
        block.add(key, value)
        last = key
        if block.size >= block_size:
            handle = _append(result, block)
            block = _Block(RESTART_INTERVAL)
    if block.count:
        handle = _append(result, block)
    metaindex = _append(result, _Block(RESTART_INTERVAL))
    if handle:
        index.add(_after(last), handle)
    footer = metaindex + _append(result, index)
    return bytes(result) + footer.ljust(FOOTER_SIZE - len(MAGIC), b"\0") + MAGIC


def _read_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _block(data: bytes, offset: int, size: int) -> bytes:
    if offset + size + TRAILER_SIZE > len(data) - FOOTER_SIZE:
        raise MalformedError(f"a block must end within the {len(data)} bytes; got {size} bytes at {offset}")
    content, trailer = data[offset : offset + size], data[offset + size : offset + size + TRAILER_SIZE]
    stored, computed = int.from_bytes(trailer[1:], "little"), masked(crc32c(trailer[:1], crc32c(content)))
    if stored != computed:
        raise MalformedError(f"the block at byte {offset} must have the checksum {stored:08x}; got {computed:08x}")
    if trailer[0] == PLAIN:
        return content
    if trailer[0] == SNAPPY:
        return unsnappy(content, limit=MAX_BLOCK)
    raise MalformedError(f"a block must be plain (0) or Snappy (1); got compression {trailer[0]}")


def _read_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts  # restart points are for seeking; a sequential reader only needs the end
    if len(block) < 4 or end < 0:
        raise MalformedError(f"a block must hold its restart points; got {restarts} in {len(block)} bytes")
    key, position = b"", 0
    while position < end:
        shared, position = read_varint(block, position)
        unshared, position = read_varint(block, position)
        size, position = read_varint(block, position)
        if shared > len(key) or unshared + size > end - position:
            raise MalformedError(
                f"an entry must share at most the {len(key)} bytes of the key before and end within {end - position}; "
                f"got {shared} and {unshared + size}"
            )
        key = key[:shared] + block[position : position + unshared]
        position += unshared + size
        yield key, block[position - size : position]


class _Block:
    def __init__(self, restart_interval: int) -> None:
        self.count = 0
        self._interval = restart_interval
        self._entries = bytearray()
        self._restarts = [0]
        self._last = b""

    @property
    def size(self) -> int:
        return len(self._entries) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count and self.count % self._interval == 0:
            self._restarts.append(len(self._entries))
        elif self.count:
            shared = _common(self._last, key)
        self._entries += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self._last = key
        self.count += 1

    def finish(self) -> bytes:
        numbers = [*self._restarts, len(self._restarts)]
        return bytes(self._entries) + b"".join(number.to_bytes(4, "little") for number in numbers)


def _append(file: bytearray, block: _Block) -> bytes:
    """Append the block to the file and return its handle."""
    content, kind = block.finish(), bytes([PLAIN])
    handle = varint(len(file)) + varint(len(content))
    file += content + kind + masked(crc32c(kind, crc32c(content))).to_bytes(4, "little")
    return handle


def _common(a: bytes, b: bytes) -> int:
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _between(last: bytes, following: bytes) -> bytes:
    place = _common(last, following)
    if place < min(len(last), len(following)) and last[place] + 1 < following[place]:
        return last[:place] + bytes([last[place] + 1])
    return last


def _after(last: bytes) -> bytes:
    for place, byte in enumerate(last):
        if byte != 0xFF:
            return last[:place] + bytes([byte + 1])
    return last
