"""kill -9 at any moment: no message and no webhook is lost, none is doubled."""

import random
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from segue.apps.database import Connection
from segue.apps.desk.store import DESK
from tests.apps.conftest import with_database
from tests.apps.kills import SECRET, killed, ready, refuse
from tests.apps.receiver import Receiver

QUESTIONS = (
    "where is my parcel",
    "I lost my card",
    "我要退款",
    "this is ridiculous",
    "can penguins fly",
    "reset password",
)


class Visitor(threading.Thread):
    """Says one thing after the other, and says it again until it is answered."""

    def __init__(self, url: str, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.url, self.number, self.stopping = url, number, stop
        self.conversation: str | None = None
        self.sent: list[str] = []
        self.draw = random.Random(number)

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=10, trust_env=False) as client:
            while not self.stopping.is_set():
                with suppress(httpx.HTTPError):
                    self.one(client)
                time.sleep(0.005)

    def one(self, client: httpx.Client) -> None:
        if self.conversation is None:
            answer = client.post("/v1/conversations", json={"person": f"visitor-{self.number}"})
            if answer.status_code == 201:
                self.conversation = answer.json()["id"]
            return
        id = f"message-{len(self.sent):06d}"
        body = {"text": self.draw.choice(QUESTIONS), "id": id}
        while not self.stopping.is_set():
            with suppress(httpx.HTTPError):
                if client.post(f"/v1/conversations/{self.conversation}/messages", json=body).status_code == 200:
                    self.sent.append(id)
                    return
            time.sleep(0.02)


def visited(desk: Path, folder: Path, *, times: int) -> None:
    stop, receiver = threading.Event(), Receiver(SECRET)
    options = ("--set", "max_messages=1000000", "--set", "max_open=1000", "--webhook", receiver.url)
    with ready("desk", desk, folder, *options, times=times, secret=SECRET) as (first, *others), receiver:
        server = first.start()
        visitors = [Visitor(server.url, number, stop) for number in range(3)]
        for one in visitors:
            one.start()
        server = killed(server, others, seed=times, between=lambda draw: refuse(receiver, draw))
        end = time.monotonic() + 60
        while any(len(one.sent) <= 3 for one in visitors):
            assert time.monotonic() < end
            time.sleep(0.05)
        stop.set()
        for one in visitors:
            one.join(20)
        checked(desk, visitors, receiver)
        assert server.stop() == 0


def checked(desk: Path, visitors: list[Visitor], receiver: Receiver) -> None:
    database = DESK.database(desk, alone=False)
    database.open()

    def rows(query: str, *values: object) -> list[tuple[object, ...]]:
        def work(connection: Connection) -> list[tuple[object, ...]]:
            return connection.execute(query, values).fetchall()

        return database.do(work)

    end = time.monotonic() + 300  # an event that was refused four times waits for two minutes
    while waiting := rows("SELECT number, subject, tries, next_try FROM outbox WHERE delivered IS NULL LIMIT 9"):
        assert time.monotonic() < end, (time.time(), waiting)
        time.sleep(0.05)
    for one in visitors:
        said = rows(
            "SELECT number, author, client FROM messages WHERE conversation = ? ORDER BY number", one.conversation
        )
        written = [client for _, author, client in said if author == "visitor"]
        assert (
            written[: len(one.sent)] == one.sent
        )  # each once, in its order; one more may have been cut off at the end
        assert len(written) <= len(one.sent) + 1
        replies = sum(author == "desk" for _, author, _ in said)
        assert 1 <= replies <= len(written)
        told = [event["message"] for event in receiver.events.values()
                if event["conversation"] == one.conversation and event["event"] == "message_created"]  # fmt: skip
        assert told == [number for number, _, _ in said]
    assert set(receiver.events) == {id for (id,) in rows("SELECT id FROM outbox")}
    assert not receiver.repeats_differ
    assert receiver.unsigned == 0
    database.close()


def test_nothing_is_lost_or_doubled(desk: Path, tmp_path: Path, usual_database: Callable[[], str | None]) -> None:
    url = usual_database()
    visited(with_database(desk, url), tmp_path, times=4 if url is None else 2)


@pytest.mark.long
def test_nothing_is_lost_or_doubled_in_a_hundred_kills(
    learned: Path, tmp_path: Path, usual_database: Callable[[], str | None]
) -> None:
    shutil.copytree(learned, tmp_path / "many")
    visited(with_database(tmp_path / "many", usual_database()), tmp_path, times=100)
