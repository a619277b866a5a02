"""Sessions on disk: a SQLite file in WAL mode, consistent after a crash, with the key that signs downloaded states.

In: the state of a session, as bytes, and its record. Out: the same. The work is done in a thread of its own, so that
the event loop never waits for a disk. Without a path the file is temporary and deleted with the server.
"""

import asyncio
import logging
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from segue.errors import CheckpointError
from segue.files import file_identity, unwritable
from segue.files.single import try_lock

T = TypeVar("T")
log = logging.getLogger("segue.serve")
FORMAT = "segue-sessions-1"
_PAGE = 8192
_WAIT = 5.0
"""Seconds that SQLite waits for a lock of another process."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record of a stored session, without its state."""

    id: str
    tenant: str
    model: str
    tokens: int
    size: int
    created: float
    idle: float
    """Seconds without use while the server was running."""


class Store(Protocol):
    """Interface of a session store. Its methods must be called in one thread."""

    @property
    def lasting(self) -> bool:
        """True if sessions outlive the server."""

    def open(self) -> list[Record]:
        """Open the store, and return the records of all sessions."""

    def put(self, record: Record, data: bytes) -> None:
        """Write a session, new or changed, atomically."""

    def get(self, id: str) -> bytes | None:
        """Return the state of a session; None if it does not exist."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete those of the sessions that exist."""

    def secret(self) -> bytes:
        """Return the key that signs states; it stays the same as long as the store exists."""

    def close(self) -> None:
        """Close the store; persistent sessions remain."""


class SqliteStore:
    """Session store in a SQLite file."""

    def __init__(self, path: Path | None) -> None:
        self._temporary = path is None
        if path is None:
            handle, name = tempfile.mkstemp(prefix="segue-sessions-", suffix=".sqlite")
            os.close(handle)
            path = Path(name)
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._lock: BinaryIO | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def lasting(self) -> bool:
        return not self._temporary

    def open(self) -> list[Record]:
        self._lock_file()
        try:
            connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
            for pragma in (f"page_size={_PAGE}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and not {"meta", "sessions"} <= tables:
                raise CheckpointError(
                    f"{self.path} must be a file of sessions, or new; got one of another program. Name another file."
                )
            connection.execute("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, model TEXT NOT NULL, "
                "tokens INTEGER NOT NULL, size INTEGER NOT NULL, created REAL NOT NULL, idle REAL NOT NULL, "
                "state BLOB NOT NULL)"
            )
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (FORMAT.encode(),))
            (found,) = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
            if found != FORMAT.encode():
                raise CheckpointError(
                    f"{self.path} must be a file of sessions of this version; got {found[:40]!r}. Name another file."
                )
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (secrets.token_bytes(32),))
            rows = connection.execute("SELECT id, tenant, model, tokens, size, created, idle FROM sessions").fetchall()
        except sqlite3.Error as error:
            raise CheckpointError(
                f"{self.path} must be a SQLite file of sessions that can be written; got {error}. Name another file, "
                "or move this one away."
            ) from None
        with suppress(OSError):
            os.chmod(self.path, 0o600)
        self._connection, self._identity = connection, file_identity(self.path)
        records = [_record(row) for row in rows]
        if damaged := records.count(None):
            log.warning("%s of %s sessions in %s are damaged and left out", damaged, len(rows), self.path)
        return [record for record in records if record is not None]

    def put(self, record: Record, data: bytes) -> None:
        values = (record.id, record.tenant, record.model, record.tokens, record.size, record.created, record.idle, data)
        self._opened().execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def get(self, id: str) -> bytes | None:
        row = self._opened().execute("SELECT state FROM sessions WHERE id = ?", (id,)).fetchone()
        return None if row is None else bytes(row[0])

    def delete(self, ids: Sequence[str]) -> None:
        self._opened().executemany("DELETE FROM sessions WHERE id = ?", [(id,) for id in ids])

    def secret(self) -> bytes:
        (found,) = self._opened().execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
        return bytes(found)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._temporary:
            for end in ("", "-wal", "-shm"):
                with suppress(OSError):
                    os.unlink(f"{self.path}{end}")

    def _lock_file(self) -> None:
        """Lock the file for one server at a time, because each has its own list of sessions. The lock of a killed
        server is free."""
        if self._temporary:
            return
        try:
            self._lock = open(f"{self.path}-lock", "ab")  # noqa: SIM115
        except OSError as error:
            raise unwritable(self.path, error, CheckpointError) from None
        if not try_lock(self._lock.fileno()):
            self._lock.close()
            raise CheckpointError(
                f"{self.path} must be used by one server at a time; got a second one. Name another file, or share "
                "sessions in Redis: --sessions redis://HOST:PORT/0."
            )

    def _opened(self) -> sqlite3.Connection:
        """Return the connection; raise an error if the file was deleted, since SQLite would continue to write into
        it."""
        assert self._connection is not None
        if file_identity(self.path) != self._identity:
            raise sqlite3.OperationalError(f"{self.path} was deleted or replaced while it was in use")
        return self._connection


def _record(row: Sequence[object]) -> Record | None:
    """Return the record in a row; None if the row is damaged."""
    id, tenant, model, tokens, size, created, idle = row
    if not (isinstance(id, str) and isinstance(tenant, str) and isinstance(model, str)):
        return None
    if not (isinstance(tokens, int) and isinstance(size, int) and min(tokens, size) >= 0):
        return None
    if not (isinstance(created, float) and isinstance(idle, float) and idle >= 0):
        return None
    return Record(id=id, tenant=tenant, model=model, tokens=tokens, size=size, created=created, idle=idle)


class StoreThread:
    """A store, used from the event loop through a thread of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-store")

    async def run(self, work: Callable[[], T]) -> T:
        """Call a function in the thread of the store."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        """Close the store after all earlier calls."""
        await self.run(self.store.close)
        self._pool.shutdown()
