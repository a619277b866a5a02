"""A real application in a process of its own: desk, monitor or recommend."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import segue.apps.desk.run
import segue.apps.monitor.run
import segue.apps.recommend.run  # noqa: F401  (a process that is forked has then imported what it needs)
from segue.apps import running as watching
from segue.apps.monitor import service as monitor_service
from segue.apps.recommend import service as recommend_service
from tests.forked import forked_call
from tests.serve.running import SECONDS, Server, serving

WATCHED = 0.1
"""Seconds between two looks at which model is in use: tests wait for them."""


class Ready:
    """A process that is forked, which must be done before there are other threads, and waits for its start."""

    def __init__(self, application: str, place: Path, folder: Path, *options: object, secret: str = "") -> None:
        self._log = folder / f"{application}-{time.monotonic_ns()}.log"
        self._log.touch()
        port, self._port = os.pipe()

        def work() -> int:
            for module in (watching, monitor_service, recommend_service):  # in the new process only
                vars(module)["WATCHED"] = WATCHED
            arguments = [application, "run", str(place), "--port", os.read(port, 8).decode(), *map(str, options)]
            return serving(self._log, arguments)

        self.process = forked_call(work, environment={"SEGUE_WEBHOOK_SECRET": secret})
        os.close(port)

    def start(self, port: int = 0) -> Server:
        """Waits until it takes requests."""
        os.write(self._port, str(port).encode())
        os.close(self._port)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(r"serving on (http://\S+)", self._log.read_text()):
                return Server(self.process, found[1], self._log)
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(self._log.read_text())


@contextmanager
def running(application: str, place: Path, folder: Path, *options: object, secret: str = "") -> Iterator[Server]:
    server = Ready(application, place, folder, *options, secret=secret).start()
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
