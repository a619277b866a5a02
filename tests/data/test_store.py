"""What is written is read back; what is damaged, foreign or unfinished is refused."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.data.manifest import NAME, dump_manifest, load_manifest
from segue.data.store import Store
from segue.data.writer import Encoded, StoreWriter
from segue.errors import DataError
from segue.text.symbols import ByteTokenizer
from segue.text.words import WordTokenizer

BYTES = ByteTokenizer()
EOD = BYTES.specials["eod"]
LINES = st.lists(st.integers(0, 255), min_size=1, max_size=9)
DOCUMENTS = st.lists(st.lists(LINES, min_size=1, max_size=5), min_size=1, max_size=8)


def append(writer: StoreWriter, lines: list[list[int]], *, end: int | None = EOD) -> None:
    """One document, with its end."""
    starts = np.cumsum([0, *(len(line) for line in lines[:-1])])
    ids = [index for line in lines for index in line] + ([] if end is None else [end])
    ids = np.array(ids, dtype=np.uint32)
    writer.extend(Encoded(ids=ids, line_starts=starts, document_starts=starts[:1]))


def commit(writer: StoreWriter) -> None:
    writer.seal()
    writer.publish()


def write(path: Path, documents: list[list[list[int]]], **options: int) -> Store:
    shutil.rmtree(path, ignore_errors=True)
    with StoreWriter(path, BYTES, **options) as writer:
        for document in documents:
            append(writer, document)
        commit(writer)
    return Store.open(path, verify=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write(tmp_path / "store", [[[1, 2, 3], [4, 5]], [[6]], [[7, 8, 9, 10]]], shard_tokens=4)


@settings(deadline=None, max_examples=25)
@given(documents=DOCUMENTS, shard_tokens=st.integers(1, 40), data=st.data())
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], shard_tokens: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip"
    store = write(path, documents, shard_tokens=shard_tokens)
    flat: list[int] = []
    document_starts, line_starts = [], []
    for document in documents:
        document_starts.append(len(flat))
        for line in document:
            line_starts.append(len(flat))
            flat += line
        flat.append(EOD)
    assert store.length == len(flat)
    assert store.read(0, store.length).tolist() == flat
    assert store.document_starts.tolist() == document_starts
    assert store.line_starts.tolist() == line_starts
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat)))
    part = store.read(start, stop)
    assert part.dtype == np.int64
    assert part.tolist() == flat[start:stop]


def test_it_describes_itself(store: Store) -> None:
    assert store.vocabulary_size == BYTES.size
    assert store.specials == dict(BYTES.specials)
    assert store.manifest.dtype == "uint16"
    assert store.manifest.shards == (4, 4, 4, 1)
    assert (store.word_starts() == BYTES.word_starts()).all()
    assert store.tokenizer().fingerprint() == BYTES.fingerprint()
    again = pickle.loads(pickle.dumps(store))
    assert again.read(3, 9).tolist() == store.read(3, 9).tolist()


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    for size, dtype in ((2**16, "uint16"), (2**16 + 1, "uint32")):
        tokenizer = WordTokenizer([f"w{number}" for number in range(size)], specials=())
        assert tokenizer.size == size
        with StoreWriter(tmp_path / dtype, tokenizer) as writer:
            append(writer, [[size - 1, 0]], end=None)
            assert writer.seal().dtype == dtype
            writer.publish()
        assert Store.open(tmp_path / dtype, verify=True).read(0, 2).tolist() == [size - 1, 0]


def test_many_shards_do_not_exhaust_file_handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.data.store._OPEN_SHARDS", 3)
    store = write(tmp_path / "store", [[list(range(20))]], shard_tokens=1)
    assert len(store.manifest.shards) == 21
    for _ in range(2):
        assert store.read(0, 20).tolist() == list(range(20))
        assert len(store._shards) == 3


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 14)])
def test_ranges_outside_are_refused(store: Store, start: int, stop: int) -> None:
    with pytest.raises(DataError, match="must lie within its 13 tokens"):
        store.read(start, stop)


def test_ids_of_another_tokeniser_are_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", BYTES) as writer, pytest.raises(DataError, match="must be below 262; got 262"):
        append(writer, [[262]])
    assert list(tmp_path.iterdir()) == []


def test_nothing_remains_of_an_error_or_of_nothing(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", BYTES)
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="at least one document"), StoreWriter(tmp_path / "store", BYTES) as writer:
        writer.seal()
    assert list(tmp_path.iterdir()) == []


def test_only_one_writer_at_a_time_and_leftovers_are_swept(tmp_path: Path) -> None:
    left = tmp_path / ".store.writing" / "new"
    left.mkdir(parents=True)
    (left.parent / "lock").write_text("segue\n")
    (left / "tokens-00000.bin").write_bytes(b"left by a killed run")
    with StoreWriter(tmp_path / "store", BYTES) as writer:
        with pytest.raises(DataError, match="another one is writing it"):
            StoreWriter(tmp_path / "store", BYTES)
        append(writer, [[1]])
        assert not (tmp_path / "store").exists()
        commit(writer)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert Store.open(tmp_path / "store", verify=True).read(0, 2).tolist() == [1, EOD]


@pytest.mark.parametrize("way", ["open", "write", "replace"])
def test_a_replacement_is_finished_after_a_killed_process(store: Store, tmp_path: Path, way: str) -> None:
    """As it is when the process is killed after the first of the two moves of a replacement."""
    with StoreWriter(tmp_path / "other", BYTES) as writer:
        append(writer, [[42]])
        commit(writer)
    beside = store.path.with_name(f".{store.path.name}.writing")
    beside.mkdir()
    (beside / "lock").write_text("segue\n")
    (beside / "journal.json").write_text(json.dumps([store.path.name]))
    (tmp_path / "other").rename(beside / "new")
    store.path.rename(beside / "old")
    if way == "open":
        assert Store.open(store.path, verify=True).length == 2
    elif way == "write":
        with pytest.raises(DataError, match="must not exist yet"):
            StoreWriter(store.path, BYTES)
    else:
        StoreWriter(store.path, BYTES, replace=True).abort()
    assert not beside.exists()
    assert Store.open(store.path, verify=True).read(0, 1).tolist() == [42]


def test_replacing_is_asked_for_and_only_stores_are_replaced(store: Store, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must not exist yet"):
        StoreWriter(store.path, BYTES)
    with StoreWriter(store.path, BYTES, replace=True) as writer:
        append(writer, [[42]])
        assert Store.open(store.path, verify=True).length == 13
        commit(writer)
    assert Store.open(store.path, verify=True).read(0, 1).tolist() == [42]
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    for target in (other, other / "thesis.txt", Path("/"), Path(".")):
        with pytest.raises(DataError):
            StoreWriter(target, BYTES, replace=True)
    assert (other / "thesis.txt").read_text() == "years of work"


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter(tmp_path / "store", BYTES) as writer:

        def full(data: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(writer._shard, "write", full)
        with pytest.raises(DataError, match="No space left on device"):
            append(writer, [[1]])
    assert list(tmp_path.iterdir()) == []


def test_every_truncation_and_every_flipped_bit_is_found(store: Store) -> None:
    files = sorted(path for path in store.path.rglob("*") if path.is_file())
    assert len(files) == 9
    chance = np.random.default_rng(0)
    for path in files:
        whole = path.read_bytes()
        for damaged in (whole[:-2], whole + b"\0", b""):
            path.write_bytes(damaged)
            with pytest.raises(DataError):
                Store.open(store.path)
        for _ in range(20):
            place, bit = int(chance.integers(len(whole))), int(chance.integers(8))
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            if path.name == NAME and json.loads(whole) == _parsed(path):
                continue  # white space
            with pytest.raises(DataError):
                Store.open(store.path, verify=True)
        path.unlink()
        with pytest.raises(DataError):
            Store.open(store.path)
        path.write_bytes(whole)
    Store.open(store.path, verify=True)


def _parsed(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


def test_swapped_shards_are_found(store: Store) -> None:
    first, second = store.path / "tokens-00000.bin", store.path / "tokens-00001.bin"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    with pytest.raises(DataError, match="must have the sha256"):
        Store.open(store.path, verify=True)


@pytest.mark.parametrize("content", ["", "[]", "{", "{}", '{"kind": "other"}', '{"kind": "segue-store", "format": 2}'])
def test_foreign_manifests_are_refused(store: Store, content: str) -> None:
    (store.path / NAME).write_text(content)
    with pytest.raises(DataError):
        Store.open(store.path)


def test_a_manifest_cannot_point_outside_or_contradict_itself(store: Store) -> None:
    manifest = load_manifest(store.path)
    record = manifest.files["documents.bin"]
    for name in ("../x", "/etc/hostname", "tokenizer/../../x", "tokenizer//x", "tokenizer\\x", "other.bin"):
        changed = manifest.model_copy(update={"files": manifest.files | {name: record}})
        (store.path / NAME).write_text(dump_manifest(changed))
        with pytest.raises(DataError, match="must not list other files"):
            Store.open(store.path)
    for update in (
        {"tokens": 12},
        {"shards": (4, 4, 5)},
        {"vocabulary_size": 8},
        {"documents": 2},
        {"dtype": "uint32"},
    ):
        (store.path / NAME).write_text(dump_manifest(manifest.model_copy(update=update)))
        with pytest.raises(DataError, match=r"must (agree with itself|not list other files)"):
            Store.open(store.path)


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_what_is_no_store_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"with a manifest\.json"):
        Store.open(tmp_path / path)
