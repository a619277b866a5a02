"""The database: transactions, versions, one server at a time, copies; the same on SQLite and PostgreSQL."""

import asyncio
import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segue.apps import postgresql
from segue.apps.database import (
    Connection,
    Database,
    DatabaseAwayError,
    DatabaseDamagedError,
    DatabaseFullError,
    Differs,
    Place,
    Step,
    copy_database,
)
from segue.apps.desk import store
from segue.apps.desk.store import Said
from segue.errors import ConfigError, DataError
from tests.apps.postgres import Postgres

NewPlace = Callable[[], Place]
STEPS: tuple[Step, ...] = (
    "CREATE TABLE notes (number NUMBERED, text TEXT);",
    ("ALTER TABLE notes ADD COLUMN size BIGINT DEFAULT 7;", Differs(sqlite="SELECT 1;", postgresql="SELECT 2;")),
)


@pytest.fixture
def new_place(new_database: Callable[[], str | None], tmp_path: Path) -> NewPlace:
    """A place for a database of each kind."""
    names = iter("abcdef")
    return lambda: new_database() or tmp_path / f"{next(names)}.sqlite"


def opened(place: Place, steps: tuple[Step, ...] = STEPS, name: str = "notes", alone: bool = True) -> Database:
    database = Database(place, name=name, steps=steps, alone=alone)
    database.open()
    return database


def notes(connection: Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT text, size FROM notes ORDER BY number").fetchall()


def note(text: str) -> Callable[[Connection], Any]:
    return lambda connection: connection.execute(
        "INSERT INTO notes (text) VALUES (?) RETURNING number", (text,)
    ).fetchone()[0]


def test_a_piece_of_work_is_whole_or_has_not_happened(new_place: NewPlace) -> None:
    database = opened(new_place())

    def fails(connection: Connection) -> None:
        connection.execute("INSERT INTO notes (text) VALUES ('half')")
        raise RuntimeError

    async def both() -> None:
        await database.run(note("whole"))
        with pytest.raises(RuntimeError):
            await database.run(fails)
        assert await database.run(notes) == [("whole", 7)]
        await database.clean_later()
        await database.close_later()

    asyncio.run(both())


def test_values_are_the_same_on_both(new_place: NewPlace) -> None:
    database = opened(new_place(), ("CREATE TABLE v (number NUMBERED, t TEXT, i BIGINT, d DOUBLE PRECISION, j TEXT);",))
    rows = [("a\0b\ud800 100% ? 中文", 2**62, 1763390000.123456, '{"kind": "x", "n": 0.5}'), ("", True, None, "{}")]

    def work(connection: Connection) -> list[Any]:
        connection.execute_many("INSERT INTO v (t, i, d, j) VALUES (?, ?, ?, ?)", rows)
        kind, n = connection.field("j", "kind"), connection.field("j", "n")
        return connection.execute(
            f"SELECT t, i, d, {kind}, CAST({n} AS DOUBLE PRECISION) FROM v WHERE t != ? ORDER BY number", ("%s",)
        ).fetchall()

    assert database.do(work) == [
        ("a\ufffdb\ufffd 100% ? 中文", 2**62, 1763390000.123456, "x", 0.5),
        ("", 1, None, None, None),
    ]
    assert database.do(lambda c: c.execute("UPDATE v SET i = 0 WHERE number > ?", (1,)).rowcount) == 1
    database.close()


def test_versions_go_forward(new_place: NewPlace) -> None:
    place = new_place()
    old = opened(place, STEPS[:1])
    assert old.do(note("kept")) == 1
    old.close()
    new = opened(place)
    assert new.do(notes) == [("kept", 7)]
    new.close()
    with pytest.raises(DataError, match="got version 2 of it, and this program knows 1"):
        opened(place, STEPS[:1])
    broken = (*STEPS, "CREATE TABLE more (x TEXT); CREATE TABLE notes (x TEXT);")
    with pytest.raises(DataError, match="already exists"):
        opened(place, broken)
    again = opened(place, (*STEPS, "CREATE TABLE more (x TEXT);"))  # the broken step has left nothing
    again.do(lambda connection: connection.execute("UPDATE about SET value = 'abc' WHERE name = 'version'"))
    again.close()
    with pytest.raises(DataError, match="got version 'abc'"):
        opened(place)


def test_one_server_and_one_application(new_place: NewPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "_WAIT", 0.2)
    place = new_place()
    first = opened(place)
    with pytest.raises(DataError, match="one server of notes at a time"):
        opened(place)
    beside = opened(place, alone=False)
    beside.do(note("beside"))
    assert first.do(notes) == [("beside", 7)]
    beside.close()
    first.close()
    with pytest.raises(DataError, match="got one for 'notes'"):
        opened(place, name="another")


def test_files_of_others_are_not_taken(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match="got one of another program"):
        opened(other)
    (tmp_path / "text").write_text("no database, but a text that is long enough to be taken for one" * 9)
    with pytest.raises(DataError, match="must be a writable SQLite file"):
        opened(tmp_path / "text")


def test_a_full_disk_leaves_a_database_that_goes_on(tmp_path: Path) -> None:
    database = opened(tmp_path / "a.sqlite")
    database.do(lambda connection: connection.execute("PRAGMA max_page_count=8").fetchall())
    with pytest.raises(DatabaseFullError, match="is full"):
        database.do(note("x" * 100_000))
    database.do(note("small"))
    assert database.do(notes) == [("small", 7)]
    database.close()


def test_a_log_that_fills_the_disk_is_emptied(tmp_path: Path) -> None:
    """The data is small; what the log of SQLite keeps of old transactions is not."""
    database = opened(tmp_path / "a.sqlite")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, before[1]))
    try:
        for n in range(60):
            database.do(note(f"note {n}"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(database.do(notes)) == 60
    database.close()


def test_texts_that_are_no_utf_8_are_damage(tmp_path: Path) -> None:
    database = opened(tmp_path / "a.sqlite")
    database.do(note("small"))
    database.do(lambda connection: connection.execute("UPDATE notes SET text = CAST(x'ff00ff' AS TEXT)"))
    with pytest.raises(DatabaseDamagedError, match="must be a writable SQLite file"):
        database.do(notes)
    database.close()


def test_a_copy_is_consistent_and_goes_to_either_kind(new_place: NewPlace, tmp_path: Path) -> None:
    place = new_place()
    database = opened(place)
    for text in ("one", "two", "deleted"):
        database.do(note(text))
    database.do(lambda connection: connection.execute("DELETE FROM notes WHERE text = 'deleted'"))
    copy_database(place, tmp_path / "copy.sqlite", name="notes", steps=STEPS)  # while it is used
    before = (tmp_path / "copy.sqlite").read_bytes()
    database.do(note("later"))
    again = new_place()
    copy_database(tmp_path / "copy.sqlite", again, name="notes", steps=STEPS)
    assert (tmp_path / "copy.sqlite").read_bytes() == before
    if isinstance(again, str):
        with pytest.raises(DataError, match="must be empty; got rows in notes"):
            copy_database(tmp_path / "copy.sqlite", again, name="notes", steps=STEPS)
    copy = opened(again)
    assert copy.do(notes) == [("one", 7), ("two", 7)]
    assert copy.do(note("three")) == 4  # numbers are never used again
    copy.close()
    database.close()


def test_messages_are_found_written_once_and_forgotten(new_place: NewPlace) -> None:
    place = new_place()
    database = opened(place, store.STEPS, "segue desk")
    do = database.do
    ids = [
        do(lambda c, p=person: store.open_conversation(c, person=p, language="en"))["id"] for person in ("ann", "bob")
    ]
    said = [Said(author="visitor", text='我的 "银行卡" 丢了 100%', client="12345678"), Said(author="desk", text="ok")]
    do(lambda c: store.say(c, ids[0], said))
    with pytest.raises(Exception, match=r"(?i)unique"):
        do(lambda c: store.say(c, ids[0], said))
    assert [one["text"] for one in do(lambda c: store.sent_before(c, ids[0], "12345678")) or []] == [said[0].text, "ok"]
    assert do(lambda c: store.sent_before(c, ids[1], "12345678")) is None

    def found(search: str) -> list[str]:
        return [one["person"] for one in do(lambda c: store.listed(c, state=None, search=search, limit=9, before=1e12))]

    assert found("银行卡") == found("行卡") == found('"银行卡" 丢了') == found("100%") == ["ann"]
    do(lambda c: store.say(c, ids[1], [Said(author="visitor", text="My CARD is lost")]))
    assert found("card") == found("ca") == ["bob"]
    assert found("100_") == found("0_") == []
    assert found("nothing of it") == found("AND OR (") == []
    assert len(do(lambda c: store.of_person(c, "ann"))["conversations"][0]["messages"]) == 2
    assert do(lambda c: store.forget(c, "ann")) == 1
    assert found("银行卡") == []
    assert do(lambda c: c.execute("SELECT count(*) FROM outbox WHERE subject = ?", (ids[0],)).fetchone()) == (0,)
    assert do(lambda c: store.of_person(c, "bob"))["conversations"] != []
    database.clean()
    database.close()
    if isinstance(place, Path):
        assert "银行卡".encode() not in place.read_bytes()


def test_damage_that_is_met_later_is_told(tmp_path: Path) -> None:
    place = tmp_path / "a.sqlite"
    database = opened(place)
    for _ in range(30):
        database.do(note("x" * 1000))
    database.close()
    whole = bytearray(place.read_bytes())
    for page in range(len(whole) // 4096 - 5, len(whole) // 4096):
        whole[4096 * page : 4096 * page + 4096] = bytes(range(256)) * 16
    place.write_bytes(whole)
    database = opened(place)
    with pytest.raises(DatabaseDamagedError, match="restore a back-up"):
        database.do(notes)
    database.close()


def test_a_file_that_is_deleted_or_replaced_while_in_use_is_told(tmp_path: Path) -> None:
    place = tmp_path / "a.sqlite"
    database = opened(place)
    database.do(note("kept"))
    place.rename(tmp_path / "elsewhere")
    with pytest.raises(DatabaseDamagedError, match="it was deleted or replaced while it was in use"):
        database.do(note("lost"))
    place.write_bytes(b"")
    with pytest.raises(DatabaseDamagedError, match="Put it back"):
        database.do(notes)
    (tmp_path / "elsewhere").rename(place)
    assert database.do(notes) == [("kept", 7)]
    database.close()


def test_a_server_that_comes_back_is_used_again(postgres: Postgres) -> None:
    database = opened(postgres.new())
    database.do(note("before"))
    postgres.stop()
    try:
        with pytest.raises(DatabaseAwayError, match="does not respond"):
            database.do(note("lost"))
    finally:
        postgres.start()
    database.do(note("after"))
    assert database.do(notes) == [("before", 7), ("after", 7)]
    database.close()


def test_what_is_no_database_of_postgresql_is_refused(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, problem in (
        ("mysql://localhost/desk", "must be a PostgreSQL URL with a database name"),
        ("postgresql://localhost", "must be a PostgreSQL URL with a database name"),
        ("postgresql://ann:secret@localhost/desk", "must not contain a password"),
        ("postgresql://localhost/desk?password=secret", "must not contain a password"),
    ):
        with pytest.raises(ConfigError, match=problem) as found:
            opened(url)
        assert "secret" not in str(found.value)
    with pytest.raises(DataError, match="must be a writable PostgreSQL database; got"):
        opened(postgres.url("not_there"))
    with pytest.raises(DataError, match="must be a database with encoding UTF8; got SQL_ASCII"):
        opened(postgres.new("SQL_ASCII"))
    monkeypatch.setattr(postgresql, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'psycopg\[binary\]'"):
        opened(postgres.url("not_there"))
