"""Minimal pairs out of files: names that are found, groups, and rows that are no pairs."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from segue.data.pairs import Pair, read_pairs
from segue.errors import ConfigError, DataError

BLIMP = [
    {"sentence_good": "Who slept?", "sentence_bad": "Who slept him?", "UID": "one", "linguistics_term": "wh"},
    {"sentence_good": "她们走了。", "sentence_bad": "她们走了们。", "UID": "two", "linguistics_term": "wh"},
]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "wb") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_blimp_as_it_is(tmp_path: Path, name: str) -> None:
    assert read_pairs(write(tmp_path / name, BLIMP)) == [
        Pair(good="Who slept?", bad="Who slept him?", paradigm="one", phenomenon="wh"),
        Pair(good="她们走了。", bad="她们走了们。", paradigm="two", phenomenon="wh"),
    ]


def test_a_paradigm_without_a_name_has_that_of_its_file(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", [{"Good": "x", "BAD": "y"}])
    write(tmp_path / "a.jsonl.gz", [{"good": "u", "bad": "v", "field": "syntax"}])
    (tmp_path / "README.md").write_text("no pairs")
    assert read_pairs(tmp_path) == [
        Pair(good="u", bad="v", paradigm="a", phenomenon="syntax"),
        Pair(good="x", bad="y", paradigm="b", phenomenon="b"),
    ]


def test_columns_that_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"first": "x", "second": "y", "good": "no", "type": 7}])
    found = read_pairs(path, {"good": "first", "bad": "second", "paradigm": "type"})
    assert found == [Pair(good="x", bad="y", paradigm="7", phenomenon="7")]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"good": "x", "bad": "y"}\n\n{"good": "z", "bad": "w"}\n\n', encoding="utf-8")
    assert [pair.good for pair in read_pairs(path)] == ["x", "z"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"good": "x", "bad": ', "line 2: it cannot be read: no JSON"),
        ('{"good": "x", "bad": "  "}', "line 2: bad must be a sentence; got an empty one"),
        ('{"good": "x"}', "line 2: bad must be text; got nothing"),
        ('{"good": ["x"], "bad": "y"}', "line 2: good must be text; got list"),
        ("[1, 2]", "line 2: it cannot be read: an object"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"good": "x", "bad": "y"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"1 of 2 without") as error:
        read_pairs(path)
    assert message in str(error.value)


def test_unknown_fields_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"text": "x", "other": "y"}])
    with pytest.raises(DataError, match=r"got 'text', 'other'\. Name one of them with --column good=NAME"):
        read_pairs(path)
    with pytest.raises(DataError, match="different columns; got 'text' for both"):
        read_pairs(path, {"good": "text", "bad": "text"})
    with pytest.raises(ConfigError, match="got 'better'"):
        read_pairs(path, {"better": "text"})


def test_what_holds_no_pairs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.jsonl files"):
        read_pairs(tmp_path)
    with pytest.raises(DataError, match="must exist"):
        read_pairs(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="different sentences; got 1 of equal ones"):
        read_pairs(write(tmp_path / "a.jsonl", [{"good": "x", "bad": "x"}]))
