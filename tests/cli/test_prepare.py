"""`segue prepare` and `segue sample` as a user meets them."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from segue.data.store import Store
from tests.command import command, script


def segue(*arguments: str, folder: Path, width: int = 80) -> subprocess.CompletedProcess[str]:
    return command(*arguments, folder=folder, width=width, environment={"HOME": str(folder)})


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    lines = [f"a memory of segment {number}，以及第{number}段的记忆。" for number in range(300)]
    (tmp_path / "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    return tmp_path


def test_help_is_enough_to_go_on(tmp_path: Path) -> None:
    result = segue("prepare", "--help", folder=tmp_path, width=120)
    assert result.returncode == 0
    for word in ("jsonl", "parquet", "zst", "--out", "--tokenizer", "--kind", "--vocabulary-size", "--documents",
                 "--field", "--workers", "--validation-share", "--seed", "--replace", "OUT-valid"):  # fmt: skip
        assert word in result.stdout
    assert "sample" in segue("--help", folder=tmp_path).stdout


@pytest.mark.parametrize("width", [40, 100])
def test_prepare_reports_in_any_terminal(corpus: Path, width: int) -> None:
    arguments = ("a.txt", "--out", "s", "--vocabulary-size", "320", "--validation-share", "0.1")
    result = (script if width == 40 else command)("prepare", *arguments, folder=corpus, width=width)
    assert result.returncode == 0, result.stderr
    assert result.stderr.splitlines()[0].startswith("training the tokeniser")
    assert "encoding" not in result.stdout
    assert "\x1b" not in result.stdout
    store, valid = (Store.open(corpus / name, verify=True) for name in ("s", "s-valid"))
    assert store.manifest.documents + valid.manifest.documents == 300
    for name, number in (("documents", store.manifest.documents), ("tokens", store.length), ("vocabulary", 320)):
        assert re.search(rf"^  {name} +{number:,}$", result.stdout, re.MULTILINE), name
    per_character = store.length / store.manifest.characters
    assert f"{per_character:.3f} tokens" in result.stdout
    assert result.stdout.count("a memory of segment") == 3
    assert "a·▁me" in result.stdout.replace("\n  ", "") or "▁of" in result.stdout
    wide = [len(line) + len(re.findall(r"[\u3000-\u9fff\uff00-\uffef]", line)) for line in result.stdout.splitlines()]
    assert max(wide) <= width


def test_prepare_says_what_it_found(corpus: Path) -> None:
    (corpus / "b.jsonl").write_text(json.dumps({"body": "fine\0"}) + "\n" + json.dumps({"body": ""}))
    result = segue("prepare", "*.jsonl", "--out", "s", "--kind", "bytes", "--field", "body", folder=corpus)
    assert result.returncode == 0, result.stderr
    assert "1 NUL characters, dropped; first: b.jsonl" in result.stdout
    assert "1 documents without text, skipped" in result.stdout
    assert Store.open(corpus / "s").manifest.inputs[0].path == "b.jsonl"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.txt", "--out", "s"), "gone.txt must exist"),
        (("a.txt", "--out", "a.txt"), "must be a store that segue wrote, or not exist yet"),
        (("a.txt", "--out", "s", "--vocabulary-size", "9999"), "vocabulary_size must be at most"),
        (("a.txt", "--out", "s", "--encoding", "klingon"), "the encoding must be a text encoding that Python knows"),
        (("a.txt", "--out", "s", "--documents", "record"), "needs a file of records"),
        (("a.txt", "--out", "s", "--tokenizer", "."), "tokenizer.json"),
    ],
)
def test_errors_are_one_message(corpus: Path, arguments: tuple[str, ...], message: str) -> None:
    result = segue("prepare", *arguments, folder=corpus, width=300)
    assert result.returncode == 2
    assert "\nsegue: " in f"\n{result.stderr}"
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in corpus.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_samples_are_described_and_english_is_written(
    tmp_path: Path, request: pytest.FixtureRequest, whole: bool
) -> None:
    """The sample is made from part of the standard library, because reading all of it takes seconds."""
    if not whole:
        request.getfixturevalue("few_texts")
    result = segue("sample", folder=tmp_path, width=50)
    assert result.returncode == 0
    for name in ("english", "chinese-novel", "chinese-news", "chinese-reviews", "chinese-names"):
        assert f"{name}  " in result.stdout
    written = segue("sample", "english", "--out", "en.txt", folder=tmp_path)
    assert written.returncode == 0, written.stderr
    text = (tmp_path / "en.txt").read_text(encoding="utf-8")
    assert len(text) > (1_000_000 if whole else 100_000)
    assert "segue prepare en.txt --out en.store" in written.stdout
    again = segue("sample", "english", "--out", "en.txt", folder=tmp_path)
    assert again.returncode == 2
    assert "must not exist yet" in again.stderr
