"""A server on a port, from its start to its end.

SIGTERM or SIGINT: it says that it is not ready, refuses new requests, lets those that run end within some
seconds, writes all sessions to disk, and ends with 0. A second signal ends the wait.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator
from typing import Protocol

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from segue.errors import ConfigError

log = logging.getLogger("segue.serve")
_HEADERS = 65536
"""Bytes of the header of a request."""
_BACKLOG = 1024
_SWITCH = 0.001
"""Seconds after which the thread that computes lets the event loop run."""


class ServerSettings(Protocol):
    """Times and limits of connections."""

    @property
    def header_timeout(self) -> float:
        """Timeout in seconds for the header of a request to arrive."""

    @property
    def max_connections(self) -> int:
        """Maximum number of open connections."""

    @property
    def drain(self) -> float:
        """Seconds for open requests to finish after SIGTERM."""


class Service(Protocol):
    """What stands behind the routes, from its start to its end."""

    ready: bool
    """Whether it takes requests."""

    @property
    def settings(self) -> ServerSettings:
        """Its limits."""

    @property
    def waiting(self) -> int:
        """Requests that are being answered."""

    async def start(self) -> None:
        """Before the first request."""

    async def stop(self) -> None:
        """After the last."""

    def abandon(self) -> None:
        """Ends the requests that have not ended."""


class _Protocol(H11Protocol):
    """A connection on which each header must come in time: the first from the beginning, others from their first byte,
    until which the time to keep a connection open counts."""

    header_timeout = 20.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = self.loop.call_later(self.header_timeout, self._too_late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._in_time()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_timeout, self._too_late)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Signals are for `serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket on a port; 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Its connections have it too. Otherwise the end of an answer waits for the client's delayed acknowledgement of its
    # beginning, 40 ms; asyncio sets it by itself only on sockets that name their protocol.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        opened.bind((host, port))
    except (OSError, OverflowError) as error:
        opened.close()
        raise ConfigError(
            f"the server must be able to listen on {host}, port {port}; got {error}. Use another --port, or 0 for any."
        ) from None
    return opened


def serve(
    app: ASGIApp, serving: Service, listening: socket.socket, *, started: Callable[[], None], check: bool = False
) -> None:
    """Serves until a signal comes. `started` is called when requests are taken; with `check`, that is the end."""
    sys.setswitchinterval(_SWITCH)
    protocol = type("Protocol", (_Protocol,), {"header_timeout": serving.settings.header_timeout})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        h11_max_incomplete_event_size=_HEADERS,
        limit_concurrency=serving.settings.max_connections,
        backlog=_BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=5,  # for what is written and not taken yet
    )
    asyncio.run(_serve(serving, _Server(config), listening, started, check=check))


async def _serve(
    serving: Service, server: uvicorn.Server, listening: socket.socket, started: Callable[[], None], *, check: bool
) -> None:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    again = asyncio.Event()

    def ask() -> None:
        (again if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    await serving.start()
    try:
        running = asyncio.create_task(server.serve([listening]))
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        started()
        if check:
            asked.set()
        waiting = asyncio.create_task(asked.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        await _drain(serving, again)
        server.should_exit = True
        await running
    finally:
        await serving.stop()


async def _drain(serving: Service, again: asyncio.Event) -> None:
    """Lets what runs come to its end."""
    serving.ready = False
    log.info("shutting down: %d requests", serving.waiting)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(serving.settings.drain):
            while serving.waiting and not again.is_set():
                await asyncio.sleep(0.02)
    serving.abandon()
    await asyncio.sleep(0.05)
