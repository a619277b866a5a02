"""A SQLite file in WAL mode with a thread of its own, whole after a crash; its schema goes forward by numbered steps.

In: work to be done with the connection. Out: what it gives. Every piece of work is one transaction: when `run` comes
back, all of it is on disk, and where it raises, or the process is killed, nothing of it has happened.
"""

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from segue.errors import DataError
from segue.files import unwritable
from segue.files.single import try_lock

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_WAIT = 5.0
"""Seconds that SQLite waits for a lock of another process."""


class Database:
    """One file. `steps` are the scripts that bring its schema from one version to the next; `name` is what it is for,
    which the file remembers, so that the file of another program is never taken for it."""

    def __init__(self, path: Path, *, name: str, steps: Sequence[str], alone: bool = True) -> None:
        self.path = path
        self._name, self._steps, self._alone = name, steps, alone
        self._connection: sqlite3.Connection | None = None
        self._lock: BinaryIO | None = None
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-database")

    # ------------------------------------------------------------------------------------------- from the event loop

    async def run(self, work: Work[T]) -> T:
        """Does something in one transaction, in the thread of the database."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.do, work)

    async def close_later(self) -> None:
        """After all that was asked for before."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self.close)
        self._pool.shutdown()

    # ------------------------------------------------------------------------------------------------- from any thread

    def open(self) -> None:
        """Opens the file, makes it if it is not there, and brings it to the newest version. With `alone`, only one
        process may have it open; a killed one keeps no lock."""
        if self._alone:
            self._take_lock()
        connection = None
        try:
            connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            self._migrate(connection)
        except (sqlite3.Error, DataError) as error:
            if connection is not None:
                connection.close()
            self._release()
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{self.path} must be a SQLite file that can be written; got {error}. Move it away, or restore a "
                "back-up."
            ) from None
        with suppress(OSError):
            os.chmod(self.path, 0o600)
        self._connection = connection

    def do(self, work: Work[T]) -> T:
        """One transaction."""
        connection = self._connection
        assert connection is not None, "the database is open"
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # where the disk is full, SQLite has gone back by itself
                connection.execute("ROLLBACK")
            raise
        return found

    async def clean(self) -> None:
        """Leaves nothing of what was deleted in the log that SQLite keeps beside the file."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._checkpoint)

    def _checkpoint(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """All that was done stays."""
        if self._connection is not None:
            self._checkpoint()
            self._connection.close()
            self._connection = None
        self._release()

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Each step is whole or has not happened."""
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "about" not in tables:
            raise self._another("one of another program")
        connection.execute("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.execute("INSERT OR IGNORE INTO about VALUES ('application', ?), ('version', '0')", (self._name,))
        about = dict(connection.execute("SELECT name, value FROM about"))
        if about["application"] != self._name:
            raise self._another(f"one for {about['application'][:40]!r}")
        if not re.fullmatch("[0-9]{1,9}", about["version"]):
            raise self._another(f"version {about['version'][:40]!r}")
        version = int(about["version"])
        if version > len(self._steps):
            raise self._another(f"version {version} of it, and this program knows {len(self._steps)}")
        for number, step in enumerate(self._steps[version:], start=version + 1):
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{step}\nUPDATE about SET value = '{number}' WHERE name = 'version';\nCOMMIT;"
            )

    def _another(self, got: str) -> DataError:
        return DataError(
            f"{self.path} must be a database for {self._name} of this version or an earlier one; got {got}. Name "
            "another folder, or install a newer segue."
        )

    def _take_lock(self) -> None:
        try:
            self._lock = open(f"{self.path}-lock", "ab")  # noqa: SIM115
        except OSError as error:
            raise unwritable(self.path, error, DataError) from None
        if not try_lock(self._lock.fileno()):
            self._release()
            raise DataError(
                f"{self.path} must be used by one server at a time; got a second one. Stop the other, or copy the desk "
                "with segue desk back-up."
            )

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def copy_database(source: Path, target: Path) -> None:
    """A consistent copy, also while the source is in use."""
    try:
        reading = sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=_WAIT)
        writing = sqlite3.connect(target)
        try:
            reading.backup(writing)
            (found,) = writing.execute("PRAGMA integrity_check").fetchone()
            writing.execute("PRAGMA journal_mode=DELETE").fetchall()
        finally:
            reading.close()
            writing.close()
    except sqlite3.Error as error:
        raise DataError(f"{source} must be a SQLite file that can be read; got {error}. Use another copy.") from None
    if found != "ok":
        raise DataError(f"{source} must be a whole database; got a damaged one: {str(found)[:80]}. Use another copy.")
