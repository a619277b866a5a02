"""Broken and hostile files for the readers of pickles and safetensors.

The large run: python -m tests.checkpoint.test_fuzz_pickles --cases 100000
"""

import io
import json
import pickle
import zipfile
from collections import Counter, OrderedDict, defaultdict
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import nn

from segue.checkpoint.pickles import read_plain, read_record
from segue.checkpoint.safetensors_files import open_safetensors
from segue.checkpoint.torch_files import open_torch, read_object
from tests.checkpoint import fuzz
from tests.checkpoint.test_pickles import HOSTILE

CASES = pytest.mark.parametrize("cases", [750, pytest.param(3000, marks=pytest.mark.long)])


class Words:
    """A vocabulary as an object."""

    def __init__(self) -> None:
        self.idx2sym = ["<eos>", "the", "é"]
        self.sym2idx = OrderedDict(zip(self.idx2sym, range(3), strict=True))
        self.counter = Counter(self.idx2sym)


@cache
def pickles() -> tuple[bytes, ...]:
    words = ["<unk>", "the", "of", "and", "中文"]
    value = {
        "idx2sym": words,
        "sym2idx": OrderedDict((word, index) for index, word in enumerate(words)),
        "counter": Counter({word: 10**index for index, word in enumerate(words)}),
        "rest": (None, True, 1.5, -(2**40), {1, 2}, frozenset("ab"), b"\x00\xff", bytearray(b"x"), defaultdict(int)),
    }
    return tuple(pickle.dumps(each, protocol) for each in (value, Words()) for protocol in range(6))


@cache
def state_dicts() -> tuple[dict[str, object], ...]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2), nn.Embedding(4, 2))
    plain = dict(model.state_dict())
    mixed = {"half": torch.ones(2, dtype=torch.bfloat16), "view": torch.arange(12).view(3, 4).t()[1:]}
    return {"model": plain, "epoch": 3}, {**mixed, "many": torch.tensor([True, False])}, {"module": model}


def saved(value: object, *, zipped: bool) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


@cache
def zip_files() -> tuple[bytes, ...]:
    return tuple(saved(value, zipped=True) for value in state_dicts())


@cache
def legacy_files() -> tuple[bytes, ...]:
    return tuple(saved(value, zipped=False) for value in state_dicts())


@cache
def zip_pickles() -> tuple[bytes, ...]:
    return tuple(zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl") for data in zip_files())


def in_zip(data: bytes) -> bytes:
    """The pickle in an archive with storages of the usual names, checksums right."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for number, size in enumerate((24, 8, 8, 8, 32, 24)):
            archive.writestr(f"archive/data/{number}", bytes(size))
    return file.getvalue()


@cache
def safetensors_files() -> tuple[bytes, ...]:
    values = {"a": torch.ones(2, 3), "b": torch.arange(4), "c": torch.zeros(0, 2), "d": torch.ones(1).bfloat16()}
    return save(values, {"format": "pt"}), save({"only": torch.ones(3)})


INDEX_FILE = json.dumps({"metadata": {"total_size": 24}, "weight_map": {"only": "one.safetensors"}}).encode()


def index_options() -> dict[str, object]:
    return {"suffix": ".index.json", "beside": {"one.safetensors": safetensors_files()[1]}}


def read_all(path: Path) -> None:
    source = open_torch(path)
    for name, info in source.tensors.items():
        tensor = source.read(name)
        assert (tuple(tensor.shape), tensor.dtype) == (info.shape, info.dtype)


def read_all_safetensors(path: Path) -> None:
    source = open_safetensors(path)
    for name, info in source.tensors.items():
        tensor = source.read(name)
        assert (tuple(tensor.shape), tensor.dtype) == (info.shape, info.dtype)


READERS = {
    "plain": (read_plain, pickles, dict),
    "record": (read_record, pickles, dict),
    "object": (read_object, lambda: (*pickles(), *legacy_files()), dict),
    "zip": (read_all, zip_files, dict),
    "zip pickle": (read_all, zip_pickles, lambda: {"wrap": in_zip}),
    "legacy": (read_all, legacy_files, dict),
    "safetensors": (read_all_safetensors, safetensors_files, dict),
    "index": (read_all_safetensors, lambda: (INDEX_FILE,), index_options),
}


def run(name: str, cases: int, seed: int) -> fuzz.Report:
    reader, samples, options = READERS[name]
    return fuzz.run(reader, samples(), cases=cases, seed=seed, **options())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", READERS)
@CASES
def test_broken_files_are_read_or_refused(name: str, cases: int) -> None:
    report = run(name, cases, seed=0)
    assert report.cases == cases
    assert report.refused > cases // 4


@CASES
def test_hostile_pickles_mixed_with_honest_ones(cases: int) -> None:
    samples = [*HOSTILE.values(), *pickles(), *zip_pickles()]
    report = fuzz.run(read_object, samples, cases=cases, seed=0)
    assert report.refused > cases // 4


def test_the_watch_sees_acts(tmp_path: Path) -> None:
    def writes(path: Path) -> None:
        path.with_name("other").write_text("x")

    def looks_up(path: Path) -> None:
        pickle.loads(b"cos\nsystem\n.")

    def hangs(path: Path) -> None:
        while True:
            pass

    for reader in (writes, looks_up, partial(hangs)):
        with pytest.raises(fuzz.Act):
            fuzz.run(reader, [b"x"], cases=1, seconds=0.2)


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the system does not tell the memory of a process"
)
def test_the_watch_sees_memory() -> None:
    def takes(path: Path) -> None:
        torch.ones(2**24)

    with pytest.raises(AssertionError, match="the process grew by"):
        fuzz.run(takes, [b"x"], cases=1, memory=2**25)


def test_the_same_seed_gives_the_same_cases() -> None:
    first, again, other = (list(fuzz.mutations(pickles(), cases=50, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


if __name__ == "__main__":
    fuzz.main({name: partial(run, name) for name in READERS})
