"""Tables in JSON: lines, documents and SQuAD."""

import json
from pathlib import Path
from typing import Any

import pytest

from segue.data.tables import (
    json_rows,
)
from tests.data.tables import SQUAD, refused, rows, table


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
