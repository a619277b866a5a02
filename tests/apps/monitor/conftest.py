import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import segue
from tests.apps.conftest import SECRET
from tests.apps.monitor.mailbox import Mailbox
from tests.apps.monitor.news import entities, labelled
from tests.apps.receiver import Receiver
from tests.apps.running import running
from tests.serve.running import Server

KEYS = {"agent": "agent-alice-0123456789", "operator": "operator-bob-0123456789"}


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A monitor; tests that write copy it."""
    out = tmp_path_factory.mktemp("monitor") / "monitor"
    segue.learn_monitor(labelled(), out, entities=entities(), progress=False)
    return out


@pytest.fixture
def monitor(learned: Path, tmp_path: Path) -> Path:
    shutil.copytree(learned, tmp_path / "monitor")
    return tmp_path / "monitor"


@pytest.fixture(scope="session")
def receiver(new_database: Callable[[], str | None]) -> Iterator[Receiver]:
    """One for the monitor with each database: that of the desk has conversations."""
    with Receiver(SECRET) as one:
        yield one


@pytest.fixture(scope="session")
def mailbox(new_database: Callable[[], str | None]) -> Iterator[Mailbox]:
    with Mailbox() as one:
        yield one


@pytest.fixture(scope="module")
def server(
    learned: Path,
    receiver: Receiver,
    mailbox: Mailbox,
    new_database: Callable[[], str | None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """One with each database, with keys, that tells the receiver and the mailbox, and reads a growing file."""
    folder = tmp_path_factory.mktemp("running")
    segue.copy_monitor(learned, folder / "monitor", database=new_database())
    (folder / "keys").write_text(f"agent alice {KEYS['agent']}\noperator bob {KEYS['operator']}\n")
    (folder / "posts.jsonl").write_text("")
    (folder / "prices.csv").write_text(
        "date,symbol,close\n"
        + "".join(f"2023-{month}-{day:02d},ACME,{100 + day % 5}\n" for month in (11, 12) for day in range(1, 31))
    )
    (folder / "sources.toml").write_text(
        '[[source]]\nname = "posts"\nkind = "file"\npath = "posts.jsonl"\n'
        f'[mail]\nhost = "127.0.0.1"\nport = {mailbox.port}\nsecurity = "none"\nsender = "monitor@example.com"\n'
        'to = ["desk@example.com"]\n[prices]\npath = "prices.csv"\n'
    )
    options = ("--keys", folder / "keys", "--sources", folder / "sources.toml", "--webhook", receiver.url)
    with running("monitor", folder / "monitor", folder, *options, secret=SECRET) as server:
        yield server


@pytest.fixture
def agent(server: Server) -> Iterator[httpx.Client]:
    with server.client(KEYS["agent"]) as client:
        yield client


@pytest.fixture
def operator(server: Server) -> Iterator[httpx.Client]:
    with server.client(KEYS["operator"]) as client:
        yield client
