"""An HTTP server on a port, from start to shutdown.

On SIGTERM or SIGINT the server reports that it is not ready, refuses new requests, gives running requests some seconds
to finish, writes all sessions to disk, and exits with 0. A second signal ends the wait.
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
"""Maximum size of a request header in bytes."""
_BACKLOG = 1024
_SWITCH = 0.001
"""Seconds after which the worker thread lets the event loop run."""


class ServerSettings(Protocol):
    """Timeouts and limits of connections."""

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
    """Interface of the service behind the routes."""

    ready: bool
    """True while requests are accepted."""

    @property
    def settings(self) -> ServerSettings:
        """Timeouts and limits of connections."""

    @property
    def waiting(self) -> int:
        """Number of requests that have not been answered."""

    async def start(self) -> None:
        """Start the service, before the first request."""

    async def stop(self) -> None:
        """Stop the service, after the last request."""

    def abandon(self) -> None:
        """End the requests that have not finished."""


class _Protocol(H11Protocol):
    """Connection with a timeout for each request header: the first from the start of the connection, later ones from
    their first byte. Until that byte, the keep-alive timeout applies."""

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
    """Uvicorn server that leaves signals to `serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to a port; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit it. Otherwise the end of a response waits for the client's delayed acknowledgement of
    # its beginning, 40 ms; asyncio sets it by itself only on sockets that name their protocol.
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
    """Serve until a signal arrives. `started` is called once requests are accepted; with `check`, the server then
    stops."""
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
        timeout_graceful_shutdown=5,  # for data that is written but not yet received
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
    """Wait until running requests have finished, at most `drain` seconds."""
    serving.ready = False
    log.info("shutting down: %d requests", serving.waiting)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(serving.settings.drain):
            while serving.waiting and not again.is_set():
                await asyncio.sleep(0.02)
    serving.abandon()
    await asyncio.sleep(0.05)
