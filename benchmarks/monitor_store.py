"""Many texts in the store: the speed of pages and of reading texts; and a replay that is often killed."""

import json
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from segue.apps.database import Connection, Database
from segue.apps.monitor import queries, store
from segue.apps.monitor.daily import daily_report
from segue.apps.monitor.entities import Entities
from segue.apps.monitor.folder import write_model
from segue.apps.monitor.model import MonitorModel, Reading, Sentiment
from segue.apps.monitor.repeats import fingerprint, known
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.stream import JUDGED, Batch, Read, Stream
from segue.apps.monitor.texts import Text
from segue.apps.monitor.watch import DAY

Tell = Callable[[str], object]
AT_ONCE = 200
ENTITIES, TOPICS = 500, 12
SPAN = 730 * DAY
END = 1_700_000_000.0
PAGES = 100
"""Number of requests for each page."""
FILLED = 5000
"""Number of texts per transaction while filling."""
MEASURED = 10_000
"""Number of texts that arrive as from a source, of which the second half is measured."""


def many_texts(count: int, folder: Path, busy: bool, told: Tell) -> dict[str, Any]:
    """Fill a store with made-up texts, in large transactions, and measure at a tenth of them and at the end: pages, and
    the speed of reading texts. Texts already in the folder are not written again, so the same command continues after a
    stop."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder / "measured.json"
    found: dict[str, Any] = json.loads(notes.read_text()) if notes.is_file() else {"texts": count}
    if found["texts"] != count:
        raise SystemExit(f"{folder} must be for {count:,} texts; it is for {found['texts']:,}. Give another --store.")
    database = MONITOR.database_at(folder / MONITOR.sqlite, alone=True)
    database.open()
    (there,) = database.do(lambda connection: connection.execute("SELECT max(number) FROM texts").fetchone())
    start, began, filled = int(there or 0), time.monotonic(), 0
    for stop in (count // 10, count):
        measured = min(MEASURED, stop // 2)
        while start < stop - measured:
            many = min(FILLED, stop - measured - start)
            _fill(database, start, many, count)
            start, filled = start + many, filled + many
            if start // FILLED % 20 == 0:
                told(f"{start:,} texts, {filled / (time.monotonic() - began):,.0f} a second")
        if start < stop:
            found[f"{stop:,} texts"] = {"taken": _taken(database, start, stop, count), "pages, ms": _pages(database)}
            found["filled a second"] = round(filled / max(1e-9, time.monotonic() - began))
            start = stop
            notes.write_text(json.dumps(found))
            told(str(found[f"{stop:,} texts"]))
    database.close()
    return {
        **found,
        "bytes of the file": (folder / MONITOR.sqlite).stat().st_size,
        "machine was busy with other work": busy,
    }


def _made_texts(start: int, many: int, count: int) -> list[tuple[Text, Reading]]:
    """Return texts in the order of their times with their readings, each of one to three entities, a few of which have
    most."""
    draw = np.random.default_rng(start)
    places = draw.zipf(1.3, (many, 3)) % ENTITIES
    counts = draw.integers(1, 4, many)
    scores = draw.dirichlet((1.0, 3.0, 1.5), many)
    topics = draw.zipf(1.5, many) % TOPICS
    words = draw.integers(0, 10_000, (many, 15))
    found = []
    for n in range(many):
        negative, neutral, positive = scores[n].tolist()
        said = Sentiment(negative=negative, neutral=neutral, positive=positive)
        text = Text(
            id=f"{start + n:032x}",
            source="made",
            time=END - SPAN + SPAN * (start + n) / count,
            text=" ".join(f"word{word}" for word in words[n].tolist()),
            author=f"a{(start + n) % 100_000}",
        )
        codes = {f"E{place}": said for place in places[n, : counts[n]].tolist()}
        reading = Reading(topic=f"topic {topics[n]}", topic_probability=0.9, sentiment=said, entities=codes)
        found.append((text, reading))
    return found


def _fill(database: Database, start: int, many: int, count: int) -> None:
    """Fill in one large transaction, with the store's own statements."""
    made = _made_texts(start, many, count)

    def work(connection: Connection) -> None:
        written = []
        for text, reading in made:
            row = store.Row(
                text=text, reading=reading, fingerprint=fingerprint(text.text), original=None, late=False, model="0001",
                arrived=END,
            )  # fmt: skip
            written.append((store.add_text(connection, row), row))
        store.count_texts(connection, written)

    database.do(work)


def _taken(database: Database, start: int, stop: int, count: int) -> dict[str, Any]:
    """Read batches as a source gives them, through the whole stream but the model: known ids, repeats, counts,
    watching. Filled texts count as judged; in the first half all subjects learn their usual level, as they do every two
    weeks."""
    stream = Stream(MonitorSettings(find_names="").rules())
    filled = END - SPAN + SPAN * (start - 1) / count
    # The state that an earlier measurement left would be followed over all that was filled since, as no stream does.
    database.do(lambda connection: connection.execute("DELETE FROM subjects"))
    database.do(lambda connection: store.set_state(connection, JUDGED, filled))
    times: list[tuple[float, float]] = []
    for first in range(start, stop, AT_ONCE):
        made = _made_texts(first, min(AT_ONCE, stop - first), count)
        batch = Batch(source="made", texts=[text for text, _ in made], arrived=END)
        began, computed = time.perf_counter(), time.process_time()
        looked = database.do(lambda connection, batch=batch: stream.look(connection, batch))  # type: ignore[misc]
        readings = [(reading, known(text.text, list(reading.entities))) for text, reading in made]
        read = Read(batch=batch, looked=looked, readings=list(readings), model="0001")
        written = database.do(lambda connection, read=read: stream.write(connection, read))  # type: ignore[misc]
        assert len(written.numbers) == len(made)
        times.append((time.perf_counter() - began, time.process_time() - computed))
    later = times[len(times) // 2 :]
    seconds, computed = (AT_ONCE * len(later) / sum(column) for column in zip(*later, strict=True))
    return {"texts a second": round(seconds), "texts a second of one core's time": round(computed)}


def _pages(database: Database) -> dict[str, Any]:
    """Return p50 and p95 of the requests of the page, for entities with many and with few texts, at the end of the
    time."""
    (last,) = database.do(lambda connection: connection.execute("SELECT max(time) FROM texts").fetchone())
    draw = random.Random(0)
    asked: dict[str, Callable[[Any], Any]] = {
        "overview, 7 days": lambda c: queries.overview(c, start=last - 7 * DAY, end=last, limit=100),
        "overview, 90 days": lambda c: queries.overview(c, start=last - 90 * DAY, end=last, limit=100),
        "topics": lambda c: queries.topics(c, start=last - 7 * DAY, end=last),
        "timeline, 14 days": lambda c: queries.timeline(
            c, entity=f"E{draw.randrange(50)}", topic="", start=last - 14 * DAY, end=last
        ),
        "timeline, two years": lambda c: queries.timeline(
            c, entity=f"E{draw.randrange(50)}", topic="", start=last - 730 * DAY, end=last
        ),
        "timeline of all texts, a year": lambda c: queries.timeline(
            c, entity="", topic="", start=last - 365 * DAY, end=last
        ),
        "timeline of an entity and topic, 14 days": lambda c: queries.timeline(
            c, entity=f"E{draw.randrange(50)}", topic="topic 3", start=last - 14 * DAY, end=last
        ),
        "topics of an entity, 90 days": lambda c: queries.within(
            c, entity=f"E{draw.randrange(50)}", topic="", start=last - 90 * DAY, end=last, limit=50
        ),
        "entities of a topic, 90 days": lambda c: queries.within(
            c, entity="", topic=f"topic {draw.randrange(TOPICS)}", start=last - 90 * DAY, end=last, limit=50
        ),
        "negative texts": lambda c: queries.texts(c, sentiment="negative", limit=50),
        "open alarms": lambda c: queries.alarms(c, state="open", limit=100),
        "open incidents": queries.open_incidents,
        "alarms of an entity and topic": lambda c: queries.alarms(c, entity=f"E{draw.randrange(50)}", topic="topic 1"),
        "texts of an entity": lambda c: queries.texts(c, entity=f"E{draw.randrange(50)}", limit=50),
        "negative texts of an entity and topic": lambda c: queries.texts(
            c, entity=f"E{draw.randrange(50)}", topic="topic 3", sentiment="negative", limit=50
        ),
        "last texts": lambda c: queries.latest(c, after=0, limit=20),
        "one text": lambda c: queries.one_text(c, draw.randrange(1, 100_000)),
        "alarms": lambda c: queries.alarms(c, limit=100),
        "span": queries.span,
        "report of a day": lambda c: daily_report(c, last - DAY),
    }
    found = {}
    for name, work in asked.items():
        times, computed = [], []
        for _ in range(PAGES if "report" not in name else 10):
            began, used = time.perf_counter(), time.process_time()
            database.do(work)
            times.append(1000 * (time.perf_counter() - began))
            computed.append(1000 * (time.process_time() - used))
        found[name] = {
            "p50": round(float(np.quantile(times, 0.5)), 2),
            "p95": round(float(np.quantile(times, 0.95)), 2),
            "p95 of one core's time": round(float(np.quantile(computed, 0.95)), 2),
        }
    return found


def soak(model: MonitorModel, rows: list[dict[str, Any]], kills: int, told: Tell) -> dict[str, Any]:
    """Check that the same texts, read without and with kills, give the same texts, counts and alarms."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "texts.jsonl").write_text(
            "".join(json.dumps({**row, "id": str(n)}) + "\n" for n, row in enumerate(rows)), encoding="utf-8"
        )
        for one in ("whole", "killed"):
            _made(folder / one, model)
        command = [sys.executable, "-m", "segue", "monitor", "read"]
        began = time.monotonic()
        subprocess.run([*command, str(folder / "whole"), str(folder / "texts.jsonl")], check=True, capture_output=True)
        seconds = time.monotonic() - began
        told(f"without kills: {seconds:.0f} seconds")
        draw, done, most = random.Random(0), 0, 0
        while True:
            process = subprocess.Popen(
                [*command, str(folder / "killed"), str(folder / "texts.jsonl")],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                wait = None if done >= kills else 6 + draw.uniform(0, 1.2 * seconds / kills)
                process.wait(wait)
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                done += 1
                if done % 10 == 0:
                    told(f"{done} kills")
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        states = [_state(folder / one / MONITOR.sqlite) for one in ("whole", "killed")]
    return {
        "texts": len(rows),
        "kills": done,
        "the same texts, counts and alarms": states[0] == states[1],
        "texts, alarms": states[0][:2],
        "seconds without kills": round(seconds, 1),
        "largest memory of a process, MB": round(most / 1024),
    }


def _made(folder: Path, model: MonitorModel) -> None:
    folder.mkdir()
    none = MonitorModel(
        linear=model.linear, topics=model.topics, sentiment=model.sentiment, topic=model.topic,
        entities=Entities(all=model.entities.all),
    )  # fmt: skip
    MONITOR.write_model(folder, "0001", lambda place: write_model(place, none, (), {}))
    MONITOR.make(folder, "0001", database=None)


def _state(path: Path) -> tuple[Any, ...]:
    connection = sqlite3.connect(path)
    try:
        (texts,) = connection.execute("SELECT count(*) FROM texts").fetchone()
        alarms = connection.execute(
            "SELECT entity, topic, kind, time, since, figures FROM alarms ORDER BY number"
        ).fetchall()
        counts = connection.execute(
            "SELECT entity, topic, start, texts, negative FROM hours ORDER BY 1, 2, 3"
        ).fetchall()
    finally:
        connection.close()
    return texts, len(alarms), alarms, counts
