"""Tables of cells: csv and tsv."""

import codecs
import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.data.tables import (
    TableSettings,
    open_table,
)
from segue.data.tables import cells as delimited
from segue.data.tables import reader as table_reader
from tests.data.tables import COMPRESS, refused, rows, table, write
from tests.examples import examples


@pytest.mark.parametrize("ending", COMPRESS)
def test_csv_in_every_compression(tmp_path: Path, ending: str) -> None:
    data = b'label,text\n1,"good, ""very"" good"\n0,"two\nlines"\n\n0,\n'
    found = table(tmp_path, "a.csv" + ending, COMPRESS[ending](data))
    assert found.columns == ("label", "text")
    assert found.unit == "line"
    expected = [
        (2, {"label": "1", "text": 'good, "very" good'}),
        (3, {"label": "0", "text": "two\nlines"}),
        (6, {"label": "0", "text": ""}),
    ]
    assert list(found) == expected
    assert list(found) == expected  # again: it opens the file anew
    assert found.place(3) == f"{tmp_path / ('a.csv' + ending)}, line 3"
    assert not found.problems.counts


def test_tsv_has_literal_quotes_unless_told(tmp_path: Path) -> None:
    content = 'text\tlabel\n"a" said he\t1\n"never closed\t0\n'
    assert rows(tmp_path, "a.tsv", content) == [
        {"text": '"a" said he', "label": "1"},
        {"text": '"never closed', "label": "0"},
    ]
    assert rows(tmp_path, "a.tsv", 'text\tlabel\n"a\tb"\t1\n', quoting=True) == [{"text": "a\tb", "label": "1"}]
    assert rows(tmp_path, "a.csv", 'text,label\n"a,1\n', quoting=False) == [{"text": '"a', "label": "1"}]


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_marks_and_line_ends(tmp_path: Path, mark: bytes, end: str) -> None:
    content = mark + f"text,label{end}好,1{end}坏,0".encode()
    assert rows(tmp_path, "a.csv", content) == [{"text": "好", "label": "1"}, {"text": "坏", "label": "0"}]


def test_other_encodings(tmp_path: Path) -> None:
    content = "text,label\n很好的酒店,1\n"
    expected = [{"text": "很好的酒店", "label": "1"}]
    assert rows(tmp_path, "a.csv", content.encode("utf-16")) == expected
    assert rows(tmp_path, "a.csv", content.encode("gb18030"), encoding="gb18030") == expected
    message = refused(tmp_path, "a.csv", content.encode("gb18030"))
    assert "must be text in utf-8" in message
    assert "the first in line 2" in message
    assert "--encoding" in message


def test_few_bad_characters_are_replaced_and_counted(tmp_path: Path) -> None:
    found = table(
        tmp_path, "a.tsv", "很好的酒店，\t1\n".encode() * 9 + b"caf\xe9 and\0 more\t1\n", columns=("text", "label")
    )
    assert [row["text"] for _, row in found] == ["很好的酒店，"] * 9 + ["caf\ufffd and more"]
    assert found.problems.counts == {"malformed_characters": 1, "nul_characters": 1}
    assert found.problems.first["malformed_characters"].endswith("a.tsv, line 10")
    assert "malformed or NUL" in refused(tmp_path, "a.tsv", "text\tlabel\na\t1\n".encode("utf-16-le"))


def test_columns_for_a_file_without_names(tmp_path: Path) -> None:
    settings = {"columns": ("label", "text")}
    assert rows(tmp_path, "a.tsv", "1\tgood\n0\tbad\n", **settings)[0] == {"label": "1", "text": "good"}
    # The first line only repeats the names: no row.
    assert rows(tmp_path, "a.tsv", "label\ttext\n0\tbad\n", **settings) == [{"label": "0", "text": "bad"}]


def test_further_cells_can_be_left_out(tmp_path: Path) -> None:
    content = "5.0\ta\tb\n1.0\tc\td\tlicence\tlink\n"
    found = table(tmp_path, "a.csv", content, format="tsv", columns=("score", "one", "two", "..."))
    assert found.columns == ("score", "one", "two")
    assert [row for _, row in found] == [
        {"score": "5.0", "one": "a", "two": "b"},
        {"score": "1.0", "one": "c", "two": "d"},
    ]
    message = refused(tmp_path, "a.csv", content, format="tsv", columns=("score", "one", "two"))
    assert "at most 5% malformed rows; got 1 of 2" in message
    assert "line 2: 5 cells for 3 columns, from '1.0', and beyond them" in message


def test_delimiters(tmp_path: Path) -> None:
    content = "text;label\na, b;1\n"
    assert rows(tmp_path, "a.csv", content, delimiter=";") == [{"text": "a, b", "label": "1"}]
    assert "--delimiter ';'" in refused(tmp_path, "a.csv", "text;label\na;1\n")
    assert "--format tsv" in refused(tmp_path, "a.csv", "text\tlabel\na\t1\n")
    # One column, no quoting: whole lines, whatever is in them.
    assert rows(tmp_path, "a.en", "a\tb, c\n\nd\n", format="tsv", columns=("text",)) == [
        {"text": "a\tb, c"},
        {"text": "d"},
    ]


def test_malformed_rows_up_to_a_share(tmp_path: Path) -> None:
    good = "text,label\n" + "a,1\n" * 97
    found = table(tmp_path, "a.csv", good + "a\na,b,c\n" + 'a,"b" c\n')
    assert len(list(found)) == 97
    assert found.problems.counts == {"malformed_records": 3}
    assert found.problems.first["malformed_records"].endswith("a.csv, line 99: 1 cell for 2 columns, from 'a'")
    list(found)
    assert found.problems.counts == {"malformed_records": 3}  # of the latest reading
    message = refused(tmp_path, "a.csv", good + "x\n" * 7)
    assert "got 7 of 104" in message
    assert message.count("line ") == 5
    assert "\n  ..." in message
    assert "got 1 of 98" in refused(tmp_path, "a.csv", good + "x\n", malformed_share=0.0)


def test_a_stray_quote_costs_one_line(tmp_path: Path) -> None:
    lines = [f"text {number},1" for number in range(100)]
    lines[30] = '"stray,1'
    found = table(tmp_path, "a.csv", "text,label\n" + "\n".join(lines))
    assert [row["text"] for _, row in found] == [f"text {number}" for number in range(100) if number != 30]
    assert "line 32: quotes are broken" in found.problems.first["malformed_records"]


MERGED = {
    "two lost rows": 'text,label\nfine,1\n"good,1\nbad,0\nso 5",1\nlast,0\n',
    "in the middle": 'id,text,label\n1,"good,1\n2,bad,0\n3,5",1\n',
    "with empty cells": 'id,text,note,label\n1,"good,,1\n2,bad,,0\n3,so,x,1\n4,5",,1\n',
    "many": "text,label\n" + '"stray,1\n' + "".join(f"text {n},1\n" for n in range(40)) + 'he said "no",0\n',
}


@pytest.mark.parametrize("content", [MERGED[name] for name in list(MERGED)[:3]])
def test_a_quote_that_swallows_rows_is_an_error(tmp_path: Path, content: str) -> None:
    message = refused(tmp_path, "a.csv", content)
    opened = next(number for number, line in enumerate(content.splitlines(), 1) if '"' in line)
    closed = next(number for number, line in enumerate(content.splitlines(), 1) if '"' in line and number > opened)
    assert f"one that opens in line {opened} and closes in line {closed}" in message
    assert "--no-quoting" in message
    assert rows(tmp_path, "a.csv", content, quoting=False, malformed_share=1.0)
    assert "\n" in "".join(map(str, rows(tmp_path, "a.csv", content, quoting=True)[-1].values())) or len(content) > 0


def test_a_quote_that_closes_in_another_cell_costs_one_line(tmp_path: Path) -> None:
    found = table(tmp_path, "a.csv", MERGED["many"])
    assert len(list(found)) == 41
    assert "line 2: quotes are broken" in found.problems.first["malformed_records"]


@pytest.mark.parametrize(
    "cell",
    [
        "Hello, world\nGood, bad\nbye, bye",  # prose: a space follows the comma
        "Two roads diverged,\nAnd sorry I could not,\nAnd be one traveler,\nlong I stood",
        "one\ntwo\nthree\nfour",
        "a,b\nc",
    ],
)
def test_texts_of_several_lines_are_no_rows(tmp_path: Path, cell: str) -> None:
    assert rows(tmp_path, "a.csv", f'text,label\n"{cell}",1\nb,0\n')[0] == {"text": cell, "label": "1"}


def test_rows_within_a_cell_if_the_user_says_so(tmp_path: Path) -> None:
    content = 'text,label\n"a,1\nb,2\nc,3",1\n'
    assert rows(tmp_path, "a.csv", content, quoting=True) == [{"text": "a,1\nb,2\nc,3", "label": "1"}]


def test_remedies_are_not_what_was_done_already(tmp_path: Path) -> None:
    data = "text,label\n很好的酒店，下次还会再来,1\n".encode("gb18030")
    message = refused(tmp_path, "a.csv", codecs.BOM_UTF8 + data, encoding="gb18030")
    assert "as the byte order mark at its beginning says" in message
    assert "tail -c +4 FILE > NEW" in message
    marked = codecs.BOM_UTF8 + data
    assert rows(tmp_path, "b.csv", marked[3:], encoding="gb18030")[0]["label"] == "1"  # what the remedy leaves
    message = refused(tmp_path, "a.csv", b"text,label\n" + b"\xff\xff,1\n" * 9, encoding="gb18030")
    assert "--encoding utf-8, big5 or latin-1" in message
    message = refused(tmp_path, "a.csv", "text,label\na,1\nb\n")
    assert rows(tmp_path, "a.csv", "text,label\na,1\nb\n", malformed_share=float(message.split()[-1].rstrip(".")))


def test_headers(tmp_path: Path) -> None:
    assert "the names of its columns in its first line" in refused(tmp_path, "a.csv", '"text,label\na,1\n')
    assert table(tmp_path, "a.csv", ",text , label\n1,a,b\n").columns == ("column1", "text", "label")
    assert "got 'text' twice" in refused(tmp_path, "a.csv", "text,text\na,b\n")
    message = refused(tmp_path, "a.csv", "text,label\n")
    assert "got only the names of columns (text, label)" in message
    assert "--columns" in message


def test_a_text_of_one_line_may_be_long_but_not_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delimited, table_reader):
        monkeypatch.setattr(module, "LONGEST_ROW", 1000)
    content = "text,label\n" + "a,1\n" * 99 + "a" * 5000 + ",1\nlast,0\n" + '"' + "open\n" * 300
    found = table(tmp_path, "a.csv", content, malformed_share=1.0)
    texts = [row["text"] for _, row in found]
    assert texts == ["a"] * 99 + ["last"]
    assert "line 101: longer than 1000" in found.problems.first["malformed_records"]


def test_a_row_of_a_document_may_be_long_but_not_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON documents and Parquet have rows of any size, whatever limit their lines have."""
    monkeypatch.setattr(table_reader, "LONGEST_ROW", 1000)
    rows = [{"text": "short"}, {"text": "a" * 2000}, {"text": "last"}]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    paragraph = {"context": "a" * 2000, "qas": [{"id": "1", "question": "what?", "answers": []}]}
    paragraphs = [paragraph, paragraph | {"context": "short"}]
    for found, kept in (
        (open_table(path, TableSettings(malformed_share=0.5)), ["short", "last"]),
        (table(tmp_path, "a.json", json.dumps(rows), malformed_share=0.5), ["short", "last"]),
        (table(tmp_path, "b.json", json.dumps({"data": [{"paragraphs": paragraphs}]}), malformed_share=0.5), ["short"]),
    ):
        assert [row.get("text", row.get("context")) for _, row in found] == kept
        assert "longer than 1000 characters" in found.problems.first["malformed_records"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.conll"])
def test_memory_stays_flat_on_an_endless_line(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delimited, table_reader):
        monkeypatch.setattr(module, "LONGEST_ROW", 2**20)
    head = {
        "a.csv": b"text,label\na,1\n",
        "a.tsv": b"text\tlabel\na\t1\n",
        "a.jsonl": b'{"a": 1}\n',
        "a.conll": b"a O\n\n",
    }
    path = write(tmp_path, name + ".gz", gzip.compress(head[name] + b"x" * 3 * 10**7, 1))
    tracemalloc.start()
    try:
        rows = list(open_table(path, TableSettings(malformed_share=1.0, largest_expansion=10**4)))
        assert len(rows) == 1
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@settings(deadline=None, max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cells=st.lists(
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)] * 2),
        min_size=1,
        max_size=8,
    )
)
def test_csv_comes_back_as_it_was_written(tmp_path: Path, cells: list[tuple[str, str]]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("one", "two"), *cells])
    assert [tuple(row.values()) for row in rows(tmp_path, "a.csv", out.getvalue())] == cells
