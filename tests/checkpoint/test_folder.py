"""The model folder: whole or not there; broken ones are refused with a reason."""

import json
import os
import stat

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from segue.checkpoint.files import CARD, MANIFEST, verify
from segue.checkpoint.folder import CONFIG, WEIGHTS, load, read_config, save
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
    assert sorted(path.name for path in folder.iterdir()) == [CARD, CONFIG, MANIFEST, WEIGHTS]
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
    with pytest.raises(CheckpointError, match="must be a model folder that segue wrote, or not exist yet"):
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
    with pytest.raises(CheckpointError, match=r"must be (whole|a safetensors file)"):
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
    save_file({"x": torch.zeros(1)}, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match="must have format segue-1; got none"):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits_are_computed_with_in_float32(dtype: torch.dtype, tmp_path) -> None:
    model = LanguageModel(MODEL).to(dtype)
    save(model, tmp_path / "half")
    stored = load(tmp_path / "half", as_stored=True).state_dict()
    wide = load(tmp_path / "half").state_dict()
    for name, value in model.state_dict().items():
        assert stored[name].dtype == dtype
        assert wide[name].dtype == torch.float32
        assert torch.equal(stored[name], value)
        assert torch.equal(wide[name], value.float())


def test_float64_is_kept(tmp_path) -> None:
    save(LanguageModel(MODEL).double(), tmp_path / "double")
    assert {p.dtype for p in load(tmp_path / "double").parameters()} == {torch.float64}


def test_config_and_parameters_without_the_weights(folder) -> None:
    config, parameters = read_config(folder)
    assert config == MODEL
    assert parameters == sum(parameter.numel() for parameter in LanguageModel(MODEL).parameters())


# ------------------------------------------------------------------------------------------------- changed files


def test_one_changed_bit_of_a_weight(folder) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-3] ^= 1
    (folder / WEIGHTS).write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model\.safetensors must be unchanged since it was written"):
        load(folder)
    load(folder, check=False)


def test_a_config_edited_by_hand_is_seen_and_may_be_wanted(folder) -> None:
    text = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text(text.replace("norm_epsilon = 1e-12", "norm_epsilon = 1e-5"))
    with pytest.raises(CheckpointError, match=r"config\.toml must be unchanged since it was written"):
        load(folder)
    assert load(folder, check=False).config.norm_epsilon == 1e-5


def test_the_card_may_be_edited(folder) -> None:
    (folder / CARD).write_text("my own words")
    load(folder)
    verify(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "..", "", "c:\\x", "a//b"])
def test_a_manifest_that_points_elsewhere(folder, name: str) -> None:
    (folder / MANIFEST).write_text(json.dumps({name: "0" * 64}))
    with pytest.raises(CheckpointError, match="must name files inside the folder"):
        verify(folder)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', "[" * 100_000, "\udcff"])
def test_a_manifest_that_is_none(folder, content: str) -> None:
    (folder / MANIFEST).write_text(content, errors="surrogateescape")
    with pytest.raises(CheckpointError, match=r"manifest\.json must"):
        verify(folder)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_links_out_of_the_folder(folder, tmp_path, name: str) -> None:
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="links to a place outside"):
        load(folder)
    with pytest.raises(CheckpointError, match="must be unchanged since it was written"):
        verify(folder)


def test_links_within_a_hub_cache(folder, tmp_path) -> None:
    snapshot, blobs = tmp_path / "cache" / "snapshots" / "c0ffee", tmp_path / "cache" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in folder.iterdir():
        path.rename(blobs / f"blob-{path.name}")
        (snapshot / path.name).symlink_to(f"../../blobs/blob-{path.name}")
    assert load(snapshot).config == MODEL


def test_a_file_that_never_ends(folder) -> None:
    (folder / CONFIG).unlink()
    (folder / CONFIG).symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="must hold"):
        load(folder)
    (folder / CONFIG).unlink()
    (folder / CONFIG).write_text("# a long comment\n" * 10_000)
    with pytest.raises(CheckpointError, match=r"at most 65,536 bytes"):
        load(folder)


# --------------------------------------------------------------------------------------- configs that ask too much


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("num_layers = 2", "num_layers = 1000000000"),
        ("num_heads = 2", "num_heads = 1000000000000"),
        ("inner_width = 10", "inner_width = 9223372036854775807"),
        ("inner_width = 10", "inner_width = 1" + "0" * 400),
        ("size = 23", "size = 4611686018427387904"),
        ("head_width = 4", "head_width = 0x" + "f" * 10_000),
    ],
)
def test_a_config_of_an_absurd_model(folder, before: str, after: str) -> None:
    text = (folder / CONFIG).read_text()
    assert before in text
    (folder / CONFIG).write_text(text.replace(before, after))
    with pytest.raises((CheckpointError, ConfigError)) as raised:
        load(folder)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    "content",
    ["x = " + "[" * 50_000, "x = " + "9" * 5000, "\0", "[model", "a." * 20_000 + "b=1", ("a." * 2000 + "b=1\\n") * 15],
)
def test_a_config_that_is_none(folder, content: str) -> None:
    (folder / CONFIG).write_text(content)
    with pytest.raises((CheckpointError, ConfigError)):
        load(folder)


def test_weights_that_are_whole_numbers(folder) -> None:
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        tensors = {name: file.get_tensor(name).to(torch.int32) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, folder / WEIGHTS, metadata={"format": "segue-1"})
    with pytest.raises(CheckpointError, match=r"torch\.int32"):
        load(folder)


# ----------------------------------------------------------------------------------------------------- formats


def _with_format(folder, number: str) -> None:
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        tensors = {name.replace("softmax.", "output."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, folder / WEIGHTS, metadata={"format": number})


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("segue-2", "must have format segue-1; got segue-2. Update segue"),
        ("segue-0", "must have format segue-1; got segue-0"),
        ("segue-x", "must have format segue-1; got segue-x"),
        ("pt", "must have format segue-1; got pt. Convert it"),
        ("segue-" + "9" * 5000, "must have format segue-1"),
    ],
)
def test_formats_of_other_times(folder, number: str, message: str) -> None:
    _with_format(folder, number)
    with pytest.raises(CheckpointError, match=message):
        load(folder)
