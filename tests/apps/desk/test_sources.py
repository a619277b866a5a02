"""Sources of answers: visitors see those that the rows name, agents see the file."""

import json
import os
from pathlib import Path
from typing import Any

import httpx

import segue
from segue.apps.desk.folder import read_knowledge_of
from segue.apps.desk.improve import with_reviewed
from segue.apps.desk.routes import _shown_about
from tests.apps.desk.test_knowledge import table
from tests.apps.running import running

ROWS = [
    ("where is my parcel", "Under Orders.", "parcel", "Terms of delivery"),
    ("track my parcel", "Under Orders.", "parcel", ""),
    ("parcel please", "Somewhere.", "parcel", "Another page"),
    ("I want a refund", "Three days.", "refund", ""),
    ("refund my order", "Three days.", "refund", ""),
]


def test_visitors_see_no_file(tmp_path: Path) -> None:
    faq = table(tmp_path / "private-file.csv", "question,answer,intent,source", ROWS)
    segue.learn_desk(faq, tmp_path / "desk", model="none", error=0.9, progress=False)
    known = read_knowledge_of(tmp_path / "desk" / "models" / "0001")
    assert [(topic.source, topic.cited) for topic in known.topics] == [
        ("private-file.csv", "Terms of delivery"), ("private-file.csv", None),
    ]  # fmt: skip
    with running("desk", tmp_path / "desk", tmp_path) as server, server.client() as client:

        def said(client: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
            id = client.post("/v1/conversations", json={}).json()["id"]
            body = {"text": text, "id": os.urandom(8).hex(), **more}
            answer = client.post(f"/v1/conversations/{id}/messages", json=body)
            whole = client.get(f"/v1/conversations/{id}")
            assert "private-file" not in answer.text + whole.text
            assert answer.json()["messages"] == whole.json()["messages"]
            seen = client.get(f"/v1/agent/conversations/{id}").json()["messages"][1]["about"]
            assert seen["source"] == "private-file.csv"
            found: dict[str, Any] = answer.json()["messages"][1]["about"]
            return found

        assert said(client, "where is my parcel", topic="parcel")["source"] == "Terms of delivery"
        assert "source" not in said(client, "I want a refund", topic="refund")
    replaced = with_reviewed(known, [(1, "my parcel?", "Ask the post.", "parcel", "c")])
    assert replaced.topics[0].cited is None  # the source was that of another answer


def test_messages_of_earlier_versions_and_generated_replies_show_no_file_either() -> None:
    about = {"kind": "generated", "source": "private-file.csv", "candidates": [{"source": "private-file.csv"}]}
    about["sources"] = [
        {"topic": "parcel", "source": "private-file.csv"},
        {"topic": "x", "source": "f", "cited": "Terms"},
    ]
    shown = _shown_about(about)
    assert shown["sources"] == [{"topic": "parcel", "source": None}, {"topic": "x", "source": "Terms"}]
    assert "private-file" not in json.dumps(shown)
