"""TensorFlow's checkpoints: the original files are read, and written again byte for byte."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from segue.checkpoint.tensorflow import open_tensorflow, write_tensorflow
from segue.checkpoint.tensorflow import table as table_module
from segue.checkpoint.tensorflow.crc32c import crc32c, masked
from segue.checkpoint.tensorflow.entries import NUMBERS, Entry, Slice, slice_key
from segue.checkpoint.tensorflow.table import read_table, write_table
from segue.errors import CheckpointError
from tests.checkpoint.tensorflow_files import A1, DATA, assert_same, beside, variables, write_files
from tests.originals import FIXTURES

INDEXES = sorted(FIXTURES.glob("*/*/*.index"))

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
