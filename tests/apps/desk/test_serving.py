"""A desk that runs, and what goes wrong around it: disks, deleted people, receivers, moved folders."""

import asyncio
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from segue.apps import outbox
from segue.apps import running as watching
from segue.apps.database import Connection, Database, DatabaseFullError
from segue.apps.desk import service as serving
from segue.apps.desk import store
from segue.apps.desk.reply import reply
from segue.apps.desk.service import DeskService
from segue.apps.desk.settings import DeskSettings
from segue.apps.desk.store import DESK
from segue.apps.webhooks import is_signed
from segue.serve.errors import ApiError
from tests.apps.receiver import Receiver
from tests.apps.running import running

SECRET = "a secret of sixteen and more"


def with_service(desk: Path, work: Callable[[DeskService], Awaitable[Any]], **settings: Any) -> Any:
    """Does something with a desk in this process."""

    async def whole() -> Any:
        service = DeskService(desk, DeskSettings(**settings))
        await service.start()
        try:
            return await work(service)
        finally:
            await service.stop()

    return asyncio.run(whole())


def test_an_id_stands_for_one_message(desk: Path) -> None:
    async def work(service: DeskService) -> None:
        id = (await service.open(person="ann", language="en"))["id"]
        first = await service.visitor_says(id, "where is my parcel", client="12345678", chosen=None)
        assert await service.visitor_says(id, "where is my parcel", client="12345678", chosen=None) == first
        with pytest.raises(ApiError) as found:
            await service.visitor_says(id, "I lost my card", client="12345678", chosen=None)
        assert found.value.status_code == 409

    with_service(desk, work)


def test_an_agents_message_sent_again_is_written_once(desk: Path) -> None:
    async def work(service: DeskService) -> None:
        id = (await service.open(person="ann", language="en"))["id"]
        await service.visitor_says(id, "do you sell penguins", client="visitor-1", chosen=None)

        async def say(text: str, client: str | None) -> Any:
            return await service.agent_does(id, "alice", "say", text, client=client)

        first = await say("We do not.", "message-1")
        await service.agent_does(id, "alice", "release")
        assert await say("We do not.", "message-1") == first
        assert (await service.conversation(id))["state"] == "desk"  # nothing else happens again either
        assert len(await service.agent_does(id, "alice", "release")) == 0
        for text, client in (("We do.", "message-1"), ("do you sell penguins", "visitor-1")):
            with pytest.raises(ApiError) as found:
                await say(text, client)
            assert found.value.code == "id_taken"
        with pytest.raises(ApiError):
            await service.visitor_says(id, "We do not.", client="message-1", chosen=None)
        await say("One.", None)
        await say("One.", None)
        said = await service.database.run(lambda connection: store.messages(connection, id))
        assert [one["text"] for one in said if one["author"] == "agent"] == ["We do not.", "One.", "One."]
        (count,) = await service.database.run(lambda c: c.execute("SELECT count(*) FROM reviews").fetchone())
        assert count == 3

    with_service(desk, work)


def test_an_error_that_was_not_written_is_not_used(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(service: DeskService) -> None:
        before = service.decision()

        async def full(_: Any) -> None:
            raise DatabaseFullError("full")

        with monkeypatch.context() as patched:
            patched.setattr(service.database, "run", full)
            with pytest.raises(DatabaseFullError):
                await service.set_error(0.5)
        assert service.decision() == before
        assert (await service.set_error(0.5))["accepted_error"] == 0.5

    with_service(desk, work)


@pytest.mark.parametrize("kept", ["abc", "nan", "7"])
def test_an_odd_error_in_the_database_stops_nothing(desk: Path, kept: str) -> None:
    with DESK.opened(desk) as database:
        database.do(lambda connection: connection.execute("INSERT INTO settings VALUES ('error', ?)", (kept,)))

    async def accepted(service: DeskService) -> Any:
        return service.decision()["accepted_error"]

    assert with_service(desk, accepted) == 0.05


def test_a_person_may_be_deleted_while_the_desk_thinks(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replied = reply

    def slow(*given: Any, **more: Any) -> Any:
        with DESK.opened(desk) as database:
            database.do(lambda connection: store.forget(connection, "ann"))
        return replied(*given, **more)

    async def work(service: DeskService) -> int:
        id = (await service.open(person="ann", language="en"))["id"]
        with pytest.raises(ApiError) as found:
            await service.visitor_says(id, "where is my parcel", client="12345678", chosen=None)
        return found.value.status_code

    monkeypatch.setattr(serving, "reply", slow)
    assert with_service(desk, work) == 404


def test_silent_conversations_make_room(desk: Path) -> None:
    async def work(service: DeskService) -> None:
        ids = [(await service.open(person="ann", language="en"))["id"] for _ in range(3)]
        await service.agent_does(ids[0], "alice", "take")
        with pytest.raises(ApiError):
            await service.open(person="ann", language="en")

        def age(connection: Connection) -> None:
            connection.execute("UPDATE conversations SET updated = updated - 61")

        await service.database.run(age)
        await service.open(person="ann", language="en")
        states = [(await service.conversation(id))["state"] for id in ids]
        assert states == ["agent", "resolved", "desk"]
        said = await service.visitor_says(ids[1], "where is my parcel", client="12345678", chosen=None)
        assert len(said) == 2
        assert (await service.conversation(ids[1]))["state"] == "desk"

    with_service(desk, work, max_open=3, idle=60)


def test_no_room_in_a_file_is_no_room(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.sqlite", name="x", steps=["CREATE TABLE words (word TEXT NOT NULL);"])
    database.open()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, before[1]))
    try:
        with pytest.raises(DatabaseFullError):
            database.do(lambda connection: connection.execute("INSERT INTO words VALUES (?)", ("x" * 300_000,)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    database.do(lambda connection: connection.execute("INSERT INTO words VALUES ('room again')"))
    database.close()


def test_signatures_of_strangers() -> None:
    for odd in ("t=²,v1=x", "t=٣,v1=x", f"t={'9' * 5000},v1=x", "t=,v1", ""):
        assert not is_signed("secret", b"{}", odd, now=1)


def test_a_new_receiver_hears_no_history(desk: Path, tmp_path: Path) -> None:
    def opened(*options: object, person: str) -> str:
        with running("desk", desk, tmp_path, *options, secret=SECRET) as server, server.client() as client:
            id = str(client.post("/v1/conversations", json={"person": person}).json()["id"])
            if options:
                receiver.wait_for(id, ["conversation_opened"])
            return id

    with Receiver(SECRET) as receiver:
        old = opened(person="before")
        opened("--webhook", receiver.url, person="first")
        between = opened(person="between")
        opened("--webhook", receiver.url, person="last")
        receiver.wait_for(between, ["conversation_opened"])
        assert receiver.of(old) == []


@contextmanager
def dripping() -> Iterator[tuple[str, threading.Event]]:
    """A receiver that answers with a byte now and then."""
    listening = socket.create_server(("127.0.0.1", 0))
    asked, over = threading.Event(), threading.Event()

    def drip(connection: socket.socket) -> None:
        asked.set()
        try:
            while not over.wait(0.05):
                connection.sendall(b"x")
        except OSError:
            pass
        connection.close()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", asked
    finally:
        over.set()
        listening.close()


def test_a_receiver_that_drips_has_its_time(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "DEADLINE", 0.5)
    with dripping() as (url, _):

        async def tries(service: DeskService) -> int:
            await service.open(person="ann", language="en")
            until = time.monotonic() + 20
            while time.monotonic() < until:
                (count,) = await service.database.run(lambda c: c.execute("SELECT tries FROM outbox").fetchone())
                if count:
                    return int(count)
                await asyncio.sleep(0.05)
            return 0

        async def whole() -> int:
            service = DeskService(desk, DeskSettings(), webhook=(url, SECRET))
            await service.start()
            try:
                return await tries(service)
            finally:
                await service.stop()

        assert asyncio.run(whole()) >= 1


@pytest.mark.long  # starts a process; what limits its time is tested above
def test_a_receiver_that_drips_does_not_keep_the_server(desk: Path, tmp_path: Path) -> None:
    """In a process that ends as Python does, which waits for threads of pools."""
    words = [sys.executable, "-m", "segue", "desk", "run", str(desk), "--port", "0", "--webhook"]
    log = tmp_path / "log"
    with dripping() as (url, asked), log.open("w") as errors:
        process = subprocess.Popen([*words, url], stderr=errors, env={**os.environ, "SEGUE_WEBHOOK_SECRET": SECRET})
        try:
            until = time.monotonic() + 60
            while (found := re.search(r"serving on (http://\S+)", log.read_text())) is None:
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            httpx.post(f"{found[1]}/v1/conversations", json={}, trust_env=False)
            assert asked.wait(20)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=15) == 0
        finally:
            process.kill()
            process.wait()


def test_streams_of_deleted_people_end_and_moved_desks_say_so(desk: Path, tmp_path: Path) -> None:
    with running("desk", desk, tmp_path, "--set", "ping=60") as server, server.client() as client:
        made = client.post("/v1/conversations", json={"person": "ann"}).json()
        with client.stream("GET", f"/v1/conversations/{made['id']}/events", timeout=20) as stream:
            pieces = stream.iter_raw()
            assert b'"desk"' in next(pieces)
            client.delete("/v1/operator/people/ann")
            assert b"".join(pieces) == b""
        long = client.post(
            f"/v1/conversations/{made['id']}/messages", json={"text": "x" * 2001, "id": os.urandom(8).hex()}
        )
        assert "--set" not in long.text
        shutil.move(desk, tmp_path / "elsewhere")
        answer = client.post("/v1/conversations", json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "store_moved")
        assert "Traceback" not in server.log.read_text()


def test_a_folder_that_is_gone_is_logged_once(
    desk: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCHED", 0.01)

    async def nothing(_: str) -> None:
        raise AssertionError

    async def watch() -> None:
        task = asyncio.create_task(watching.follow_model(DESK, desk, in_use=lambda: "0001", take=nothing))
        for _ in range(2):
            shutil.move(desk, desk.parent / "elsewhere")
            await asyncio.sleep(0.2)
            shutil.move(desk.parent / "elsewhere", desk)
            await asyncio.sleep(0.2)
        task.cancel()

    asyncio.run(watch())
    assert [one.message.partition(":")[0] for one in caplog.records] == ["the model in use goes on"] * 2


def test_every_header_of_a_connection_must_come_in_time(desk: Path, tmp_path: Path) -> None:
    request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with (
        running("desk", desk, tmp_path, "--set", "header_timeout=1") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw,
        raw.makefile("rb") as read,
    ):
        for wait in (0.0, 0.0, 1.5):  # a connection that waits is kept
            time.sleep(wait)
            raw.sendall(request)
            while read.readline() != b"\r\n":
                pass
            assert b'"ok"' in read.read(15)
        started = time.monotonic()
        raw.sendall(b"GET /health HTTP/1.1\r\nx: ")
        raw.settimeout(0.2)
        while time.monotonic() < started + 10:
            try:
                raw.sendall(b"x")
                assert raw.recv(1) == b""
                break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() < started + 6
