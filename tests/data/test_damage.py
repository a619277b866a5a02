"""No damaged byte of a store is used: whatever is changed in its files is noticed, or changes nothing."""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import segue.data.store as stores
from segue.config import dump, parse
from segue.data.store import Store
from segue.data.writer import StoreWriter
from segue.errors import DataError, SegueError
from segue.text.symbols import CharacterTokenizer
from segue.train.pretrain import Started, StepReport, pretrain
from tests.cli.test_pretrain import segue
from tests.data.test_store import append, commit
from tests.mutations import damaged

TOKENIZER = CharacterTokenizer("abcdefghij船天地人")
END = TOKENIZER.specials.get("eod")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Some shards of the same size, so that one may take the place of another."""
    draw = np.random.default_rng(0)
    with StoreWriter(tmp_path / "store", TOKENIZER, shard_tokens=64, settings={"kind": "characters"}) as writer:
        for _ in range(12):
            append(writer, [draw.integers(7, TOKENIZER.size, size=9).tolist() for _ in range(4)], end=END)
        commit(writer)
    return tmp_path / "store"


@dataclass(frozen=True)
class Content:
    """All that a store says."""

    manifest: str
    ids: list[int]
    borders: tuple[list[int], list[int]]
    word_starts: list[bool]
    tokenizer: str


def content(path: Path) -> Content:
    opened = Store.open(path)
    return Content(
        manifest=opened.manifest.model_dump_json(),
        ids=opened.read(0, opened.length).tolist(),
        borders=(opened.document_starts.tolist(), opened.line_starts.tolist()),
        word_starts=opened.word_starts().tolist(),
        tokenizer=opened.tokenizer().fingerprint(),
    )


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_damage_is_noticed(store: Path, count: int) -> None:
    chance, whole, noticed = random.Random(count), content(store), 0
    for _ in range(count):
        with damaged(store, chance) as what:
            try:
                found = content(store)
            except SegueError:
                noticed += 1
            else:
                assert found == whole, what
    assert noticed > 0.9 * count
    assert content(store) == whole


def test_the_damaged_file_is_named(store: Path) -> None:
    for path in sorted(path for path in store.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        with pytest.raises(DataError, match=path.name):
            Store.open(store)
        path.write_bytes(whole)


def test_large_stores_are_verified_as_they_are_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of two shards in place of 4 GiB."""
    monkeypatch.setattr(stores, "_VERIFIED_AT_ONCE", 2 * 64 * 2)
    shards = sorted(store.glob("tokens-*.bin"))
    assert len(shards) > 4
    shards[4].write_bytes(bytes([shards[4].read_bytes()[0] ^ 1]) + shards[4].read_bytes()[1:])
    opened = Store.open(store)
    assert opened.read(0, 4 * 64).shape == (256,)
    for _ in range(2):  # not only the first time
        with pytest.raises(DataError, match=shards[4].name):
            opened.read(4 * 64 - 1, 4 * 64 + 1)
    with pytest.raises(DataError, match=shards[4].name):
        Store.open(store).verify()
    shards[1].write_bytes(shards[0].read_bytes())
    with pytest.raises(DataError, match=shards[1].name):
        Store.open(store)


def test_a_file_in_place_of_a_store(tmp_path: Path) -> None:
    (tmp_path / "reviews.txt").write_text("It was good.")
    with pytest.raises(DataError, match=r"got the file .*reviews\.txt.*segue\.prepare\(.*reviews\.txt', ") as caught:
        Store.open(tmp_path / "reviews.txt")
    assert f"segue prepare {tmp_path}/reviews.txt --out " in caught.value.on_command_line


@pytest.mark.parametrize("which", ["store", "validation"])
def test_pretraining_refuses_a_damaged_store_before_its_first_step(store: Path, tmp_path: Path, which: str) -> None:
    with StoreWriter(tmp_path / "validation", TOKENIZER) as writer:
        append(writer, [[8, 9, 10, 11] * 20], end=END)
        commit(writer)
    config = parse(
        {
            "data": {
                "store": str(store),
                "validation": str(tmp_path / "validation"),
                "lanes": 2,
                "segment_length": 8,
            },
            "model": {
                "num_layers": 1,
                "width": 8,
                "num_heads": 2,
                "inner_width": 8,
                "vocabulary": {"size": TOKENIZER.size},
            },
            "train": {"steps": 2, "learning_rate": 0.01, "warmup_steps": 1},
        }
    )
    shard = tmp_path / which / "tokens-00000.bin"
    data = shard.read_bytes()
    shard.write_bytes(data[:10] + data[8:10] + data[12:])
    assert shard.read_bytes() != data
    with pytest.raises(DataError, match=rf"{which}/tokens-00000\.bin must have the sha256"):
        next(pretrain(config, tmp_path / "run"))
    events = list(pretrain(config, tmp_path / "run", verify=False))
    assert isinstance(events[0], Started)
    assert sum(isinstance(event, StepReport) for event in events) == 2
    (tmp_path / "config.toml").write_text(dump(config), encoding="utf-8")
    command = ("pretrain", tmp_path / "config.toml", "--out", tmp_path / "another")
    assert f"{which}/tokens-00000.bin must have the sha256" in segue(*command, code=2)
    assert "Done at step 2" in segue(*command, "--no-verify")
