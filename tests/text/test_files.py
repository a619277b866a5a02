import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from segue.errors import CheckpointError
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.symbols import ByteTokenizer, CharacterTokenizer
from segue.text.train import train_tokenizer
from tests.text.samples import CHINESE, CORPUS, ENGLISH, HARD, KINDS, make

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_a_saved_tokeniser_loads_to_an_equal_one(kind: str, tmp_path: Path) -> None:
    tokenizer = make(kind)
    save_tokenizer(tokenizer, tmp_path / "deep" / "folder")
    loaded = load_tokenizer(str(tmp_path / "deep" / "folder"))
    assert type(loaded) is type(tokenizer)
    assert loaded.fingerprint() == tokenizer.fingerprint()
    assert loaded.specials == tokenizer.specials
    for text in (ENGLISH, CHINESE, "".join(HARD)):
        np.testing.assert_array_equal(loaded.encode(text), tokenizer.encode(text))
    assert not list((tmp_path / "deep" / "folder").glob(".*"))


@every_kind
def test_saving_again_replaces(kind: str, tmp_path: Path) -> None:
    save_tokenizer(make("unigram"), tmp_path)
    save_tokenizer(make(kind), tmp_path)
    assert load_tokenizer(tmp_path).fingerprint() == make(kind).fingerprint()


def test_any_character_survives_the_vocabulary_file(tmp_path: Path) -> None:
    tokenizer = CharacterTokenizer(["U", "+", "\n", " ", "\\", "\0", "\x85", "\u2028", "\u0301", "\U0010ffff", "船"])
    save_tokenizer(tokenizer, tmp_path)
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()
    assert "U+000A" in (tmp_path / "vocabulary.txt").read_text(encoding="utf-8").split("\n")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bytes"])
def test_changed_and_missing_files_are_refused(kind: str, tmp_path: Path) -> None:
    save_tokenizer(make(kind), tmp_path)
    data = next(path for path in tmp_path.iterdir() if path.name != "tokenizer.json")
    whole = data.read_bytes()
    for changed in (whole[:-1], whole + b"\n", b"", bytes([whole[0] ^ 1]) + whole[1:]):
        data.write_bytes(changed)
        with pytest.raises(CheckpointError, match="must have the hash"):
            load_tokenizer(tmp_path)
    data.unlink()
    with pytest.raises(CheckpointError, match="must be a readable file"):
        load_tokenizer(tmp_path)


@every_kind
@pytest.mark.parametrize(
    "change",
    [
        {"format": "segue-tokenizer-99"},
        {"format": None},
        {"kind": "wordpiece"},
        {"kind": ["words"]},
        {"settings": None},
        {"settings": {"unheard": 1}},
        {"settings": {"specials": [1]}},
        {"settings": {"specials": ["unk", "nonsense"]}},
        {"settings": {"lower": 1, "keep_accents": "no", "add_eos": None}},
        {"sha256": None},
        {"sha256": "0" * 64},
    ],
)
def test_foreign_headers_are_refused(kind: str, change: dict[str, object], tmp_path: Path) -> None:
    save_tokenizer(make(kind), tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"version": "1.0"}', b" " * 2_000_000]
)
def test_what_is_not_a_header_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json must"):
        load_tokenizer(tmp_path)


def test_the_kinds_cannot_be_exchanged(tmp_path: Path) -> None:
    """A header that vouches for data of another kind is refused by the kind itself, if it has no fingerprint."""

    def other(folder: str, **values: object) -> None:
        path = tmp_path / folder / "tokenizer.json"
        header = json.loads(path.read_text())
        path.write_text(json.dumps(header | values))
        with pytest.raises(CheckpointError, match="fingerprint"):
            load_tokenizer(tmp_path / folder)
        path.write_text(json.dumps({key: value for key, value in (header | values).items() if key != "fingerprint"}))

    for kind in ("unigram", "released", "words"):
        save_tokenizer(make(kind), tmp_path / kind)
    other("released", kind="pieces", settings={})
    with pytest.raises(CheckpointError, match="read_pieces"):
        load_tokenizer(tmp_path / "released")
    other("words", kind="characters", settings={"specials": ["unk"]})
    with pytest.raises(CheckpointError, match="a character a line"):
        load_tokenizer(tmp_path / "words")


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="must be a readable file"):
        load_tokenizer(tmp_path / "nowhere")
    (tmp_path / "file").write_text("here")
    with pytest.raises(CheckpointError, match="must be a folder"):
        save_tokenizer(ByteTokenizer(), tmp_path / "file")
    with pytest.raises(CheckpointError, match="existing folder"):
        ByteTokenizer().save(tmp_path / "nowhere")
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_one_entry_trains_all_kinds() -> None:
    for kind in ("unigram", "bpe", "words", "characters", "bytes"):
        tokenizer = train_tokenizer(kind, iter(CORPUS), vocabulary_size=400, add_eos=True)
        assert tokenizer.size <= 400
        assert tokenizer.decode(tokenizer.encode("the light")) == "the light"
        again = train_tokenizer(kind, CORPUS, vocabulary_size=400, add_eos=True)
        assert again.fingerprint() == tokenizer.fingerprint()
