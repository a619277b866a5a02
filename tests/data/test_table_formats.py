"""Tables in CoNLL and parquet."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from segue.data.tables import (
    conll,
)
from tests.data.tables import COMPRESS, refused, rows, table

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
