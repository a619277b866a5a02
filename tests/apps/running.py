"""A real desk in a process of its own."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.forked import forked_call, verb
from tests.serve.running import SECONDS, Server


def start_desk(desk: Path, folder: Path, *options: object, secret: str = "", port: int = 0) -> Server:
    """Waits until it takes requests. It is forked, which saves its imports."""
    log = folder / f"desk-{time.monotonic_ns()}.log"
    log.touch()
    arguments = ["desk", "run", str(desk), "--port", str(port), *map(str, options)]
    process = forked_call(partial(_run, log, arguments), environment={"SEGUE_WEBHOOK_SECRET": secret})
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"serving on (http://\S+)", log.read_text()):
            return Server(process, found[1], log)
        time.sleep(0.02)
    process.kill()
    raise AssertionError(log.read_text())


def _run(log: Path, arguments: Sequence[str]) -> int:
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
    return verb(arguments)


@contextmanager
def running_desk(desk: Path, folder: Path, *options: object, secret: str = "") -> Iterator[Server]:
    server = start_desk(desk, folder, *options, secret=secret)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
