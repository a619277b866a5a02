"""TensorFlow checkpoints for tests."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from segue.checkpoint.source import TensorInfo, TensorSource
from segue.checkpoint.tensorflow.entries import Entry, write_entry, write_header
from segue.checkpoint.tensorflow.table import write_table
from tests.originals import FIXTURES, arrays

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


def write_files(prefix: Path, entries: dict[bytes, Entry], shards: list[bytes]) -> None:
    values = {b"": write_header(len(shards))} | {key: write_entry(entry) for key, entry in sorted(entries.items())}
    beside(prefix, ".index").write_bytes(write_table(values.items()))
    for number, data in enumerate(shards):
        beside(prefix, f".data-{number:05d}-of-{len(shards):05d}").write_bytes(data)
