"""WordPiece and byte-level BPE beside transformers 5: the same ids and offsets on a large mixed sample, from each of
the files that a tokeniser is kept in, and from what segue writes."""

import json
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.checkpoint.convert import convert
from segue.checkpoint.vocabularies import find_tokenizer, write_tokenizer
from segue.errors import CheckpointError
from segue.text.byte_pairs import BytePairTokenizer
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer
from segue.text.word_pieces import WordPieceTokenizer
from tests.parity.test_bert_and_gpt2 import theirs
from tests.parity.test_tokenisers import encoded_there, mixed_texts
from tests.text.samples import CHINESE, ENGLISH, HARD, byte_pairs, word_piece_tokens

transformers = pytest.importorskip("transformers", minversion="5")
SETTINGS: list[dict[str, Any]] = [
    {},
    {"do_lower_case": False},
    {"do_lower_case": False, "strip_accents": True},
    {"do_lower_case": True, "strip_accents": False},
    {"tokenize_chinese_chars": False},
]


def texts() -> list[str]:
    """What others are tried on, emoji, accents, long words and long lines; without what spells a special token."""
    more = [
        "Ünïcödé ÉCOLE ñandú İstanbul ǅ straße ﬁne",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 ok \U0001f600\U0001f600",
        "a" * 99 + " " + "b" * 101,
    ]
    more += [
        (ENGLISH + CHINESE) * 20,
        (CHINESE.replace("\n", "")) * 30,
        "it's we'll they've I'm he'd 'tis don''t",
        "  two  spaces \n\n lines \t ",
    ]
    return [
        *mixed_texts()[:1200],
        *more,
        *(text for text in HARD if "<" not in text and text == text.encode("utf-8", "ignore").decode()),
    ]


def same(own: Tokenizer, other: Any) -> None:
    for text in texts():
        found, there = own.encode_with_offsets(text), encoded_there(other, text)
        assert found.ids.tolist() == there["input_ids"], text
        assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == there["offset_mapping"], text


def found_in(folder: Path) -> Tokenizer:
    beside = folder / "tokenizer_config.json"
    settings = json.loads(beside.read_text()) if beside.is_file() else {}
    tokenizer = find_tokenizer(folder, size=None, settings=settings).tokenizer
    assert tokenizer is not None
    return tokenizer


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_word_pieces(settings: dict[str, Any], tmp_path: Path) -> None:
    """From `vocab.txt` with settings, from what transformers saves, and from what segue writes."""
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in word_piece_tokens()), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | settings))
    other = transformers.BertTokenizer.from_pretrained(tmp_path)
    own = found_in(tmp_path)
    assert isinstance(own, WordPieceTokenizer)
    assert own.specials == {
        n: other.convert_tokens_to_ids(f"[{n.upper()}]") for n in ("unk", "cls", "sep", "pad", "mask")
    }
    same(own, other)
    other.save_pretrained(tmp_path / "saved")
    again = found_in(tmp_path / "saved")
    assert again.fingerprint() == own.fingerprint()
    (tmp_path / "written").mkdir()
    assert write_tokenizer(own, tmp_path / "written") is None
    same(own, transformers.AutoTokenizer.from_pretrained(tmp_path / "written"))
    assert found_in(tmp_path / "written").fingerprint() == own.fingerprint()


def test_byte_pairs(tmp_path: Path) -> None:
    """From `tokenizer.json`, from `vocab.json` with `merges.txt`, and from what segue writes."""
    assert write_tokenizer(byte_pairs(), tmp_path) is None
    other = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(other, transformers.GPT2Tokenizer)
    assert isinstance(found_in(tmp_path), BytePairTokenizer)
    same(byte_pairs(), other)
    other.save_pretrained(tmp_path / "saved")
    assert found_in(tmp_path / "saved").fingerprint() == byte_pairs().fingerprint()
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    old = tmp_path / "old"
    old.mkdir()
    (old / "vocab.json").write_text(json.dumps(model["vocab"]))
    (old / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    assert found_in(old).fingerprint() == byte_pairs().fingerprint()
    same(found_in(old), transformers.GPT2Tokenizer.from_pretrained(old))


def test_settings_that_contradict_the_file(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in word_piece_tokens()), encoding="utf-8")
    transformers.BertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "saved")
    with pytest.raises(CheckpointError, match="do_lower_case"):
        find_tokenizer(tmp_path / "saved" / "tokenizer.json", size=None, settings={"do_lower_case": False})


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "GPT2LMHeadModel"])
def test_a_whole_folder_there_and_back(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and tokeniser: loaded by its path, converted, written back, and the same text gives the same logits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    size = len(word_piece_tokens()) if kind.startswith("Bert") else byte_pairs().size
    theirs(kind, vocab_size=size).save_pretrained(folder)
    if kind.startswith("Bert"):
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in word_piece_tokens()), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    else:
        write_tokenizer(byte_pairs(), folder)
    report = convert(folder, tmp_path / "ours")
    assert report.has_tokenizer
    assert report.comparison is not None, report.not_compared
    assert report.comparison.inputs == "an English and a Chinese sentence"
    assert report.comparison.largest <= 1e-5
    convert(tmp_path / "ours", tmp_path / "back", to="hf")
    same(load_tokenizer(tmp_path / "ours" / "tokenizer"), transformers.AutoTokenizer.from_pretrained(tmp_path / "back"))
    assert segue.load(folder).config.vocabulary.size == size
