from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serve.running import Server, running
from tests.tasks.models import write_model


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models that write: a Transformer-XL and an XLNet."""
    folder = tmp_path_factory.mktemp("served")
    return {
        "xl": write_model(folder / "xl", objective="causal"),
        "xlnet": write_model(folder / "xlnet", objective="permutation"),
    }


@pytest.fixture(scope="session")
def server(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(list(folders.values()), tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
