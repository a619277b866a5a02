"""Generated replies: only where the operator names a model, marked, with their sources."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import segue
from segue.apps.desk.reply import reply
from segue.apps.desk.settings import DeskSettings
from segue.apps.desk.writer import open_writer
from segue.errors import ConfigError
from tests.apps.running import running
from tests.tasks.models import write_model

UNCLEAR = ("the card or the refund", "parcel or invoice", "money order hours", "open refund card", "my order password")
NEW = {"memory": {}, "language": "en", "failures": 0}


def test_a_generated_reply_is_marked_and_has_its_sources(learned: Path) -> None:
    desk = segue.open_desk(learned)
    given: list[tuple[str, Sequence[str]]] = []

    def writer(question: str, answers: Sequence[str]) -> str | None:
        given.append((question, answers))
        return "Both, I think." if len(given) == 1 else None

    unclear = next(
        one for one in UNCLEAR if reply(desk, NEW, (), one, DeskSettings(), chosen=None).about["kind"] == "suggestion"
    )
    written = reply(desk, NEW, (), unclear, DeskSettings(), chosen=None, writer=writer)
    assert written.text == "Both, I think."
    assert written.about["kind"] == "generated"
    offered = [one["topic"] for one in written.about["suggestions"]]
    assert [one["topic"] for one in written.about["sources"]] == offered
    assert given[0] == (unclear, [desk.named(name).answer.replace("{order}", "…") for name in offered])  # type: ignore[union-attr]
    again = reply(desk, NEW, (), unclear, DeskSettings(), chosen=None, writer=writer)  # nothing was written
    assert (again.about["kind"], again.text) == ("suggestion", "I am not sure what you mean. Is it one of these?")
    for sure in ("please track the parcel", "can penguins fly over the moon", "I want a human"):
        found = reply(desk, NEW, (), sure, DeskSettings(), chosen=None, writer=writer)
        assert found.about["kind"] in ("answer", "handed_over")
    assert len(given) == 2  # it is not asked where the desk is sure, or a person takes over


def test_language_models_and_fine_tuned_ones_write(desk: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", objective="causal")
    writer = open_writer(str(folder), most_tokens=8)
    text = writer("where is it", ["The room was clean.", "A dull film."])
    assert text == writer("where is it", ["The room was clean.", "A dull film."])
    assert text is None or "\n" not in text
    settings = {"train.epochs": 1, "train.batch_size": 4, "train.restarts": 0, "task.max_target_length": 8}
    rows = [{"source": ["A dull film.", "where is it"], "target": "In the park."}] * 8
    tuned = segue.finetune(
        folder, rows, task="generate", out=tmp_path / "tuned", settings=settings, baselines=False, progress=False
    )
    found = open_writer(str(tuned.folder), most_tokens=8)("where is it", ["A dull film."])
    assert found is None or isinstance(found, str)
    labelled = [{"text": f"{word} film", "label": word} for word in ("good", "bad")] * 6
    other = segue.finetune(
        folder, labelled, out=tmp_path / "classes", settings={"train.epochs": 1}, baselines=False, progress=False
    )
    with pytest.raises(ConfigError, match="on the task classify"):
        open_writer(str(other.folder), most_tokens=8)
    options = ("--set", "generate=transformer-xl-mini-en", "--set", "max_generated=4")
    with running("desk", desk, tmp_path, *options) as server, server.client() as client:
        kinds = set()
        for text in UNCLEAR:
            id = client.post("/v1/conversations", json={}).json()["id"]
            body = {"text": text, "id": "12345678"}
            about = client.post(f"/v1/conversations/{id}/messages", json=body).json()["messages"][1]["about"]
            kinds.add(about["kind"])
            if about["kind"] == "generated":
                assert about["sources"][0]["topic"] == about["suggestions"][0]["topic"]
        assert "generated" in kinds
        assert client.get("/v1/agent/statistics").json()["generated"] >= 1
