"""The corpora of the packaged models: what is mended, what is kept out, and that they can be made again."""

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest
from recipes.corpus import LONGEST_DOCUMENT, clean, cut, digest, is_prose
from recipes.overlap import Overlap

ENGLISH = "the quick brown fox jumps over the lazy dog while seven old men watch it from the hill"
CHINESE = "国际特赦组织的出版物主要有年报及全球死刑报告每年定期出版并配有纸质版"


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("Achilles (, born 1900) was a hero ( ) .", "Achilles (born 1900) was a hero."),
        ("采集野生-{苎}-麻，「」一词（ ）很古老", "采集野生苎麻，一词很古老"),
        ("a\u200bb  c\u00a0d", "ab c d"),
    ],
)
def test_holes_of_stripped_markup_are_mended(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


def test_what_is_not_prose() -> None:
    assert is_prose("A sentence of ordinary words.", 10)
    for line in ("short", "see https://example.org for more of this", "12 34 56 78 90 12 34 (%) a b"):
        assert not is_prose(line, 10)


def test_equal_letters_are_duplicates() -> None:
    assert digest("Hello, World") == digest("hello world!") != digest("hello worlds")


def test_long_documents_are_cut_at_paragraphs() -> None:
    paragraphs = ["x" * 12_000] * 6
    parts = list(cut(paragraphs))
    assert [paragraph for part in parts for paragraph in part] == paragraphs
    assert all(sum(map(len, part)) <= LONGEST_DOCUMENT for part in parts)


@pytest.mark.parametrize(("language", "text"), [("en", ENGLISH), ("zh", CHINESE)])
def test_text_of_a_test_set_is_found(tmp_path: Path, language: str, text: str) -> None:
    (tmp_path / "set").mkdir()
    with lzma.open(tmp_path / "set" / "test.jsonl.xz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"text": text, "short": "five words are in this"}) + "\n")  # \u escapes of Chinese too
    overlap = Overlap(language)
    for path in overlap.test_files(tmp_path, without=tmp_path / "pretraining"):
        overlap.add_file(path)
    overlap.finish()
    assert overlap.files == 1
    assert overlap.contains(f"Before it, {text.upper()}, and after it.")
    assert not overlap.contains("Nothing of this paragraph is in any test set, however long it becomes in the end.")
    if language == "en":
        assert overlap.contains("Five words are in this.")
        assert not overlap.contains("Five words are in that.")


def test_traditional_characters_are_compared_as_simplified(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text(
        "這個國家的歷史學家們認為，這場戰爭開始於一千九百三十七年的夏天。", encoding="utf-8"
    )
    overlap = Overlap("zh")
    overlap.add_file(tmp_path / "test.txt")
    overlap.finish()
    assert overlap.contains("据记载，这个国家的历史学家们认为，这场战争开始于一千九百三十七年的夏天。")


def test_a_corpus_is_the_same_when_it_is_made_again(tmp_path: Path) -> None:
    sources = tmp_path / "data" / "pretraining" / "zh"
    sources.mkdir(parents=True)
    for name in ("wiki", "laws", "late_qing_novels", "commonvoice"):
        with lzma.open(sources / f"{name}.txt.xz", "wt", encoding="utf-8") as file:
            for number in range(12):
                file.write(f"第{number}篇\n" + f"{name}的第{number}段文字，" * 20 + "\n\n")
    (tmp_path / "data" / "set").mkdir()
    (tmp_path / "data" / "set" / "test.txt").write_text("wiki的第3段文字，" * 20, encoding="utf-8")
    for out in ("one", "two"):
        command = [sys.executable, "-m", "recipes.corpus", "zh", "--sources", str(sources.parent)]
        subprocess.run(
            [*command, "--against", str(tmp_path / "data"), "--out", str(tmp_path / out)], check=True, timeout=120
        )
    one, two = ((tmp_path / out / "train.txt").read_text(encoding="utf-8") for out in ("one", "two"))
    assert one == two
    assert "laws的第" in one
    assert "wiki的第3段" not in one
    report = json.loads((tmp_path / "one" / "report.json").read_text(encoding="utf-8"))
    assert report["inputs"]["zh/wiki.txt.xz"]["lines in test sets"] == 1
