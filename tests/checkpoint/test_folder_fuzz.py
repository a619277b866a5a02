"""Whatever stands in a model folder, reading it ends with a model or with an error of ours, soon and in little memory.

SEGUE_FUZZ_CASES sets how many cases each test tries.
"""

import json
import os
import random
import resource
import struct

import pytest
import torch

from segue.checkpoint.files import MANIFEST, verify
from segue.checkpoint.folder import CONFIG, WEIGHTS, load, save
from segue.checkpoint.safetensors_files import SafetensorsFile
from segue.errors import CheckpointError, ConfigError
from segue.model import LanguageModel
from tests.tiny import MODELS

CASES = int(os.environ.get("SEGUE_FUZZ_CASES", "150"))
SAFE = (CheckpointError, ConfigError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("fuzz") / "model"
    save(LanguageModel(MODELS["transformer-xl-wt103"]), folder)
    return folder


def _try(folder, name: str, data: bytes) -> bool:
    """Whether it was refused; the file is as before afterwards."""
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(data)
    try:
        for check in (False, True) if name != MANIFEST else ():
            load(folder, check=check)
        verify(folder)
    except SAFE:
        return True
    finally:
        (folder / name).write_bytes(whole)
    return False


def _damaged(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    match draw.randrange(5):
        case 0:
            return bytes(changed[: draw.randrange(len(changed))])
        case 1:
            for _ in range(draw.randint(1, 4)):
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        case 2:
            at = draw.randrange(len(changed))
            changed[at : at + draw.randint(1, 20)] = draw.randbytes(draw.randint(0, 20))
        case 3:
            at, other = draw.randrange(len(changed)), draw.randrange(len(changed))
            changed[at:at] = changed[other : other + 30]
        case 4:
            changed += draw.randbytes(draw.randint(1, 100))
    return bytes(changed)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, MANIFEST])
def test_damaged_files(folder, name: str) -> None:
    draw = random.Random(name)
    data = (folder / name).read_bytes()
    beginning = len(data) if name != WEIGHTS else 8 + int.from_bytes(data[:8], "little")
    refused = changes = 0
    for _ in range(CASES):
        damaged = _damaged(data, draw) if draw.random() < 0.3 else _damaged(data[:beginning], draw) + data[beginning:]
        changes += damaged != data
        refused += _try(folder, name, damaged)
    if name == MANIFEST:  # white space in it means nothing
        assert refused >= changes * 0.9
    else:
        assert refused == changes


def _file(header: object, *, tensors: int = 64, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(tensors)


def _one(**changes: object) -> dict[str, object]:
    entry = {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]} | changes
    return {"__metadata__": {"format": "segue-1"}, "x": entry}


HOSTILE = {
    "a header longer than the file": _file(_one(), length=1 << 40),
    "a header of all numbers": _file(_one(), length=(1 << 64) - 1),
    "a shape of the whole memory": _file(_one(shape=[1 << 40, 1 << 20])),
    "a shape that overflows": _file(_one(shape=[1 << 62, 4])),
    "nothing, in enormous rows": _file(_one(shape=[0, 1 << 62, 1 << 62], data_offsets=[0, 0]), tensors=0),
    "many dimensions": _file(_one(shape=[1] * 100_000)),
    "a long number": _file(json.dumps(_one()).replace("64", "6" * 4000).encode()),
    "a longer number": _file(json.dumps(_one()).replace("64", "6" * 5000).encode()),
    "less than nothing": _file(_one(shape=[-4, -4])),
    "offsets backwards": _file(_one(data_offsets=[64, 0])),
    "offsets past the end": _file(_one(shape=[8, 4], data_offsets=[0, 128])),
    "offsets with a gap": _file(_one(shape=[3, 4], data_offsets=[16, 64])),
    "bytes that nobody names": _file(_one(), tensors=65),
    "overlapping tensors": _file(_one() | {"y": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}),
    "fractions": _file(_one(shape=[4.0, 4])),
    "truths": _file(_one(shape=[True, 16])),
    "an unknown dtype": _file(_one(dtype="F31")),
    "more than there is to say": _file(_one(more=1)),
    "a name twice": _file(b'{"x": %s, "x": %s}' % ((json.dumps(_one()["x"]).encode(),) * 2)),
    "depth": _file(b"[" * 1_000_000),
    "deep tables": _file(b'{"a":' * 100_000),
    "a list": _file([]),
    "notes that are numbers": _file({"__metadata__": {"format": 1}}, tensors=0),
    "not UTF-8": _file(b"\xff\xfe"),
    "half a character in a name": _file(b'{"\\ud800":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'),
    "nothing": b"",
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "a zip": b"PK\x03\x04" + bytes(60),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(folder, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _try(folder, WEIGHTS, HOSTILE[name])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_a_huge_file_is_judged_by_its_header(folder, tmp_path) -> None:
    path = tmp_path / "huge.safetensors"
    path.write_bytes(_file(_one()))
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # all holes
    with pytest.raises(CheckpointError, match=r"1,09.* bytes of numbers where its header says 64"):
        SafetensorsFile(path)
    path.write_bytes(struct.pack("<Q", 1 << 30))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match=r"at most 8,388,608 bytes, all there; got .* 1,073,741,824"):
        SafetensorsFile(path)
