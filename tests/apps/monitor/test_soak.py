"""A day of a stream, a thousand times faster, into a monitor that is killed: nothing lost or doubled, memory flat."""

import json
import random
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.monitor.reading import read_sources
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import Source
from segue.apps.monitor.store import MONITOR
from tests.apps.kills import ready
from tests.apps.monitor.news import DAY, stream
from tests.apps.monitor.test_monitor_kills import rows, state
from tests.serve.running import Server

SPEED = 1000
HISTORY = 30
NEAR = 200
"""Texts that a new one is compared with: so few that memory is full after a second."""
GROWTH = 16_000_000
"""Bytes by which a process may grow once it is warm."""
BEHIND = 60.0
"""Seconds that the monitor may need for the last texts."""


def replay(path: Path, texts: list[dict[str, Any]], stop: threading.Event) -> threading.Thread:
    """Appends each text to a file when its time has come."""

    def work() -> None:
        began, first = time.monotonic(), texts[0]["time"]
        with path.open("a", encoding="utf-8") as file:
            for one in texts:
                wait = began + (one["time"] - first) / SPEED - time.monotonic()
                if wait > 0.02 and stop.wait(wait):
                    return
                file.write(json.dumps(one, ensure_ascii=False) + "\n")
                file.flush()

    found = threading.Thread(target=work, daemon=True)
    found.start()
    return found


def soaked(monitor: Path, folder: Path, *, hours: float, an_hour: int, kills: int) -> None:
    """The first half of the time with kills, the second half to look at memory."""
    segue.feed_monitor(monitor, stream(days=HISTORY, seed=4), progress=False)
    segue.copy_monitor(monitor, folder / "fresh")
    day = stream(days=1, bad_from=0, each_day=24 * an_hour, seed=5)[: int(hours * an_hour)]
    texts = [{**one, "id": f"s{n}", "time": one["time"] + HISTORY * DAY} for n, one in enumerate(day)]
    path, settings = folder / "in.jsonl", MonitorSettings(near_texts=NEAR)
    path.touch()
    (folder / "sources.toml").write_text('[[source]]\nname = "in"\nkind = "file"\npath = "in.jsonl"\n')
    options = ("--sources", folder / "sources.toml", "--set", f"near_texts={NEAR}")
    seconds, draw, stop = hours * 3600 / SPEED, random.Random(kills), threading.Event()
    with ready("monitor", monitor, folder, *options, times=kills) as (first, *others):
        server, began = first.start(), time.monotonic()
        writer = replay(path, texts, stop)
        try:
            moments = sorted(draw.uniform(0.05, 0.5) * seconds for _ in others)
            for moment, other in zip(moments, others, strict=True):
                time.sleep(max(0.0, began + moment - time.monotonic()))
                server.process.kill()
                server.process.wait()
                server = other.start(server.port)
            sizes = _sizes(server, writer)
        finally:
            stop.set()
        with MONITOR.opened(monitor) as database:
            taken = "SELECT taken, known FROM sources WHERE name = 'in'"
            end = time.monotonic() + BEHIND
            while rows(database, taken) != [(len(texts), 0)]:
                assert time.monotonic() < end, rows(database, taken)
                time.sleep(0.05)
            found = state(database)
        assert server.stop() == 0
    quarter = max(1, len(sizes) // 4)
    assert statistics.median(sizes[-quarter:]) - statistics.median(sizes[quarter : 2 * quarter] or sizes) < GROWTH
    source = Source(name="in", kind="file", path=str(path), follow=False)
    read_sources(folder / "fresh", [source], settings, told=lambda _: None)
    with MONITOR.opened(folder / "fresh") as database:
        expected = state(database)
    for name, some in expected.items():
        assert rounded(found[name]) == rounded(some), name
    assert len(found["texts"]) == len(texts) + HISTORY * 12
    assert found["alarms"]


def rounded(some: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Batches are cut elsewhere, so sums are added in another order."""
    return [tuple(round(one, 9) if isinstance(one, float) else one for one in row) for row in some]


def _sizes(server: Server, writer: threading.Thread) -> list[int]:
    """Memory of a server until all texts are written."""
    found = []
    while writer.is_alive():
        found.append(server.resident())
        time.sleep(0.1)
    return [*found, server.resident()]


def test_an_hour_and_a_half_of_a_stream(learned: Path, tmp_path: Path) -> None:
    segue.copy_monitor(learned, tmp_path / "monitor")
    soaked(tmp_path / "monitor", tmp_path, hours=1.5, an_hour=240, kills=1)


@pytest.mark.long
def test_a_day_of_a_stream(learned: Path, tmp_path: Path) -> None:
    segue.copy_monitor(learned, tmp_path / "monitor")
    soaked(tmp_path / "monitor", tmp_path, hours=24, an_hour=800, kills=20)
