"""An entity within a topic: volume, sentiment, trend, texts, export and alarms of both together."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import segue
from segue.apps.database import Database
from segue.apps.monitor import queries
from segue.apps.monitor.describe import alarm_reason
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.store import MONITOR, STEPS
from tests.apps.monitor.news import DAY, START, stream
from tests.serve.running import Server

END = START + 50 * DAY
WHOLE = {"start": START, "end": END}


@pytest.fixture(scope="module")
def pairs(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "monitor"
    segue.copy_monitor(learned, folder)
    settings = MonitorSettings(watch_pairs=True)
    segue.feed_monitor(folder, stream(days=50, bad_from=40, each_day=24), settings=settings, progress=False)
    return folder


def asked(folder: Path, work: Any) -> Any:
    with MONITOR.opened(folder) as database:
        return database.do(work)


def test_parts_add_up_to_the_whole(pairs: Path) -> None:
    line = asked(pairs, lambda c: queries.timeline(c, entity="ACME", topic="", **WHOLE))["points"]
    topics = asked(pairs, lambda c: queries.within(c, entity="ACME", topic="", **WHOLE, limit=50))
    assert {one["topic"] for one in topics} == {"results", "law", "business", "other"}
    assert sum(one["texts"] for one in topics) == sum(point["texts"] for point in line)
    assert [one["texts"] for one in topics] == sorted((one["texts"] for one in topics), reverse=True)
    law = next(one for one in topics if one["topic"] == "law")
    entities = asked(pairs, lambda c: queries.within(c, entity="", topic="law", **WHOLE, limit=50))
    assert {one["entity"] for one in entities} == {"ACME", "GLBX", "600001"}
    acme = next(one for one in entities if one["entity"] == "ACME")
    assert {**acme, "topic": "law"} == {**law, "entity": "ACME"}
    both = asked(pairs, lambda c: queries.timeline(c, entity="ACME", topic="law", **WHOLE))["points"]
    assert sum(point["texts"] for point in both) == law["texts"]
    texts = asked(pairs, lambda c: queries.texts(c, entity="ACME", topic="law", limit=1000))
    assert len(texts) == law["texts"]
    assert {one["topic"] for one in texts} == {"law"}
    none = asked(pairs, lambda c: queries.texts(c, entity="ACME", topic="nothing", sentiment="negative"))
    assert none == []


def test_pairs_are_watched_where_that_is_wanted(pairs: Path, learned: Path, tmp_path: Path) -> None:
    found = asked(pairs, lambda c: queries.alarms(c))
    both = [one for one in found if one["entity"] == "ACME" and one["topic"] and one["time"] > START + 40 * DAY]
    one = both[0]
    assert alarm_reason(one["entity"], one["topic"], one["kind"], one["figures"]).startswith(f"ACME, {one['topic']}: ")
    drilled = asked(pairs, lambda c: queries.alarms(c, entity="ACME", topic=one["topic"]))
    assert one in drilled
    assert {each["topic"] for each in drilled} <= {"", one["topic"]}
    assert asked(pairs, lambda c: queries.alarms(c, entity="ACME", topic="nothing")) == []
    every = asked(pairs, lambda c: queries.alarms(c, entity="ACME"))
    assert {each["number"] for each in drilled} < {each["number"] for each in every}
    segue.copy_monitor(learned, tmp_path / "plain")
    segue.feed_monitor(tmp_path / "plain", stream(days=50, bad_from=40, each_day=24), progress=False)
    plain = asked(tmp_path / "plain", lambda c: queries.alarms(c))
    assert plain
    assert not [each for each in plain if each["entity"] and each["topic"]]


def test_both_together_over_http(server: Server, agent: httpx.Client) -> None:
    rows = stream(days=20, each_day=20, seed=9)
    for start in range(0, len(rows), 200):
        assert agent.post("/v1/texts", json={"texts": rows[start : start + 200]}).status_code == 200
    found = agent.get("/v1/within", params={**WHOLE, "entity": "ACME"}).json()["data"]
    law = next(one for one in found if one["topic"] == "law")
    assert {"mean", "low", "high", "negative", "before"} <= set(law)
    by_topic = agent.get("/v1/within", params={**WHOLE, "topic": "law"}).json()
    assert next(one["texts"] for one in by_topic["data"] if one["entity"] == "ACME") == law["texts"]
    exported = agent.get("/v1/export", params={**WHOLE, "entity": "ACME", "topic": "law"}).text
    table = list(csv.DictReader(io.StringIO(exported)))
    assert len(table) == law["texts"]
    assert {(row["entity"], row["topic"]) for row in table} == {("ACME", "law")}
    assert agent.get("/v1/alarms", params={"entity": "ACME", "topic": "law"}).status_code == 200
    assert agent.get("/v1/within", params={**WHOLE, "entity": "ACME", "topic": "law"}).status_code == 400
    assert agent.get("/v1/within", params={"start": 5, "end": 5}).status_code == 400


def test_a_store_of_the_version_before_is_brought_forward(
    tmp_path: Path, new_database: Callable[[], str | None]
) -> None:
    place = new_database() or tmp_path / "monitor.sqlite"
    before = Database(place, name="segue monitor", steps=STEPS[:1])
    before.open()
    counts = "1, 0, 1, 0, -0.5, 0.25, 1, 1"

    def fill(connection: Any) -> None:
        for topic in ("law", "results"):
            connection.execute(f"INSERT INTO days VALUES ('ACME', '{topic}', 86400, {counts})")
        connection.execute("INSERT INTO labels (text, sentiment, agent, created) VALUES (7, 'neutral', 'ann', 1)")
        connection.execute("INSERT INTO names VALUES ('Hooli', 3, 1, 2)")

    before.do(fill)
    before.close()
    now = MONITOR.database_at(place, alone=True)
    now.open()
    try:
        [one] = now.do(lambda c: queries.overview(c, start=DAY, end=2 * DAY, limit=5))
        assert (one["entity"], one["texts"], one["negative"], one["mean"]) == ("ACME", 2, 2, -0.5)
        assert now.do(lambda c: c.execute("SELECT entities FROM labels").fetchall())[0][0] == "{}"
        assert [each["name"] for each in now.do(lambda c: queries.names(c, limit=5))] == ["Hooli"]
    finally:
        now.close()
