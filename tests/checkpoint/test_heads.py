"""Folders of models with a head: what is saved comes back, with a card, and what does not fit is refused."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from segue.checkpoint.card import Facts
from segue.checkpoint.files import CARD
from segue.checkpoint.folder import CONFIG, HEAD, WEIGHTS, load
from segue.checkpoint.heads import build, head_config, load_head, read_head, save_head
from segue.checkpoint.hub import plan_push
from segue.errors import CheckpointError, ConfigError
from tests.checkpoint.test_names import HEADS, XLNET_CONFIG, head_of


@pytest.fixture
def folder(tmp_path):
    head = head_config({"kind": "sequence_classifier", "num_labels": 3, "labels": ["bad", "so | so", "good"]})
    save_head(build(XLNET_CONFIG, head), head, tmp_path / "head", facts=Facts(command="segue finetune x"))
    return tmp_path / "head"


@pytest.mark.parametrize("name", [name for name in HEADS if head_of(name) is not None])
def test_every_head_comes_back_with_a_card(name: str, tmp_path) -> None:
    head = head_of(name)
    model = build(XLNET_CONFIG, head)
    save_head(model, head, tmp_path / "head")
    again, its_head = load_head(tmp_path / "head")
    assert its_head == head
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert read_head(tmp_path / "head") == (XLNET_CONFIG, head, parameters)
    card = (tmp_path / "head" / CARD).read_text()
    assert f"# A {head.kind.replace('_', ' ')} on a permutation language model (XLNet)\n" in card
    assert f"- {head.kind.replace('_', '-')}\n" in card
    assert f"| parameters | {parameters:,} |" in card
    assert "load_head" in card


def test_a_card_names_the_labels(folder) -> None:
    card = (folder / CARD).read_text()
    assert "| head | sequence classifier |\n| head, labels | bad, so \\| so, good |\n" in card
    assert "    segue finetune x\n" in card
    (folder / CARD).unlink()
    assert plan_push(folder, "me/model").card.count("sequence classifier") == 2


def test_a_head_is_not_a_language_model(folder) -> None:
    with pytest.raises(CheckpointError, match="must hold a language model; got a model with a head"):
        load(folder)


def test_weights_that_do_not_fit(folder) -> None:
    weights, metadata = load_file(folder / WEIGHTS), {"format": "segue-1"}
    save_file(weights | {"classifier.bias": torch.zeros(3, dtype=torch.int32)}, folder / WEIGHTS, metadata)
    with pytest.raises(CheckpointError, match=r"first classifier.bias: config \(3,\), file \(3,\) torch.int32"):
        load_head(folder)
    save_file(weights | {"classifier.bias": torch.zeros(4)}, folder / WEIGHTS, metadata)
    with pytest.raises(CheckpointError, match=r"first classifier.bias: config \(3,\), file \(4,\)"):
        read_head(folder)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(CheckpointError, match="must have format segue-1; got pt"):
        load_head(folder)


def test_a_config_of_a_monster_is_refused_before_it_is_built(folder) -> None:
    text = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text(text.replace("num_layers = 3", "num_layers = 2000"))
    with pytest.raises(CheckpointError, match="fewer than the config needs"):
        load_head(folder, check=False)


def test_changed_and_hostile_files(folder, tmp_path) -> None:
    text = (folder / HEAD).read_text()
    (folder / HEAD).write_text(text + "\n")
    with pytest.raises(CheckpointError, match="must be unchanged since it was written"):
        load_head(folder)
    for nonsense, message in (
        ("kind = 1", "head.kind"),
        ("kind = ", "must be TOML"),
        ("a." * 5000 + "b=1", "lines of"),
    ):
        (folder / HEAD).write_text(nonsense)
        with pytest.raises((CheckpointError, ConfigError), match=message):
            load_head(folder, check=False)
    (tmp_path / "elsewhere.toml").write_text(text)
    (folder / HEAD).unlink()
    (folder / HEAD).symlink_to(tmp_path / "elsewhere.toml")
    with pytest.raises(CheckpointError, match="links to a place outside"):
        load_head(folder)
