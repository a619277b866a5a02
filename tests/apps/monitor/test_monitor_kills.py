"""kill -9 at any moment: no text and no alarm is lost, none is doubled."""

import json
import random
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from segue.apps.monitor.folder import DATABASE
from tests.apps.monitor.news import stream
from tests.apps.monitor.running import start_monitor
from tests.apps.receiver import Receiver

SECRET = "a secret of sixteen and more"


def killed(monitor: Path, folder: Path, *, times: int, days: int) -> None:
    draw = random.Random(times)
    rows = stream(days=days, bad_from=days * 0.8)
    (folder / "in").mkdir()
    (folder / "sources.toml").write_text('[[source]]\nname = "in"\nkind = "folder"\npath = "in"\n')
    for part in range(3):
        with (folder / "in" / f"{part}.jsonl").open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[part::3])
    with Receiver(SECRET) as receiver:
        options = ("--sources", folder / "sources.toml", "--webhook", receiver.url, "--set", "lateness=10000000")
        server = start_monitor(monitor, folder, *options, secret=SECRET)
        for _ in range(times):
            time.sleep(draw.uniform(0.02, 0.4))
            server.process.kill()
            server.process.wait()
            receiver.refuse = draw.randrange(2)
            server = start_monitor(monitor, folder, *options, secret=SECRET, port=server.port)
        database = sqlite3.connect(f"file:{monitor / DATABASE}?mode=ro", uri=True)
        end = time.monotonic() + 120
        while database.execute("SELECT count(*) FROM texts").fetchone()[0] < len(rows):
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.3)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT count(*), count(DISTINCT id) FROM texts").fetchone() == (len(rows),) * 2
        counted = database.execute("SELECT sum(texts) FROM hours WHERE entity = ''").fetchone()[0]
        assert counted == len(rows)
        mentioned = database.execute("SELECT sum(texts) FROM days").fetchone()
        assert mentioned == database.execute("SELECT count(*) FROM mentions").fetchone()
        told = {id for (id,) in database.execute("SELECT id FROM outbox")}
        while set(receiver.events) != told:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert not receiver.repeats_differ
        database.close()
        assert server.stop() == 0


def test_nothing_is_lost_or_doubled(monitor: Path, tmp_path: Path) -> None:
    killed(monitor, tmp_path, times=2, days=30)


@pytest.mark.long
def test_nothing_is_lost_or_doubled_in_a_hundred_kills(learned: Path, tmp_path: Path) -> None:
    shutil.copytree(learned, tmp_path / "many")
    killed(tmp_path / "many", tmp_path, times=100, days=1500)
