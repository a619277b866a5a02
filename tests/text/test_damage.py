"""Damaged tokenisers are noticed, or are what they were; broken SentencePiece models without a hash are refused."""

import hashlib
import json
import random
from pathlib import Path

import pytest

from segue.errors import CheckpointError, SegueError
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.pieces import PieceTokenizer
from segue.text.released import ReleasedPieces, read_pieces
from tests.mutations import damaged
from tests.text.samples import CHINESE, ENGLISH, KINDS, bpe, make, released_model, unigram


@pytest.mark.parametrize("count", [25, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_noticed(kind: str, count: int, tmp_path: Path) -> None:
    tokenizer = make(kind)
    save_tokenizer(tokenizer, tmp_path)
    chance, noticed = random.Random(count), 0
    for _ in range(count):
        with damaged(tmp_path, chance) as what:
            try:
                found = load_tokenizer(tmp_path)
            except SegueError:
                noticed += 1
            else:
                assert found.fingerprint() == tokenizer.fingerprint(), what
    assert noticed > 0.8 * count
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()


def test_settings_cannot_change_unseen(tmp_path: Path) -> None:
    for kind, change in (
        ("released", {"lower": True, "keep_accents": False}),
        ("words", {"specials": ["unk"], "lower": False, "add_eos": True}),
        ("bytes", {"specials": ["eod"]}),
    ):
        save_tokenizer(make(kind), tmp_path / kind)
        path = tmp_path / kind / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": change}))
        with pytest.raises(CheckpointError, match="must have the fingerprint"):
            load_tokenizer(tmp_path / kind)


def test_headers_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """They have no fingerprint; whatever else they have is refused, so that a damaged name is not taken for one."""
    save_tokenizer(make("words"), tmp_path)
    path = tmp_path / "tokenizer.json"
    header = json.loads(path.read_text())
    fingerprint = header.pop("fingerprint")
    path.write_text(json.dumps(header))
    assert load_tokenizer(tmp_path).fingerprint() == fingerprint
    path.write_text(json.dumps(header | {"fingerprins": fingerprint}))
    with pytest.raises(CheckpointError, match="nothing else"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("kind", ["pieces", "released"])
def test_a_broken_piece_with_a_hash_that_matches(kind: str, tmp_path: Path) -> None:
    model = unigram()._model if kind == "pieces" else released_model()
    place = model.index(b"lighthouse") if b"lighthouse" in model else model.index("\u2581".encode() + b"the")
    broken = model[:place] + b"\xff" + model[place + 1 :]
    settings = {} if kind == "pieces" else {"lower": False, "keep_accents": False}
    (tmp_path / "spiece.model").write_bytes(broken)
    header = {
        "format": "segue-tokenizer-1",
        "kind": kind,
        "settings": settings,
        "sha256": hashlib.sha256(broken).hexdigest(),
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(header))
    with pytest.raises(CheckpointError, match=r"spiece\.model must be a whole SentencePiece model"):
        load_tokenizer(tmp_path)
    with pytest.raises(CheckpointError, match=r"spiece\.model must be a whole SentencePiece model"):
        read_pieces(tmp_path / "spiece.model")


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_models_without_a_hash_are_used_or_refused(count: int, tmp_path: Path) -> None:
    """Damage may change a score and not be noticed; it must not surface as an error of another library."""
    chance, refused = random.Random(count), 0
    models = {"released": released_model(), "unigram": unigram()._model, "bpe": bpe()._model}
    for name, model in models.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "spiece.model").write_bytes(model)
    for number in range(count):
        name = list(models)[number % len(models)]
        with damaged(tmp_path / name, chance):
            if not (tmp_path / name / "spiece.model").exists():
                continue
            data = (tmp_path / name / "spiece.model").read_bytes()
            try:
                found = ReleasedPieces(data) if name == "released" else PieceTokenizer(data)
            except CheckpointError:
                refused += 1
                continue
            for text in (ENGLISH, CHINESE, "é ﬁ ½ 12,  \u2581 <eop> \ud800"):
                found.decode(found.encode(text))
                found.encode_with_offsets(text)
            assert len(found.word_starts()) == found.size
    assert refused > count / 3
