"""Tables of every format, and every kind of nonsense in them."""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import os
import sys
import tracemalloc
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.data.tables import (
    FORMATS,
    Row,
    Table,
    TableSettings,
    conll,
    find_column,
    json_rows,
    open_table,
    side_by_side,
)
from segue.data.tables import cells as delimited
from segue.data.tables import reader as table_reader
from segue.errors import DataError
from tests.examples import examples

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(folder: Path, name: str, content: str | bytes, **options: Any) -> Table:
    return open_table(write(folder, name, content), TableSettings(**options))


def rows(folder: Path, name: str, content: str | bytes, **options: Any) -> list[Row]:
    return [row for _, row in table(folder, name, content, **options)]


def refused(folder: Path, name: str, content: str | bytes, **options: Any) -> str:
    """The message of the error."""
    with pytest.raises(DataError) as caught:
        rows(folder, name, content, **options)
    message = str(caught.value)
    assert name in message
    assert message[-1] in ".?"
    return message


def standard_input(monkeypatch: pytest.MonkeyPatch, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ cells: csv, tsv


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


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


# ----------------------------------------------------------------------------------------------------------------- JSON


def test_json_lines(tmp_path: Path) -> None:
    content = '{"text": "a", "label": 1}\n\n{"label": "x", "more": [1, {"b": null}]}\r\n'
    found = table(tmp_path, "a.jsonl", content)
    assert found.columns == ("text", "label", "more")
    assert list(found) == [
        (1, {"text": "a", "label": 1, "more": None}),
        (3, {"text": None, "label": "x", "more": [1, {"b": None}]}),
    ]


def test_json_lines_that_are_none(tmp_path: Path) -> None:
    good = '{"a": 1}\n' * 200
    bad = [
        '{"a": ',
        "[1]",
        "7",
        "{}",
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": ' + "[" * 700 + "]" * 700 + "}",
    ]
    found = table(tmp_path, "a.jsonl", good + "\n".join(bad))
    assert len(list(found)) == 200
    assert found.problems.counts["malformed_records"] == len(bad)
    assert "line 201: no JSON" in found.problems.first["malformed_records"]
    message = refused(tmp_path, "a.jsonl", "\n".join(bad))
    assert "line 2: an object with fields is needed; got list" in message


def test_escapes_cannot_bring_in_what_is_no_text(tmp_path: Path) -> None:
    found = table(tmp_path, "a.jsonl", r'{"text": "a\u0000b\ud800c\ud83d\ude00", "tags": ["\udc00"]}')
    assert next(iter(found))[1] == {"text": "a\ufffdb\ufffdc😀", "tags": ["\ufffd"]}  # offsets stay
    list(found)
    assert found.problems.counts == {"nul_characters": 1, "lone_surrogates": 2}


@pytest.mark.parametrize("indent", [None, 1])
def test_what_a_json_file_can_be(tmp_path: Path, indent: int | None) -> None:
    records = [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
    lines = "\n".join(map(json.dumps, records))
    assert rows(tmp_path, "a.json", lines) == records
    assert rows(tmp_path, "a.json", json.dumps(records[0])) == records[:1]
    assert rows(tmp_path, "a.json", json.dumps(records, indent=indent)) == records
    found = table(tmp_path, "a.json", json.dumps({"version": 1, "data": records}, indent=indent))
    assert list(found) == [(1, records[0]), (2, records[1])]
    assert found.unit == "record"
    assert rows(tmp_path, "a.json", '{"text": broken\n' + lines, malformed_share=0.5) == records
    assert rows(tmp_path, "a.json", '["a", 0]\n["b", 1]', columns=("text", "label")) == records
    assert rows(tmp_path, "a.json", json.dumps([["a", 0], ["b", 1]]), columns=("text", "label")) == records


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[1, 2", "must be JSON; got Expecting"),
        ('{\n"a": 1}', "got an object with the fields 'a'"),
        ("7\n8", "must be JSON"),
        ("7", "got int"),
        ("[]", "got nothing"),
        ("[7]", "record 1: an object with fields is needed; got int"),
        (" \n ", "empty file"),
        ("[" * 10**6, "must be JSON"),
    ],
)
def test_json_files_that_are_no_table(tmp_path: Path, content: str, why: str) -> None:
    assert why in refused(tmp_path, "a.json", content)


def test_a_document_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "LARGEST_DOCUMENT", 100)
    message = refused(tmp_path, "a.json", json.dumps([{"a": "b" * 100}]))
    assert "at most 100 characters" in message
    assert "JSON lines" in message


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Segue means to go on.",
                    "qas": [
                        {"id": "q1", "question": "What?", "answers": [{"text": "go on", "answer_start": 15}]},
                        {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True},
                        {"id": 3, "question": "Who?", "answers": [{"text": "on", "answer_start": -1}]},
                    ],
                }
            ],
        }
    ],
}
CMRC = [
    {
        "context_id": "c1",
        "context_text": "范廷颂是枢机。",
        "qas": [{"query_id": "c1q1", "query_text": "谁？", "answers": ["范廷颂", "范廷颂"]}],
    }
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(("name", "form"), [("a.json", None), ("a.json", "squad"), ("a.txt", "squad")])
def test_squad(tmp_path: Path, indent: int | None, name: str, form: str | None) -> None:
    found = table(tmp_path, name, json.dumps(SQUAD, indent=indent), format=form)
    assert found.columns == ("id", "context", "question", "answers", "impossible")
    assert found.unit == "question"
    context = "Segue means to go on."
    assert list(found) == [
        (1, dict(zip(found.columns, ("q1", context, "What?", [{"text": "go on", "start": 15}], None), strict=True))),
        (2, dict(zip(found.columns, ("q2", context, "Why?", [], True), strict=True))),
        (3, dict(zip(found.columns, ("3", context, "Who?", [{"text": "on", "start": None}], None), strict=True))),
    ]
    answers = [{"text": "范廷颂", "start": None}] * 2
    expected = {"id": "c1q1", "context": "范廷颂是枢机。", "question": "谁？", "answers": answers, "impossible": None}
    assert rows(tmp_path, name, json.dumps(CMRC, indent=indent), format=form) == [expected]


def test_squad_with_holes(tmp_path: Path) -> None:
    whole = {"context": "c", "qas": [{"id": "1", "question": "q", "answers": []}]}
    holes: list[Any] = [
        7,
        {"paragraphs": 7},
        {"paragraphs": [7, {"context": "c"}, {"context": "c", "qas": [7]}]},
        {"paragraphs": [{"context": 7, "qas": whole["qas"]}, {"qas": [{"question": "q"}]}]},
        {"paragraphs": [{"context": "c", "qas": [{"question": "q", "answers": {"text": []}}]}]},
        {"paragraphs": [{"context": "c", "qas": [{"question": "q", "answers": [7]}]}]},
    ]
    found = table(tmp_path, "a.json", json.dumps({"data": [{"paragraphs": [whole]}, *holes]}), malformed_share=1.0)
    assert len(list(found)) == 1
    assert found.problems.counts["malformed_records"] == 9
    assert "question 2" in found.problems.first["malformed_records"]
    assert "must hold SQuAD" in refused(tmp_path, "a.json", '{"a": 1}', format="squad")
    assert "must hold SQuAD" in refused(tmp_path, "a.json", '[{"a": 1}]', format="squad")


# ---------------------------------------------------------------------------------------------------------------- CoNLL


def test_conll_2003(tmp_path: Path) -> None:
    content = (
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n-DOCSTART- -X- O\nPeter NNP  I-NP I-PER \n"
    )
    found = table(tmp_path, "eng.train", content, format="conll")
    assert found.columns == ("tokens", "column2", "column3", "tags")
    assert [number for number, _ in found] == [3, 8]
    assert next(iter(found))[1] == {
        "tokens": ["EU", "rejects"],
        "column2": ["NNP", "VBZ"],
        "column3": ["I-NP", "I-VP"],
        "tags": ["I-ORG", "O"],
    }
    named = rows(tmp_path, "a.conll", content, columns=("tokens", "pos", "chunk", "tags"))
    assert named[1] == {"tokens": ["Peter"], "pos": ["NNP"], "chunk": ["I-NP"], "tags": ["I-PER"]}


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_chinese_by_characters(tmp_path: Path, separator: str) -> None:
    content = "\n".join(
        f"{char}{separator}{tag}" for char, tag in [("海", "B-LOC"), (" ", "O"), ("\u3000", "O"), ("#", "O")]
    )
    found = rows(tmp_path, "a.bio", content.replace(" \t", "\t") + "\n\n#" + separator + "O\n")
    assert found[0] == {"tokens": ["海", " ", "\u3000", "#"], "tags": ["B-LOC", "O", "O", "O"]}
    assert found[1] == {"tokens": ["#"], "tags": ["O"]}


def test_conll_u(tmp_path: Path) -> None:
    line = "{}\t{}\t_\t{}\t_\t_\t0\troot\t_\t_\n"
    sentence = (
        "1-2\tdel" + "\t_" * 8 + "\n" + line.format(1, "de", "ADP") + line.format(2, "el", "DET") + "2.1\tx" + "\t_" * 8
    )
    found = rows(
        tmp_path, "a.conllu", "# newdoc\n# text = del\n" + sentence + "\n\n# text = a\n" + line.format(1, "#", "X")
    )
    assert [(row["tokens"], row["tags"]) for row in found] == [(["de", "el"], ["ADP", "DET"]), (["#"], ["X"])]


def test_conll_other(tmp_path: Path) -> None:
    assert rows(tmp_path, "a.conll", "only\ntokens\n\nhere\n") == [{"tokens": ["only", "tokens"]}, {"tokens": ["here"]}]
    assert rows(tmp_path, "a.conll", "# id = 7\n#a O\nb O\n") == [{"tokens": ["#a", "b"], "tags": ["O", "O"]}]
    assert rows(tmp_path, "a.conll", "#a O\n") == [{"tokens": ["#a"], "tags": ["O"]}]
    found = table(tmp_path, "a.conll", "a O\n\n" * 40 + "a O\nb\nc O\n\nd O\n")
    assert [row["tokens"] for _, row in found] == [["a"]] * 40 + [["d"]]
    assert found.problems.counts == {"malformed_records": 1}
    assert found.problems.first["malformed_records"].endswith("line 82: 1 cell for 2 columns: 'b'")
    assert "must have rows" in refused(tmp_path, "a.conll", "\n\n")
    assert "must have rows" in refused(tmp_path, "a.conll", "-DOCSTART- O\n")


def test_a_file_without_blank_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conll, "LONGEST_ROW", 100)
    assert "line 1: no blank line in the next 100 characters" in refused(tmp_path, "a.conll", "a O\n" * 1000)


# -------------------------------------------------------------------------------------------------------------- Parquet


def parquet(columns: dict[str, Any], metadata: dict[str, Any] | None = None) -> bytes:
    content = pyarrow.table(columns)
    if metadata is not None:
        content = content.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": metadata}})})
    out = io.BytesIO()
    pyarrow.parquet.write_table(content, out)
    return out.getvalue()


@pytest.mark.parametrize("ending", ["", ".xz"])
def test_parquet(tmp_path: Path, ending: str) -> None:
    data = parquet({"text": ["a\0", None], "label": [1, 0], "tags": [["x"], []], "raw": [b"ab", b"\xff"]})
    found = table(tmp_path, "a.parquet" + ending, COMPRESS[ending](data))
    assert found.columns == ("text", "label", "tags", "raw")
    expected = [
        (1, {"text": "a\ufffd", "label": 1, "tags": ["x"], "raw": "ab"}),
        (2, {"text": None, "label": 0, "tags": [], "raw": b"\xff"}),
    ]
    assert list(found) == expected == list(found)
    assert found.place(2).endswith(", row 2")


def test_parquet_with_names_of_classes(tmp_path: Path) -> None:
    label = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    data = parquet(
        {"label": [1, -1], "tags": [[0, 1], []], "n": [5, 6]},
        {"label": label, "tags": {"feature": label, "_type": "Sequence"}, "n": {"dtype": "int64", "_type": "Value"}},
    )
    assert rows(tmp_path, "a.parquet", data) == [
        {"label": "pos", "tags": ["neg", "pos"], "n": 5},
        {"label": None, "tags": [], "n": 6},
    ]
    for nonsense in ([], {"label": 7}, {"label": [label, label]}, {"label": {"_type": "ClassLabel", "names": [7]}}):
        data = parquet({"label": [1]}, nonsense)  # type: ignore[arg-type]
        assert rows(tmp_path, "a.parquet", data) == [{"label": 1}]


def test_parquet_that_is_none(tmp_path: Path) -> None:
    whole = parquet({"text": ["a"] * 1000})
    assert "must be a complete Parquet file" in refused(tmp_path, "a.parquet", whole[:-20])
    assert "must be a complete Parquet file" in refused(tmp_path, "a.parquet", b"text,label\n1,2")
    assert "must have rows" in refused(tmp_path, "a.parquet", parquet({"text": pyarrow.array([], "string")}))
    assert "Leave --columns out" in refused(tmp_path, "a.parquet", whole, columns=("a",))
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"a\xff")]
    )
    assert "row 2: 'utf-8' codec" in refused(tmp_path, "a.parquet", parquet({"text": broken}))


# -------------------------------------------------------------------------------------------------------------- sources


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, "train.csv", "a\n1\n")
    with pytest.raises(DataError, match=r"trian\.csv must exist; got no such file\. Did you mean .*train\.csv\?"):
        open_table(tmp_path / "trian.csv")
    with pytest.raises(DataError, match="must exist"):
        open_table(tmp_path / "no" / "such.csv")
    with pytest.raises(DataError, match="must be a file; got a folder"):
        open_table(tmp_path)
    for nonsense in ("a\0b.csv", "x" * 5000 + ".csv", str(tmp_path / "train.csv" / "a.csv")):
        with pytest.raises(DataError, match="must"):
            open_table(nonsense)
    assert "got an empty file" in refused(tmp_path, "a.csv", "")
    assert "--format" in refused(tmp_path, "a.train", "a b")
    assert "--format" in refused(tmp_path, "a.xz", lzma.compress(b"a b"))
    assert "a whole .xz file" in refused(tmp_path, "a.csv.xz", "a,b\n1,2\n")
    assert "a whole .gz file" in refused(tmp_path, "a.csv.gz", gzip.compress(b"a,b\n" + os.urandom(9999))[:500])
    for mark in (b"", codecs.BOM_UTF8, b"\n\n \n"):
        assert "must have rows" in refused(tmp_path, "a.csv", mark + b"\n")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="regular file"):
        open_table(tmp_path / "pipe.csv")


@pytest.mark.parametrize(
    "options",
    [
        {"format": "xls"},
        {"encoding": "klingon"},
        {"malformed_share": 2},
        {"delimiter": ", "},
        {"delimiter": '"'},
        {"columns": ()},
        {"columns": ("...",)},
        {"columns": ("a", "a")},
        {"columns": ("a", " ")},
        {"columns": ("...", "a")},
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="must be"):
        TableSettings(**options)


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ('{"text": "a"}\n{"text": "b"}\n', {}, [(1, {"text": "a"}), (2, {"text": "b"})]),
        ("text\tlabel\na, b\t1\n", {}, [(2, {"text": "a, b", "label": "1"})]),
        ('text,label\n"a, b",1\n', {}, [(2, {"text": "a, b", "label": "1"})]),
        ("\n\ntext\na\n", {}, [(4, {"text": "a"})]),
        ("Good, very good.\n", {"columns": ("text",)}, [(1, {"text": "Good, very good."})]),
        (
            "a O\n\nb O\n",
            {"format": "conll"},
            [(1, {"tokens": ["a"], "tags": ["O"]}), (3, {"tokens": ["b"], "tags": ["O"]})],
        ),
        ('[{"a": 1}]', {"format": "json"}, [(1, {"a": 1})]),
    ],
)
def test_standard_input(content: str, options: dict[str, Any], expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, content)
    found = open_table("-", TableSettings(**options))
    assert found.source == "standard input"
    assert list(found) == expected
    with pytest.raises(DataError, match="read only once"):
        list(found)


def test_standard_input_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb", buffering=0) as out:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        out.write(b'{"text": "a"}\n')
        found = iter(open_table("-"))
        assert next(found) == (1, {"text": "a"})
        out.write(b'{"text": "b"}\n')
        assert next(found) == (2, {"text": "b"})


def test_standard_input_that_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, options in (("", {}), ("text\n", {}), ("PAR1", {"format": "parquet"})):
        standard_input(monkeypatch, content)
        with pytest.raises(DataError, match="standard input must"):
            open_table("-", TableSettings(**options))


class _Features(dict[str, Any]):
    def to_dict(self) -> dict[str, Any]:
        return dict(self)


class _Dataset(list[Row]):
    features = _Features(label={"names": ["neg", "pos"], "_type": "ClassLabel"})
    column_names = ("text", "label")


def _library(known: dict[tuple[str, ...], Any]) -> types.ModuleType:
    library = types.ModuleType("datasets")

    def load_dataset(*name: str) -> Any:
        if name not in known:
            raise ConnectionError(f"cannot reach the hub for {name}")
        return known[name]

    library.load_dataset = load_dataset  # type: ignore[attr-defined]
    return library


def test_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = _Dataset([{"text": "a\0", "label": 1}]), _Dataset([{"text": "b", "label": -1}])
    splits = {"train": train, "test": test}
    known: dict[tuple[str, ...], Any] = {
        ("one",): test,
        ("imdb",): splits,
        ("stanford/imdb",): splits,
        ("glue", "sst2"): splits,
        ("o/glue", "sst2"): {"all": test},
    }
    monkeypatch.setitem(sys.modules, "datasets", _library(known))
    for name in ("imdb@train", "stanford/imdb@train", "glue/sst2@train"):
        found = open_table(f"datasets:{name}")
        assert found.columns == ("text", "label")
        assert list(found) == [(1, {"text": "a\ufffd", "label": "pos"})] == list(found)
    assert list(open_table("datasets:o/glue/sst2")) == [(1, {"text": "b", "label": None})]
    with pytest.raises(DataError, match=r"one of its splits \(train, test\); got none. Write datasets:imdb@SPLIT"):
        open_table("datasets:imdb")
    with pytest.raises(DataError, match="has no splits"):
        open_table("datasets:one@train")
    with pytest.raises(DataError, match="got 'dev'"):
        open_table("datasets:imdb@dev")
    with pytest.raises(DataError, match=r"cannot reach the hub.*without a network"):
        open_table("datasets:no/such@train")


def test_datasets_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        open_table("datasets:imdb@train")


def test_side_by_side(tmp_path: Path) -> None:
    english = table(tmp_path, "a.en", "one\ntwo\n\nfour\n", format="tsv", columns=("en",))
    german = table(tmp_path, "a.de", "eins\nzwei\ndrei\nvier\n", format="tsv", columns=("de",))
    with pytest.raises(DataError, match="line 3: only the columns de"):
        list(side_by_side(english, german))
    both = side_by_side(english, german, malformed_share=0.25)
    assert both.columns == ("en", "de")
    expected = [(1, {"en": "one", "de": "eins"}), (2, {"en": "two", "de": "zwei"}), (4, {"en": "four", "de": "vier"})]
    assert list(both) == expected == list(both)
    assert both.problems.counts == {"malformed_records": 1}
    with pytest.raises(DataError, match="different columns"):
        side_by_side(english, english)


# -------------------------------------------------------------------------------------------------------------- columns


def test_find_column() -> None:
    columns = ("Label", "text_a", "id")
    assert find_column(columns, "text_a", ["text"], source="a.csv") == "text_a"
    assert find_column(columns, "LABEL", [], source="a.csv") == "Label"
    assert find_column(columns, None, ["text", "text_a", "sentence"], source="a.csv") == "text_a"
    assert find_column(columns, None, ["label"], source="a.csv") == "Label"
    with pytest.raises(
        DataError, match=r"a\.csv must have the column 'text'; got 'Label', 'text_a', 'id'. Did you mean 'te"
    ):
        find_column(columns, "text", ["text"], source="a.csv")
    with pytest.raises(DataError, match=r"a column named text, body; got .*Name one of them with --text-column\.$"):
        find_column(columns, None, ["text", "body"], source="a.csv", option="--text-column")
    with pytest.raises(DataError, match="If its first line is data"):
        find_column(("0", "neg/1_3", "This movie " * 50), None, ["text"], source="a.csv")


# ----------------------------------------------------------------------------------------------------------------- fuzz

_PIECES = [
    b'"',
    b",",
    b"\t",
    b"\n",
    b"\r\n",
    b"\0",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b'"a"',
    b"1",
    b" ",
    b"#",
    b"\\u",
    b"\xff",
]
_PIECES += [
    b'"data"',
    b'"qas"',
    b'"paragraphs"',
    b'"context"',
    b"-DOCSTART-",
    b"a,b\n",
    b"a O\n",
    b"PAR1",
    "好".encode(),
]


@settings(deadline=None, max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(st.binary(max_size=80), st.lists(st.sampled_from(_PIECES), max_size=40).map(b"".join)),
    form=st.sampled_from(FORMATS),
    columns=st.sampled_from([None, ("a",), ("a", "b"), ("a", "...")]),
    quoting=st.sampled_from([None, True, False]),
    share=st.sampled_from([0.05, 1.0]),
    ending=st.sampled_from(["", "", "", ".gz", ".xz", ".bz2", ".zst"]),
)
def test_anything_else_is_an_error_of_ours(
    tmp_path: Path, data: bytes, form: Any, columns: Any, quoting: bool | None, share: float, ending: str
) -> None:
    path = write(tmp_path, "fuzz" + ending, data)
    with suppress(DataError):
        found = open_table(path, TableSettings(format=form, columns=columns, quoting=quoting, malformed_share=share))
        for number, row in found:
            assert number > 0
            assert set(found.columns) <= set(row)


@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    where=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 50),
)
def test_damaged_squad_is_an_error_of_ours(tmp_path: Path, where: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(json.dumps(SQUAD).encode())
    for place, value in where:
        data[place % len(data)] = value
    with suppress(DataError):
        list(open_table(write(tmp_path, "a.json", bytes(data[: len(data) - cut]))))
