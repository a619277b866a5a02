"""`segue convert` and `segue inspect` through the installed script."""

import json
from pathlib import Path

import pytest
import tomli_w
import torch

from segue.checkpoint.convert import convert
from segue.checkpoint.folder import load, save
from segue.checkpoint.heads import build, save_head
from segue.checkpoint.tensorflow import write_tensorflow
from segue.cli.inspect import run_inspection
from segue.config import ModelConfig, model_config
from segue.infer.session import Session
from segue.infer.text_model import TextModel
from segue.model import LanguageModel
from segue.text.files import save_tokenizer
from tests.checkpoint.test_names import XLNET_CONFIG, head_of
from tests.cli.test_commands import segue
from tests.originals import FIXTURES, arrays, tensors
from tests.text.samples import characters, released_model


def small(size: int) -> ModelConfig:
    return model_config(
        vocabulary={"size": size}, num_layers=1, width=8, num_heads=2, inner_width=8, memory={"length": 4}
    )


@pytest.fixture
def transformer_xl(tmp_path: Path) -> Path:
    variables = tensors(arrays(FIXTURES / "transformer_xl_tf" / "D1_wt103_like" / "model.npz"))
    write_tensorflow(tmp_path / "tf" / "model.ckpt-0", variables)
    return tmp_path / "tf"


def test_convert_says_what_it_did(transformer_xl: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours"
    result = segue("convert", str(transformer_xl), str(out))
    assert result.returncode == 2
    assert "With segue convert, add --set model.memory.length=VALUE." in result.stderr
    result = segue("convert", str(transformer_xl), str(out), "--set", "model.memory.length=8", "--no-compare", width=60)
    assert result.returncode == 0, result.stderr
    assert "47 tensors mapped, 1 explained, none left over" in " ".join(result.stdout.split())
    assert max(len(line) for line in result.stdout.splitlines() if str(tmp_path) not in line) <= 60
    assert "`transformer/adaptive_embed/cutoff_0/proj_W`" in (out / "conversion.md").read_text()
    assert load(out).config.memory.length == 8
    assert "sha256 of model.ckpt-0.data-00000-of-00001: " in " ".join(result.stdout.split())
    wrong = segue("convert", str(transformer_xl), str(tmp_path / "no"), "--sha256", f"model.ckpt-0.index={'0' * 64}")
    assert wrong.returncode == 2
    assert "add --set" in wrong.stderr  # the settings come first: what is missing costs no reading
    given = ("--set", "model.memory.length=8", "--sha256", f"model.ckpt-0.index={'0' * 64}")
    wrong = segue("convert", str(transformer_xl), str(tmp_path / "no"), *given)
    assert wrong.returncode == 2
    assert "must have the sha256 0000" in wrong.stderr
    assert not (tmp_path / "no").exists()
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
    task = {"task": "classify", "values": {"labels": ["a", "b", "c"]}}
    save_head(
        build(XLNET_CONFIG, head),
        head,
        tmp_path / "tuned" / "best",
        also=lambda new: (new / "task.toml").write_text(tomli_w.dumps(task)),
    )
    save_tokenizer(characters(), tmp_path / "tokenizer")
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "export.json").write_text(json.dumps({"format": "segue-export-1", "what": "step"}))
    opened = Session(TextModel(model=LanguageModel(small(characters().size)), tokenizer=characters(), segment_length=8))
    opened.feed("灯一直亮着")
    opened.save(tmp_path / "session")
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
        tmp_path / "tuned": "task: classify",
        tmp_path / "tuned" / "best": "segue model with a head, fine-tuned",
        tmp_path / "tokenizer": "segue tokeniser",
        tmp_path / "tokenizer" / "tokenizer.json": "segue tokeniser",
        tmp_path / "export": "segue export",
        tmp_path / "session": f"{opened.tokens_read} tokens read",
    }.items():
        run_inspection(path, tensors=False)
        assert found in capsys.readouterr().out, path
    listed = segue("inspect", str(tmp_path / "hf"), "--tensors").stdout
    assert "54 tensors, 16,864 numbers: 54 float32" in listed
    assert listed.count("rel_attn.q ") == 3
    result = segue("inspect", str(tmp_path / "nothing"))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
