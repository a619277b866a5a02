"""The verbs of a monitor and of a recommender with a database of PostgreSQL: learned, read, copied, deleted."""

import json
from pathlib import Path
from typing import Any

import segue
from segue.apps.monitor.store import MONITOR
from segue.apps.recommend.store import RECOMMEND
from tests.apps.monitor.news import entities, labelled, stream
from tests.apps.postgres import Postgres
from tests.apps.recommend.shop import events, items
from tests.command import command


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_monitor_is_learned_with_a_database_reads_and_moves(postgres: Postgres, tmp_path: Path) -> None:
    url, monitor = postgres.new(), tmp_path / "monitor"
    listed = table(tmp_path / "companies.jsonl", list(entities()))
    rows, texts = table(tmp_path / "rows.jsonl", labelled()), table(tmp_path / "texts.jsonl", stream(days=5))
    learned = command("monitor", "learn", rows, "--entities", listed, "--out", monitor, "--database", url)
    assert learned.returncode == 0, learned.stderr
    assert MONITOR.place_of(monitor) == url
    for _ in range(2):
        done = command("monitor", "read", monitor, texts)
        assert done.returncode == 0, done.stderr
    assert "0 new texts" in done.stdout  # the place of the file is remembered
    assert not (monitor / MONITOR.sqlite).exists()
    assert len(segue.person_in_monitor(monitor, "writer-1")["texts"]) == 9
    assert command("monitor", "back-up", monitor, "--out", tmp_path / "copy").returncode == 0
    assert (tmp_path / "copy" / MONITOR.sqlite).is_file()
    assert len(segue.person_in_monitor(tmp_path / "copy", "writer-1")["texts"]) == 9  # a look does not change it
    refused = command("monitor", "restore", tmp_path / "copy", "--out", tmp_path / "again", "--database", url)
    assert refused.returncode == 2
    assert "must be empty; got rows in" in " ".join(refused.stderr.split())
    segue.copy_monitor(tmp_path / "copy", tmp_path / "again", check=True, database=postgres.new())
    assert segue.export_monitor(tmp_path / "again", tmp_path / "texts.csv") == 60
    deleted = command("monitor", "person", tmp_path / "again", "writer-1", "--delete")
    assert "9 texts deleted" in deleted.stdout, deleted.stderr
    assert segue.export_monitor(tmp_path / "again", tmp_path / "fewer.csv") == 51
    assert segue.export_monitor(monitor, tmp_path / "others.csv") == 60


def test_a_recommender_is_learned_with_a_database_and_moves(postgres: Postgres, tmp_path: Path) -> None:
    url, rec = postgres.new(), tmp_path / "rec"
    tables = ("--events", table(tmp_path / "e.jsonl", events(users=9)), "--items", table(tmp_path / "i.jsonl", items()))
    quick = [
        word for name in ("width=8", "epochs=1", "segment=8", "memory=8", "vectors=ids") for word in ("--set", name)
    ]
    for out, code, said in ((rec, 0, "9 users, 24 items"), (tmp_path / "second", 2, "must be empty; got rows in")):
        done = command("recommend", "learn", *tables, "--out", out, "--database", url, *quick, width=200)
        assert done.returncode == code, done.stderr
        assert said in done.stdout + done.stderr
    assert not (tmp_path / "second").exists()
    assert RECOMMEND.place_of(rec) == url
    assert not (rec / RECOMMEND.sqlite).exists()
    lists = [one.item.id for one in segue.recommend(rec, "user-1", count=5)]
    assert command("recommend", "back-up", rec, "--out", tmp_path / "copy").returncode == 0
    assert [one.item.id for one in segue.recommend(tmp_path / "copy", "user-1", count=5)] == lists
    segue.copy_recommender(tmp_path / "copy", tmp_path / "again", check=True, database=postgres.new())
    assert [one.item.id for one in segue.recommend(tmp_path / "again", "user-1", count=5)] == lists
    deleted = command("recommend", "person", tmp_path / "again", "user-1", "--delete", width=200)
    assert "events, 0 saved sessions." in deleted.stdout, deleted.stderr
    assert segue.person_in_recommender(tmp_path / "again", "user-1")["events"] == []
    assert segue.person_in_recommender(rec, "user-1")["events"]
