"""Word pieces and byte pairs from files of anyone: used or refused, and never handed to the library unchecked.

The promises of all tokenisers are tried in test_promises.py, the equality with transformers in tests/parity.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from segue.errors import CheckpointError
from segue.text.byte_pairs import BytePairTokenizer, read_byte_pairs
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.library import MissingLibraryError
from segue.text.stream import StreamEncoder
from segue.text.word_pieces import WordPieceTokenizer
from tests.text.samples import CHINESE, ENGLISH, byte_pairs, word_pieces

CLASSES = {"byte pairs": BytePairTokenizer, "word pieces": WordPieceTokenizer}


def described(kind: str, tmp_path: Path) -> dict[str, Any]:
    """The `tokenizer.json` of transformers that a saved tokeniser keeps."""
    save_tokenizer(byte_pairs() if kind == "byte pairs" else word_pieces(), tmp_path)
    found: dict[str, Any] = json.loads((tmp_path / "fast.json").read_text(encoding="utf-8"))
    return found


def pieces(tokenizer: Any, text: str) -> list[str]:
    return [tokenizer.token(index) for index in tokenizer.encode(text)]


def test_word_pieces_fold_case_and_accents_and_split_han() -> None:
    assert pieces(word_pieces(), "The KEEPER, Sèa守塔!") == ["the", "keeper", ",", "sea", "守", "塔", "!"]
    assert pieces(word_pieces(lower=False), "The sea") == ["The", "sea"]
    assert (
        word_pieces().decode(word_pieces().encode("The keepers counted 守塔 ships")) == "the keepers counted守塔ships"
    )


@pytest.mark.parametrize("text", ["[SEP]", "a [CLS] b", "[MASK]", "[PAD][UNK]"])
def test_a_special_token_in_a_text_is_its_characters(text: str) -> None:
    control = set(word_pieces().specials.values()) - {word_pieces().specials["unk"]}
    assert not control & set(word_pieces().encode(text).tolist())
    assert "[" in pieces(word_pieces(), text)


def test_the_end_of_a_text_in_a_text_is_its_characters() -> None:
    assert byte_pairs().specials == {"eod": 0}
    ids = byte_pairs().encode("a<|endoftext|>b")
    assert 0 not in ids
    assert byte_pairs().decode(ids) == "a<|endoftext|>b"
    assert byte_pairs().decode([0]) == ""


def test_chinese_does_not_wait() -> None:
    stream = StreamEncoder(word_pieces())
    assert len(stream.feed("守塔的")) == 3


@pytest.mark.parametrize("kind", CLASSES)
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    found = CLASSES[kind](json.dumps(described(kind, tmp_path)).encode())
    again = load_tokenizer(tmp_path)
    assert again.fingerprint() == found.fingerprint()
    assert again.encode(ENGLISH + CHINESE).tolist() == found.encode(ENGLISH + CHINESE).tolist()


HOSTILE: dict[str, tuple[str, Any, str]] = {
    "another model": ("model.type", "Unigram", "a model"),
    "regular expression": ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$"}}, "another"),
    "growth": ("normalizer", {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}, "normalisation"),
    "no tokens": ("model.vocab", {}, "no table of at most"),
    "ids with gaps": ("model.vocab", {"[UNK]": 0, "a": 7}, "ids with gaps"),
    "a number": ("model.vocab", {"[UNK]": 0, "a": "1"}, "an id that is not a number"),
    "empty token": ("model.vocab", {"": 0}, "not a text of 1 to"),
    "added": (
        "added_tokens",
        [{"id": 3, "content": "tower", "special": False}],
        "the token 'tower', which was added and is not special",
    ),
    "added elsewhere": ("added_tokens", [{"id": 10**6, "content": "<x>", "special": True}], "ids with gaps"),
}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("name", HOSTILE)
def test_what_transformers_does_not_write_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    path, value, reason = HOSTILE[name]
    values = described(kind, tmp_path)
    *inside, last = path.split(".")
    place = values
    for key in inside:
        place = place[key]
    place[last] = value
    if last == "vocab":
        values["added_tokens"] = []
    with pytest.raises(CheckpointError, match=r"some/tokenizer.json must be") as caught:
        CLASSES[kind](json.dumps(values).encode(), source="some/tokenizer.json")
    assert reason in str(caught.value)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"7", b"{}", b"\xff", b'{"normalizer": null}'])
def test_no_description_at_all(kind: str, data: bytes) -> None:
    with pytest.raises(CheckpointError, match="must be a"):
        CLASSES[kind](data)


def test_byte_pairs_need_every_byte_and_no_first_space(tmp_path: Path) -> None:
    values = described("byte pairs", tmp_path)
    values["pre_tokenizer"]["add_prefix_space"] = True
    with pytest.raises(CheckpointError, match="add_prefix_space"):
        BytePairTokenizer(json.dumps(values).encode())
    values = described("byte pairs", tmp_path)
    values["model"]["merges"] = []
    values["model"]["vocab"] = {"a": 0, "b": 1}
    values["added_tokens"] = []
    with pytest.raises(CheckpointError, match="no token for the byte 0"):
        BytePairTokenizer(json.dumps(values).encode())
    values = described("byte pairs", tmp_path)
    values["model"]["merges"].append(["<|", "endoftext|>"])
    with pytest.raises(CheckpointError, match="the merge"):
        BytePairTokenizer(json.dumps(values).encode())


def test_broken_files_of_the_first_releases(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"merges.txt|must be a file"):
        read_byte_pairs(tmp_path)


@pytest.mark.parametrize("kind", CLASSES)
def test_without_the_library(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = described(kind, tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingLibraryError, match=r"some/tokenizer.json .*pip install tokenizers"):
        CLASSES[kind](json.dumps(values).encode(), source="some/tokenizer.json")
