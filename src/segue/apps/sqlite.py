"""SQLite as the database of an application: one file in WAL mode. `database` documents the methods."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from segue.errors import DataError
from segue.files import file_identity, unwritable
from segue.files.single import try_lock
from segue.text.unicode import without_surrogates

_WAIT = 5.0
"""Seconds that SQLite waits for a lock of another process."""


_NO_ROOM = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
)
"""SQLite's error codes if a file cannot grow."""


class MovedError(sqlite3.OperationalError):
    """Raised if the file is no longer where it was opened: new data would be lost."""


class Sqlite:
    """A connection to a file."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    numbered = "INTEGER PRIMARY KEY AUTOINCREMENT"

    def __init__(self, path: Path, *, application: str) -> None:
        self.path, self.shown, self._application = path, str(path), application
        self._connection: sqlite3.Connection | None = None
        self._lock: BinaryIO | None = None
        self._identity: tuple[int, int] | None = None

    # ------------------------------------------------------------------------------------------------------ statements

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute one statement."""
        return self._opened.execute(statement, portable(values))

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute the same statement with many rows of values."""
        self._opened.executemany(statement, map(portable, rows))

    def field(self, column: str, name: str) -> str:
        """Return SQL for a field of a JSON column."""
        return f"CAST(json_extract({column}, '$.{name}') AS TEXT)"

    def contains(self, search: Any, words: str) -> tuple[str, list[str]]:
        """Return SQL for a text search. The index consists of trigrams; shorter words are searched in all texts."""
        if len(words) < 3:
            return rf"{search.column} LIKE ? ESCAPE '\'", [f"%{escaped(words)}%"]
        phrase = words.replace('"', '""')
        return (
            f"{search.key} IN (SELECT rowid FROM {search.name} WHERE {search.name} MATCH ?)",
            [f'"{phrase}"'],
        )

    # ---------------------------------------------------------------------------------------------------- transactions

    def begin(self) -> None:
        """Begin a transaction, after those of other processes. Raise MovedError if the file was deleted, since SQLite
        itself would continue to write into it."""
        if file_identity(self.path) != self._identity:
            raise MovedError("it was deleted or replaced while it was in use")
        self._opened.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the transaction to disk."""
        self._opened.execute("COMMIT")

    def roll_back(self) -> None:
        """Undo the transaction; if the disk is full, SQLite has already done so."""
        if self._opened.in_transaction:
            self._opened.execute("ROLLBACK")

    def run_script(self, script: str) -> None:
        """Run several statements as one transaction."""
        try:
            self._opened.executescript(f"BEGIN IMMEDIATE;\n{script}\nCOMMIT;")
        except sqlite3.Error:
            self.roll_back()
            raise

    def is_full(self, error: Exception) -> bool:
        """Return True if the disk, a quota or the maximum file size is exceeded."""
        return getattr(error, "sqlite_errorcode", None) in _NO_ROOM

    def is_away(self, error: Exception) -> bool:
        """Return True if another process locks the file for too long."""
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY

    def is_damaged(self, error: Exception) -> bool:
        """Return True if the file is damaged or cannot be read."""
        code = getattr(error, "sqlite_errorcode", None) or 0
        if str(error).startswith("Could not decode to UTF-8"):  # which Python itself raises, without a code
            return True
        return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR)

    def is_moved(self, error: Exception) -> bool:
        """Return True if the file is no longer where it was."""
        return isinstance(error, MovedError)

    # -------------------------------------------------------------------------------------------------- open and close

    def open(self, *, alone: bool) -> None:
        """Open the file; create it if it does not exist. A server switches it to WAL mode, where it stays; a command
        leaves it as it is, so that reading a back-up does not change it."""
        kept = not alone and self.path.is_file()
        if alone:
            self._take_lock()
        connection = None
        try:
            connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            mode = () if kept else ("journal_mode=WAL",)
            for pragma in (*mode, "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            self._release()
            raise self.unusable(error) from None
        with suppress(OSError):
            os.chmod(self.path, 0o600)
        self._connection, self._identity = connection, file_identity(self.path)

    def unusable(self, error: Exception) -> DataError:
        """Return the error for a file that is not a database, damaged, missing, or on a full disk."""
        if self.is_full(error):
            return DataError(f"the disk of {self.path} is full. Free some space, then try again.")
        if isinstance(error, MovedError):
            return DataError(
                f"{self.path} must stay where it is; {error}. Put it back, or restore a back-up, then start again."
            )
        return DataError(
            f"{self.path} must be a writable SQLite file; got {error}. Move it away, or restore a back-up."
        )

    def clean(self) -> None:
        """Rebuild text indexes, which otherwise keep words of deleted rows."""
        names = self._opened.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'").fetchall()
        for (name,) in names:
            self._opened.execute(f"INSERT INTO {name} ({name}) VALUES ('optimize')")
        self._checkpoint()

    def make_room(self) -> None:
        """Write the log into the file and empty it, on a full disk, as far as that is possible."""
        self._checkpoint()

    def close(self) -> None:
        """Close the connection; committed data remains."""
        if self._connection is not None:
            self._checkpoint()
            self._connection.close()
            self._connection = None
        self._release()

    def _checkpoint(self) -> None:
        with suppress(sqlite3.Error):
            self._opened.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None, "the database is open"
        return self._connection

    def _take_lock(self) -> None:
        try:
            self._lock = open(f"{self.path}-lock", "ab")  # noqa: SIM115
        except OSError as error:
            raise unwritable(self.path, error, DataError) from None
        if not try_lock(self._lock.fileno()):
            self._release()
            raise DataError(
                f"{self.path} must be used by one server of {self._application} at a time; got a second one. Stop the "
                "other, or make a back-up and run that."
            )

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # ---------------------------------------------------------------------------------------------- schema and copies

    def tables(self) -> set[str]:
        """Return the names of all tables."""
        return {name for (name,) in self._opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def search_script(self, search: Any) -> str:
        """Return SQL for a trigram index, which also finds Chinese."""
        name, table, key, column = search.name, search.table, search.key, search.column
        return f"""
CREATE VIRTUAL TABLE {name} USING fts5 ({column}, content='{table}', content_rowid='{key}', tokenize='trigram');
CREATE TRIGGER {name}_added AFTER INSERT ON {table} BEGIN
  INSERT INTO {name} (rowid, {column}) VALUES (new.{key}, new.{column}); END;
CREATE TRIGGER {name}_deleted AFTER DELETE ON {table} BEGIN
  INSERT INTO {name} ({name}, rowid, {column}) VALUES ('delete', old.{key}, old.{column}); END;
"""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read everything in a block from one snapshot."""
        self._opened.execute("BEGIN")
        try:
            yield
        finally:
            self._opened.execute("ROLLBACK")

    def rows(self, table: str) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """Return the names of the columns, and all rows."""
        cursor = self._opened.execute(f"SELECT * FROM {table}")
        return [column for column, *_ in cursor.description], cursor

    def counters(self) -> dict[str, int]:
        """Return the last number of each table with serial numbers."""
        if "sqlite_sequence" not in self.tables():
            return {}
        return {str(name): int(last) for name, last in self._opened.execute("SELECT name, seq FROM sqlite_sequence")}

    def set_counters(self, counters: Mapping[str, int]) -> None:
        """Continue serial numbers after these."""
        for table, last in counters.items():
            self._opened.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            self._opened.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))


def portable(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values in a form that both databases accept."""
    return tuple(
        without_surrogates(value).replace("\0", "\ufffd")
        if isinstance(value, str)
        else int(value)
        if isinstance(value, bool)
        else value
        for value in values
    )


def escaped(words: str) -> str:
    """Escape words for LIKE, with a backslash as its escape character.

    >>> escaped("100%_")
    '100\\\\%\\\\_'
    """
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def make_plain(path: Path) -> None:
    """Convert a file so that it can be read without another one beside it, which SQLite would leave there."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    finally:
        connection.close()
    Path(f"{path}-lock").unlink(missing_ok=True)


def copy_file(source: Path, target: Path) -> None:
    """Make a consistent copy of a file, also while it is in use."""
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
