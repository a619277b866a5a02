"""The model folder: whole or not there; broken ones are refused with a reason."""

import os
import stat

import pytest
import torch

from segue.checkpoint.files import MANIFEST
from segue.checkpoint.folder import CONFIG, WEIGHTS, load, save
from segue.errors import CheckpointError, ConfigError
from segue.model import LanguageModel
from tests.tiny import MODELS

MODEL = MODELS["transformer-xl-wt103"]


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    save(LanguageModel(MODEL), tmp_path / "model")
    return tmp_path / "model"


def test_saving_again_replaces_and_leaves_nothing_behind(folder) -> None:
    other = LanguageModel(MODELS["gpt"])
    save(other, folder)
    assert load(folder).config == other.config
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, MANIFEST, WEIGHTS]
    assert stat.S_IMODE((folder / WEIGHTS).stat().st_mode) == 0o644


def test_a_failed_save_leaves_the_old_model(folder, monkeypatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = load(folder).state_dict()
    monkeypatch.setattr("segue.checkpoint.folder.save_file", full_disk)
    with pytest.raises(CheckpointError, match=r"must be writable.*No space.*untouched"):
        save(LanguageModel(MODEL), folder)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    for name, value in load(folder).state_dict().items():
        assert torch.equal(value, before[name])


def test_other_folders_are_not_overwritten(tmp_path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    with pytest.raises(CheckpointError, match="must be a model folder or not exist"):
        save(LanguageModel(MODEL), tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"


def test_missing_parts(folder, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="must hold"):
        load(tmp_path / "nowhere")
    os.remove(folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=WEIGHTS):
        load(folder)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_weights(folder, keep: int) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:keep])
    with pytest.raises(CheckpointError, match="whole safetensors file"):
        load(folder)


def test_a_config_of_other_weights(folder) -> None:
    text = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text(text.replace("inner_width = 10", "inner_width = 11"))
    with pytest.raises(CheckpointError, match=r"first .*feed_forward.*config \(12, 11\), file \(12, 10\)"):
        load(folder)
    (folder / CONFIG).write_text(text.replace("inner_width", "iner_width"))
    with pytest.raises(ConfigError, match=r"Did you mean model\.inner_width"):
        load(folder)


def test_foreign_safetensors(folder) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match="must have format segue-1; got None"):
        load(folder)


def test_dtype_is_kept(tmp_path) -> None:
    save(LanguageModel(MODEL).to(torch.bfloat16), tmp_path / "half")
    assert {p.dtype for p in load(tmp_path / "half").parameters()} == {torch.bfloat16}
