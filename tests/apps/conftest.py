import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import segue
from segue.apps.desk.store import DESK
from tests.apps.faq import rows
from tests.apps.postgres import Postgres, running_postgres
from tests.apps.receiver import Receiver
from tests.apps.running import running
from tests.serve.running import Server

SECRET = "a secret of sixteen and more"
FEW = ("hours", "card", "order", None)
"""Topics of the smaller desk; None for questions outside."""
KEYS = {"agent": "agent-alice-0123456789", "operator": "operator-bob-0123456789"}


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk without vectors, which is quick; tests that write copy it. It answers whatever it is half sure of."""
    out = tmp_path_factory.mktemp("desk") / "desk"
    segue.learn_desk(rows(), out, model="none", error=0.05, progress=False)
    return out


@pytest.fixture(scope="session")
def learned_few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a few topics, for tests that learn again, which takes three times as long as to learn."""
    out = tmp_path_factory.mktemp("desk") / "desk"
    few = [row for row in rows() if row["intent"] in FEW]
    segue.learn_desk(few, out, model="none", error=0.05, progress=False)
    return out


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real server; where there is none, what needs it is skipped."""
    with running_postgres() as one:
        yield one


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest) -> Callable[[], str | None]:
    """URLs of empty databases; None stands for a file of SQLite."""
    if request.param == "sqlite":
        return lambda: None
    found: Postgres = request.getfixturevalue("postgres")
    return found.new


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def usual_database(request: pytest.FixtureRequest) -> Callable[[], str | None]:
    """The same for tests that take seconds, and whose statements other tests try with both databases: PostgreSQL in
    make test-long."""
    if request.param == "sqlite":
        return lambda: None
    found: Postgres = request.getfixturevalue("postgres")
    return found.new


def with_database(desk: Path, url: str | None) -> Path:
    """The desk, with its conversations there."""
    DESK.make(desk, DESK.current_model(desk), database=url)
    return desk


@pytest.fixture
def desk(learned: Path, tmp_path: Path) -> Path:
    shutil.copytree(learned, tmp_path / "desk")
    return tmp_path / "desk"


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    with Receiver(SECRET) as one:
        yield one


@pytest.fixture(scope="session")
def server(
    learned: Path,
    receiver: Receiver,
    new_database: Callable[[], str | None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """One with each database, with keys for agents and operators, open to visitors, that tells the receiver."""
    folder = tmp_path_factory.mktemp("running")
    shutil.copytree(learned, folder / "desk")
    with_database(folder / "desk", new_database())
    keys = folder / "keys"
    keys.write_text(f"agent alice {KEYS['agent']}\noperator bob {KEYS['operator']}\n")
    options = ("--keys", keys, "--webhook", receiver.url, "--set", "rate=10000", "--set", "burst=10000")
    with running("desk", folder / "desk", folder, *options, secret=SECRET) as server:
        yield server


@pytest.fixture
def visitor(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def agent(server: Server) -> Iterator[httpx.Client]:
    with server.client(KEYS["agent"]) as client:
        yield client


@pytest.fixture
def operator(server: Server) -> Iterator[httpx.Client]:
    with server.client(KEYS["operator"]) as client:
        yield client


@pytest.fixture
def say(visitor: httpx.Client) -> Callable[..., dict[str, object]]:
    """Says something in a conversation, or in a new one."""

    def said(text: str, conversation: str | None = None, **more: object) -> dict[str, object]:
        if conversation is None:
            conversation = visitor.post("/v1/conversations", json={}).json()["id"]
        body = {"text": text, "id": os.urandom(8).hex(), **more}
        answer = visitor.post(f"/v1/conversations/{conversation}/messages", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    return said
