"""A monitor that runs: texts in, trends and alarms out, corrections, people, limits."""

import csv
import email.policy
import io
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import segue
from segue.apps.monitor.sources import read_sources
from tests.apps.monitor.mailbox import Mailbox
from tests.apps.monitor.news import DAY, START, stream
from tests.apps.receiver import Receiver
from tests.command import command
from tests.serve.running import Server

BAD = 40
END = START + 50 * DAY


def wait_for(condition: Any) -> Any:
    end = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def filled(server: Server) -> Server:
    """The server, after fifty days in the last ten of which ACME turned."""
    from tests.apps.monitor.conftest import KEYS

    rows = stream(days=50, bad_from=BAD)
    with server.client(KEYS["agent"]) as client:
        for start in range(0, len(rows), 300):
            found = client.post("/v1/texts", json={"texts": rows[start : start + 300]})
            assert found.status_code == 200, found.text
    return server


def test_texts_are_taken_once_and_refused_with_a_reason(filled: Server, agent: httpx.Client) -> None:
    row = stream(days=1)[0]
    again = agent.post("/v1/texts", json={"texts": [row, {"text": ""}, {"text": "x", "time": "never"}]}).json()
    assert (again["texts"], again["known"], len(again["refused"])) == ([], 1, 2)
    sources = agent.get("/v1/sources").json()
    posted = next(one for one in sources["sources"] if one["name"] == "post")
    assert posted["taken"] == 600
    assert sources["refused"][0]["source"] == "post"


def test_overview_timeline_and_texts_agree(filled: Server, agent: httpx.Client) -> None:
    found = agent.get("/v1/overview", params={"days": 60}).json()
    assert {one["entity"] for one in found["entities"]} == {"ACME", "GLBX", "600001"}
    assert sum(one["texts"] for one in found["topics"]) == 600
    acme = next(one for one in found["entities"] if one["entity"] == "ACME")
    assert acme["low"] < acme["mean"] < acme["high"]
    bounds = {"start": START, "end": END, "entity": "ACME"}
    line = agent.get("/v1/timeline", params=bounds).json()
    assert line["step"] == DAY
    assert sum(point["texts"] for point in line["points"]) == acme["texts"]
    assert line["points"][45]["mean"] < 0 < line["points"][45]["usual"]
    assert line["alarms"]
    assert line["price"]["same_day"]["days"] >= 20
    assert 0 < line["price"]["same_day"]["p_value"] <= 1
    fine = agent.get("/v1/timeline", params={"start": START, "end": START + 2 * DAY}).json()
    assert (fine["step"], len(fine["points"])) == (3600, 48)
    texts: list[dict[str, Any]] = []
    place: dict[str, Any] = {}
    while page := agent.get("/v1/texts", params={"entity": "ACME", "limit": 100, **place}).json()["data"]:
        texts += page
        place = {"before": page[-1]["time"], "before_number": page[-1]["number"]}
    assert len(texts) == len({one["number"] for one in texts}) == acme["texts"]
    negative = agent.get("/v1/texts", params={"entity": "ACME", "sentiment": "negative", "limit": 200}).json()["data"]
    assert len(negative) == min(200, sum(one["said"]["negative"] >= 0.5 for one in texts))


def test_a_text_shows_the_words_that_decided(filled: Server, agent: httpx.Client) -> None:
    one = agent.get("/v1/texts", params={"entity": "ACME", "sentiment": "negative", "limit": 1}).json()["data"][0]
    found = agent.get(f"/v1/texts/{one['number']}").json()
    assert "".join(text for text, _ in found["pieces"]) == one["text"]
    assert max(weight for _, weight in found["pieces"]) == 1
    assert found["network"] is None  # a linear model read it
    towards = agent.get(f"/v1/texts/{one['number']}", params={"entity": "ACME"}).json()
    assert towards["about"] == {"entity": "ACME", "sentiment": "negative"}
    assert "".join(text for text, _ in towards["pieces"]) == one["text"]
    assert max(weight for _, weight in towards["pieces"]) == 1
    assert agent.get(f"/v1/texts/{one['number']}", params={"entity": "600001"}).status_code == 400
    assert agent.get("/v1/texts/999999").status_code == 404


def test_an_alarm_is_told_by_webhook_and_mail_seen_and_commented(
    filled: Server, agent: httpx.Client, receiver: Receiver, mailbox: Mailbox
) -> None:
    alarms = agent.get("/v1/alarms", params={"state": "open", "entity": "ACME"}).json()["data"]
    alarm = alarms[-1]
    assert "ACME" in alarm["reason"]
    told = wait_for(lambda: [e for e in receiver.events.values() if e.get("alarm") == alarm["number"]])
    assert (told[0]["entity"], told[0]["reason"]) == ("ACME", alarm["reason"])
    assert told[0]["texts"]
    first = wait_for(lambda: [one for one in mailbox.mails if f"alarm-{alarm['incident']}@example.com" in one])
    mail = email.message_from_string(first[0], policy=email.policy.default)
    assert str(mail["subject"]).startswith("Alarm: ")
    assert mail["to"].addresses[0].addr_spec == "desk@example.com"
    assert len(first) == 1
    found = agent.get(f"/v1/alarms/{alarm['number']}").json()
    assert sum(len(group["texts"]) for group in found["groups"]) == len(found["texts"]) > 0
    seen = agent.post(f"/v1/alarms/{alarm['number']}/acknowledge").json()
    assert (seen["state"], seen["agent"]) == ("acknowledged", "alice")
    said = agent.post(f"/v1/alarms/{alarm['number']}/comments", json={"text": "<b>looked</b> into it"}).json()
    assert [(one["agent"], one["text"]) for one in said["comments"]] == [("alice", "<b>looked</b> into it")]
    assert agent.post("/v1/alarms/99999/acknowledge").status_code == 404
    assert agent.post(f"/v1/alarms/{alarm['number']}/comments", json={"text": " "}).status_code == 400


def test_a_growing_file_and_a_stream_of_events(filled: Server, agent: httpx.Client) -> None:
    posts = filled.log.parent / "posts.jsonl"
    with agent.stream("GET", "/v1/events", params={"after": 600}) as events:
        lines = (json.loads(line[5:]) for line in events.iter_lines() if line.startswith("data:"))
        next(lines)
        with posts.open("a") as file:
            file.write(json.dumps({"text": "Globex <script>alert(1)</script> posts a loss", "time": END}) + "\n")
        found = next(one for one in lines if one["texts"])
    [text] = found["texts"]
    assert (text["source"], list(text["entities"])) == ("posts", ["GLBX"])


def test_labels_are_corrected_reviewed_learned_and_rolled_back(
    filled: Server, agent: httpx.Client, operator: httpx.Client
) -> None:
    folder = filled.log.parent / "monitor"
    texts = agent.get("/v1/texts", params={"entity": "GLBX", "sentiment": "neutral", "limit": 3}).json()["data"]
    for one in texts:
        body = {"sentiment": "neutral", "topic": one["topic"], "entities": {"GLBX": "positive"}}
        assert agent.put(f"/v1/texts/{one['number']}/label", json=body).status_code == 200
    number = texts[0]["number"]
    label = agent.get(f"/v1/texts/{number}").json()["label"]
    assert (label["state"], label["entities"]) == ("open", {"GLBX": "positive"})
    assert agent.put(f"/v1/texts/{number}/label", json={"entities": {"ACME": "negative"}}).status_code == 400
    assert agent.put(f"/v1/texts/{number}/label", json={"entities": {"GLBX": "sad"}}).status_code == 400
    assert agent.put(f"/v1/texts/{number}/label", json={"topic": "none such"}).status_code == 400
    assert agent.put(f"/v1/texts/{number}/label", json={}).status_code == 400
    assert agent.put(f"/v1/reviews/{number}", json={"accepted": True}).status_code == 403
    waiting = operator.get("/v1/reviews").json()["data"]
    assert [one["entities"] for one in waiting] == [{"GLBX": "positive"}] * 3
    for one in texts:
        assert operator.put(f"/v1/reviews/{one['number']}", json={"accepted": one is not texts[2]}).status_code == 200
    found = segue.improve_monitor(folder, progress=False)
    assert (found.model, found.learned) == ("0002", 2)
    assert found.switched == (found.right_now >= found.right_before)
    if found.switched:
        wait_for(lambda: agent.get("/v1/overview").json()["model"] == "0002")
        assert segue.roll_back_monitor(folder) == "0001"
        wait_for(lambda: agent.get("/v1/overview").json()["model"] == "0001")


def test_tables_and_the_report_of_a_day(filled: Server, agent: httpx.Client, tmp_path: Path) -> None:
    bounds = {"entity": "ACME", "start": START, "end": END}
    rows = list(csv.DictReader(io.StringIO(agent.get("/v1/export", params=bounds).text)))
    parquet = agent.get("/v1/export", params={**bounds, "format": "parquet"})
    assert parquet.content[:4] == b"PAR1"
    folder = filled.log.parent / "monitor"
    assert segue.export_monitor(folder, tmp_path / "texts.csv", entity="ACME", end="2030-01-01") == len(rows) > 100
    page = agent.get("/v1/report", params={"day": START + 44 * DAY})
    assert page.headers["content-type"].startswith("text/html")
    assert "ACME" in page.text
    done = command("monitor", "report", str(folder), "--day", "2023-12-28", "--out", str(tmp_path / "day.html"))
    assert done.returncode == 0, done.stderr
    assert "Daily report of 2023-12-28" in (tmp_path / "day.html").read_text(encoding="utf-8")


def test_a_person_is_found_and_deleted(filled: Server, agent: httpx.Client, operator: httpx.Client) -> None:
    assert agent.get("/v1/operator/people/writer-6").status_code == 403
    before = agent.get("/v1/overview", params={"days": 60}).json()["topics"]
    found = operator.get("/v1/operator/people/writer-6").json()["texts"]
    assert len(found) == 85
    assert operator.delete("/v1/operator/people/writer-6").json()["deleted_texts"] == 85
    assert operator.get("/v1/operator/people/writer-6").json()["texts"] == []
    after = agent.get("/v1/overview", params={"days": 60}).json()["topics"]
    assert sum(one["texts"] for one in before) - sum(one["texts"] for one in after) == 85


def test_strangers_and_hostile_requests_are_refused(filled: Server, agent: httpx.Client) -> None:
    with filled.client() as stranger:
        assert stranger.get("/v1/overview").status_code == 401
        assert stranger.post("/v1/texts", json={"texts": [{"text": "x"}]}).status_code == 401
        assert stranger.get("/").status_code == 200
        assert stranger.get("/page/frame.js").status_code == 200
    assert agent.post("/v1/texts", json={"texts": [{"text": "x"}] * 1001}).status_code == 400
    assert agent.post("/v1/texts", json={"texts": []}).status_code == 400
    assert agent.post("/v1/texts", json={"texts": [3]}).status_code == 400
    assert agent.get("/v1/timeline", params={"start": 5, "end": 1}).status_code == 400
    assert agent.get("/v1/timeline", params={"start": "nan", "end": 1}).status_code == 400
    assert agent.get("/v1/texts/9223372036854775808").status_code == 400
    assert agent.get("/v1/report", params={"day": 1e12}).status_code == 400
    deep = "[" * 200 + "]" * 200
    assert agent.post("/v1/texts", content=f'{{"texts": [{{"text": {deep}}}]}}',
                      headers={"content-type": "application/json"}).status_code == 400  # fmt: skip


def test_a_second_one_on_the_same_store_is_refused_and_views_are_not(filled: Server, tmp_path: Path) -> None:
    folder = filled.log.parent / "monitor"
    (tmp_path / "a.txt").write_text("Acme posts a heavy loss\n")
    for arguments in (["run", folder, "--port", "0", "--check"], ["read", folder, tmp_path / "a.txt"]):
        done = command("monitor", *arguments)
        assert done.returncode == 2
        assert "at a time" in " ".join(done.stderr.split())
    for verb in ("trends", "alarms", "names"):
        assert command("monitor", verb, folder).returncode == 0


def test_back_up_restore_and_the_command_line(filled: Server, tmp_path: Path) -> None:
    folder = filled.log.parent / "monitor"
    for words in (
        ("back-up", str(folder), "--out", str(tmp_path / "copy")),
        ("restore", str(tmp_path / "copy"), "--out", str(tmp_path / "again")),
        ("tell", str(tmp_path / "again"), "Acme posts a heavy loss"),
        ("tell", str(tmp_path / "again"), "--json", "Acme wins a large order"),
        ("person", str(tmp_path / "again"), "writer-1"),
        ("export", str(tmp_path / "again"), "--entity", "ACME", "--out", str(tmp_path / "rows.parquet")),
    ):
        done = command("monitor", *words)
        assert done.returncode == 0, done.stderr
    checked = command("monitor", "run", tmp_path / "again", "--port", "0", "--check", width=400)
    assert "can be run: model 0001 was loaded" in checked.stderr
    assert "serving on" not in checked.stderr
    (tmp_path / "copy" / "monitor.sqlite").write_bytes(b"x")
    assert command("monitor", "restore", str(tmp_path / "copy"), "--out", str(tmp_path / "b")).returncode == 2


def test_a_mail_that_is_refused_is_sent_again() -> None:
    import asyncio

    from segue.apps.monitor import store
    from segue.apps.monitor.mail import mails as mails_of

    async def sent(folder: Path) -> Any:
        database = store.MONITOR.database_at(folder / "m.sqlite", alone=True)
        database.open()
        listed = read_sources(folder / "list.toml")
        assert listed.mail is not None
        mails = mails_of(database, listed.mail, password="")
        mailbox.refuse = 1
        await mails.start()
        await database.run(lambda connection: store.add_mail(connection, "alarm-900", "Alarm: 长江", "下跌\n.\n"))
        mails.wake()
        for _ in range(200):
            await asyncio.sleep(0.05)
            row = await database.run(
                lambda connection: connection.execute("SELECT tries, delivered FROM mails").fetchone()
            )
            if row[1] is not None:
                break
        await mails.stop()
        await database.close_later()
        return row

    import tempfile

    with tempfile.TemporaryDirectory() as name, Mailbox() as mailbox:
        folder = Path(name)
        (folder / "list.toml").write_text(
            f'[mail]\nhost = "127.0.0.1"\nport = {mailbox.port}\nsecurity = "none"\nsender = "a@example.com"\n'
            'to = ["b@example.com"]\n'
        )
        tries, delivered = asyncio.run(sent(folder))
    assert (tries, delivered is not None) == (1, True)
    assert sum("alarm-900@example.com" in one for one in mailbox.mails) == 1
