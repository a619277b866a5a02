"""Hand-made archives and pickles in the form of torch.save: nothing is run or taken on trust."""

import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch

from segue.checkpoint.pickles import PickledObject
from segue.checkpoint.torch_files import open_torch
from segue.checkpoint.torch_tree import MAX_DEPTH
from tests.checkpoint.torch_files import check, refuse, rewrite, write

# Hand-made pickles in an archive


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def value(thing: object) -> bytes:
    return pickle.dumps(thing, 2)[2:-1]


def storage(kind: bytes = name("torch", "FloatStorage"), key: object = "0", size: object = 6) -> bytes:
    return b"(" + value("storage") + kind + value(key) + value("cpu") + value(size) + b"tQ"


def tensor(place: bytes, offset: object = 0, shape: object = (6,), stride: object = (1,)) -> bytes:
    where = b"(" + place + value(offset) + value(shape) + value(stride)
    return name("torch._utils", "_rebuild_tensor_v2") + where + b"\x89}tR"


def archive(tmp_path: Path, data: bytes, storages: tuple[bytes, ...] = (bytes(24),)) -> Path:
    path = tmp_path / "made.pt"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("x/data.pkl", data)
        for number, content in enumerate(storages):
            made.writestr(f"x/data/{number}", content)
    return path


def named(inner: bytes) -> bytes:
    return b"\x80\x02}" + value("w") + inner + b"s."


def test_a_hand_made_archive(tmp_path) -> None:
    check(archive(tmp_path, named(tensor(storage()))), {"w": torch.zeros(6)})


@pytest.mark.parametrize(
    ("inner", "match"),
    [
        (tensor(storage(), shape=(7,)), "within its storage"),
        (tensor(storage(), offset=1), "within its storage"),
        (tensor(storage(), shape=(2**40,), stride=(0,)), "no number be there twice"),
        (tensor(storage(), shape=(2, 2), stride=(5, 2)), "within its storage"),
        (tensor(storage(), shape=(2**62, 2**62), stride=(1, 1)), "within its storage"),
        (tensor(storage(), shape=(0, 2**62, 2**62), stride=(1, 1, 1)), "within its storage"),
        (tensor(storage(), shape=(-1,)), "from 0 to"),
        (tensor(storage(), stride=(-1,)), "from 0 to"),
        (tensor(storage(), offset=-1), "from 0 to"),
        (tensor(storage(), offset=True), "from 0 to"),
        (tensor(storage(), offset=2**70), "from 0 to"),
        (tensor(storage(), shape=(6.0,)), "from 0 to"),
        (tensor(storage(), shape="6"), "tuple of at most 64"),
        (tensor(storage(), shape=(1,) * 65, stride=(1,) * 65), "tuple of at most 64"),
        (tensor(storage(), stride=(1, 1)), "a stride for each size; got 1 and 2"),
        (tensor(b"N"), "must have a storage; got None"),
        (tensor(storage(size=7)), "as its pickle says; got 24 bytes for 7 numbers"),
        (tensor(storage(size=2**59), shape=(2**59,)), "as its pickle says"),
        (tensor(storage(size=-1)), "size of 0 to"),
        (tensor(storage(size="6")), "size of 0 to"),
        (tensor(storage(key="9")), "got no bytes"),
        (tensor(storage(key="../data/0")), "got no bytes"),
        (tensor(storage(key=0)), "must have a key"),
        (tensor(storage(kind=name("os", "FloatStorage"))), "known type; got the name os.FloatStorage"),
        (tensor(storage(kind=name("torch", "QInt8Storage"))), "known type"),
        (tensor(storage(kind=b"N")), "known type"),
        (value("storage") + b"Q", "must be a tuple; got 'storage'"),
        (b")Q", "must be a tuple; got a tuple"),
        (value(("storage",)) + b"Q", "of a storage; got 'storage' and 0 more"),
        (value(("other", 1, 2, 3, 4)) + b"Q", "of a storage; got 'other'"),
        (value(([], 1, 2, 3, 4)) + b"Q", "of a storage; got a list"),
        (name("torch._utils", "_rebuild_tensor_v2") + b")R", "4 or more arguments; got 0"),
        (name("torch", "Size") + value("abc") + b"\x85R", "tuple of at most 64"),
        (name("torch._tensor", "_rebuild_from_type_v2") + b"(" + name("os", "system") + b"N)NtR", "known function"),
        (name("os", "system") + value(("touch canary",)) + b"R", "must hold named tensors; got none"),
    ],
)
def test_hand_made_pickles(tmp_path, inner: bytes, match: str) -> None:
    refuse(archive(tmp_path, named(inner)), match)


def test_foreign_calls_beside_the_weights_do_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    evil = name("os", "system") + value(("touch canary",)) + b"R"
    path = archive(tmp_path, b"\x80\x02}(" + value("w") + tensor(storage()) + value("evil") + evil + b"u.")
    check(path, {"w": torch.zeros(6)})
    root = open_torch(path).root
    assert isinstance(root, dict)
    assert isinstance(root["evil"], PickledObject)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def module(children: bytes) -> bytes:
    """A module with a parameter and children, given as opcodes of pairs."""
    state = b"}(" + value("_parameters") + b"}" + value("w") + tensor(storage()) + b"s" + value("_buffers") + b"}"
    return name("m", "M") + b")\x81" + state + value("_modules") + b"}(" + children + b"u" + b"u"


def test_modules_that_contain_themselves(tmp_path) -> None:
    data = b"\x80\x02" + name("m", "M") + b")\x81q\xc8}(" + value("_parameters") + b"}" + value("_buffers") + b"}"
    data += value("_modules") + b"}" + value("self") + b"h\xc8su" + b"b."
    refuse(archive(tmp_path, data), f"at most {MAX_DEPTH} deep")


def test_modules_that_grow_exponentially(tmp_path) -> None:
    data = b"\x80\x02" + module(b"") + b"b"
    for _ in range(40):
        data += b"q\xc80" + module(value("a") + b"h\xc8" + value("b") + b"h\xc8") + b"b"
    refuse(archive(tmp_path, data + b"."), r"must hold at most|at most \d+ tensors")


def test_checkpoints_nested_in_themselves(tmp_path) -> None:
    refuse(archive(tmp_path, b"\x80\x02}q\xc8" + value("model") + b"h\xc8s."), "named tensors; got none")


def test_byte_order(tmp_path) -> None:
    path = write(tmp_path / "a.pt", {"a": torch.ones(1)})
    refuse(rewrite(path, lambda entry, data: b"middle" if entry == "byteorder" else data), "byte order little or big")


# The format of 2019


def legacy(root: bytes, keys: object, *numbers: bytes) -> bytes:
    head = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    return b"".join(head) + b"\x80\x02" + root + pickle.dumps(keys, 2) + b"".join(numbers)


def old_storage(key: str, size: int, view: object = None) -> bytes:
    kind = name("torch", "FloatStorage")
    return b"(" + value("storage") + kind + value(key) + value("cpu") + value(size) + value(view) + b"tQ"


def floats(*numbers: float) -> bytes:
    return struct.pack("<q", len(numbers)) + struct.pack(f"<{len(numbers)}f", *numbers)


def test_views_of_storages_in_old_files(tmp_path) -> None:
    part = tensor(old_storage("1", 4, ("2", 1, 3)), shape=(2,), offset=1)
    (tmp_path / "old.pt").write_bytes(legacy(named(part)[2:], ["1"], floats(1, 2, 3, 4)))
    check(tmp_path / "old.pt", {"w": torch.tensor([3.0, 4.0])})


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (legacy(named(tensor(old_storage("1", 6)))[2:], ["1"], floats(1, 2, 3)), "must be whole"),
        (legacy(named(tensor(old_storage("1", 6)))[2:], ["1"]), "must be whole"),
        (legacy(named(tensor(old_storage("1", 2**50)))[2:], ["1"], struct.pack("<q", 2**50)), "must be whole"),
        (legacy(named(tensor(old_storage("1", 6)))[2:], []), "must list the 1 storages"),
        (legacy(named(tensor(old_storage("1", 6)))[2:], ["1", "1"]), "must list the 1 storages"),
        (legacy(named(tensor(old_storage("1", 6)))[2:], [[["1"]]]), "must list the 1 storages"),
        (legacy(named(tensor(old_storage("1", 6)))[2:], "1"), "must list the 1 storages"),
        (legacy(named(tensor(old_storage("1", 6, ("2", 1, 6))))[2:], ["1"]), "a view must be within"),
        (legacy(named(tensor(old_storage("1", 6, ("2", -1, 6))))[2:], ["1"]), "a view must be within"),
        (legacy(named(tensor(old_storage("1", 6, [1])))[2:], ["1"]), "a key and two numbers"),
    ],
)
def test_broken_old_files(tmp_path, data: bytes, match: str) -> None:
    (tmp_path / "old.pt").write_bytes(data)
    refuse(tmp_path / "old.pt", match)


def test_two_sizes_for_one_storage(tmp_path) -> None:
    two = b"}(" + value("a") + tensor(old_storage("1", 6)) + value("b") + tensor(old_storage("1", 7)) + b"u."
    (tmp_path / "old.pt").write_bytes(legacy(two, ["1"], floats(*range(6))))
    refuse(tmp_path / "old.pt", "one size for storage '1'")
