"""Tables: where they come from, their columns, and damaged ones."""

import codecs
import gzip
import io
import json
import lzma
import os
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.data.tables import (
    FORMATS,
    Row,
    TableSettings,
    find_column,
    open_table,
    side_by_side,
)
from segue.errors import DataError
from tests.data.tables import SQUAD, refused, table, write
from tests.examples import examples


def standard_input(monkeypatch: pytest.MonkeyPatch, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]


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
