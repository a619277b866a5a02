"""`segue push` as a user meets it: what is sent goes through the installed script, to a hub in a thread."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from segue.checkpoint.card import Facts
from segue.checkpoint.folder import save
from segue.model import LanguageModel
from tests.checkpoint.hub_server import Hub, running
from tests.command import command
from tests.tiny import MODELS

pytest.importorskip("huggingface_hub")
SCRIPT = Path(sys.executable).parent / "segue"


def push(home: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "COLUMNS": "200",
        "PATH": "/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    command = [str(SCRIPT), "push", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


def test_a_rehearsal_then_the_push(tmp_path) -> None:
    save(LanguageModel(MODELS["gpt"]), tmp_path / "run" / "best")
    before = (tmp_path / "run" / "best" / "README.md").read_text()
    with running(Hub()) as hub:
        where = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
        words = ("push", tmp_path / "run", "me/model", "--license", "mit", "--dry-run")
        rehearsal = command(*words, width=200, environment=where)
        assert rehearsal.returncode == 0, rehearsal.stderr
        assert "12.9 kB  model.safetensors" in rehearsal.stdout
        assert "4 files of" in rehearsal.stdout
        assert "Nothing was written or sent." in rehearsal.stdout
        assert hub.requests == []
        assert (tmp_path / "run" / "best" / "README.md").read_text() == before

        real = push(
            tmp_path, hub.url, str(tmp_path / "run"), "me/model", "--license", "mit", "--language", "en",
            "--private", "--revision", "draft", "--message", "A first one",
        )  # fmt: skip
        assert real.returncode == 0, real.stderr
        assert f'segue.load("me/model", revision="{hub.refs["me/model"]["draft"]}")' in real.stdout
        assert hub.messages == ["A first one"]
        assert hub.private == {"me/model": True}
        _, files = hub.files("me/model", "draft") or ("", {})
        assert b"license: mit" in files["README.md"]


def test_paths_of_this_machine_are_named(tmp_path) -> None:
    save(LanguageModel(MODELS["gpt"]), tmp_path / "model", facts=Facts(command="segue pretrain /home/me/secret.toml"))
    result = command("push", tmp_path / "model", "me/model", "--dry-run", width=200)
    assert result.returncode == 0, result.stderr
    assert "reduced to their last component in: the command in README.md." in result.stdout


def test_errors_are_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(LanguageModel(MODELS["gpt"]), tmp_path / "model")
    with running(Hub()) as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        hub.broken = [("/api/repos/create", 401)]
        refused = command("push", tmp_path / "model", "me/model", width=200)
        assert hub.requests
    for result, message in (
        (refused, "Log in with"),
        (command("push", tmp_path / "model", "model"), "must be named owner/name"),
        (command("push", tmp_path / "nowhere", "me/model", width=200), "a model folder must hold config.toml"),
    ):
        assert result.returncode == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr
