"""`segue convert` and `segue inspect` through the installed script."""

import json
from pathlib import Path

import pytest
import torch

from segue.checkpoint.convert import convert
from segue.checkpoint.folder import load, save
from segue.checkpoint.heads import build, save_head
from segue.checkpoint.tensorflow import write_tensorflow
from segue.cli.inspect import run_inspection
from segue.model import LanguageModel
from tests.checkpoint.test_names import XLNET_CONFIG, head_of
from tests.cli.test_commands import segue
from tests.originals import FIXTURES, arrays, tensors
from tests.text.samples import released_model


@pytest.fixture
def transformer_xl(tmp_path: Path) -> Path:
    variables = tensors(arrays(FIXTURES / "transformer_xl_tf" / "D1_wt103_like" / "model.npz"))
    write_tensorflow(tmp_path / "tf" / "model.ckpt-0", variables)
    return tmp_path / "tf"


def test_convert_says_what_it_did(transformer_xl: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours"
    result = segue("convert", str(transformer_xl), str(out))
    assert result.returncode == 2
    assert "Add --set model.memory.length=VALUE." in result.stderr
    result = segue("convert", str(transformer_xl), str(out), "--set", "model.memory.length=8", "--no-compare", width=60)
    assert result.returncode == 0, result.stderr
    assert "47 tensors mapped, 1 explained, none left over" in " ".join(result.stdout.split())
    assert max(len(line) for line in result.stdout.splitlines() if str(tmp_path) not in line) <= 60
    assert "`transformer/adaptive_embed/cutoff_0/proj_W`" in (out / "conversion.md").read_text()
    assert load(out).config.memory.length == 8
    assert "never written" in " ".join(segue("convert", "--help", width=200).stdout.split())


def test_inspect_knows_every_format(transformer_xl: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """Files and folders of anyone's, each by its name."""
    monkeypatch.setenv("COLUMNS", "200")
    save(LanguageModel(XLNET_CONFIG), tmp_path / "ours")
    head = head_of("classifier")
    save_head(build(XLNET_CONFIG, head), head, tmp_path / "head")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    state = tensors(arrays(FIXTURES / "transformer_xl_pytorch" / "C1_softmax_tied" / "state.npz"))
    torch.save(state, tmp_path / "state.pt")
    (tmp_path / "spiece.model").write_bytes(released_model())
    (tmp_path / "run").mkdir()
    save(LanguageModel(XLNET_CONFIG), tmp_path / "run" / "best")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "manifest.json").write_text(json.dumps({"kind": "segue-store", "tokens": 1234}))
    for path, found in {
        tmp_path / "ours": "segue model",
        tmp_path / "head": "head: kind sequence_classifier, num_labels 3",
        tmp_path / "hf": "transformers folder: XLNet of transformers",
        tmp_path / "hf" / "model.safetensors": "safetensors: XLNet of transformers",
        transformer_xl: "TensorFlow checkpoint: Transformer-XL in TensorFlow",
        transformer_xl / "model.ckpt-0": "TensorFlow checkpoint: Transformer-XL in TensorFlow",
        tmp_path / "state.pt": "torch file: Transformer-XL in the original PyTorch code",
        tmp_path / "spiece.model": "SentencePiece model",
        tmp_path / "run": "segue run",
        tmp_path / "store": "tokens 1234",
    }.items():
        run_inspection(path, tensors=False)
        assert found in capsys.readouterr().out, path
    listed = segue("inspect", str(tmp_path / "hf"), "--tensors").stdout
    assert "54 tensors, 16,864 numbers: 54 float32" in listed
    assert listed.count("rel_attn.q ") == 3
    result = segue("inspect", str(tmp_path / "nothing"))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
