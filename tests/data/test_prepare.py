"""From files to a store: the same whatever the number of workers, whole or not there, in flat memory."""

import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from segue.data import prepare as preparing
from segue.data.encode import TextBatch, TextItem, encode_all
from segue.data.prepare import PreparationReport, PrepareSettings, examples, preparation, prepare, validation_path
from segue.data.store import Store
from segue.errors import CheckpointError, DataError
from segue.text.released import ReleasedPieces
from segue.text.symbols import ByteTokenizer, CharacterTokenizer
from tests.test_files import killed_at

WORDS = ["the", "a", "memory", "segment", "model", "reads", "of", "and", "记忆", "片段", "模型", "读", "长", "文本"]


def write_corpus(path: Path, *, documents: int, seed: int = 0, times: int = 1) -> list[str]:
    """Random documents of some lines, in English and Chinese, all of them so many times."""
    chance = random.Random(seed)
    texts = [
        "\n".join(" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(chance.randint(1, 4)))
        for _ in range(documents)
    ] * times
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return texts


def texts_of(store: Store) -> list[str]:
    """The documents of a store, decoded."""
    tokenizer = store.tokenizer()
    borders = [*store.document_starts.tolist(), store.length]
    return [tokenizer.decode(store.read(start, stop)) for start, stop in itertools.pairwise(borders)]


# ---------------------------------------------------------------------------------------------------------- content


@pytest.mark.parametrize("kind", ["unigram", "bpe", "characters", "bytes"])
def test_no_text_is_lost(tmp_path: Path, kind: preparing.Kind) -> None:
    texts = write_corpus(tmp_path / "a.txt", documents=40)
    size = 300 if kind in ("unigram", "bpe") else None
    report = prepare([tmp_path / "a.txt"], out=tmp_path / "store", kind=kind, vocabulary_size=size)
    store = Store.open(tmp_path / "store", verify=True)
    assert texts_of(store) == texts
    manifest = report.manifest
    assert manifest == store.manifest
    assert manifest.documents == 40
    assert manifest.lines == sum(text.count("\n") + 1 for text in texts)
    assert manifest.characters == sum(map(len, texts))
    assert manifest.bytes == sum(len(text.encode()) for text in texts)
    assert manifest.words == sum(len(text.split()) for text in texts)
    assert manifest.inputs[0].documents == 40
    assert manifest.settings["kind"] == kind
    eod = store.specials["eod"]
    assert all(int(store.read(int(start) - 1, int(start))[0]) == eod for start in store.document_starts[1:])
    tokenizer = store.tokenizer()
    borders = [*store.line_starts.tolist(), store.length]
    lines = [tokenizer.decode(store.read(a, b)).rstrip("\n") for a, b in itertools.pairwise(borders)]
    assert lines == [line for text in texts for line in text.split("\n")]


def test_words_count_the_whole_text_and_report_the_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b a\n\nb  a c\n")
    report = prepare([tmp_path / "a.txt"], out=tmp_path / "all", kind="words")
    assert texts_of(Store.open(tmp_path / "all")) == ["a b a", "b a c"]
    assert report.problems.counts == {}
    report = prepare([tmp_path / "a.txt"], out=tmp_path / "few", kind="words", vocabulary_size=9)
    assert report.problems.counts == {"unknown_tokens": 1}


def test_a_tokenizer_of_a_folder_or_of_a_store(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a.txt", documents=30)
    first = prepare([tmp_path / "a.txt"], out=tmp_path / "one", vocabulary_size=300)
    for number, given in enumerate((tmp_path / "one", tmp_path / "one" / "tokenizer")):
        second = prepare([tmp_path / "a.txt"], out=tmp_path / f"two{number}", tokenizer=given)
        assert second.manifest.tokenizer == first.manifest.tokenizer
        assert second.manifest.files["tokens-00000.bin"] == first.manifest.files["tokens-00000.bin"]
        assert second.manifest.settings["kind"] is None
    with pytest.raises(CheckpointError):
        prepare([tmp_path / "a.txt"], out=tmp_path / "three", tokenizer=tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_without_an_end_token_a_line_end_parts_documents(tmp_path: Path) -> None:
    tokenizer = CharacterTokenizer("ab\n", specials=())
    tokenizer_folder = tmp_path / "tokenizer"
    tokenizer_folder.mkdir()
    tokenizer.save(tokenizer_folder)
    (tmp_path / "a.txt").write_text("a\nb\n\nab\n")
    prepare([tmp_path / "a.txt"], out=tmp_path / "store", tokenizer=tokenizer_folder)
    store = Store.open(tmp_path / "store", verify=True)
    assert store.tokenizer().decode(store.read(0, store.length)) == "a\nb\nab\n"
    assert store.document_starts.tolist() == [0, 4]
    assert store.line_starts.tolist() == [0, 2, 4]


def test_problems_end_in_report_and_manifest(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"text\0 with \xff\n\n" + b"x" * 70_000)
    (tmp_path / "in" / "b.txt").write_bytes(b"")
    (tmp_path / "in" / "c.txt").write_bytes((tmp_path / "in" / "a.txt").read_bytes())
    (tmp_path / "in" / "d.jsonl").write_text('{"text": ""}\n{"text": "fine"}\n')
    report = prepare([tmp_path / "in"], out=tmp_path / "store", kind="bytes")
    expected = {
        "malformed_characters": 1,
        "nul_characters": 1,
        "cut_lines": 1,
        "empty_documents": 1,
        "empty_files": 1,
        "duplicate_files": 1,
    }
    assert report.problems.counts == expected
    assert Store.open(tmp_path / "store").manifest.problems == expected
    assert [record.documents for record in report.manifest.inputs] == [2, 0, 1]


def test_documents_longer_than_a_part_are_one_document(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(30_000))
    (tmp_path / "a.txt").write_text(text)
    prepare([tmp_path / "a.txt"], out=tmp_path / "store", kind="bytes")
    store = Store.open(tmp_path / "store", verify=True)
    assert texts_of(store) == [text]
    assert len(store.line_starts) == 30_000
    (first, _), *_ = examples(store)
    assert first == "line 5000\n"


# ------------------------------------------------------------------------------------------------- order and chance


def test_the_number_of_workers_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "BATCH", 2000)
    for number in range(3):
        write_corpus(tmp_path / f"{number}.txt", documents=150, seed=number)
    reports: list[PreparationReport] = []
    for workers in (1, 2, 3):
        out = tmp_path / f"store{workers}"
        inputs = [f"{tmp_path}/*.txt"]
        report = prepare(inputs, out=out, vocabulary_size=300, workers=workers, validation_share=0.1)
        reports.append(report)
        assert report.workers == workers
    for report in reports[1:]:
        assert report.manifest == reports[0].manifest
        assert report.validation_manifest == reports[0].validation_manifest


def test_validation_takes_whole_documents_by_their_text_and_seed(tmp_path: Path) -> None:
    texts = write_corpus(tmp_path / "a.txt", documents=300)
    texts += texts[:50]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    sides = []
    for seed in (0, 0, 1):
        out = tmp_path / "store"
        prepare([tmp_path / "a.txt"], out=out, kind="bytes", validation_share=0.2, seed=seed, replace=True)
        train, valid = (texts_of(Store.open(path, verify=True)) for path in (out, validation_path(out)))
        assert sorted(train + valid) == sorted(texts)
        assert not set(train) & set(valid)
        assert 0.1 < len(valid) / len(texts) < 0.3
        sides.append(valid)
    assert sides[0] == sides[1] != sides[2]


def test_the_sample_for_training_is_bounded_and_fair(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(f"{number:06d}" * 10 for number in range(5000)))
    settings = PrepareSettings(sample_characters=30_000)
    files = preparing.find_inputs([path], preparing.Problems())
    samples = []
    for _ in range(2):
        steps = preparing._sample(files, settings)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            samples.append(end.value)
    assert samples[0] == samples[1]
    numbers = [int(text[:6]) for text in samples[0]]
    assert 200 <= len(numbers) <= 500
    assert numbers == sorted(numbers)
    assert 1800 < sum(numbers) / len(numbers) < 3200


# --------------------------------------------------------------------------------------------- errors and interrupts


def test_nonsense_is_refused_before_any_work(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a.txt", documents=3)
    inputs = [tmp_path / "a.txt"]
    for problem, options in {
        "workers must be at least 1": {"workers": 0},
        "validation_share must be above 0": {"validation_share": 1.0},
        "the kind must be one of": {"kind": "syllables"},
        "needs a file of records": {"document": "record"},
        "vocabulary_size must be": {"vocabulary_size": 100_000},
    }.items():
        with pytest.raises(DataError, match=problem):
            prepare(inputs, out=tmp_path / "store", **options)  # type: ignore[arg-type]
    (tmp_path / "empty.txt").write_text(" \n")
    for kind in ("bytes", "unigram"):
        with pytest.raises(DataError, match=r"text to train|at least one document"):
            prepare([tmp_path / "empty.txt"], out=tmp_path / "store", kind=kind)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"with 3 documents, a share of 1e-09 left none for validation"):
        prepare(inputs, out=tmp_path / "store", kind="bytes", validation_share=1e-9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "empty.txt"]


def test_stores_are_not_overwritten_unless_asked(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a.txt", documents=30)
    inputs = [tmp_path / "a.txt"]
    prepare(inputs, out=tmp_path / "store", kind="bytes")
    with pytest.raises(DataError, match="must not exist yet; got a store"):
        prepare(inputs, out=tmp_path / "store", kind="characters")
    assert Store.open(tmp_path / "store").manifest.settings["kind"] == "bytes"
    prepare(inputs, out=tmp_path / "store", kind="characters", replace=True)
    assert Store.open(tmp_path / "store").manifest.settings["kind"] == "characters"


@pytest.mark.parametrize("call", ["rename", "replace"])
def test_a_store_and_its_validation_store_are_replaced_together(tmp_path: Path, call: str) -> None:
    """Killed before each move, the two are those before or the new ones, whichever is opened first."""
    write_corpus(tmp_path / "a.txt", documents=30)
    out = tmp_path / "store"

    def make(seed: int) -> None:
        prepare([tmp_path / "a.txt"], out=out, kind="bytes", validation_share=0.3, seed=seed, workers=1, replace=True)

    make(0)
    number, replaced = 1, set()
    while killed_at(number, call, partial(make, number)):
        pair = [out, validation_path(out)]
        opened = [Store.open(path, verify=True) for path in (pair if number % 2 else reversed(pair))]
        (seed,) = {store.manifest.settings["seed"] for store in opened}
        replaced.add(seed == number)
        number += 1
    assert replaced == {call == "rename"}  # the journal is written before the first of the moves
    assert number > 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "store", "store-valid"]


@pytest.mark.parametrize("change", ["grows", "is replaced", "goes"])
def test_an_input_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setattr(preparing, "BATCH", 100)
    write_corpus(tmp_path / "a.txt", documents=200)
    write_corpus(tmp_path / "b.txt", documents=20, seed=1)
    steps = preparation(
        [tmp_path / "a.txt", tmp_path / "b.txt"],
        out=tmp_path / "store",
        settings=PrepareSettings(kind="bytes"),
        workers=1,
    )
    while not next(steps).tokens:
        pass
    if change == "grows":
        with (tmp_path / "a.txt").open("a") as file:
            file.write("more")
    elif change == "is replaced":
        text = (tmp_path / "b.txt").read_text()
        (tmp_path / "b.txt").unlink()
        (tmp_path / "b.txt").write_text(text)
    else:
        (tmp_path / "a.txt").unlink()
    name = "b" if change == "is replaced" else "a"
    with pytest.raises(DataError, match=rf"{name}\.txt must not change while it is read"):
        list(steps)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".txt"]


def test_closing_early_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "BATCH", 500)
    write_corpus(tmp_path / "a.txt", documents=200)
    settings = PrepareSettings(kind="bytes", validation_share=0.1)
    steps = preparation([tmp_path / "a.txt"], out=tmp_path / "store", settings=settings, workers=2)
    (tmp_path / ".store-valid.writing" / "new").mkdir(parents=True)
    (tmp_path / ".store-valid.writing" / "lock").write_text("segue\n")
    while not next(steps).tokens:
        pass
    assert (tmp_path / ".store.writing").is_dir()
    steps.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_dead_worker_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    nowhere = tmp_path / "no tokeniser here"
    batches = iter([TextBatch([TextItem(0, "text", [4], True, True)], 4)])
    with pytest.raises(DataError, match="must stay alive"):
        list(encode_all(batches, ByteTokenizer(), folder=nowhere, stores=1, workers=2))


def test_torch_is_not_loaded() -> None:
    code = "import sys, segue.data.prepare, segue.data.samples, segue.data.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    script = Path(sys.executable).parent / "segue"
    command = [str(script), "prepare", "in.txt", "--out", "store", "--kind", "bytes", "--workers", "2", *arguments]
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )


def workers_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the workers")
def test_kill_9_never_leaves_a_store_that_looks_whole(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.txt", documents=2000, times=30)
    outcomes = []
    for wait in (None, 0.0, 0.1, 0.3):  # seconds after it begins to write; the first is killed before
        process = start(tmp_path)
        deadline = time.monotonic() + 60
        while wait is not None and not list(tmp_path.glob(".store.writing/new/tokens*")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.1 if wait is None else wait)
        children = workers_of(process.pid) if process.poll() is None else []
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
        outcomes.append((tmp_path / "store").exists())
        if outcomes[-1]:
            Store.open(tmp_path / "store", verify=True)
            break
        with pytest.raises(DataError):
            Store.open(tmp_path / "store")
        for left in tmp_path.glob(".store.writing/*"):
            with pytest.raises(DataError):
                Store.open(left)
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{child}/cmdline").exists() and _lives(child) for child in children):
            assert time.monotonic() < deadline, "workers outlive their parent"
            time.sleep(0.05)
    assert not all(outcomes)
    process = start(tmp_path, "--replace")
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 0, output
    assert Store.open(tmp_path / "store", verify=True).manifest.documents == 60_000
    assert not list(tmp_path.glob(".*"))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_an_interrupt_cleans_up_and_exits_with_130(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.txt", documents=2000, times=400)  # far longer than the signal takes
    process = start(tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".store.writing/new/tokens*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    output = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.txt", documents=2000, times=10)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    code = "from segue.data.prepare import prepare; prepare(['in.txt'], out='store', kind='bytes', workers=1)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, preexec_fn=small_files, capture_output=True, text=True, check=False
    )
    assert "DataError: store must be written to disk; got File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """60 MB, of which the first 20 are one line; the store is 100 MB."""
    line = b"a memory of many segments " * 40
    with (tmp_path / "in.txt").open("wb") as file:
        for _ in range(20_000):
            file.write(line)
        for number in range(40_000):
            file.write(b"\n" + b"\n" * (number % 3 == 0) + line)
    assert (tmp_path / "in.txt").stat().st_size > 60e6
    code = """
import resource
from segue.data.prepare import prepare
open("small.txt", "w").write("a memory of many segments\\n" * 9)
prepare(["small.txt"], out="small", kind="bytes", workers=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = prepare(["in.txt"], out="store", kind="bytes", workers=1)
assert report.manifest.characters > 60e6
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40_000, f"{done.stdout} KB for 60 MB"


def test_lines_begin_where_they_begin_even_if_line_ends_become_spaces(tmp_path: Path) -> None:
    texts = write_corpus(tmp_path / "a.txt", documents=30)
    trained = prepare([tmp_path / "a.txt"], out=tmp_path / "one", vocabulary_size=300)
    released = ReleasedPieces((trained.store / "tokenizer" / "spiece.model").read_bytes(), keep_accents=True)
    (tmp_path / "released").mkdir()
    released.save(tmp_path / "released")
    prepare([tmp_path / "a.txt"], out=tmp_path / "two", tokenizer=tmp_path / "released")
    store = Store.open(tmp_path / "two", verify=True)
    borders = [*store.line_starts.tolist(), store.length]
    lines = [released.decode(store.read(a, b)).strip() for a, b in itertools.pairwise(borders)]
    assert lines == [line for text in texts for line in text.split("\n")]
