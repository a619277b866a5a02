"""TensorFlow's checkpoints: the original files are read, and written again byte for byte."""

import itertools
import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.checkpoint.source import TensorInfo, TensorSource
from segue.checkpoint.tensorflow import open_tensorflow, write_tensorflow
from segue.checkpoint.tensorflow import table as table_module
from segue.checkpoint.tensorflow.crc32c import crc32c, masked
from segue.checkpoint.tensorflow.entries import NUMBERS, Entry, Slice, slice_key, write_entry, write_header
from segue.checkpoint.tensorflow.table import read_table, write_table
from segue.checkpoint.tensorflow.wire import MalformedError, unsnappy, varint
from segue.errors import CheckpointError
from tests.originals import FIXTURES, arrays

INDEXES = sorted(FIXTURES.glob("*/*/*.index"))
A1 = FIXTURES / "xlnet" / "A1_gelu_untied" / "model.ckpt"
DATA = ".data-00000-of-00001"


def beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


def variables(index: Path) -> dict[str, Tensor]:
    """The same numbers as the checkpoint's, from the arrays that the models are tested with."""
    values = arrays(index.with_name(index.name.split(".")[0] + ".npz"))
    return {name: torch.from_numpy(np.asarray(value)) for name, value in values.items()}


def assert_same(source: TensorSource, expected: dict[str, Tensor]) -> None:
    assert dict(source.tensors) == {
        name: TensorInfo(shape=tuple(value.shape), dtype=value.dtype) for name, value in expected.items()
    }
    for name, value in expected.items():
        found = source.read(name)
        assert found.dtype == value.dtype
        assert torch.equal(found.reshape(-1).view(torch.uint8), value.contiguous().reshape(-1).view(torch.uint8)), name


# ------------------------------------------------------------------------------------- the original files


def test_original_checkpoint_is_read() -> None:
    source = open_tensorflow(A1)
    assert_same(source, variables(beside(A1, ".index")))
    assert list(source.tensors) == sorted(source.tensors)
    assert source.skipped == {}


@pytest.mark.parametrize("index", INDEXES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_original_files_are_written_byte_for_byte(index: Path, tmp_path) -> None:
    """The index has the checksum of every tensor, so an equal index is equal data."""
    prefix = tmp_path / index.name.removesuffix(".index")
    write_tensorflow(prefix, variables(index))
    assert beside(prefix, ".index").read_bytes() == index.read_bytes()
    original = beside(index.with_name(prefix.name), DATA)
    assert not original.exists() or beside(prefix, DATA).read_bytes() == original.read_bytes()
    assert_same(open_tensorflow(prefix), variables(index))


def test_all_originals_are_there() -> None:
    assert len(INDEXES) == 8
    assert beside(A1, DATA).exists()


# ------------------------------------------------------------------------------------------ out and back


def test_every_dtype_and_shape(tmp_path) -> None:
    tensors = {
        f"{str(dtype).removeprefix('torch.')}/{shape}": (torch.randn(shape) * 50).to(dtype)
        for dtype in NUMBERS
        for shape in [(), (0,), (3, 0, 2), (1,), (5, 7)]
    }
    tensors |= {
        "strided": torch.randn(6, 4).T[::2],
        "unicode/权重": torch.ones(2),
        "grad": torch.ones(1).requires_grad_(),
    }
    tensors["special"] = torch.tensor([float("nan"), float("inf"), -0.0])
    write_tensorflow(tmp_path / "deep" / "model.ckpt", tensors, global_step=1 << 40)
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == [
        "checkpoint",
        f"model.ckpt{DATA}",
        "model.ckpt.index",
    ]
    assert_same(open_tensorflow(tmp_path / "deep" / "model.ckpt"), tensors | {"global_step": torch.tensor(1 << 40)})


def test_several_blocks(tmp_path) -> None:
    entries = {b"": b"header"} | {f"layer_{i:04d}/{'x' * (i % 50)}".encode(): b"v" * (i % 90) for i in range(3000)}
    for block_size in (1, 100, 4096, 1 << 18):
        assert dict(read_table(write_table(entries.items(), block_size=block_size))) == entries
    assert list(read_table(write_table([]))) == []
    tensors = {f"{i:04d}/{'scope/' * 40}": torch.tensor([i]) for i in range(1200)}  # more than one block of 256 KB
    write_tensorflow(tmp_path / "m", tensors)
    assert beside(tmp_path / "m", ".index").stat().st_size > table_module.BLOCK_SIZE
    assert_same(open_tensorflow(tmp_path / "m"), tensors)


def test_memory_is_its_own() -> None:
    source = open_tensorflow(A1)
    first = source.read("model/lm_loss/bias")
    first.zero_()
    assert source.read("model/lm_loss/bias").abs().sum() > 0
    assert first.data_ptr() % 64 == 0


def test_what_cannot_be_written(tmp_path) -> None:
    with pytest.raises(CheckpointError, match=r"w must be one of float32, .*; got torch\.complex64"):
        write_tensorflow(tmp_path / "m", {"w": torch.zeros(1, dtype=torch.complex64)})
    with pytest.raises(CheckpointError, match="must have a name"):
        write_tensorflow(tmp_path / "m", {"": torch.zeros(1)})
    with pytest.raises(CheckpointError, match="global_step must be given once"):
        write_tensorflow(tmp_path / "m", {"global_step": torch.tensor(1)}, global_step=1)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch) -> None:
    tensors = {"w": torch.arange(5)}
    write_tensorflow(tmp_path / "m", tensors)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("segue.checkpoint.tensorflow.write.write_table", lambda entries: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_tensorflow(tmp_path / "m", {"w": torch.zeros(50)})
    assert sorted(tmp_path.iterdir()) == before
    assert_same(open_tensorflow(tmp_path / "m"), tensors)
    with pytest.raises(CheckpointError, match="must be writable"):
        write_tensorflow(tmp_path / "m.index" / "below", tensors)


# ---------------------------------------------------------------------------------------- slices, shards


def write_files(prefix: Path, entries: dict[bytes, Entry], shards: list[bytes]) -> None:
    values = {b"": write_header(len(shards))} | {key: write_entry(entry) for key, entry in sorted(entries.items())}
    beside(prefix, ".index").write_bytes(write_table(values.items()))
    for number, data in enumerate(shards):
        beside(prefix, f".data-{number:05d}-of-{len(shards):05d}").write_bytes(data)


def sliced(name: str, value: Tensor, cuts: list[Slice]) -> tuple[dict[bytes, Entry], list[bytes]]:
    """A tensor with each slice in a data file of its own, as partitioned variables of several machines are."""
    kind, shape = NUMBERS[value.dtype], tuple(value.shape)
    entries, shards = {name.encode(): Entry(type_number=kind, shape=shape, slices=tuple(cuts))}, []
    for number, cut in enumerate(cuts):
        part = value[tuple(slice(start, None if size is None else start + size) for start, size in cut)].contiguous()
        raw = part.numpy().tobytes()
        entries[slice_key(name.encode(), cut)] = Entry(
            type_number=kind, shape=tuple(part.shape), shard=number, size=len(raw), checksum=masked(crc32c(raw))
        )
        shards.append(raw)
    return entries, shards


def test_slices_of_several_shards_are_put_together(tmp_path) -> None:
    value = torch.randn(300, 5)
    rows = [((0, 100), (0, None)), ((100, 150), (0, None)), ((250, 50), (0, None))]
    tiles = [((row, 150), (column, size)) for row in (0, 150) for column, size in ((0, 2), (2, 3))]
    for cuts in (rows, tiles):
        entries, shards = sliced("embedding/table", value, cuts)
        write_files(tmp_path / "m", entries, shards)
        assert_same(open_tensorflow(tmp_path / "m"), {"embedding/table": value})


def test_keys_of_slices() -> None:
    """The examples in TensorFlow's ordered_code.cc, and its order: keys sort as their numbers do."""
    head = b"\0w\0\1\1\1"
    assert slice_key(b"w", ((0x424242, 0),)) == head + bytes.fromhex("f0424242") + b"\x80"
    assert slice_key(b"w", ((0, None),)) == head + b"\x80\x7f"
    assert slice_key(b"a\0\xff", ()) == b"\0a\0\xff\xff\0\0\1\0"
    numbers = sorted({(1 << bits) + step for bits in range(62) for step in (-1, 0, 1)})
    keys = [slice_key(b"w", ((number, 1),)) for number in numbers]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        ([((0, 2), (0, None)), ((1, 2), (0, None))], "must be covered by its 2 slices; got 3 places"),
        ([((0, 2), (0, None))], "must have 12 elements together; got 6"),
        ([((0, 4),)], "must have 2 extents"),
        ([((0, 2), (0, None)), ((0, 2), (0, None))], "once each"),
    ],
)
def test_slices_that_do_not_fit(tmp_path, cuts: list[Slice], message: str) -> None:
    write_files(tmp_path / "m", *sliced("w", torch.randn(4, 3), cuts))
    with pytest.raises(CheckpointError, match=message):
        open_tensorflow(tmp_path / "m").read("w")


def test_slices_that_are_not_there(tmp_path) -> None:
    entries, shards = sliced("w", torch.randn(4, 3), [((0, 2), (0, None)), ((2, 2), (0, None))])
    for key in entries:
        write_files(tmp_path / "m", {k: entry for k, entry in entries.items() if k != key}, shards)
        with pytest.raises(CheckpointError, match=r"slices must be there|must belong to one tensor"):
            open_tensorflow(tmp_path / "m")
    outside = entries | {b"w": Entry(type_number=1, shape=(3, 3), slices=entries[b"w"].slices)}
    write_files(tmp_path / "m", outside, shards)
    with pytest.raises(CheckpointError, match=r"inside of \(3, 3\)"):
        open_tensorflow(tmp_path / "m")


def test_strings_are_skipped(tmp_path) -> None:
    entries = {
        b"_CHECKPOINTABLE_OBJECT_GRAPH": Entry(type_number=7, shape=(), size=9),
        b"z": Entry(type_number=99, shape=()),
    }
    write_files(tmp_path / "m", entries, [b"\4abcdefgh"])
    source = open_tensorflow(tmp_path / "m")
    assert source.tensors == {}
    assert source.skipped == {"_CHECKPOINTABLE_OBJECT_GRAPH": "string", "z": "TensorFlow's type 99"}
    with pytest.raises(CheckpointError, match=r"must be a tensor of .*; got string"):
        source.read("_CHECKPOINTABLE_OBJECT_GRAPH")
    with pytest.raises(CheckpointError, match="got no such name"):
        source.read("w")


# -------------------------------------------------------------------------------------------------- paths


@pytest.fixture
def folder(tmp_path) -> Path:
    write_tensorflow(tmp_path / "model.ckpt-1", {"w": torch.tensor([1])})
    write_tensorflow(tmp_path / "model.ckpt-2", {"w": torch.tensor([2])})
    return tmp_path


def test_paths(folder) -> None:
    def read(path: Path | str) -> int:
        return int(open_tensorflow(path).read("w"))

    assert read(folder / "model.ckpt-1") == read(str(folder / "model.ckpt-1.index")) == 1
    assert read(folder) == 2
    for text in (
        'model_checkpoint_path: "model.ckpt-1"',
        'x: "y"\nmodel_checkpoint_path: "/gone/model.ckpt\\0551"\n',
        r'model_checkpoint_path: "C:\\x\\model.ckpt-1"',
    ):
        (folder / "checkpoint").write_text(text)
        assert read(folder) == 1
    for text in (
        "",
        'model_checkpoint_path: ".."',
        'model_checkpoint_path: "\\377"',
        'model_checkpoint_path: "a\\000"',
    ):
        (folder / "checkpoint").write_text(text)
        with pytest.raises(CheckpointError, match=r"checkpoint must (name|be readable)"):
            read(folder)
    (folder / "checkpoint").write_text("\n" * (1 << 20))
    with pytest.raises(CheckpointError, match="checkpoint must name"):
        read(folder)
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"')
    with pytest.raises(CheckpointError, match=r"model\.ckpt-3\.index must be a file of at most .* got none"):
        read(folder)
    (folder / "checkpoint").unlink()
    with pytest.raises(CheckpointError, match=r"must hold one .*; got model\.ckpt-1, model\.ckpt-2"):
        read(folder)
    (folder / "model.ckpt-2.index").unlink()
    assert read(folder) == 1
    for path in (folder / "nothing", folder / ".index", folder / ("x" * 300), folder / "a\0b"):
        with pytest.raises(CheckpointError):
            read(path)


def test_names_that_need_escapes(tmp_path) -> None:
    for name in ('a "b" 模型', "two\nlines"):
        write_tensorflow(tmp_path / name, {"w": torch.tensor([3])})
        assert open_tensorflow(tmp_path).prefix.name == name


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


# ------------------------------------------------------------------------------------------------- CRC-32C


def slow_crc32c(data: bytes, before: int = 0) -> int:
    value = before ^ 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_crc32c_of_rfc_3720() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 1000, 5684, 5685, 5686, 22_740, 22_741, 90_960, 90_961, 200_003])
def test_crc32c_is_the_slow_one(size: int) -> None:
    data = random.Random(size).randbytes(size)
    expected = slow_crc32c(data)
    assert crc32c(data) == crc32c(memoryview(data)) == crc32c(np.frombuffer(data, dtype=np.uint8)) == expected
    for cut in {0, 1, 2, 3, size // 2, size}:
        assert crc32c(data[cut:], crc32c(data[:cut])) == expected


def test_crc32c_of_several_pieces_is_quick() -> None:
    data = random.Random(1).randbytes(1 << 16) * 1000 + b"end"
    start = time.process_time()
    whole = crc32c(data)
    assert len(data) / (time.process_time() - start) > 100e6  # bytes a second; 2e9 to 4e9 is usual
    assert crc32c(data[1 << 25 :], crc32c(data[: 1 << 25])) == whole
