"""A real recommender in a process of its own."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.serve.running import SECONDS, Server


def start_recommender(rec: Path, folder: Path, *options: object, port: int = 0) -> Server:
    """Waits until it takes requests."""
    log = folder / f"recommend-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "segue", "recommend", "run", str(rec), "--port", str(port), *map(str, options)]
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"serving on (http://\S+)", log.read_text()):
            return Server(process, found[1], log)
        time.sleep(0.02)
    process.kill()
    raise AssertionError(log.read_text())


@contextmanager
def running_recommender(rec: Path, folder: Path, *options: object) -> Iterator[Server]:
    server = start_recommender(rec, folder, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
