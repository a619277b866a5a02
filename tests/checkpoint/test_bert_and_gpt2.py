"""BERT and GPT-2 without transformers: folders there and back bit by bit, what `inspect` says of them, and fine-tuning.

That they compute what transformers does is shown in tests/parity/test_bert_and_gpt2.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import segue
from segue.checkpoint.convert import convert
from segue.checkpoint.detect import detect
from segue.checkpoint.families import family_for
from segue.checkpoint.folder import load, save
from segue.model import LanguageModel
from segue.model.named import bert, gpt, named
from segue.text.files import save_tokenizer
from tests.api.conftest import labelled_rows
from tests.text.samples import byte_pairs, word_pieces

SMALL: dict[str, Any] = {"num_layers": 2, "width": 16, "num_heads": 2, "inner_width": 24}
POSITIONS = {"kind": "absolute", "encoding": "learned", "max_length": 12}


def folder(kind: str, place: Path) -> Path:
    """A folder of transformers with a tokeniser, as `--to hf` writes it."""
    torch.manual_seed(0)
    if kind == "bert":
        config, tokenizer = bert(vocabulary_size=word_pieces().size, positions=POSITIONS, **SMALL), word_pieces()
    else:
        norms = {"norm_first": True, "final_norm": True}
        config, tokenizer = gpt(vocabulary_size=byte_pairs().size, positions=POSITIONS, **norms, **SMALL), byte_pairs()
    save_tokenizer(tokenizer, place / "tokenizer")
    save(LanguageModel(config), place / "ours", tokenizer=place / "tokenizer")
    convert(place / "ours", place / "theirs", to="hf", compare=False)
    return place / "theirs"


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    theirs = folder(kind, tmp_path)
    assert json.loads((theirs / "config.json").read_text())["model_type"] == kind
    found = detect(theirs)
    assert found.family is family_for(load(tmp_path / "ours").config, "hf")
    report = convert(theirs, tmp_path / "again", compare=False)
    assert report.has_tokenizer
    before, after = load(tmp_path / "ours"), load(tmp_path / "again")
    assert before.config == after.config
    assert all(torch.equal(value, after.state_dict()[name]) for name, value in before.state_dict().items())
    for name in ("tokenizer.json", "fast.json"):
        assert (tmp_path / "again/tokenizer" / name).read_bytes() == (tmp_path / "ours/tokenizer" / name).read_bytes()


def test_which_family_a_model_is_written_in() -> None:
    for name, family in {
        "bert-base": "BERT",
        "gpt": "GPT-2",
        "xlnet-base": "XLNet",
        "bert-memory": "XLNet",
        "transformer-xl-wt103": "Transformer-XL",
    }.items():
        assert family_for(named(name), "hf").name == f"{family} of transformers"


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.filterwarnings("ignore::segue.errors.SegueWarning")
def test_fine_tuning_reads_documents_longer_than_the_positions(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In segments of that length, CLS first in those of BERT; what is written is a head that transformers has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = labelled_rows(24)
    rows[0]["text"] *= 5
    result = segue.finetune(folder(kind, tmp_path), rows, settings={"train.epochs": 1}, baselines=False, progress=False)
    result.save(tmp_path / "made")
    answers = segue.predict(tmp_path / "made", [row["text"] for row in rows], progress=False)
    assert {answer["prediction"] for answer in answers} <= {"good", "bad"}
    made = segue.load_finetuned(tmp_path / "made").task_model
    assert made.segment_length == 12
    arranged = made.layout().arrange("The room was clean.")
    if kind == "bert":
        assert arranged.cls == 0
        assert arranged.document.ids[0] == word_pieces().specials["cls"]
        pair = made.layout().arrange("The room.", "A film.").document
        assert sorted(set(pair.segments.tolist())) == [0, 1]


@pytest.mark.filterwarnings("ignore::segue.errors.SegueWarning")
def test_a_gpt2_generates_and_is_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    theirs = folder("gpt2", tmp_path)
    found = segue.score(theirs, "The keeper counted the ships that passed before dawn.", progress=False)[0]
    assert found.scored == found.tokens > 12
    assert segue.generate(theirs, "The keeper", max_tokens=20)
