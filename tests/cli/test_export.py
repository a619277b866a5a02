"""`segue export` through the installed script."""

import json
from pathlib import Path

import pytest

from segue.checkpoint.folder import save
from segue.config import changed
from tests.command import command as segue
from tests.tiny import MODELS, noisy


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(noisy(changed(MODELS["transformer-xl-enwik8-base"], num_layers=1)), tmp_path / "model")
    return tmp_path / "model"


def test_export_says_what_it_checked(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    out = tmp_path / "out"
    result = segue("export", str(model), "--what", "step", "--out", str(out), "--memory-length", "5", "--rows", "3")
    assert result.returncode == 0, result.stderr
    assert "Largest difference from the model on random input:" in result.stdout
    assert "ms per step on this machine" in result.stdout
    assert result.stderr == ""
    for name in ("model.onnx", "model.onnx.data", "initial.npz", "export.json", "README.md"):
        assert f"  {name}" in result.stdout
        assert (out / name).is_file()
    shapes = {one["name"]: one["shape"] for one in json.loads((out / "export.json").read_text())["inputs"]}
    assert shapes["key"] == [1, 3, 2, 5, 4]
    again = segue("export", str(model), "--what", "step", "--out", str(out))
    assert again.returncode == 2
    assert "replace it with --replace" in " ".join(again.stderr.split())


def test_export_refuses_in_one_line(model: Path, tmp_path: Path) -> None:
    result = segue("export", str(model), "--what", "encoder", "--rows", "2", "--out", str(tmp_path / "out"))
    assert result.returncode == 2
    assert "rows applies only to a step" in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()
