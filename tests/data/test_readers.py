"""Every kind of file, and every kind of nonsense in it."""

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.data import decode, readers
from segue.data.decode import HARMLESS, chunks, cut, lines
from segue.data.inputs import find_inputs
from segue.data.problems import Problems
from segue.data.readers import LONGEST_LINE, DocumentPart, ReadSettings, read_documents
from segue.data.tables import open_table
from segue.errors import DataError
from tests.examples import examples

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def documents(path: Path, problems: Problems | None = None, **options: Any) -> list[str]:
    """The documents of a path, each as its text."""
    problems = Problems() if problems is None else problems
    texts: list[str] = []
    for file in find_inputs([path], problems):
        for part in read_documents(file, ReadSettings(**options), problems):
            if part.begins:
                texts.append("")
            texts[-1] += "".join(part.lines)
    return texts


def text_file(folder: Path, content: str | bytes, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ------------------------------------------------------------------------------------------------------- documents


def test_what_a_document_is(tmp_path: Path) -> None:
    path = text_file(tmp_path, "\n\n one\ntwo \n \t \n\nthree\n\n\n")
    assert documents(path) == [" one\ntwo ", "three"]
    assert documents(path, document="block") == [" one\ntwo ", "three"]
    assert documents(path, document="line") == [" one", "two ", "three"]
    assert documents(path, document="file") == [" one\ntwo \n \t \n\nthree\n\n"]
    with pytest.raises(DataError, match="needs a file of records"):
        documents(path, document="record")


def test_line_ends_of_all_systems_and_only_those(tmp_path: Path) -> None:
    path = text_file(tmp_path, "a\r\nb\rc\nd\x0be\x0cf\x85g\u2028h")
    assert documents(path) == ["a\nb\nc\nd\x0be\x0cf\x85g\u2028h"]
    assert documents(path, document="line") == ["a", "b", "c", "d\x0be\x0cf\x85g\u2028h"]


@settings(deadline=None, max_examples=examples(60))
@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=80),
    longest=st.integers(1, 30),
    part=st.integers(1, 20),
)
def test_no_text_is_lost_whatever_the_limits(
    tmp_path_factory: pytest.TempPathFactory, text: str, longest: int, part: int
) -> None:
    path = text_file(tmp_path_factory.getbasetemp(), text.removeprefix("\ufeff"), "any.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "LONGEST_LINE", longest)
        patch.setattr(readers, "PART", part)
        patch.setattr("segue.data.decode.CHUNK", 7)
        found = documents(path, document="line")
        expected = [line for line in text.removeprefix("\ufeff").split("\n") if line.strip()]
        # Pieces of nothing but white space before the first text are dropped.
        assert [line.lstrip() for line in found if line.strip()] == [line.lstrip() for line in expected]
        whole = documents(path, document="file")
    assert "".join("".join(whole).split()) == "".join(text.removeprefix("\ufeff").split())


@given(line=st.text("ab ", max_size=60), longest=st.integers(1, 20), size=st.integers(1, 30))
def test_cuts_do_not_depend_on_how_a_line_arrives(line: str, longest: int, size: int) -> None:
    pieces = list(cut(line, longest))
    assert "".join(pieces) == line
    assert all(len(piece) <= longest for piece in pieces)
    arriving = [line[start : start + size] for start in range(0, len(line), size)]
    assert [text for text, _ in lines(iter(arriving), longest=longest)] == (pieces if line else [])


# --------------------------------------------------------------------------------------------------------- formats


def test_all_formats_and_compressions(tmp_path: Path) -> None:
    texts = ["first line\nsecond line", "第二篇，有逗号", 'with "quotes"']
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2, 3], "text": texts}), table)
    contents = {
        "txt": "\n\n".join(texts).encode(),
        "jsonl": "\n".join(json.dumps({"n": 1, "text": text}) for text in texts).encode(),
        "csv": b'n,text\n1,"first line\nsecond line"\n\n2,"' + texts[1].encode() + b'"\n3,"with ""quotes"""\n',
        "tsv": b'n\ttext\n1\t"first line\r\nsecond line"\n2\t' + texts[1].encode() + b'\n3\t"with ""quotes"""\n',
        "parquet": table.getvalue(),
    }
    for ending, content in contents.items():
        for compression, compress in COMPRESS.items():
            path = text_file(tmp_path, compress(content), f"x.{ending}{compression}")
            problems = Problems()
            assert documents(path, problems) == texts, path
            assert problems.counts == {}
    assert documents(tmp_path / "x.jsonl", document="line") == ["first line", "second line", *texts[1:]]
    assert documents(tmp_path / "x.csv.gz", document="file") == ["\n".join(texts)]


@pytest.mark.parametrize("compression", [".gz", ".xz", ".bz2", ".zst"])
def test_damaged_archives_are_errors(tmp_path: Path, compression: str) -> None:
    whole = COMPRESS[compression](os.urandom(3000).hex().encode())
    for content in (whole[:-7], whole[: len(whole) // 2], b"this is no archive"):
        path = text_file(tmp_path, content, f"x.txt{compression}")
        with pytest.raises(DataError, match=r"must be a whole \.\w+ file"):
            documents(path)
    two = text_file(tmp_path, COMPRESS[compression](b"one\n") + COMPRESS[compression](b"two\n"), f"y.txt{compression}")
    assert documents(two) == ["one\ntwo"]


def test_expansion_is_limited(tmp_path: Path) -> None:
    path = text_file(tmp_path, gzip.compress(b"a line of text\n" * 200_000), "bomb.gz")
    assert len(documents(path)[0]) == 3_000_000 - 1
    with pytest.raises(DataError, match="must not expand to more than 20 times"):
        documents(path, largest_expansion=20)


BOMBS = [("txt", ".gz"), ("txt", ".xz"), ("txt", ".bz2"), ("txt", ".zst"), ("csv", ".gz"), ("jsonl", ".bz2")]
BOMBS += [("json", ".xz"), ("parquet", ".zst"), ("parquet", ".gz")]


@pytest.mark.parametrize(("kind", "compression"), BOMBS)
def test_expansion_is_limited_without_being_asked(
    tmp_path: Path, kind: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One letter, 70 million times: neither the prepared text nor a table takes it, nor the memory for it. All but the
    first are a sixteenth of that, with a limit that is a sixteenth: to compress them takes longest."""
    assert HARMLESS == 2**26
    part = 1 if (kind, compression) == BOMBS[0] else 16
    monkeypatch.setattr(decode, "HARMLESS", HARMLESS // part)
    content = b"text\n" + b"a" * (70_000_000 // part)
    path = text_file(tmp_path, COMPRESS[compression](content), f"bomb.{kind}{compression}")
    expected = r"must not expand to more than 100 times its [\d,]+ bytes; it does\. Allow more with --largest-expansion"
    (file,) = find_inputs([path], Problems())
    with pytest.raises(DataError, match=expected):
        deque(read_documents(file, ReadSettings(), Problems()), maxlen=0)
    if kind != "txt":
        with pytest.raises(DataError, match=expected):
            deque(open_table(path), maxlen=0)


def test_parquet_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    column = pyarrow.array(["one\0\r\n", None, " "]).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"body": column, "n": [1, 2, 3]}), path)
    problems = Problems()
    assert documents(path, problems, field="body") == ["one\n"]
    assert problems.counts == {"nul_characters": 1, "empty_documents": 2}
    with pytest.raises(DataError, match="must have the column 'text'; got body, n"):
        documents(path)
    with pytest.raises(DataError, match="must have text in column 'n'; got int64"):
        documents(path, field="n")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="must be"):
        documents(path, field="body")


# ------------------------------------------------------------------------------------------------------- encodings


def test_malformed_utf8_is_replaced_and_counted_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = "真 \ufffd text " * 50
    content = good.encode() + b"\xff\xfe \xe4\xb8 \xf0\xef\xbf\xbd \xed\xa0\x80 end\xe4"
    path = text_file(tmp_path, content)
    expected = content.decode("utf-8", "replace")
    for size in (1, 2, 3, 1000):
        monkeypatch.setattr("segue.data.decode.CHUNK", size)
        problems = Problems()
        assert documents(path, problems) == [expected]
        assert problems.counts == {"malformed_characters": expected.count("\ufffd") - 51}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    path = text_file(tmp_path, mark + "第一行\r\nsecond\n\n😀".encode(encoding))
    problems = Problems()
    assert documents(path, problems) == ["第一行\nsecond", "😀"]
    assert problems.counts == {}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_named(tmp_path: Path, encoding: str) -> None:
    for text in ("A line of English text.\n" * 40, "第一行，and a little English.\n" * 40):
        path = text_file(tmp_path, text.encode(encoding))
        with pytest.raises(DataError, match=f"look like {encoding.upper()} .*: try --encoding {encoding}"):
            documents(path)
        assert "".join(documents(path, encoding=encoding)) == text.rstrip("\n")


def test_other_encodings_are_asked_for(tmp_path: Path) -> None:
    text = "滚滚长江东逝水，浪花淘尽英雄。" * 20
    path = text_file(tmp_path, text.encode("gb18030"))
    with pytest.raises(DataError, match="--encoding gb18030"):
        documents(path)
    assert documents(path, encoding="gb18030") == [text]
    for wrong in ("klingon", "rot13", "zlib", ""):
        with pytest.raises(DataError, match="the encoding must be a text encoding"):
            ReadSettings(encoding=wrong)


def test_binary_files_are_refused_and_nuls_dropped(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="malformed or NUL"):
        documents(text_file(tmp_path, os.urandom(10_000), "x.txt"))
    with pytest.raises(DataError, match="malformed or NUL"):
        documents(text_file(tmp_path, b"header" + bytes(10_000), "y.txt"))
    problems = Problems()
    assert documents(text_file(tmp_path, b"a\0b\0\n"), problems) == ["ab"]
    assert problems.counts == {"nul_characters": 2}


def test_long_lines_are_cut_and_counted_in_flat_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        for _ in range(20):
            file.write(b"word " * 200_000)
    problems = Problems()
    (file,) = find_inputs([path], problems)
    tracemalloc.start()
    total = longest = 0
    parts: list[DocumentPart] = []
    for part in read_documents(file, ReadSettings(), problems):
        total += sum(map(len, part.lines))
        longest = max(longest, *map(len, part.lines))
        parts = [*parts[-1:], part]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 20_000_000
    assert LONGEST_LINE * 0.9 < longest <= LONGEST_LINE
    assert problems.counts == {"cut_lines": -(-total // longest) - 1}
    assert parts[-1].ends
    assert peak < 4_000_000, "a 20 MB line took more"


# --------------------------------------------------------------------------------------------------------- records


def test_malformed_json_is_counted_with_its_first_line(tmp_path: Path) -> None:
    good = [json.dumps({"text": f"document {number}"}) for number in range(100)]
    bad = ["{", '{"other": 1}', "[1]", '{"text": 5}']
    path = text_file(tmp_path, "\n".join([*good[:50], "", *bad, *good[50:]]), "x.jsonl")
    problems = Problems()
    assert len(documents(path, problems)) == 100
    assert problems.counts == {"malformed_records": 4}
    assert problems.first["malformed_records"].startswith(f"{path}, line 52: no JSON")
    with pytest.raises(DataError, match=r"at most 1% malformed records; got 4 of 104, the first in line 52"):
        documents(path, malformed_share=0.01)
    with pytest.raises(DataError, match="no field 'body'; fields: text"):
        documents(path, field="body")


def test_json_escapes_cannot_smuggle_anything_in(tmp_path: Path) -> None:
    path = text_file(
        tmp_path, '{"text": "a\\u0000b\\ud83dc\\r\\nd"}\n{"text": null}\n{"text": "\\ud83d\\ude00"}', "x.json"
    )
    problems = Problems()
    assert documents(path, problems) == ["ab\ufffdc\nd", "😀"]
    assert problems.counts == {"nul_characters": 1, "lone_surrogates": 1, "empty_documents": 1}


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5_000, '{"text": ' * 50_000])
def test_hostile_json_is_only_malformed(tmp_path: Path, value: str) -> None:
    path = text_file(tmp_path, value + '\n{"text": "fine"}', "x.jsonl")
    problems = Problems()
    assert documents(path, problems, malformed_share=0.5) == ["fine"]
    assert problems.counts == {"malformed_records": 1}


def test_records_that_are_too_long_are_malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_RECORD", 100)
    monkeypatch.setattr("segue.data.decode.CHUNK", 30)
    long = json.dumps({"text": "x" * 500})
    path = text_file(tmp_path, f'{{"text": "one"}}\n{long}\n{{"text": "two"}}\n', "x.jsonl")
    problems = Problems()
    assert documents(path, problems, malformed_share=0.5) == ["one", "two"]
    assert problems.first["malformed_records"].endswith("line 2: longer than 100 characters")
    never_closed = text_file(tmp_path, 'text\nfine\n"' + "open\n" * 50, "x.csv")
    assert "fine" in documents(never_closed, Problems(), malformed_share=1.0)


def test_tables_with_short_rows_or_without_the_column(tmp_path: Path) -> None:
    path = text_file(tmp_path, "id,text\n" + "1,fine\n" * 30 + "2\n", "x.csv")
    problems = Problems()
    assert documents(path, problems) == ["fine"] * 30
    assert problems.first["malformed_records"] == f"{path}, line 32: 1 columns; 'text' is column 2"
    with pytest.raises(DataError, match=r"must have the column 'body'; got id, text\. Name one with --field"):
        documents(path, field="body")
    assert documents(text_file(tmp_path, "id,text\n", "y.csv")) == []


# ---------------------------------------------------------------------------------------------------------- inputs


def test_folders_globs_and_order(tmp_path: Path) -> None:
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    for name in ("b/deep/z.txt", "b/a.txt.gz", "c.jsonl", "wiki_00", ".hidden/x.txt", "b/.y.txt", "picture.png"):
        text_file(tmp_path, name, name)
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "store").mkdir()
    for name in ("manifest.json", "documents.bin", "vocabulary.txt"):
        text_file(tmp_path, name, f"store/{name}")
    problems = Problems()

    def found(*inputs: str | Path) -> list[str]:
        return [str(file.path.relative_to(tmp_path)) for file in find_inputs(inputs, problems)]

    everything = ["b/a.txt.gz", "b/deep/z.txt", "c.jsonl", "wiki_00"]
    assert found(tmp_path) == everything
    assert problems.counts == {"skipped_files": 1}
    (tmp_path / "b" / "loop").unlink()
    assert found(f"{tmp_path}/*.jsonl", f"{tmp_path}/b/**/*.txt") == ["c.jsonl", "b/deep/z.txt"]
    assert found(f"{tmp_path}/b/**") == ["b/a.txt.gz", "b/deep/z.txt"]
    assert found(f"{tmp_path}/[b]") == ["b/a.txt.gz", "b/deep/z.txt"]
    assert found(tmp_path / "picture.png") == ["picture.png"]


def test_duplicates_are_read_once(tmp_path: Path) -> None:
    first = text_file(tmp_path, "the same text", "a.txt")
    text_file(tmp_path, "the same text", "b.txt")
    text_file(tmp_path, "of same size.", "c.txt")
    (tmp_path / "link.txt").symlink_to(first)
    problems = Problems()
    files = find_inputs([tmp_path, first, f"{tmp_path}/a*"], problems)
    assert [file.path.name for file in files] == ["a.txt", "c.txt"]
    assert problems.counts == {"duplicate_files": 4}


def test_all_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError) as raised:
        find_inputs([tmp_path / "gone.txt", f"{tmp_path}/*.csv", tmp_path / "pipe"], Problems())
    for part in ("gone.txt must exist", "*.csv must match a file", "pipe must be a regular file"):
        assert part in str(raised.value)
    with pytest.raises(DataError, match="must hold files of text"):
        find_inputs([tmp_path / "empty"], Problems())
    with pytest.raises(DataError, match="at least one input"):
        find_inputs([], Problems())


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    path = text_file(tmp_path, "secret")
    path.chmod(0)
    with pytest.raises(DataError, match="must be readable"):
        find_inputs([path], Problems())


def test_empty_files_and_documents_are_counted(tmp_path: Path) -> None:
    text_file(tmp_path, "", "a.txt")
    text_file(tmp_path, "\ufeff \n\n", "b.txt")
    text_file(tmp_path, gzip.compress(b""), "c.txt.gz")
    text_file(tmp_path, "", "d.txt.zst")
    text_file(tmp_path, '{"text": " "}\n', "e.jsonl")
    problems = Problems()
    assert documents(tmp_path, problems) == []
    assert problems.counts == {"empty_files": 5, "empty_documents": 1}
    assert (
        list(
            chunks(
                find_inputs([tmp_path / "a.txt"], problems)[0],
                readers.Position(),
                problems,
                encoding="utf-8",
                largest_expansion=None,
            )
        )
        == []
    )
