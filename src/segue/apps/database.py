"""The database of an application, SQLite or PostgreSQL, with a thread of its own, consistent after a crash.

    database = Database(Path("desk.sqlite"), name="segue desk", steps=STEPS)     # or "postgresql://user@host/name"
    database.open()
    found = await database.run(work)            # from the event loop; database.do(work) from any thread
    await database.close_later()

`work(connection)` is one transaction: when `run` returns, all of it is on disk; if it raises, or the process is killed,
nothing of it has happened. Transactions are serialised, also those of other processes on the same database, so serial
numbers are seen in order. Work should be short.

**One set of statements for both databases.** A statement is portable if it follows these rules:

| feature | SQL |
|---|---|
| values | `?` for each, and no other question mark; a Boolean becomes 0 or 1, a NUL or surrogate in a text U+FFFD |
| types | `TEXT`, `BIGINT`, `DOUBLE PRECISION` (never `REAL`: half the precision in PostgreSQL), and JSON as `TEXT` |
| a serial number as key | `number NUMBERED` in a step; `INSERT ... RETURNING number` returns the new one |
| insert or replace | `ON CONFLICT (key) DO NOTHING`, or `DO UPDATE SET name = excluded.name` |
| a field of JSON | `connection.field("about", "kind")`, as text; `CAST(... AS DOUBLE PRECISION)` for numbers |
| search | a `Search` in a step, then `connection.contains(search, words)`: finds parts of words, and Chinese |
| sums of BIGINT | `CAST(sum(x) AS BIGINT)`, or `count(CASE WHEN ... THEN 1 END)` |
| names by AS | in GROUP BY and ORDER BY, not in WHERE; columns selected beside an aggregate must be in GROUP BY |
| a list of values | `IN (?, ?)` with at least one |
| integers | compared with integers, never with floats, for which PostgreSQL uses no index |
| order of texts | in Python, if it matters: databases have collations of their own |
| order with NULL | `NULLS FIRST` or `NULLS LAST` |
| many rows | `connection.execute_many`; a large SELECT is read in pages, `WHERE number > ? ... LIMIT 1000` |

No name that is a keyword of SQL (`user`, `order`), no PRAGMA, no `rowid`, no `lastrowid`, no `LIKE` (it ignores case in
SQLite), no `instr`. Times are seconds. Parts of a step that must differ are a `Differs`. Tables are created parents
first, by `CREATE TABLE name`: copies follow that order.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from segue.apps.postgresql import Postgresql
from segue.apps.sqlite import Sqlite, copy_file, make_plain
from segue.errors import DataError, SegueError

T = TypeVar("T")
Place = Path | str
"""A SQLite file, or the URL of a PostgreSQL database."""


class Rows(Protocol):
    """Result of a statement."""

    @property
    def rowcount(self) -> int:
        """Number of rows that an UPDATE or DELETE changed."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all rows, as tuples."""

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Search:
    """A full-text index of one column, which must not change once it is written."""

    name: str
    """Name of the index."""
    table: str
    key: str
    """The `NUMBERED` column."""
    column: str


class Connection(Protocol):
    """Interface of a connection, which transactions use."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Execute one statement."""

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute the same statement with many rows of values."""

    def field(self, column: str, name: str) -> str:
        """Return SQL for a field of a JSON column, as text."""

    def contains(self, search: Search, words: str) -> tuple[str, list[str]]:
        """Return SQL for the condition that a text contains some words as they stand, in any case, and its values."""


Work = Callable[[Connection], T]


@dataclass(frozen=True, kw_only=True)
class Differs:
    """A part of a step whose SQL differs between the databases."""

    sqlite: str
    postgresql: str


Step = str | tuple[str | Differs | Search, ...]
"""A script that migrates a schema from one version to the next."""


class DatabaseFullError(SegueError):
    """The disk of the database is full; nothing was written."""


class DatabaseAwayError(SegueError):
    """The database does not respond, or another process locks it for too long; nothing was written, unless the
    connection broke while the transaction was ending."""


class DatabaseDamagedError(SegueError):
    """The file of the database is damaged; nothing was written."""


class DatabaseMovedError(DatabaseDamagedError):
    """The file of the database was moved or deleted; nothing was written."""


class Database:
    """A database. `steps` migrate its schema from one version to the next; `name` is its purpose, which is stored in
    the database, so that a database of another program is never taken for it. With `alone`, only one process may open
    it so, beside others that open it without `alone`; the lock of a killed process is free. A database that was `begun`
    before must have its tables: it is not created anew if it has lost them."""

    def __init__(
        self, place: Place, *, name: str, steps: Sequence[Step], alone: bool = True, begun: bool = False
    ) -> None:
        self._name, self._steps, self._alone, self._begun = name, steps, alone, begun
        self._engine: Sqlite | Postgresql = (
            Sqlite(place, application=name) if isinstance(place, Path) else Postgresql(place, application=name)
        )
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-database")

    # ------------------------------------------------------------------------------------------- from the event loop

    async def run(self, work: Work[T]) -> T:
        """Run a function in one transaction, in the thread of the database."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.do, work)

    async def clean_later(self) -> None:
        """Call `clean`, after all earlier calls."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self.clean)

    async def close_later(self) -> None:
        """Close the database, after all earlier calls."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self.close)
        self._pool.shutdown()

    # ------------------------------------------------------------------------------------------------- from any thread

    def open(self) -> None:
        """Open the database, create the file if it is one that does not exist, and migrate the schema to the newest
        version."""
        self._engine.open(alone=self._alone)
        try:
            self._migrate()
        except BaseException as error:
            self._engine.close()
            if isinstance(error, self._engine.errors):
                raise self._engine.unusable(error) from None
            raise

    def do(self, work: Work[T]) -> T:
        """Run a function in one transaction. On a full disk, it runs once more after the log of SQLite, which can be
        far larger than the data, has been emptied into the file."""
        engine = self._engine
        try:
            try:
                return self._once(work)
            except engine.errors as error:
                if not engine.is_full(error):
                    raise
            engine.make_room()
            return self._once(work)
        except engine.errors as error:
            if engine.is_full(error):
                raise DatabaseFullError(
                    "the disk of the database is full, or its file may not grow. Free some space, then try again."
                ) from error
            if engine.is_away(error):
                said = " ".join(str(error).split())[:200]
                raise DatabaseAwayError(f"{engine.shown} does not respond ({said}). Try again later.") from error
            if engine.is_moved(error):
                raise DatabaseMovedError(str(engine.unusable(error))) from error
            if engine.is_damaged(error):
                raise DatabaseDamagedError(str(engine.unusable(error))) from error
            raise

    def _once(self, work: Work[T]) -> T:
        engine = self._engine
        engine.begin()
        try:
            found = work(engine)
            engine.commit()
        except BaseException:
            engine.roll_back()
            raise
        return found

    def check_empty(self) -> None:
        """Raise DataError if the database has rows."""
        self.do(self._check_empty)

    def clean(self) -> None:
        """Remove traces of deleted rows from indexes, and from the log that SQLite keeps beside its file. PostgreSQL
        frees the space of the rows, and keeps its own log (WAL) as configured."""
        self._engine.clean()

    def close(self) -> None:
        """Close the database; committed data remains."""
        self._engine.close()

    # ------------------------------------------------------------------------------------------------------- versions

    def _migrate(self) -> None:
        """Apply missing steps, each atomically."""
        tables = self._engine.tables()
        if tables and "about" not in tables:
            raise self._another("one of another program")
        if not tables and self._begun:
            raise DataError(
                f"{self._engine.shown} must have all that was written into it; got a database without tables. Put it "
                "back, or restore a back-up."
            )

        def begin(connection: Connection) -> None:
            connection.execute("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            connection.execute(
                "INSERT INTO about (name, value) VALUES ('application', ?), ('version', '0') "
                "ON CONFLICT (name) DO NOTHING",
                (self._name,),
            )

        if not tables:
            self.do(begin)
        version = self._version()
        for number, step in enumerate(self._steps[version:], start=version + 1):
            self._engine.run_script(
                f"{self._script(step)}\nUPDATE about SET value = '{number}' WHERE name = 'version';"
            )

    def _version(self) -> int:
        about = dict(self.do(lambda connection: connection.execute("SELECT name, value FROM about").fetchall()))
        if about["application"] != self._name:
            raise self._another(f"one for {about['application'][:40]!r}")
        if not re.fullmatch("[0-9]{1,9}", about["version"]):
            raise self._another(f"version {about['version'][:40]!r}")
        version = int(about["version"])
        if version > len(self._steps):
            raise self._another(f"version {version} of it, and this program knows {len(self._steps)}")
        return version

    def _script(self, step: Step) -> str:
        """Return a step in the SQL of this database."""
        found = []
        for part in (step,) if isinstance(step, str) else step:
            if isinstance(part, Search):
                part = self._engine.search_script(part)
            elif isinstance(part, Differs):
                part = part.sqlite if isinstance(self._engine, Sqlite) else part.postgresql
            found.append(part)
        return re.sub(r"\bNUMBERED\b", self._engine.numbered, "\n".join(found))

    def _another(self, got: str) -> DataError:
        return DataError(
            f"{self._engine.shown} must be a database for {self._name} of this version or an earlier one; got {got}. "
            "Name another, or install a newer segue."
        )

    def _check_empty(self, connection: Connection) -> None:
        for table in self._tables():
            if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None:
                raise DataError(
                    f"{self._engine.shown} must be empty; got rows in {table}. Name another database, or make one."
                )

    def _tables(self) -> list[str]:
        """Return the tables of the application, parents first."""
        made = [name for step in self._steps for name in re.findall(r"CREATE TABLE (\w+)", self._script(step))]
        return [name for name in made if name in self._engine.tables()]


def copy_database(source: Place, target: Place, *, name: str, steps: Sequence[Step]) -> None:
    """Make a consistent copy, also while the source is in use, from either kind of database to either. The target must
    have no rows yet."""
    if isinstance(source, Path) and isinstance(target, Path):
        copy_file(source, target)
        return
    if isinstance(source, Path):  # opening a file changes it, and a back-up must stay as it is
        with TemporaryDirectory(prefix="segue-") as folder:
            copy_file(source, Path(folder) / source.name)
            _copy(Path(folder) / source.name, target, name=name, steps=steps)
        return
    _copy(source, target, name=name, steps=steps)
    if isinstance(target, Path):
        make_plain(target)


def _copy(source: Place, target: Place, *, name: str, steps: Sequence[Step]) -> None:
    reading = Database(source, name=name, steps=steps, alone=False)
    reading.open()
    try:
        writing = Database(target, name=name, steps=steps)
        writing.open()
        try:
            writing.do(lambda connection: _copy_rows(reading, writing, connection))
        finally:
            writing.close()
    finally:
        reading.close()


def _copy_rows(reading: Database, writing: Database, connection: Connection) -> None:
    writing._check_empty(connection)
    with reading._engine.reading():
        for table in writing._tables():
            columns, rows = reading._engine.rows(table)
            marks = ", ".join("?" * len(columns))
            connection.execute_many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
        counters = reading._engine.counters()
    writing._engine.set_counters(counters)
