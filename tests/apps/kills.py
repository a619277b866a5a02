"""kill -9, again and again, while others go on to send."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.apps.receiver import Receiver
from tests.apps.running import Ready
from tests.serve.running import Server

SECRET = "a secret of sixteen and more"
SECONDS = 600.0
"""Seconds in which what was not acknowledged in time must be, after the last kill."""


class Sender(threading.Thread):
    """Sends one body after the other to a path, and each again until it is acknowledged."""

    def __init__(self, url: str, path: str, bodies: Sequence[dict[str, Any]]) -> None:
        super().__init__(daemon=True)
        self._url, self._path, self._bodies = url, path, bodies
        self.count, self.done, self.tries = len(bodies), 0, 0

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=10, trust_env=False) as client:
            while self.done < self.count:
                self.tries += 1
                with suppress(httpx.HTTPError):
                    if client.post(self._path, json=self._bodies[self.done]).status_code == 200:
                        self.done += 1
                        continue
                time.sleep(0.02)


@contextmanager
def ready(
    application: str, place: Path, folder: Path, *options: object, times: int, secret: str = ""
) -> Iterator[list[Ready]]:
    """One that runs first, and one for after each kill; none is left. They are forked before there are threads."""
    limits = ("--set", "rate=100000", "--set", "burst=100000", "--set", "max_connections=1000")
    found = [Ready(application, place, folder, *limits, *options, secret=secret) for _ in range(1 + times)]
    try:
        yield found
    finally:
        for one in found:
            one.process.kill()
            one.process.wait()


def killed(
    server: Server,
    others: Sequence[Ready],
    *,
    seed: int,
    senders: Sequence[Sender] = (),
    longest: float = 0.5,
    between: Callable[[random.Random], object] = lambda _: None,
) -> Server:
    """Kills the server at any moment, and starts the next one on its port; gives the last one, which lives.

    However fast the senders are, each kill comes before one of them is done: the k-th of n when it is at k/(n + 1).
    """
    draw = random.Random(seed)
    for number, other in enumerate(others, start=1):
        share = number / (len(others) + 1)
        end = time.monotonic() + draw.uniform(0.02, longest)
        while time.monotonic() < end and not any(one.done >= share * one.count for one in senders):
            time.sleep(0.005)
        server.process.kill()
        server.process.wait()
        between(draw)
        server = other.start(server.port)
    return server


def refuse(receiver: Receiver, draw: random.Random) -> None:
    """Lets the receiver refuse an event now and then; one that was refused often would wait for long."""
    receiver.refuse = int(draw.random() < 0.1)


def ended(senders: Sequence[Sender]) -> None:
    """Waits until all was acknowledged."""
    end = time.monotonic() + SECONDS
    for one in senders:
        one.join(max(0.0, end - time.monotonic()))
        assert not one.is_alive(), f"{one.done:,} were acknowledged"
