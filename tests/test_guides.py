"""The guide pages of the tasks run as they stand: their files are written, their commands are run."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_the_page_runs(page: Path, models: dict[str, Path], tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    commands = [line for kind, _, text in blocks if kind == "bash" for line in joined(text)]
    assert any(command.startswith("segue ") for command in commands)
    language = "chinese" if page.name.endswith(".zh-CN.md") else "english"
    shutil.copytree(models[language], tmp_path / "model")
    for _, name, text in blocks:
        if name:
            assert Path(name).name == name
            (tmp_path / name).write_text(text, encoding="utf-8")
    binaries = Path(sys.executable).parent
    for command in commands:
        result = subprocess.run(
            ["bash", "-c", f"PATH={shlex.quote(str(binaries))}:$PATH; {command}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"


def joined(text: str) -> list[str]:
    """Commands, those over several lines put together; comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]
