"""Learning again from what was accepted; going back; copies; a running desk follows."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import segue
from segue.apps.desk.forget import without_deleted
from segue.apps.desk.improve import with_reviewed
from segue.apps.desk.store import DESK
from segue.apps.folder import MODELS, model_names
from segue.errors import CheckpointError, ConfigError, DataError
from tests.apps.conftest import with_database
from tests.apps.running import running
from tests.command import command

QUESTIONS = (
    *("do you sell gift vouchers", "can I buy a gift voucher", "is there a voucher as a gift", "gift voucher please"),
    *("how to get a gift voucher", "voucher for a friend"),
)
ANSWER = "Gift vouchers are at the till."


def answered_by_agent(client: httpx.Client, question: str, answer: str) -> str:
    """A conversation in which a person answered."""
    id = client.post("/v1/conversations", json={}).json()["id"]
    client.post(f"/v1/conversations/{id}/messages", json={"text": question, "id": os.urandom(8).hex()})
    assert client.put(f"/v1/agent/conversations/{id}/messages", json={"text": answer}).status_code == 200
    return str(id)


def test_what_agents_answer_is_learned_and_can_be_taken_back(
    learned_few: Path, tmp_path: Path, usual_database: Callable[[], str | None]
) -> None:
    desk = with_database(shutil.copytree(learned_few, tmp_path / "desk"), usual_database())
    file = isinstance(DESK.place_of(desk), Path)
    with pytest.raises(ConfigError, match="accepted answers that it has not learned"):
        segue.improve_desk(desk, progress=False)
    with running("desk", desk, tmp_path) as server, server.client() as client:
        for question in QUESTIONS:
            answered_by_agent(client, question, ANSWER)
        answered_by_agent(client, "nonsense", "rejected")
        proposals = client.get("/v1/agent/reviews").json()["data"]
        assert [(one["question"], one["answer"]) for one in proposals] == [
            *((question, ANSWER) for question in QUESTIONS), ("nonsense", "rejected"),
        ]  # fmt: skip
        for one in proposals:
            body = {"accepted": one["answer"] == ANSWER, "topic": "vouchers" if one["answer"] == ANSWER else None}
            assert client.put(f"/v1/agent/reviews/{one['message']}", json=body).status_code == 200
        assert client.put("/v1/agent/reviews/999999", json={"accepted": True}).status_code == 404
        odd = client.put("/v1/agent/reviews/1", json={"accepted": True, "outside": True, "answer": "No."})
        assert (odd.status_code, odd.json()["error"]["param"]) == (400, "outside")
        assert client.get("/v1/agent/reviews").json()["data"] == []

        found = segue.improve_desk(desk, progress=False)
        assert found.switched
        assert found.learned == len(QUESTIONS)
        assert found.right_now >= found.right_before
        assert DESK.current_model(desk) == found.model == "0002"
        assert segue.open_desk(desk).ask("gift voucher").answer == ANSWER
        with pytest.raises(ConfigError, match="not learned yet; got none"):
            segue.improve_desk(desk, progress=False)

        def model_in_use() -> str:
            return str(client.get("/v1/agent/statistics").json()["decision"]["model"])

        end = time.monotonic() + 20  # the running desk takes it by itself
        while model_in_use() != "0002":
            assert time.monotonic() < end
            time.sleep(0.1)
        id = client.post("/v1/conversations", json={}).json()["id"]
        said = client.post(f"/v1/conversations/{id}/messages", json={"text": "gift voucher", "id": "12345678"}).json()
        assert said["messages"][1]["text"] == ANSWER

        segue.copy_desk(desk, tmp_path / "copy")  # while it runs
        person = client.get("/v1/agent/conversations", params={"search": QUESTIONS[0]}).json()["data"][0]["person"]
        if file:
            assert b"gift vouchers" in (desk / f"{DESK.sqlite}-wal").read_bytes() + (desk / DESK.sqlite).read_bytes()
        deleted = client.delete(f"/v1/operator/people/{person}").json()
        command = f"segue desk person {desk} {person} --delete"
        assert deleted == {"person": person, "deleted_conversations": 1, "models": ["0002"], "command": command}
        assert segue.person_in_desk(desk, person)["conversations"] == []
        if file:
            kept = (desk / f"{DESK.sqlite}-wal").read_bytes() + (desk / DESK.sqlite).read_bytes()
            assert QUESTIONS[0].encode() not in kept
    shutil.copytree(desk, tmp_path / "forgetting")  # as it is, with the model that knows the question
    assert segue.roll_back_desk(desk) == "0001"
    assert segue.open_desk(desk).ask("gift voucher").answer != ANSWER
    with pytest.raises(ConfigError, match="must have an earlier model"):
        segue.roll_back_desk(desk)
    with pytest.raises(ConfigError, match="to must be one of the models 0001, 0002"):
        segue.roll_back_desk(desk, to="0007")

    segue.copy_desk(tmp_path / "copy", tmp_path / "restored", check=True, database=usual_database())
    assert DESK.current_model(tmp_path / "restored") == "0002"
    assert len(segue.person_in_desk(tmp_path / "restored", "nobody")["conversations"]) == 0
    assert isinstance(DESK.place_of(tmp_path / "restored"), Path) == file
    assert len(segue.person_in_desk(tmp_path / "restored", person)["conversations"]) == 1
    database = DESK.database(tmp_path / "restored", alone=True)
    database.open()
    count = database.do(lambda connection: connection.execute("SELECT count(*) FROM conversations").fetchone())
    assert count == (len(QUESTIONS) + 2,)
    database.close()
    (tmp_path / "copy" / DESK.sqlite).write_bytes(b"damaged")
    with pytest.raises(CheckpointError):
        segue.copy_desk(tmp_path / "copy", tmp_path / "again", check=True)
    assert not (tmp_path / "again").exists()

    if file:
        desk = tmp_path / "forgetting"
        assert b"do you sell gift vouchers" in b"".join(one.read_bytes() for one in desk.rglob("*") if one.is_file())
        found = segue.person_in_desk(desk, person, delete=True, progress=False)
        assert (found["conversations"], found["models"], found["model"]) == ([], ["0002"], "0003")
        assert b"do you sell gift vouchers" not in b"".join(p.read_bytes() for p in desk.rglob("*") if p.is_file())
        assert segue.open_desk(desk).ask("gift voucher").answer == ANSWER
        assert segue.person_in_desk(desk, person, delete=True, progress=False)["models"] == []


def test_accepted_answers_join_their_topics(learned: Path) -> None:
    known = segue.open_desk(learned).knowledge
    more = with_reviewed(known, [
        (1, "where has my box gone", "Your parcel is shown under Orders.", None, "a"),
        (2, "a complaint please", "Write to us.", "complaint", "b"),
        (3, "do you ship to the moon", "No.", None, "c"),
        (4, "are you open at night", "We are always open.", "hours", "d"),
    ])  # fmt: skip
    asked = {one.text: [more.topics[topic].name for topic in one.topics] for one in more.asked}
    assert asked["where has my box gone"] == ["parcel"]
    assert asked["a complaint please"] == ["complaint"]
    assert asked["do you ship to the moon"] == ["No."]
    assert {topic.name: topic.answer for topic in more.topics}["complaint"] == "Write to us."
    assert {topic.name: topic.answer for topic in more.topics}["hours"] == "We are always open."
    assert len(more.topics) == len(known.topics) + 1


def test_a_table_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs words to learn from"):
        segue.learn_desk([{"question": "???", "answer": "🙂"}], tmp_path / "desk", model="none", progress=False)
    rows = [{"question": "???", "answer": "Ask with words."}, {"question": "!", "answer": "Shout less."}]
    segue.learn_desk(rows, tmp_path / "desk", model="none", progress=False)
    assert segue.open_desk(tmp_path / "desk").ask("words").candidates


def test_a_damaged_model_is_never_put_into_use(desk: Path) -> None:
    shutil.copytree(desk / MODELS / "0001", desk / MODELS / "0002")
    (desk / MODELS / "0002" / "knowledge.jsonl").write_text("{}")
    assert model_names(desk) == ["0001", "0002"]
    with pytest.raises(CheckpointError):
        segue.roll_back_desk(desk, to="0002")
    assert DESK.current_model(desk) == "0001"
    (desk / DESK.file).write_text("[]")
    with pytest.raises(CheckpointError, match="must be a desk of this version"):
        segue.open_desk(desk)


def test_the_verbs(desk: Path, tmp_path: Path) -> None:
    done = command("desk", "ask", desk, "please track the parcel", "and can penguins fly over the moon")
    assert done.returncode == 0, done.stderr
    assert "Your parcel is shown under Orders." in done.stdout
    assert "This goes to a person: it seems to be out of scope." in done.stdout
    done = command("desk", "ask", desk, "快递查一下", "--json")
    assert json.loads(done.stdout)["candidates"][0]["topic"] == "快递"
    assert "must have an earlier model" in " ".join(command("desk", "roll-back", desk).stderr.split())
    assert command("desk", "back-up", desk, "--out", tmp_path / "copy").returncode == 0
    assert command("desk", "restore", tmp_path / "copy", "--out", tmp_path / "again").returncode == 0
    assert json.loads(command("desk", "person", desk, "ann").stdout) == {"person": "ann", "conversations": []}
    assert "stores nothing about 'ann'" in command("desk", "person", desk, "ann", "--delete").stdout
    assert command("desk", "improve", desk).returncode == 2
    assert "needs a desk" in command("desk", "run").stderr
    checked = command("desk", "run", desk, "--port", "0", "--check")
    assert checked.returncode == 0
    assert f"{desk} can be run: model 0001 was loaded" in checked.stderr
    assert "serving on" not in checked.stderr  # nothing is served any more
    assert "must have keys" in " ".join(command("desk", "run", desk, "--host", "0.0.0.0").stderr.split())
    assert "needs a secret" in " ".join(command("desk", "run", desk, "--webhook", "http://localhost:1/").stderr.split())


def test_roll_back_and_restore_say_what_they_did(desk: Path, tmp_path: Path) -> None:
    def said(*words: object) -> str:
        done = command("desk", *words, width=1000)
        return " ".join((done.stdout + done.stderr).split())

    shutil.copytree(desk / MODELS / "0001", desk / MODELS / "0002")
    assert "0001, is the first. To use another one, name it with --to: 0002." in said("roll-back", desk)
    forward = said("roll-back", desk, "--to", "0002")
    assert "Model 0002 is now in use instead of 0001;" in forward
    assert forward.endswith(f"To undo this: segue desk roll-back {desk} --to 0001")
    assert said("roll-back", desk, "--to", "0002") == "Model 0002 was already in use; nothing was changed."
    assert "--to must be one of the models 0001, 0002; got '7'. Name one of them." in said("roll-back", desk, "--to", 7)
    copy, again = tmp_path / "copy", tmp_path / "again"
    assert (
        said("back-up", desk, "--out", copy) == f"Backed up {desk} to {copy}, which can be restored, or run as it is."
    )
    assert said("restore", copy, "--out", again) == f"Restored {again} from {copy}; every file matches its hash."
    assert "must be a folder that segue desk back-up wrote" in said("restore", tmp_path, "--out", tmp_path / "new")
    with DESK.opened(desk) as database:
        database.do(lambda connection: connection.execute("INSERT INTO settings VALUES ('error', '0.5')"))
    assert "a desk in use rather than a back-up" in said("restore", desk, "--out", tmp_path / "new")


def test_copies_take_no_links_and_nothing_that_is_not_listed(desk: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be outside of it"):
        segue.copy_desk(desk, desk / "models" / "copy")
    segue.copy_desk(desk, tmp_path / "copy")
    extra = tmp_path / "copy" / MODELS / "0001" / "extra"
    extra.write_text("not of the desk")
    with pytest.raises(CheckpointError, match="extra must be named in"):
        segue.copy_desk(tmp_path / "copy", tmp_path / "again", check=True)
    extra.unlink()
    extra.symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match="got a symbolic link"):
        segue.copy_desk(tmp_path / "copy", tmp_path / "again", check=True)
    extra.unlink()
    segue.copy_desk(tmp_path / "copy", tmp_path / "again", check=True)


def test_topics_of_agents_go_with_their_last_question(learned: Path) -> None:
    known = segue.open_desk(learned).knowledge
    more = with_reviewed(known, [
        (1, "do you ship to the moon", "No.", None, "deleted"),
        (2, "where has my box gone", "Your parcel is shown under Orders.", None, "deleted"),
        (3, "do you ship to mars", "Not yet.", None, "kept"),
    ])  # fmt: skip
    less = without_deleted(more, {"kept"})
    assert [topic.name for topic in less.topics] == [*(topic.name for topic in known.topics), "Not yet."]
    asked = {one.text: [less.topics[topic].name for topic in one.topics] for one in less.asked}
    assert asked["do you ship to mars"] == ["Not yet."]
    assert {"do you ship to the moon", "where has my box gone"}.isdisjoint(asked)
