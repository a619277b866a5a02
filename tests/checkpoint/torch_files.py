"""Files of torch.save for tests."""

import zipfile
from pathlib import Path

import pytest
import torch

from segue.checkpoint.torch_files import open_torch
from segue.errors import CheckpointError
from tests.checkpoint.fuzz import no_acts


def write(path: Path, value: object, *, zipped: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def check(path: Path, expected: dict[str, torch.Tensor]) -> None:
    """The file holds exactly these, in this order, bit for bit."""
    with no_acts():
        source = open_torch(path)
        found = {name: source.read(name) for name in source.tensors}
    assert list(found) == list(expected)
    for name, value in expected.items():
        info = source.tensors[name]
        assert (info.shape, info.dtype) == (tuple(value.shape), value.dtype)
        assert found[name].dtype == value.dtype
        assert found[name].is_contiguous()
        assert found[name].shape == value.shape
        assert numbers(found[name]) == numbers(value)


def numbers(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def rewrite(path: Path, change=lambda name, data: data, extra=(), **options: int) -> Path:
    """The archive again, its entries changed and more added."""
    entries = [(name, zipfile.ZipFile(path).read(name)) for name in zipfile.ZipFile(path).namelist()]
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in entries:
            archive.writestr(name, change(name.split("/", 1)[1], data))
        for name, data in extra:
            archive.writestr(name, data)
    return path


def refuse(path: Path, match: str) -> None:
    with no_acts(), pytest.raises(CheckpointError, match=match):
        read_all(path)


def read_all(path: Path) -> None:
    source = open_torch(path)
    for tensor_name in source.tensors:
        source.read(tensor_name)
