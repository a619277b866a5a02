"""The database: transactions, versions, one server at a time, copies."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from segue.apps.database import Database, copy_database
from segue.apps.desk import store
from segue.apps.desk.store import Said
from segue.errors import DataError

STEPS = ("CREATE TABLE notes (text TEXT);", "ALTER TABLE notes ADD COLUMN number INTEGER DEFAULT 7;")


def opened(path: Path, steps: tuple[str, ...] = STEPS, name: str = "notes", alone: bool = True) -> Database:
    database = Database(path, name=name, steps=steps, alone=alone)
    database.open()
    return database


def notes(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT * FROM notes").fetchall()


def test_a_piece_of_work_is_whole_or_has_not_happened(tmp_path: Path) -> None:
    database = opened(tmp_path / "a.sqlite")

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes (text) VALUES ('half')")
        raise RuntimeError

    async def both() -> None:
        await database.run(lambda connection: connection.execute("INSERT INTO notes (text) VALUES ('whole')"))
        with pytest.raises(RuntimeError):
            await database.run(fails)
        assert await database.run(notes) == [("whole", 7)]
        await database.close_later()

    asyncio.run(both())


def test_versions_go_forward(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    old = opened(path, STEPS[:1])
    old.do(lambda connection: connection.execute("INSERT INTO notes (text) VALUES ('kept')"))
    old.close()
    new = opened(path)
    assert new.do(notes) == [("kept", 7)]
    new.close()
    with pytest.raises(DataError, match="got version 2 of it, and this program knows 1"):
        opened(path, STEPS[:1])
    broken = (*STEPS, "CREATE TABLE more (x); CREATE TABLE notes (x);")
    with pytest.raises(DataError, match="already exists"):
        opened(path, broken)
    again = opened(path)  # the broken step has left nothing
    assert (
        again.do(lambda connection: connection.execute("SELECT name FROM sqlite_master WHERE name = 'more'").fetchall())
        == []
    )
    again.close()


def test_files_of_others_are_not_taken(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match="got one of another program"):
        opened(other)
    (tmp_path / "text").write_text("no database, but a text that is long enough to be taken for one" * 9)
    with pytest.raises(DataError, match="must be a SQLite file"):
        opened(tmp_path / "text")
    first = opened(tmp_path / "a.sqlite")
    with pytest.raises(DataError, match="one server at a time"):
        opened(tmp_path / "a.sqlite")
    beside = opened(tmp_path / "a.sqlite", alone=False)
    beside.close()
    first.close()
    with pytest.raises(DataError, match="got one for 'notes'"):
        opened(tmp_path / "a.sqlite", name="another")


def test_a_full_disk_leaves_a_database_that_goes_on(tmp_path: Path) -> None:
    database = opened(tmp_path / "a.sqlite")
    database.do(lambda connection: connection.execute("PRAGMA max_page_count=8").fetchall())
    with pytest.raises(sqlite3.OperationalError, match="full"):
        database.do(lambda connection: connection.execute("INSERT INTO notes (text) VALUES (?)", ("x" * 100_000,)))
    database.do(lambda connection: connection.execute("INSERT INTO notes (text) VALUES ('small')"))
    assert database.do(notes) == [("small", 7)]
    database.close()


def test_a_version_is_a_number(tmp_path: Path) -> None:
    database = opened(tmp_path / "a.sqlite")
    database.do(lambda connection: connection.execute("UPDATE about SET value = 'abc' WHERE name = 'version'"))
    database.close()
    with pytest.raises(DataError, match="got version 'abc'"):
        opened(tmp_path / "a.sqlite")


def test_a_copy_is_consistent_while_the_source_is_used(tmp_path: Path) -> None:
    database = opened(tmp_path / "a.sqlite")
    database.do(lambda connection: connection.execute("INSERT INTO notes (text) VALUES ('one')"))
    copy_database(tmp_path / "a.sqlite", tmp_path / "b.sqlite")
    database.do(lambda connection: connection.execute("INSERT INTO notes (text) VALUES ('two')"))
    database.close()
    copy = opened(tmp_path / "b.sqlite")
    assert copy.do(notes) == [("one", 7)]
    copy.close()


def test_messages_are_found_written_once_and_forgotten(tmp_path: Path) -> None:
    database = opened(tmp_path / "desk.sqlite", store.STEPS, store.NAME)
    do = database.do
    ids = [
        do(lambda c, p=person: store.open_conversation(c, person=p, language="en"))["id"] for person in ("ann", "bob")
    ]
    said = [Said(author="visitor", text='我的 "银行卡" 丢了 100%', client="12345678"), Said(author="desk", text="ok")]
    do(lambda c: store.say(c, ids[0], said))
    with pytest.raises(sqlite3.IntegrityError):
        do(lambda c: store.say(c, ids[0], said))
    assert [one["text"] for one in do(lambda c: store.sent_before(c, ids[0], "12345678")) or []] == [said[0].text, "ok"]
    assert do(lambda c: store.sent_before(c, ids[1], "12345678")) is None

    def found(search: str) -> list[str]:
        return [one["person"] for one in do(lambda c: store.listed(c, state=None, search=search, limit=9, before=1e12))]

    assert found("银行卡") == found("行卡") == found('"银行卡" 丢了') == found("100%") == ["ann"]
    assert found("nothing of it") == found("AND OR (") == []
    assert len(do(lambda c: store.of_person(c, "ann"))["conversations"][0]["messages"]) == 2
    assert do(lambda c: store.forget(c, "ann")) == 1
    assert found("银行卡") == []
    assert do(lambda c: c.execute("SELECT count(*) FROM outbox WHERE subject = ?", (ids[0],)).fetchone()) == (0,)
    assert do(lambda c: store.of_person(c, "bob"))["conversations"] != []
    database.close()
    assert "银行卡".encode() not in (tmp_path / "desk.sqlite").read_bytes()
