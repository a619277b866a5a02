"""An outbox: messages in a table, sent until the receiver accepts them.

A row is written in the transaction of the change that it reports: both exist or neither. It is always sent with the
same id, so that a receiver that remembers ids processes it once, whatever process was killed when.

Rows are written whether or not there is a receiver. When there is one for the first time, earlier rows are deleted,
because they are no longer news. From then on none is lost, even while there is no receiver for a time.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from segue.apps.database import Connection, Database

log = logging.getLogger("segue.apps")
WAITS = (1.0, 5.0, 30.0, 120.0, 600.0, 3600.0)
"""Seconds before each retry; the last one is repeated."""
MOST_TRIES = 50
"""Maximum number of tries: about two days."""
TIMEOUT = 10.0
"""Timeout in seconds while the receiver is silent."""
DEADLINE = 20.0
"""Timeout in seconds for a whole delivery, for a receiver that sends a byte now and then."""
COLUMNS = """
  number NUMBERED, id TEXT NOT NULL UNIQUE, subject TEXT NOT NULL, body TEXT NOT NULL,
  tries BIGINT NOT NULL DEFAULT 0, next_try DOUBLE PRECISION NOT NULL, delivered DOUBLE PRECISION,
  given_up DOUBLE PRECISION"""
"""Columns of such a table."""


@contextmanager
def deadline(socket_of: Callable[[], socket.socket | None], *, seconds: float = DEADLINE) -> Iterator[None]:
    """Limit the time of operations on a socket: at the deadline it is shut down, and reading from it fails. The timeout
    of the socket itself restarts with each byte."""
    late = threading.Event()

    def shut() -> None:
        late.set()
        found = socket_of()
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        if late.is_set():
            raise TimeoutError(f"it took more than {seconds:.0f} seconds") from None
        raise
    finally:
        timer.cancel()


class Outbox:
    """Sends the messages in a table while it runs. `send(id, subject, body)` returns None, or what went wrong; it is
    called in a thread of its own. With `in_order` the rows of one subject are sent in their order: a later one waits
    until the previous one was accepted."""

    def __init__(
        self, database: Database, table: str, send: Callable[[str, str, str], str | None], *, in_order: bool
    ) -> None:
        self._database, self._table, self._send, self._in_order = database, table, send, in_order
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start with the rows left from before."""
        await self._database.run(self._begin)
        self._task = asyncio.create_task(self._loop())

    def wake(self) -> None:
        """Send new rows at once."""
        self._more.set()

    async def stop(self) -> None:
        """Stop; rows that were not sent stay in the table."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self, connection: Connection) -> None:
        known = f"{self._table} begun"
        if connection.execute("SELECT 1 FROM about WHERE name = ?", (known,)).fetchone() is not None:
            return
        tried = connection.execute(
            f"SELECT 1 FROM {self._table} WHERE delivered IS NOT NULL OR tries > 0 LIMIT 1"
        ).fetchone()
        if tried is None:  # earlier versions did not record that rows were sent
            connection.execute(f"DELETE FROM {self._table}")
        connection.execute("INSERT INTO about (name, value) VALUES (?, ?)", (known, str(time.time())))

    async def _loop(self) -> None:
        while True:
            self._more.clear()
            waiting: Sequence[Any] = []
            try:
                waiting = await self._database.run(self._due)
                for number, id, subject, body, tries in waiting:
                    await self._deliver(number, id, subject, body, tries)
            except Exception as error:  # after any error the next rows are sent
                log.error("%s: %s: %s", self._table, type(error).__name__, error)
                waiting = []
            if not waiting:
                try:
                    async with asyncio.timeout(1.0):
                        await self._more.wait()
                except TimeoutError:
                    pass

    async def _deliver(self, number: int, id: str, subject: str, body: str, tries: int) -> None:
        problem = await self._sent(id, subject, body)
        now = time.time()

        def note(connection: Connection) -> None:
            if problem is None:
                connection.execute(f"UPDATE {self._table} SET delivered = ? WHERE number = ?", (now, number))
                return
            wait = WAITS[min(tries, len(WAITS) - 1)]
            given_up = now if tries + 1 >= MOST_TRIES else None
            connection.execute(
                f"UPDATE {self._table} SET tries = tries + 1, next_try = ?, given_up = ? WHERE number = ?",
                (now + wait, given_up, number),
            )

        await self._database.run(note)
        if problem is not None:
            log.warning("%s: %s was not taken: %s", self._table, id, problem)

    async def _sent(self, id: str, subject: str, body: str) -> str | None:
        """Send a message in a daemon thread; return None, or what went wrong."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str | None] = loop.create_future()

        def tell(problem: str | None) -> None:
            if not done.done():
                done.set_result(problem)

        def work() -> None:
            try:
                problem = self._send(id, subject, body)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"[:200]
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(tell, problem)

        threading.Thread(target=work, name=f"segue-{self._table}", daemon=True).start()
        try:
            async with asyncio.timeout(2 * DEADLINE):  # resolving a host name may take long
                return await done
        except TimeoutError:
            return f"it took more than {2 * DEADLINE:.0f} seconds"

    def _due(self, connection: Connection) -> list[Any]:
        """Return the rows to send now: in order, for each subject only the first that was not accepted."""
        earlier = (
            f"AND NOT EXISTS (SELECT 1 FROM {self._table} AS other WHERE other.subject = one.subject "
            "AND other.number < one.number AND other.delivered IS NULL AND other.given_up IS NULL) "
        )
        return connection.execute(
            f"SELECT number, id, subject, body, tries FROM {self._table} AS one WHERE delivered IS NULL AND given_up "
            f"IS NULL AND next_try <= ? {earlier if self._in_order else ''}ORDER BY number LIMIT 50",
            (time.time(),),
        ).fetchall()
