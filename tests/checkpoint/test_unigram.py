"""The `tokenizer.json` of transformers 5 as the SentencePiece model that it came from: the same ids, or a refusal.

That transformers really writes such a file is tried in tests/parity.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from sentencepiece import SentencePieceProcessor

import segue
from segue.checkpoint.convert import convert
from segue.checkpoint.detect import detect
from segue.checkpoint.folder import save
from segue.checkpoint.tensorflow.wire import read_fields
from segue.checkpoint.unigram import rebuilt_pieces
from segue.config import changed
from segue.errors import CheckpointError
from segue.model import LanguageModel
from segue.text.files import load_tokenizer
from segue.text.released import ReleasedPieces
from tests.checkpoint.test_names import XLNET_CONFIG
from tests.text.samples import CHINESE, ENGLISH, HARD, any_text, released, released_model

_STEPS = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
]


def described(model: bytes, *, lower: bool = False) -> dict[str, Any]:
    """As transformers 5.22 describes a SentencePiece model."""
    processor = SentencePieceProcessor(model_proto=model)
    pieces = [[processor.id_to_piece(i), processor.get_score(i)] for i in range(processor.get_piece_size())]
    (normalisation,) = (value for number, value in read_fields(model) if number == 3)
    (table,) = (value for number, value in read_fields(normalisation) if number == 2)
    added = [
        {"id": i, "content": piece, "special": i == 0 or bool(processor.is_control(i)), "normalized": False}
        for i, (piece, score) in enumerate(pieces)
        if score == 0
    ]
    mark = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    last = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*_STEPS, *([{"type": "Lowercase"}] if lower else []), last],
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, mark]},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": pieces},
    }


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> ReleasedPieces:
    path = tmp_path_factory.mktemp("rebuilt") / "tokenizer.json"
    path.write_text(json.dumps(described(released_model())), encoding="utf-8")
    return ReleasedPieces(rebuilt_pieces(path, {}))


def test_the_same_ids_as_the_original(rebuilt: ReleasedPieces) -> None:
    assert rebuilt.specials == released().specials
    assert [rebuilt.token(i) for i in range(rebuilt.size)] == [released().token(i) for i in range(rebuilt.size)]
    for text in (*HARD, *ENGLISH.split("\n"), *CHINESE.split("\n"), ENGLISH + CHINESE, "5, 15, 1995, x5,y"):
        assert rebuilt.encode(text).tolist() == released().encode(text).tolist()


@given(text=any_text)
@settings(max_examples=200, deadline=None)
def test_the_same_ids_on_any_text(rebuilt: ReleasedPieces, text: str) -> None:
    assert rebuilt.encode(text).tolist() == released().encode(text).tolist()


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
    source = folder(tmp_path, described(released_model(), lower=True), do_lower_case=True, keep_accents=True)
    with pytest.warns(segue.errors.SegueWarning, match="was rebuilt from its pieces"):
        session = segue.open(source)
    original = released(lower=True, keep_accents=True)
    assert session.tokenizer.encode("The KEEPER é 5,").tolist() == original.encode("The KEEPER é 5,").tolist()
    convert(source, tmp_path / "again", compare=False)
    assert (
        load_tokenizer(tmp_path / "again" / "tokenizer").encode("KEEPER").tolist() == original.encode("KEEPER").tolist()
    )
    assert detect(source / "tokenizer.json").settings["symbols"] == released().size


def change(values: dict[str, Any], kind: str) -> None:
    match kind:
        case "normalisation":  # as transformers 4 wrote it
            values["normalizer"]["normalizers"].append(
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
            )
        case "words":
            values["pre_tokenizer"] = values["pre_tokenizer"]["pretokenizers"][1]
        case "model":
            values["model"]["type"] = "BPE"
        case "kinds":
            values["added_tokens"].pop()
        case "added":
            values["added_tokens"].append({"id": 10**6, "content": "<new>", "special": True})
        case "table":
            values["normalizer"]["normalizers"][-1]["precompiled_charsmap"] = "not base64"
        case "nonsense":
            values["model"]["vocab"] = 7


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("normalisation", "other normalisation: Replace, Replace, NFKD, StripAccents, Precompiled, Replace"),
        ("words", "another way to cut words"),
        ("model", "a model that is not XLNet's: BPE"),
        ("kinds", "the piece '5,' with the score 0.0, of which the kind is not known"),
        ("added", "the token '<new>', which was added"),
        ("table", "not in base64"),
        ("nonsense", "another form"),
    ],
)
def test_what_cannot_be_exact_is_said(kind: str, message: str, tmp_path: Path) -> None:
    values = described(released_model())
    change(values, kind)
    source = folder(tmp_path, values)
    report = convert(source, tmp_path / "again", compare=False)
    (note,) = report.notes
    assert note.startswith("no tokeniser was read: ")
    assert message in note
    assert not (tmp_path / "again" / "tokenizer").exists()
    with pytest.raises(CheckpointError, match="must be as transformers 5 writes it") as caught:
        convert(source, tmp_path / "named", vocabulary=source / "tokenizer.json", compare=False)
    assert "--vocabulary spiece.model" in caught.value.on_command_line


def test_settings_that_contradict_the_file(tmp_path: Path) -> None:
    source = folder(tmp_path, described(released_model()), do_lower_case=True)
    assert "other normalisation" in convert(source, tmp_path / "again", compare=False).notes[0]
