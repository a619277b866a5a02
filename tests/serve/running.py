"""A real server in a process of its own, on a free port of this machine."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvicorn.lifespan.off
import uvicorn.protocols.http.h11_impl  # noqa: F401  (a process that is forked has then imported what it needs)

import segue.cli.serve
import segue.serve.app
import segue.serve.models
import segue.serve.redis_store
import segue.serve.server  # noqa: F401
from tests.forked import Forked, forked_call, verb

SECONDS = 60.0
SOAK = float(os.environ.get("SOAK_SECONDS", "600"))
"""Seconds of overload in the long tests; the others take their part of it."""


def soaked(whole: int, *, least: int = 10) -> int:
    """How much of something a long test does: the whole in ten minutes of SOAK_SECONDS, less in less."""
    return max(least, round(whole * SOAK / 600))


class Server:
    """One that runs."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        plain: dict[str, Any] = {"trust_env": False, "verify": False}  # no certificates are loaded, for none are needed
        return httpx.Client(base_url=self.url, headers=headers, timeout=SECONDS, **plain, **options)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def resident(self) -> int:
        """Bytes of memory that it has."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(SECONDS)


def start(
    models: Sequence[str | Path],
    folder: Path,
    *options: str,
    before: Sequence[str] = (),
    program: Sequence[str] = ("segue",),
) -> Server:
    """Waits until it takes requests. `before` are words before Python, `program` is the module with its arguments."""
    log = folder / f"serve-{time.monotonic_ns()}.log"
    log.touch()
    arguments = ["serve", *map(str, models), "--port", "0", *options]
    process: subprocess.Popen[bytes] | Forked
    if before or program != ("segue",):
        with log.open("w") as file:
            command = [*before, sys.executable, "-m", *program, *arguments]
            process = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
    else:  # forked, which saves the imports of each server
        process = forked_call(partial(serving, log, arguments))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        found = re.search(r"serving on (http://\S+)", log.read_text())
        if found:
            return Server(process, found[1], log)
        time.sleep(0.02)
    process.kill()
    raise AssertionError(log.read_text())


def serving(log: Path, arguments: Sequence[str]) -> int:
    """A verb that serves, with its standard error in a file."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
    return verb(arguments)


@contextmanager
def running(
    models: Sequence[str | Path],
    folder: Path,
    *options: str,
    before: Sequence[str] = (),
    program: Sequence[str] = ("segue",),
) -> Iterator[Server]:
    server = start(models, folder, *options, before=before, program=program)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
