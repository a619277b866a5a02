"""kill -9 at any moment: no text and no alarm is lost, none is doubled, and all counts are those of a fresh replay."""

import functools
import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.database import Database
from segue.apps.folder import MODELS
from segue.apps.monitor.folder import read_model
from segue.apps.monitor.reading import made_batch, take
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import POSTED
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.stream import Stream
from segue.apps.monitor.texts import Rows
from tests.apps.kills import SECRET, Sender, ended, killed, ready, refuse
from tests.apps.monitor.news import stream
from tests.apps.receiver import Receiver

AT_ONCE = 6
State = dict[str, list[tuple[Any, ...]]]


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.do(lambda connection: connection.execute(query).fetchall())]


def state(database: Database) -> State:
    """All that hangs on the texts. Numbers may have gaps where a transaction was cut off, so texts are named by ids."""
    found = {
        "texts": rows(
            database,
            "SELECT t.id, t.source, t.time, t.author, t.text, t.fingerprint, o.id, t.topic, t.negative, t.positive, "
            "t.entities, t.late FROM texts t LEFT JOIN texts o ON o.number = t.original ORDER BY t.number",
        ),
        "mentions": rows(
            database,
            "SELECT m.entity, m.topic, m.time, t.id, m.negative, m.positive, m.late FROM mentions m "
            "JOIN texts t ON t.number = m.number",
        ),
        "hours": rows(database, "SELECT * FROM hours"),
        "days": rows(database, "SELECT * FROM days"),
        "alarms": rows(database, "SELECT entity, topic, kind, time, since, figures FROM alarms ORDER BY number"),
        "texts of alarms": rows(
            database,
            "SELECT a.time, a.kind, t.id FROM alarm_texts x JOIN alarms a ON a.number = x.alarm "
            "JOIN texts t ON t.number = x.text",
        ),
        "taken": rows(database, "SELECT name, taken FROM sources"),
    }
    return {name: some if name in ("texts", "alarms") else sorted(some) for name, some in found.items()}


def bodies_of(days: int) -> list[dict[str, Any]]:
    texts = stream(days=days, bad_from=days * 0.8)
    return [{"texts": texts[start : start + AT_ONCE]} for start in range(0, len(texts), AT_ONCE)]


@pytest.fixture(scope="session")
def replay(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], State]:
    """What the texts of some days make of a monitor; once for all databases."""
    return functools.cache(lambda days: replayed(learned, tmp_path_factory.mktemp("replayed"), bodies_of(days)))


def replayed(learned: Path, folder: Path, bodies: list[dict[str, Any]]) -> State:
    """The same batches into another monitor, without a server and without kills."""
    shutil.copytree(learned / MODELS, folder / "fresh" / MODELS)
    MONITOR.make(folder / "fresh", "0001", database=None)
    model, watched = read_model(folder / "fresh" / MODELS / "0001"), Stream(MonitorSettings().rules())
    with MONITOR.opened(folder / "fresh", alone=True) as database:
        for body in bodies:
            take(database, watched, model, "0001", made_batch(POSTED, body["texts"], Rows(source=POSTED, zone=UTC)))
        return state(database)


def posted(monitor: Path, folder: Path, replay: Callable[[int], State], *, times: int, days: int) -> None:
    """One sender of texts in the order of their times, so that a replay gets them in the same order."""
    bodies = bodies_of(days)
    receiver = Receiver(SECRET)
    options = ("--webhook", receiver.url)
    with ready("monitor", monitor, folder, *options, times=times, secret=SECRET) as (first, *others), receiver:
        server = first.start()
        sender = Sender(server.url, "/v1/texts", bodies)
        sender.start()
        server = killed(server, others, seed=times, senders=[sender], between=lambda draw: refuse(receiver, draw))
        ended([sender])
        assert sender.tries > len(bodies)  # a kill came between
        with MONITOR.opened(monitor) as database:
            found = state(database)
            for name, some in replay(days).items():
                assert found[name] == some, name
            assert len(found["texts"]) == sum(len(body["texts"]) for body in bodies)
            assert found["alarms"]
            told = {id for (id,) in rows(database, "SELECT id FROM outbox")}
        end = time.monotonic() + 300  # an event that was refused four times waits for two minutes
        while set(receiver.events) != told:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert len(told) == len(found["alarms"])
        assert not receiver.repeats_differ
        assert server.stop() == 0


def followed(monitor: Path, folder: Path, *, times: int, days: int) -> None:
    """Files of a folder that is followed: each goes on from its place."""
    texts = stream(days=days, bad_from=days * 0.8)
    (folder / "in").mkdir()
    (folder / "sources.toml").write_text('[[source]]\nname = "in"\nkind = "folder"\npath = "in"\n')
    for part in range(3):
        with (folder / "in" / f"{part}.jsonl").open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in texts[part::3])
    with ready("monitor", monitor, folder, "--sources", folder / "sources.toml", times=times) as (first, *others):
        server = killed(first.start(), others, seed=times)
        with MONITOR.opened(monitor) as database:
            end = time.monotonic() + 120
            while rows(database, "SELECT count(*) FROM texts") != [(len(texts),)]:
                assert time.monotonic() < end
                time.sleep(0.05)
            assert rows(database, "SELECT count(DISTINCT id) FROM texts") == [(len(texts),)]
            assert rows(database, "SELECT CAST(sum(texts) AS BIGINT) FROM hours WHERE entity = ''") == [(len(texts),)]
            assert rows(database, "SELECT CAST(sum(texts) AS BIGINT) FROM days") == rows(
                database, "SELECT count(*) FROM mentions"
            )
            assert rows(database, "SELECT taken, known FROM sources") == [(len(texts), 0)]
        assert server.stop() == 0


def test_texts_that_were_acknowledged_are_there_once(
    learned: Path, tmp_path: Path, usual_database: Callable[[], str | None], replay: Callable[[int], State]
) -> None:
    segue.copy_monitor(learned, tmp_path / "monitor", database=usual_database())
    posted(tmp_path / "monitor", tmp_path, replay, times=2, days=45)


def test_files_are_read_once(monitor: Path, tmp_path: Path) -> None:
    followed(monitor, tmp_path, times=2, days=30)


@pytest.mark.long
def test_texts_that_were_acknowledged_are_there_once_after_a_hundred_kills(
    learned: Path, tmp_path: Path, usual_database: Callable[[], str | None], replay: Callable[[int], State]
) -> None:
    segue.copy_monitor(learned, tmp_path / "monitor", database=usual_database())
    posted(tmp_path / "monitor", tmp_path, replay, times=100, days=120)


@pytest.mark.long
def test_files_are_read_once_with_a_hundred_kills(monitor: Path, tmp_path: Path) -> None:
    followed(monitor, tmp_path, times=100, days=1500)
