"""The `tokenizer.json` that transformers 5 makes of a `spiece.model`: written beside it, and read where it is alone.

That it is what transformers writes, and that the ids are those of transformers, is tried in tests/parity.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceProcessor

import segue
from segue.checkpoint.convert import convert
from segue.checkpoint.detect import detect
from segue.checkpoint.folder import save
from segue.checkpoint.unigram import described
from segue.config import changed
from segue.errors import CheckpointError
from segue.model import LanguageModel
from segue.text.fast import FastTokenizer
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.pieces import LAYOUT
from segue.text.released import ReleasedPieces
from tests.checkpoint.test_names import XLNET_CONFIG
from tests.text.samples import bpe, fast, released, released_model


def values(*, lower: bool = False) -> dict[str, Any]:
    found = described(released_model(), lower=lower)
    assert found is not None
    return found


def test_the_pieces_of_the_model() -> None:
    processor = SentencePieceProcessor(model_proto=released_model())
    pieces = [[processor.id_to_piece(i), processor.get_score(i)] for i in range(processor.get_piece_size())]
    assert values()["model"]["vocab"] == pieces
    assert values()["model"]["unk_id"] == processor.unk_id()
    assert all(token["special"] for token in values()["added_tokens"])
    assert {token["content"] for token in values()["added_tokens"]} == set(LAYOUT)


def test_a_model_of_another_kind_has_none() -> None:
    assert described(bpe()._model, lower=False) is None


def folder(tmp_path: Path, values: dict[str, Any], **beside: bool) -> Path:
    """A folder as transformers 5 saves it: no spiece.model."""
    torch.manual_seed(0)
    config = changed(XLNET_CONFIG, vocabulary={"size": released().size}, memory={"length": 8})
    save(LanguageModel(config), tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps(beside))
    return tmp_path / "hf"


def test_a_folder_of_transformers_5_reads_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = folder(tmp_path, values(lower=True), do_lower_case=True, keep_accents=True)
    with pytest.warns(segue.errors.SegueWarning, match="read as transformers 5 reads it"):
        session = segue.open(source)
    expected = fast(lower=True).encode("The KEEPER é 5,").tolist()
    assert session.tokenizer.encode("The KEEPER é 5,").tolist() == expected
    convert(source, tmp_path / "again", compare=False)
    again = load_tokenizer(tmp_path / "again" / "tokenizer")
    assert isinstance(again, FastTokenizer)
    assert again.encode("The KEEPER é 5,").tolist() == expected
    assert detect(source / "tokenizer.json").settings["symbols"] == released().size


def test_it_goes_back_to_transformers_as_it_came(tmp_path: Path) -> None:
    source = folder(tmp_path, values(lower=True), do_lower_case=True)
    convert(source, tmp_path / "segue", compare=False)
    convert(tmp_path / "segue", tmp_path / "back", to="hf", compare=False)
    assert (tmp_path / "back" / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())["do_lower_case"] is True
    assert not (tmp_path / "back" / "spiece.model").exists()


def test_both_files_are_written_and_the_model_is_read(tmp_path: Path) -> None:
    """A folder with both is read as the original XLNet code reads text."""
    tokenizer = released(lower=True)
    save_tokenizer(tokenizer, tmp_path / "tokenizer")
    config = changed(XLNET_CONFIG, vocabulary={"size": tokenizer.size}, memory={"length": 8})
    save(LanguageModel(config), tmp_path / "ours", tokenizer=tmp_path / "tokenizer")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    assert json.loads((tmp_path / "hf" / "tokenizer.json").read_text(encoding="utf-8")) == values(lower=True)
    convert(tmp_path / "hf", tmp_path / "again", compare=False)
    again = load_tokenizer(tmp_path / "again" / "tokenizer")
    assert isinstance(again, ReleasedPieces)
    assert again.fingerprint() == tokenizer.fingerprint()


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    found = values()
    found["model"]["type"] = "WordLevel"
    source = folder(tmp_path, found)
    (note,) = convert(source, tmp_path / "again", compare=False).notes
    assert note.startswith("no tokeniser was read: ")
    assert "a model that is not XLNet's: WordLevel" in note
    assert not (tmp_path / "again" / "tokenizer").exists()
    with pytest.raises(CheckpointError, match="must be as transformers 5 writes it") as caught:
        convert(source, tmp_path / "named", vocabulary=source / "tokenizer.json", compare=False)
    assert "--vocabulary spiece.model" in caught.value.on_command_line


def test_settings_that_contradict_the_file(tmp_path: Path) -> None:
    source = folder(tmp_path, values(), do_lower_case=True)
    assert "fold case if and only if do_lower_case" in convert(source, tmp_path / "again", compare=False).notes[0]


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder(tmp_path, values())
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json .*pip install tokenizers"):
        convert(source, tmp_path / "again", compare=False)
    assert not (tmp_path / "again").exists()
