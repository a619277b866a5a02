"""Damaged and hostile TensorFlow checkpoints are refused, in blocks of Snappy too."""

import itertools
import random
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from segue.checkpoint.tensorflow import open_tensorflow
from segue.checkpoint.tensorflow import table as table_module
from segue.checkpoint.tensorflow.crc32c import crc32c, masked
from segue.checkpoint.tensorflow.entries import Entry
from segue.checkpoint.tensorflow.table import read_table, write_table
from segue.checkpoint.tensorflow.wire import MalformedError, unsnappy, varint
from segue.errors import CheckpointError
from tests.checkpoint.tensorflow_files import A1, DATA, assert_same, beside, variables, write_files

# ------------------------------------------------------------------------------------------- broken files


@pytest.fixture
def copy(tmp_path) -> Path:
    for suffix in (".index", DATA):
        beside(tmp_path / "m", suffix).write_bytes(beside(A1, suffix).read_bytes())
    return tmp_path / "m"


def test_missing_and_short_data(copy) -> None:
    data = beside(copy, DATA).read_bytes()
    beside(copy, DATA).write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match=f"must have at least {len(data)} bytes; got {len(data) - 1}"):
        open_tensorflow(copy)
    beside(copy, DATA).unlink()
    with pytest.raises(CheckpointError, match="00000-of-00001 must be a file; got none"):
        open_tensorflow(copy)
    beside(copy, DATA).mkdir()
    with pytest.raises(CheckpointError, match="must be a file"):
        open_tensorflow(copy)


def test_changed_data(copy) -> None:
    source = open_tensorflow(copy)
    data = bytearray(beside(copy, DATA).read_bytes())
    data[12] ^= 1
    beside(copy, DATA).write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model/lm_loss/bias in .* must have the checksum a83ed4b0; got"):
        source.read("model/lm_loss/bias")
    assert source.read("global_step").shape == ()
    beside(copy, DATA).write_bytes(data[:12])
    with pytest.raises(CheckpointError, match="must hold 256 bytes of model/lm_loss/bias; got 4"):
        source.read("model/lm_loss/bias")


def test_no_memory(copy, monkeypatch) -> None:
    def empty(*_: object, **__: object) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    source = open_tensorflow(copy)
    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(CheckpointError, match="model/lm_loss/bias must fit in memory"):
        source.read("model/lm_loss/bias")


def test_any_change_of_the_index_is_noticed(copy) -> None:
    """Every bit: in a block the checksum says so, in the footer the magic and the places do."""
    index = beside(copy, ".index").read_bytes()
    padding = range(len(index) - 48 + 6, len(index) - 8)
    for place in itertools.chain(range(0, len(index), 7), range(len(index) - 60, len(index))):
        changed = bytearray(index)
        changed[place] ^= 1 << place % 8
        beside(copy, ".index").write_bytes(changed)
        if place in padding:
            open_tensorflow(copy)
        else:
            with pytest.raises(CheckpointError):
                open_tensorflow(copy)
    for size in range(0, len(index), 11):
        beside(copy, ".index").write_bytes(index[:size])
        with pytest.raises(CheckpointError, match="must end in a footer"):
            open_tensorflow(copy)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Entry(type_number=1, shape=(2,), size=8, offset=4), "must have at least 12 bytes; got 8"),
        (Entry(type_number=1, shape=(1 << 40,), size=1 << 42), "must have at least 4398046511104 bytes"),
        (Entry(type_number=1, shape=(1 << 40, 1 << 40)), "a shape must be one that can be stored"),
        (Entry(type_number=1, shape=(0, 1 << 62)), "a shape must be one that can be stored"),
        (Entry(type_number=1, shape=(3,), size=8), "must take 12 bytes; got 8"),
        (Entry(type_number=1, shape=(1,) * 33, size=4), "at most 32 sizes"),
        (Entry(type_number=1, shape=(2,), size=8, shard=1), "must be below 1; got 1"),
        (Entry(type_number=1, shape=(), slices=((),) * 600_000), "at most 1048576 bytes"),
        (Entry(type_number=0, shape=()), "must be numbers"),
        (Entry(type_number=1, shape=(2,), size=8, offset=(1 << 64) - 4), "must be numbers"),
        (Entry(type_number=10, shape=(8,), size=8), "must be 0 or 1; got 7"),
    ],
)
def test_hostile_entries(tmp_path, entry: Entry, message: str) -> None:
    raw = bytes(range(8))
    entries = {
        b"w": Entry(**{name: getattr(entry, name) for name in entry.__slots__} | {"checksum": masked(crc32c(raw))})
    }
    write_files(tmp_path / "m", entries, [raw])
    with pytest.raises(CheckpointError, match=message):
        open_tensorflow(tmp_path / "m").read("w")


def test_overlapping_tensors(tmp_path) -> None:
    entries = {name: Entry(type_number=4, shape=(5,), size=5, offset=at) for name, at in ((b"a", 0), (b"b", 4))}
    write_files(tmp_path / "m", entries, [bytes(9)])
    with pytest.raises(CheckpointError, match="must not overlap; got one at byte 4 and one before it up to 5"):
        open_tensorflow(tmp_path / "m")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "from 1 to 99999 data files; got 0"),
        (b"\x08\x01\x10\x01", "little-endian"),
        (b"\x08\x01\x1a\x04\x08\x03\x10\x02", "at most 1; got 3, to be read by 2 or later"),
        (b"\x0a\x00", "a number must stand"),
        (b"\x0b", "wire type"),
        (b"\x08" + b"\xff" * 10, "must end within 10 bytes"),
    ],
)
def test_hostile_headers(tmp_path, header: bytes, message: str) -> None:
    beside(tmp_path / "m", ".index").write_bytes(write_table([(b"", header)]))
    with pytest.raises(CheckpointError, match=message):
        open_tensorflow(tmp_path / "m")


def sealed(block: bytes, kind: int = 0) -> bytes:
    return block + bytes([kind]) + masked(crc32c(bytes([kind]), crc32c(block))).to_bytes(4, "little")


def one_block_table(block: bytes, kind: int = 0) -> bytes:
    """A table with this as its only block of data, whatever it holds."""
    data, empty = sealed(block, kind), sealed(bytes(4) + b"\1\0\0\0")
    handle = varint(0) + varint(len(block))
    index = b"\0\1" + bytes([len(handle)]) + b"\xff" + handle + bytes(4) + b"\1\0\0\0"
    handles = varint(len(data)) + varint(len(empty) - 5) + varint(len(data) + len(empty)) + varint(len(index))
    return data + empty + sealed(index) + handles.ljust(40, b"\0") + table_module.MAGIC


def test_keys_that_multiply_are_refused_quickly() -> None:
    """A long key that each following entry of four bytes extends by one would take gigabytes."""
    long = b"\0" + varint(1 << 20) + b"\0" + b"k" * (1 << 20)
    more = b"".join(varint((1 << 20) + i) + b"\1\0k" for i in range(100_000))
    start = time.process_time()
    with pytest.raises(MalformedError, match="at most 100000 keys of 16777216 bytes in total"):
        list(read_table(one_block_table(long + more + bytes(4) + b"\1\0\0\0")))
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (b"\1\0\0" + bytes(8), "share at most the 0 bytes"),
        (b"\0\5\0ab" + bytes(8), "end within"),
        (b"\0\0" + b"\xff" * 9 + b"\1" + bytes(8), "end within"),
        (b"\0\0\0" + b"\xff\xff\xff\xff", "must hold its restart points; got 4294967295"),
        (b"\1\0", "must hold its restart points"),
        (b"\0\1\0b\0\1\0a" + bytes(4) + b"\1\0\0\0", "keys must ascend; got b'a' after b'b'"),
        (b"\0\1\0b\0\1\0b" + bytes(4) + b"\1\0\0\0", "keys must ascend"),
    ],
)
def test_hostile_blocks(block: bytes, message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        list(read_table(one_block_table(block)))


# ------------------------------------------------------------------------------------------------- Snappy


def snappy(data: bytes) -> bytes:
    """A small compressor: copies of all three widths where eight bytes have been before, else literals."""
    result, position, seen, literal = bytearray(varint(len(data))), 0, {}, bytearray()

    def flush() -> None:
        if literal:
            size = len(literal) - 1
            if size < 60:
                result.append(size << 2)
            else:
                result.extend(bytes([61 << 2]) + size.to_bytes(2, "little"))
            result.extend(literal)
            literal.clear()

    while position < len(data):
        key = data[position : position + 8]
        start = seen.get(key) if len(key) == 8 else None
        seen[key] = position
        if start is None:
            literal.append(data[position])
            position += 1
            if len(literal) == 1 << 16:
                flush()
            continue
        flush()
        length = 8
        while length < 64 and position + length < len(data) and data[start + length] == data[position + length]:
            length += 1
        offset = position - start
        if length < 12 and offset < 2048:
            result.extend([1 | (length - 4) << 2 | offset >> 8 << 5, offset & 255])
        elif offset < 1 << 16 and offset % 3:
            result.extend(bytes([2 | (length - 1) << 2]) + offset.to_bytes(2, "little"))
        else:
            result.extend(bytes([3 | (length - 1) << 2]) + offset.to_bytes(4, "little"))
        position += length
    flush()
    return bytes(result)


def test_snappy() -> None:
    known = b"\x14\x04ab\x4a\x02\x00"  # "ab", then 19 bytes from two back: over itself
    assert unsnappy(b"\x15" + known[1:], limit=100) == (b"ab" * 11)[:21]
    assert unsnappy(b"\0", limit=0) == b""
    generator = random.Random(5)
    for size in (0, 1, 59, 60, 61, 300, 70_000, 200_000):
        data = b"".join(generator.choice((b"model/", b"kernel", generator.randbytes(9))) for _ in range(size // 6))
        assert unsnappy(snappy(data), limit=len(data)) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xff\xff\xff\x0f", "at most 1000 bytes; got 4294967295"),
        (b"\x04\x01\x01", "must begin in what is decoded"),
        (b"\x04\x0cab", "must end within"),
        (b"\x04\xfc\xff\xff\xff\xff", "must end within"),
        (b"\x02\x08abc", "got more"),
        (b"\x05\x08abc", "got 3"),
        (b"\x08\x00a\x02", "must begin in what is decoded"),
        (b"", "must end within 10 bytes"),
    ],
)
def test_hostile_snappy(data: bytes, message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        unsnappy(data, limit=1000)


def test_snappy_takes_time_in_proportion() -> None:
    """Many copies of one byte from far back: what lies between must not be touched each time."""
    size = 1 << 18
    literal = bytes([62 << 2]) + (size - 1).to_bytes(3, "little") + bytes(size)
    start = time.process_time()
    unsnappy(varint(2 * size) + literal + (b"\x03" + size.to_bytes(4, "little")) * size, limit=2 * size)
    assert time.process_time() - start < 5


def test_a_compressed_index(copy) -> None:
    index = beside(copy, ".index").read_bytes()
    size = index[:-48].rindex(b"\0\0\0\0\1\0\0\0\0\xc0\xf2\xa1\xb0") - 5  # up to the empty metaindex block
    compressed = snappy(index[:size])
    assert len(compressed) < size
    beside(copy, ".index").write_bytes(one_block_table(compressed, kind=1))
    assert_same(open_tensorflow(copy), variables(beside(A1, ".index")))
    beside(copy, ".index").write_bytes(one_block_table(compressed, kind=2))
    with pytest.raises(CheckpointError, match="got compression 2"):
        open_tensorflow(copy)
