"""What can be served: folders of every kind, several at once, what comes with segue; and what is said of the rest."""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import segue
from segue.checkpoint.convert import convert
from segue.cli.serve import run_server
from segue.errors import ConfigError, SegueError
from segue.serve.models import load_all, load_served
from segue.serve.service_routes import model_body
from tests.serve.running import running, soaked
from tests.tasks.models import write_model

HERE = {"host": "127.0.0.1", "port": 0, "keys": None, "sessions": None, "overrides": [], "check": True}


def test_a_folder_written_for_another_library_is_served_as_the_model_itself(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Also one that was converted back from there."""
    convert(str(folders["xlnet"]), tmp_path / "theirs", to="hf")
    convert(str(tmp_path / "theirs"), tmp_path / "back")
    own, theirs, back = load_all(
        [str(folders["xlnet"]), str(tmp_path / "theirs"), str(tmp_path / "back")], slice_tokens=128
    ).values()
    assert own.abilities == theirs.abilities == back.abilities
    assert "infill" in own.abilities
    text = "The room was clean"
    assert own.tokenizer.encode(text).tolist() == theirs.tokenizer.encode(text).tolist()
    assert own.parameters == theirs.parameters == back.parameters


def test_a_program_for_others_is_refused_with_what_to_serve_instead(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "export.json").write_text('{"format": "segue-export-1"}')
    with pytest.raises(ConfigError, match="serve the model that it was made of"):
        load_served(str(tmp_path / "program"), slice_tokens=128)


def test_without_names_all_packaged_models_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEGUE_MODELS", str(tmp_path / "models"))
    for name in ("one", "two"):
        write_model(tmp_path / "models" / name, objective="causal")
    for extra in (tmp_path / "models").glob("*-tokenizer"):
        extra.rename(tmp_path / extra.name)
    run_server([], **HERE)  # type: ignore[arg-type]
    said = capfd.readouterr().err
    assert "one  " in said
    assert "two  " in said
    assert "completions, sessions" in said


def test_a_packaged_classifier_answers_as_predict_does(tmp_path: Path) -> None:
    """With the n-grams that are joined to it."""
    texts = ["wonderful", "A dull film with a weak story"]
    expected = segue.predict("sentiment-en", texts, progress=False)
    with running(["sentiment-en"], tmp_path) as server, server.client() as client:
        found = client.post("/v1/classify", json={"input": texts}).raise_for_status().json()["data"]
    for one, other in zip(found, expected, strict=True):
        assert one["label"] == other["prediction"]
        assert max(one["probs"]) == pytest.approx(other["probability"], abs=1e-5)


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install fastapi uvicorn prometheus-client"):
        run_server(["model"], **HERE)  # type: ignore[arg-type]


def test_another_host_needs_keys() -> None:
    with pytest.raises(ConfigError, match="must have keys"):
        run_server(["model"], **HERE | {"host": "0.0.0.0"})  # type: ignore[arg-type]
    with pytest.raises(SegueError):
        run_server(["model-that-is-none"], **HERE)  # type: ignore[arg-type]


WRITER = """
import hashlib, sys
from pathlib import Path
from segue.serve.store import Record, SqliteStore
store = SqliteStore(Path(sys.argv[1]))
store.open()
print("open", flush=True)
for number in range(10**6):
    data = hashlib.sha256(str(number).encode()).digest() * 500
    record = Record(id=f"s{number % 7}", tenant="a", model="m", tokens=number, size=1, created=0.0, idle=0.0)
    store.put(record, data)
    print(number, flush=True)
"""


@pytest.mark.parametrize("rounds", [10, pytest.param(soaked(1000), marks=pytest.mark.long)])
def test_after_kill_9_the_store_has_all_that_was_written_and_nothing_by_halves(rounds: int, tmp_path: Path) -> None:
    """Killed after some records, at any moment of the next."""
    import hashlib
    import random

    from segue.serve.store import SqliteStore

    chance = random.Random(0)
    path = tmp_path / "sessions.sqlite"
    written: dict[str, int] = {}
    for _ in range(rounds):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        for _ in range(chance.randint(0, 30)):
            number = int(process.stdout.readline())
            written[f"s{number % 7}"] = number
        process.kill()
        for line in process.stdout:  # what it had said before it was killed
            if line.endswith("\n"):
                written[f"s{int(line) % 7}"] = int(line)
        process.wait()
        process.stdout.close()
        store = SqliteStore(path)
        found = {record.id: record for record in store.open()}
        assert found.keys() >= written.keys()
        for id, record in found.items():
            assert store.get(id) == hashlib.sha256(str(record.tokens).encode()).digest() * 500
            assert record.tokens >= written.get(id, 0)
        store.close()
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        path.unlink()
        written.clear()


def test_the_language_of_a_model_is_that_of_its_card_or_the_end_of_its_name(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("tiny-zh", "tiny-en", "other"):
        shutil.copytree(folders["xl"], tmp_path / name)
    (tmp_path / "tiny-en" / "README.md").write_text("---\nlicense: mit\nlanguage:\n- zh\n---\n", encoding="utf-8")
    served = load_all([str(tmp_path / name) for name in ("tiny-zh", "tiny-en", "other")], slice_tokens=128)
    assert [one.languages for one in served.values()] == [("zh",), ("zh",), ()]
    assert model_body(served["tiny-zh"])["languages"] == ["zh"]
