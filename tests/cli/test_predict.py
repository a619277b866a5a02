"""`segue predict` gives back every row of every kind of table, and nothing that a spreadsheet would run."""

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from segue.cli.app import command_of
from segue.cli.options import chosen_columns
from segue.cli.predict import run_prediction
from segue.cli.prediction_table import PredictionWriter, without_formula
from segue.data.tables import TableSettings
from segue.errors import DataError
from segue.tasks.folder import save_task_model
from segue.tasks.table import TASKS
from tests.tasks.made import task_model
from tests.tasks.models import write_model

LEARNED: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": "a clean room", "label": "good"}, {"text": "a dull film", "label": "=bad"}],
    "pair": [
        {"first": "a man", "second": "a person", "label": "yes"},
        {"first": "a man", "second": "no one", "label": "no"},
    ],
    "regress": [{"text": "a clean room", "number": -0.5}, {"text": "a dull film", "number": -2.5}],
    "tag": [{"tokens": ["in", "Paris"], "tags": ["O", "B-LOC"]}, {"tokens": ["Anna"], "tags": ["B-PER"]}],
    "answer": [{"context": "She was born in Paris.", "question": "Where?", "answer": "Paris"}],
    "choose": [{"context": "He wants a coat.", "question": "What?", "options": ["a coat", "a film"], "answer": "A"}],
    "rank": [{"query": "coat", "documents": ["a coat", "a film"], "relevance": [1, 0]}],
    "generate": [{"source": "a clean room", "target": "a room"}],
}
ANSWER = {"answer": "answer", "rank": "prediction"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model with new weights for each task: what it answers means nothing, but it does answer."""
    folder = tmp_path_factory.mktemp("models")
    source = write_model(folder / "source")
    for name, rows in LEARNED.items():
        settings = {"max_target_length": 3, "beam": 1} if name == "generate" else {}
        made = task_model(TASKS[name], source, rows, **settings)
        save_task_model(made, folder / name, tokenizer=source / "tokenizer")
    return {name: folder / name for name in LEARNED}


def predict(model: Path, source: Path | str, out: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows that came back."""
    escape = options.pop("escape_formulas", True)
    columns = options.pop("column", [])
    settings = TableSettings(**options)
    run_prediction(
        str(model),
        [str(source)],
        out=out,
        replace_existing=False,
        to=None,
        columns=chosen_columns(columns),
        tables=settings,
        batch_size=4,
        escape_formulas=escape,
    )
    text = out.read_text(encoding="utf-8")
    if out.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(io.StringIO(text), delimiter="\t" if out.suffix == ".tsv" else ","))


def standard_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))  # type: ignore[arg-type]


@pytest.mark.parametrize("to", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize(
    ("name", "content", "options", "problems"),
    [
        (
            "in.csv",
            'text,note\na room,1\nragged\n"open,2\na film,3,4\n,5\n\na film,6\n',
            {},
            [
                "",
                "line 3: .*1 cell for",
                "line 4: .*never closed",
                "line 5: .*3 cells",
                "line 6: an empty",
                "line 7: a",
                "",
            ],
        ),
        (
            "in.tsv",
            "text\tnote\na room\t1\nragged\na film\t3\t4\n\na film\t6\n\n\n",
            {},
            ["", "line 3: .*1 cell", "line 4: .*3 cells", "line 5: a blank line", ""],
        ),
        (
            "in.jsonl",
            '{"text": "a room"}\n{"text": broken\n[1]\n{}\n\n{"other": 1}\n{"text": "a film"}\n\n',
            {},
            [
                "",
                "line 2: .*no JSON",
                "line 3: .*got list",
                "line 4: .*an empty one",
                "line 5: a",
                "line 6: an empty",
                "",
            ],
        ),
        (
            "in.json",
            '[{"text": "a room"}, 7, {"text": null}, {"text": "a film"}]',
            {},
            ["", "record 2: .*got int", "record 3: an empty text", ""],
        ),
        (
            "lines.txt",
            "a room\n\n  \na film\n\n",
            {"format": "tsv", "columns": ("text",)},
            ["", "line 2: a blank line", "line 3: a blank line", "", "line 5: a blank line"],
        ),
    ],
)
def test_every_row_comes_back_in_order(
    name: str,
    content: str,
    options: dict[str, Any],
    problems: list[str],
    to: str,
    models: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).write_text(content)
    found = predict(models["classify"], tmp_path / name, tmp_path / f"out.{to}", **options)
    assert len(found) == len(problems)
    for row, problem in zip(found, problems, strict=True):
        assert re.fullmatch(f"{problem}.*" if problem else "", row.get("problem") or ""), row
        assert bool(row.get("prediction")) == (not problem)
    assert [row["text"] for row in found if row.get("prediction")] == ["a room", "a film"]
    bad = sum(map(bool, problems))
    said = " ".join(capsys.readouterr().err.split())
    assert f"{bad} of {len(problems)} rows have no answer; the column `problem` says why. The first: " in said


def test_what_could_be_read_of_a_ragged_row_is_shown(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n1,a room\n2\n3,a film,x\n4,a film\n")
    found = predict(models["classify"], tmp_path / "in.csv", tmp_path / "out.csv")
    assert [(row["id"], row["text"]) for row in found] == [("1", "a room"), ("2", ""), ("3", "a film"), ("4", "a film")]


def test_parquet_and_conll(models: dict[str, Path], tmp_path: Path) -> None:
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(),
        3,
        [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pyarrow.py_buffer(b"a\xffc")],
    )
    pyarrow.parquet.write_table(pyarrow.table({"text": broken}), tmp_path / "in.parquet")
    found = predict(models["classify"], tmp_path / "in.parquet", tmp_path / "out.csv")
    assert [bool(row["prediction"]) for row in found] == [True, False, True]
    assert found[1]["problem"].startswith("row 2: it cannot be read: 'utf-8' codec")
    (tmp_path / "in.conll").write_text("in O\nParis O\n\nAnna\nWeber O\n\nParis O\n")
    found = predict(models["tag"], tmp_path / "in.conll", tmp_path / "out.jsonl")
    assert [row.get("tokens") for row in found] == [["in", "Paris"], None, ["Paris"]]
    assert found[1]["problem"].startswith("line 4: it cannot be read: 1 cell for 2 columns")
    assert "prediction" not in found[1]


@pytest.mark.parametrize("name", LEARNED)
def test_every_task_gives_all_rows_back(name: str, models: dict[str, Path], tmp_path: Path) -> None:
    """A good row, a broken line, a row without what the task reads, values of a wrong kind, a good row."""
    good = {role: value for role, value in LEARNED[name][0].items() if role not in ("label", "answer", "relevance")}
    odd = {role: {"a": [7]} if isinstance(value, list) else value for role, value in good.items()}
    lines = [json.dumps(good), '{"broken', json.dumps(dict.fromkeys(good)), json.dumps(odd), json.dumps(good)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    found = predict(models[name], tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert len(found) == 5
    answer = ANSWER.get(name, "prediction")
    assert found[0] == found[4]
    assert answer in found[0]
    assert "problem" not in found[0]
    for row, line in ((found[1], 2), (found[2], 3)):
        assert row["problem"].startswith(f"line {line}: ")
        assert answer not in row
    if odd != good:
        assert found[3]["problem"].startswith("line 4: ")


def test_lines_of_standard_input(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input(monkeypatch, "\na room\n\na film\n")
    found = predict(models["classify"], "-", tmp_path / "out.jsonl", columns=("text",))
    assert [row.get("text") for row in found] == [None, "a room", None, "a film"]
    assert [row.get("problem") for row in found] == ["line 1: a blank line", None, "line 3: a blank line", None]
    standard_input(monkeypatch, "\n\n")
    found = predict(models["classify"], "-", tmp_path / "out.csv", columns=("text",))
    assert [row["problem"] for row in found] == ["line 1: a blank line", "line 2: a blank line"]
    standard_input(monkeypatch, '{"broken\n')
    with pytest.raises(DataError, match=r"must have rows; got 1 malformed ones only, the first: .*line 1: no JSON"):
        predict(models["classify"], "-", tmp_path / "none.jsonl")
    capsys.readouterr()


def test_a_stream_of_broken_rows_stays_in_order(models: dict[str, Path], tmp_path: Path) -> None:
    """More than are read at once, and more than the share that training allows."""
    lines = [json.dumps({"text": "a room", "id": n}) if n % 3 == 0 else "{" for n in range(1300)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    found = predict(models["classify"], tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert [row.get("id") for row in found] == [n if n % 3 == 0 else None for n in range(1300)]
    assert all(("problem" in row) == (n % 3 > 0) for n, row in enumerate(found))


# --------------------------------------------------------------------------------------------------------- formulas

DANGEROUS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-x", "- a list"]
HARMLESS = ["-1", "+0.5", "-1e-5", "-.5", "a=b", " =1", "'quoted'", "", "'"]


def restored(cell: str) -> str:
    """As the guide says."""
    return re.sub(r"^'(?='*[=+\-@\t\r])", "", cell)


@pytest.mark.parametrize("text", [*DANGEROUS, *HARMLESS])
def test_no_cell_begins_as_a_formula_and_all_come_back(text: str) -> None:
    safe = without_formula(text)
    assert (safe != text) == (text in DANGEROUS)
    assert restored(safe) == text


@pytest.mark.parametrize("to", ["csv", "tsv"])
def test_formulas_are_escaped_unless_told_otherwise(
    to: str, models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": text, "=n": "-7"} for text in ["=a room", "a film", "\t@x"]]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = predict(models["classify"], tmp_path / "in.jsonl", tmp_path / f"out.{to}")
    assert [row["text"] for row in found] == ["'=a room", "a film", "'\t@x"]
    assert [row["'=n"] for row in found] == ["-7"] * 3
    assert {row["prediction"] for row in found} <= {"good", "'=bad"}
    assert all(float(row["probability"]) > 0 for row in found)
    assert "were prefixed with '; --no-escape-formulas" in " ".join(capsys.readouterr().err.split())
    found = predict(models["classify"], tmp_path / "in.jsonl", tmp_path / f"plain.{to}", escape_formulas=False)
    assert [row["text"] for row in found] == ["=a room", "a film", "\t@x"]
    assert [row["=n"] for row in found] == ["-7"] * 3
    assert "were prefixed" not in capsys.readouterr().err
    found = predict(models["classify"], tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert found[0]["text"] == "=a room"


def test_numbers_that_were_computed_stay_numbers(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\na clean room\na dull film\n")
    found = predict(models["regress"], tmp_path / "in.csv", tmp_path / "out.csv")
    assert all(float(row["prediction"]) < 0 for row in found)


# --------------------------------------------------------------------------------------------------------- columns


def test_columns_of_the_table_are_not_overwritten(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,prediction,problem\na room,mine,none\n,mine,some\n")
    found = predict(models["classify"], tmp_path / "in.csv", tmp_path / "out.csv")
    assert [(row["prediction"], row["problem"]) for row in found] == [("mine", "none"), ("mine", "some")]
    assert found[0]["prediction (segue)"]
    assert found[1]["problem (segue)"] == "line 3: an empty text"


def test_what_csv_has_no_column_for_is_said(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"text": "a room"}'] * 100 + ['{"text": "a film", "late": 1}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    predict(models["classify"], tmp_path / "in.jsonl", tmp_path / "out.csv")
    assert "1 rows have a field 'late' that the first rows lack" in " ".join(capsys.readouterr().err.split())
    file = io.StringIO()
    writer = PredictionWriter(file, "csv", ["text"], escape_formulas=True)
    assert writer.write({"text": "a"}, {"prediction": ["O"]}, None) is None
    problem = writer.write({"text": "b"}, {"entities": []}, None)
    assert problem is not None
    assert "(entities): use --to jsonl" in problem
    writer.close()
    assert file.getvalue().count("\n") == 3


@pytest.mark.parametrize("verb", ["finetune", "tune"])
def test_the_option_that_messages_advise_is_there(verb: str) -> None:
    assert "malformed_share" in [parameter.name for parameter in command_of(verb).params]
