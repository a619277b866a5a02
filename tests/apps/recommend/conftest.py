import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import segue
from tests.apps.recommend.shop import events, items, quick
from tests.apps.running import running
from tests.serve.running import Server

KEYS = {"agent": "agent-alice-0123456789", "operator": "operator-bob-0123456789"}


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recommender; tests that write copy it."""
    out = tmp_path_factory.mktemp("recommend") / "rec"
    segue.learn_recommender(events(), out, items=items(), settings=quick(), progress=False)
    return out


@pytest.fixture
def rec(learned: Path, tmp_path: Path) -> Path:
    shutil.copytree(learned, tmp_path / "rec")
    return tmp_path / "rec"


@pytest.fixture(scope="module")
def server(
    learned: Path, new_database: Callable[[], str | None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One with each database."""
    folder = tmp_path_factory.mktemp("running")
    segue.copy_recommender(learned, folder / "rec", database=new_database())
    (folder / "keys").write_text(f"agent alice {KEYS['agent']}\noperator bob {KEYS['operator']}\n")
    with running("recommend", folder / "rec", folder, "--keys", folder / "keys") as one:
        yield one


@pytest.fixture
def agent(server: Server) -> Iterator[httpx.Client]:
    with server.client(KEYS["agent"]) as client:
        yield client


@pytest.fixture
def operator(server: Server) -> Iterator[httpx.Client]:
    with server.client(KEYS["operator"]) as client:
        yield client
