"""The guide pages of the tasks run as they stand: their files are written, their commands are run."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from segue.cli.app import app
from segue.tasks.table import TASKS
from tests.tasks.models import write_model

TASK_PAGES = Path(__file__).parents[1] / "docs" / "tasks"
PAGES = sorted(TASK_PAGES.glob("*.md"))
BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"english": "", "chinese": ".zh-CN"}


def test_every_task_has_a_page_in_both_languages() -> None:
    expected = {f"{name}{ending}.md" for name in [*TASKS, "tune"] for ending in LANGUAGES.values()}
    assert expected <= {page.name for page in PAGES}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {language: write_model(folder / language, language=language) for language in LANGUAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs(page: Path, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    commands = [line for kind, _, text in blocks if kind == "bash" for line in joined(text)]
    assert any(command.startswith("segue ") for command in commands)
    language = "chinese" if page.name.endswith(".zh-CN.md") else "english"
    shutil.copytree(models[language], tmp_path / "model")
    for _, name, text in blocks:
        if name:
            assert Path(name).name == name
            (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        run(command)


def run(command: str) -> None:
    """In this process where it is a command of segue alone, which saves its imports; else in a shell."""
    if command.startswith("segue ") and not set(command) & set("|<>&;$"):
        app(shlex.split(command)[1:], standalone_mode=False)
        return
    path = shlex.quote(str(Path(sys.executable).parent))
    result = subprocess.run(
        ["bash", "-c", f"PATH={path}:$PATH; {command}"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"


def joined(text: str) -> list[str]:
    """Commands, those over several lines put together; comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]
