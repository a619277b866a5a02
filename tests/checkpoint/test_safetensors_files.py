"""Safetensors of others: the tensors that the library gives; headers that lie are refused before memory is taken."""

import json
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from segue.checkpoint.safetensors_files import DTYPES, INDEX, MAX_HEADER, SINGLE, open_safetensors
from segue.errors import CheckpointError
from tests.checkpoint.fuzz import no_acts


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(start: object, end: object, *, dtype: object = "F32", shape: object = (1,)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def refuse(path: Path, match: str) -> None:
    tracemalloc.start()
    try:
        with no_acts(), pytest.raises(CheckpointError, match=match):
            open_safetensors(path)
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


def test_equal_to_the_library(tmp_path) -> None:
    torch.manual_seed(0)
    numbers = torch.randn(3, 4) * 20
    values = {name: numbers.to(dtype) for name, dtype in DTYPES.items()}
    values |= {"empty": torch.zeros(0, 3), "scalar": torch.tensor(1.5)}
    save_file(values, tmp_path / "a.safetensors", {"format": "pt"})
    with no_acts():
        source = open_safetensors(tmp_path / "a.safetensors")
        found = {name: source.read(name) for name in source.tensors}
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert set(found) == set(file.keys()) == set(values)
        for name in file.keys():  # noqa: SIM118 (not a dict)
            expected = file.get_tensor(name)
            info = source.tensors[name]
            assert (info.shape, info.dtype) == (tuple(expected.shape), expected.dtype)
            assert found[name].shape == expected.shape
            assert torch.equal(found[name].reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))
    assert source.metadata == {"format": "pt"}


def test_tensors_are_in_the_order_of_the_file(tmp_path) -> None:
    path = write(tmp_path / "a.safetensors", {"b": entry(4, 8), "a": entry(0, 4)}, struct.pack("<2f", 1, 2))
    source = open_safetensors(path)
    assert list(source.tensors) == ["b", "a"]
    assert (source.read("a").item(), source.read("b").item()) == (1, 2)


def test_a_bool_is_zero_or_one(tmp_path) -> None:
    path = write(tmp_path / "a.safetensors", {"a": entry(0, 2, dtype="BOOL", shape=(2,))}, b"\x00\x07")
    assert open_safetensors(path).read("a").view(torch.uint8).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ({"a": entry(0, 8)}, "as many bytes as its shape needs; got 8"),
        ({"a": entry(0, 4, shape=(2**40,))}, "as its shape needs"),
        ({"a": entry(0, 2**42, shape=(2**40,))}, "must be whole; got 4 bytes of numbers where its header says 4,398"),
        ({"a": entry(0, 4, shape=(2**62,) * 16)}, "as its shape needs"),
        ({"a": entry(0, 0, shape=(0, 2**62, 2**62)), "b": entry(0, 4)}, "as its shape needs"),
        ({"a": entry(4, 8)}, "one behind the other"),
        ({"a": entry(0, 4), "b": entry(0, 4)}, "one behind the other"),
        ({"a": entry(4, 0)}, "as its shape needs"),
        ({"a": entry(-4, 0)}, "two offsets"),
        ({"a": entry(0, 10**400)}, "two offsets"),
        ({"a": entry(0, 4.0)}, "two offsets"),
        ({"a": entry(0, 4, shape=(True,))}, "a shape of at most 16 sizes and two offsets"),
        ({"a": entry(0, 4, shape="1")}, "a shape of at most 16 sizes and two offsets"),
        ({"a": entry(0, 4, shape=(1,) * 65)}, "a shape of at most 16 sizes and two offsets"),
        ({"a": entry(0, 4, dtype="F4")}, "a known dtype"),
        ({"a": entry(0, 4, dtype=["F32"])}, "a known dtype"),
        ({"a": {**entry(0, 4), "data_offsets": [0]}}, "two offsets"),
        ({"a": 1}, "a known dtype"),
        ({"a\x1b": entry(0, 4)}, "printable names"),
        ({"\ud800": entry(0, 4)}, "printable names"),
        ({"a" * 600: entry(0, 4)}, "at most 512"),
        ({"__metadata__": 1, "a": entry(0, 4)}, "texts as __metadata__"),
        ({"__metadata__": {"x": 1}, "a": entry(0, 4)}, "texts as __metadata__"),
        ({}, "must be whole; got 4 bytes"),
        ([1], "JSON object; got a list"),
        (b'{"a": 1, "a": 2}', "the key 'a' twice"),
        (b'{"a": NaN}', "NaN where a number should be"),
        (b'{"a": ' + b"9" * 5000 + b"}", "in JSON"),
        (b"[" * 100_000, "in JSON"),
        (b"\xff\xfe{}", "in JSON"),
        (b"{", "all there"),
    ],
)
def test_hostile_headers(tmp_path, header: object, match: str) -> None:
    refuse(write(tmp_path / "a.safetensors", header, bytes(4)), match)


@pytest.mark.parametrize("length", [0, 1, 100, MAX_HEADER + 1, 2**40, 2**64 - 1])
def test_lengths_of_headers(tmp_path, length: int) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    refuse(path, f"all there; got a header of {length:,} bytes in a file of 10")


def test_truncated_and_missing_files(tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.ones(3)}, path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        refuse(path, "must")
    path.write_bytes(data + b"x")
    refuse(path, "must be whole; got 13 bytes")
    refuse(tmp_path / "none.safetensors", r"must be a readable file.*Check the path")


def test_a_file_that_shrinks_after_it_was_opened(tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.ones(3)}, path)
    source = open_safetensors(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="must have all its numbers"):
        source.read("a")


@pytest.fixture
def folder(tmp_path) -> Path:
    save_file({"a": torch.ones(1), "b": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"c": torch.ones(3)}, tmp_path / "two.safetensors")
    index(tmp_path, {"c": "two.safetensors", "a": "one.safetensors", "b": "one.safetensors"})
    return tmp_path


def index(folder: Path, where: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 24}, "weight_map": where}))


def test_sharded_folders(folder) -> None:
    for path in (folder, folder / INDEX):
        source = open_safetensors(path)
        assert list(source.tensors) == ["c", "a", "b"]
        assert source.read("c").tolist() == [1, 1, 1]
    save_file({"x": torch.ones(1)}, folder / SINGLE)
    assert list(open_safetensors(folder).tensors) == ["x"]


def test_shards_behind_links_as_in_the_cache_of_the_hub(folder) -> None:
    (folder / "blobs").mkdir()
    (folder / "two.safetensors").rename(folder / "blobs" / "1234")
    (folder / "two.safetensors").symlink_to("blobs/1234")
    assert open_safetensors(folder).read("c").tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ({"a": "one.safetensors", "c": "two.safetensors"}, r"got 1 that it does not list .* first 'b' in one"),
        ({"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}, "exactly the tensors"),
        ({"a": "one.safetensors", "b": "one.safetensors", "d": "one.safetensors"}, "exactly the tensors"),
        ({"a": "three.safetensors"}, "must be a readable file"),
        ({"a": "../one.safetensors"}, "must name files beside it"),
        ({"a": "/etc/passwd"}, "must name files beside it"),
        ({"a": "..\\one"}, "must name files beside it"),
        ({"a": "C:one"}, "must name files beside it"),
        ({"a": ".."}, "must name files beside it"),
        ({"a": ""}, "must name files beside it"),
        ({"a": "x\x00y"}, "must name files beside it"),
        ({"a": 1}, "must name files beside it"),
        ({"a": ["one.safetensors"]}, "must name files beside it"),
        ({}, "must have a weight_map"),
        ([], "must have a weight_map"),
        (None, "must have a weight_map"),
    ],
)
def test_hostile_indexes(folder, where: object, match: str) -> None:
    index(folder, where)
    refuse(folder, match)


def test_an_index_that_is_too_long(folder) -> None:
    with (folder / INDEX).open("r+b") as file:
        file.truncate(MAX_HEADER + 1)
    with pytest.raises(CheckpointError, match=f"at most {MAX_HEADER:,} bytes"):
        open_safetensors(folder)
