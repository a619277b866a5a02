"""Folders of all applications: databases that were lost, copies of damaged ones, commands that were killed."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.desk.folder import models_with as of_desk
from segue.apps.desk.store import DESK
from segue.apps.folder import MODELS, Application, read_about
from segue.apps.monitor.folder import models_with as of_monitor
from segue.apps.monitor.store import MONITOR
from segue.apps.recommend.folder import models_with as of_recommend
from segue.apps.recommend.store import RECOMMEND
from segue.errors import CheckpointError, ConfigError, DataError
from segue.files import folders

TEXTS = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
EVENTS = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
FEW = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
Made = tuple[Application, Path, Callable[..., None], Callable[[Path], Any]]


@pytest.fixture(scope="module")
def all_learned(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("all")
    shutil.copytree(learned, folder / "desk")
    segue.learn_monitor(TEXTS, folder / "monitor", progress=False)
    segue.learn_recommender(EVENTS, folder / "recommend", settings=FEW, progress=False)
    return folder


@pytest.fixture(params=["desk", "monitor", "recommend"])
def made(request: pytest.FixtureRequest, all_learned: Path, tmp_path: Path) -> Made:
    """One of each application, how it is copied, and what it says of itself."""
    shutil.copytree(all_learned / request.param, tmp_path / "made")
    application, copy, describe = {
        "desk": (DESK, segue.copy_desk, segue.describe_desk),
        "monitor": (MONITOR, segue.copy_monitor, segue.describe_monitor),
        "recommend": (RECOMMEND, segue.copy_recommender, segue.describe_recommender),
    }[request.param]
    return application, tmp_path / "made", copy, describe


def test_a_database_that_lost_everything_is_not_begun_anew(made: Made) -> None:
    application, folder, *_ = made
    path = folder / application.sqlite
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"got an empty file\. Put it back"):
        application.database(folder, alone=True)
    assert path.read_bytes() == b""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE x (y)")
        connection.execute("DROP TABLE x")
    assert path.stat().st_size > 0
    with pytest.raises(DataError, match="a database without tables"), application.opened(folder):
        pass


def test_copies_have_the_model_in_use_and_name_what_is_damaged(made: Made, tmp_path: Path) -> None:
    application, folder, copy, describe = made
    model = folder / MODELS / "0001"
    (model / "model.json").write_text('{"format": 1')
    with pytest.raises(CheckpointError, match=r"made/models/0001/model.json must be unchanged since it was written"):
        copy(folder, tmp_path / "copy")
    for work in (describe, lambda folder: read_about(folder / MODELS / "0001")):
        with pytest.raises(CheckpointError, match="missing or changed"):
            work(folder)
    shutil.rmtree(model)
    with pytest.raises(CheckpointError, match="must have the model that it uses, models/0001; got none"):
        copy(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["made"]
    (folder / application.file).write_text(json.dumps({"format": 1, "model": "0001", "database": 5}))
    with pytest.raises(CheckpointError, match="of this version"):
        application.place_of(folder)


def test_a_copy_that_was_killed_at_its_end_is_found(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder, copy, describe = made

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # as `kill -9` between the journal and the first move leaves it
        patched.setattr(folders.Staging, "_finish", killed)
        patched.setattr(folders.Staging, "_undo", lambda _: None)
        patched.setattr(folders.Staging, "remove", folders.Staging._release)
        with pytest.raises(KeyboardInterrupt):
            copy(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert (tmp_path / ".copy.writing").exists()
    with pytest.raises(DataError, match="an earlier command was killed after it had written all of it") as found:
        copy(folder, tmp_path / "copy")
    assert "replace" not in str(found.value)
    assert describe(tmp_path / "copy").model == "0001"
    assert not (tmp_path / ".copy.writing").exists()


def test_models_are_made_one_at_a_time(made: Made) -> None:
    application, folder, *_ = made
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            with application.changing(folder):
                os.write(writing, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"x"
        with pytest.raises(ConfigError, match="one command at a time"), application.changing(folder):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reading)
    with application.changing(folder):  # a killed one keeps no lock
        pass


def test_a_damaged_model_may_have_learned_from_anybody(made: Made) -> None:
    application, folder, *_ = made
    asked: dict[str, Callable[[], list[str]]] = {
        "desk": lambda: of_desk(folder, ["a conversation"]),
        "monitor": lambda: of_monitor(folder, {"a text"}),
        "recommend": lambda: of_recommend(folder, [{"number": 10**9}]),
    }
    assert asked[application.name]() == []
    for name in ("model.json", "knowledge.jsonl", "rows.jsonl"):
        if (folder / MODELS / "0001" / name).exists():
            (folder / MODELS / "0001" / name).write_text("{")
    assert asked[application.name]() == ["0001"]
