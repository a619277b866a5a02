from pathlib import Path

import pytest

from tests.tasks.models import OBJECTIVES, write_model


@pytest.fixture(scope="session")
def english_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("english") / "model")


@pytest.fixture(scope="session")
def chinese_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("chinese") / "model", language="chinese")


@pytest.fixture(scope="session")
def model_of_each_objective(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("objectives")
    return {name: write_model(folder / name, objective=name) for name in OBJECTIVES}
