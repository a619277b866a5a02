"""The guide on serving, in both languages: commands, Python and JavaScript run as they stand, on a server."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from segue.checkpoint.folder import TOKENIZER
from segue.checkpoint.packaged import packaged_models
from segue.tasks.folder import save_task_model
from segue.tasks.table import TASKS
from tests.command import command as in_this_process
from tests.serve.running import Server, running
from tests.tasks.made import task_model
from tests.tasks.models import CHINESE, ENGLISH, write_model

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"english": DOCS / "serve.md", "chinese": DOCS / "serve.zh-CN.md"}
ADDRESS = "http://localhost:8000"
BLOCK = re.compile(r"^```(bash|python|javascript)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module", params=list(PAGES))
def guide(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, Server]]:
    """A server as the page begins it; in place of the packaged models, small ones of the same names."""
    language, folder = request.param, tmp_path_factory.mktemp("guide")
    first = BLOCK.findall(PAGES[language].read_text(encoding="utf-8"))[0][1]
    models = shlex.split(first)[2:]
    assert [model.partition("=")[0] for model in models] == ["model", "xlnet", "sentiment"]
    names = [model.partition("=")[2] for model in models]
    assert set(names) <= packaged_models().keys()
    (folder / "models").mkdir()
    made = write_model(folder / "xl", objective="causal", language=language)
    base = write_model(folder / "xlnet", language=language)
    rows = [{"text": "The room was clean", "label": "good"}, {"text": "A dull film", "label": "bad"}]
    task = task_model(TASKS["classify"], base, rows)
    save_task_model(task, folder / "models" / names[2], tokenizer=base / TOKENIZER)
    for path, name in zip((made, base), names, strict=False):
        path.rename(folder / "models" / name)
    (folder / "book.txt").write_text({"english": ENGLISH, "chinese": CHINESE}[language] * 20, encoding="utf-8")
    with mock.patch.dict(os.environ, {"SEGUE_MODELS": str(folder / "models")}), running(models, folder) as server:
        yield language, folder, server


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_PROXY": "*", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_all_of_the_guide_runs(guide: tuple[str, Path, Server]) -> None:
    language, folder, server = guide
    text = PAGES[language].read_text(encoding="utf-8").replace(ADDRESS, server.url)
    ran = dict.fromkeys(("bash", "python", "javascript"), 0)
    for kind, code in BLOCK.findall(text):
        if kind == "python":
            inside = mock.patch.dict(os.environ, {"NO_PROXY": "*"})
            with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()), inside:
                exec(compile(code, str(PAGES[language]), "exec"), {"__name__": "__main__"})
        elif kind == "javascript":
            if shutil.which("node") is None:
                continue
            assert "completion_tokens" in run(["node", "--input-type=module", "-e", code], folder)
        else:
            commands(code, folder)
        ran[kind] += 1
    assert ran["bash"] == 6
    assert ran["python"] == 2
    assert ran["javascript"] == (shutil.which("node") is not None)


def commands(code: str, folder: Path) -> None:
    """Servers only load and stop; what curl gets must not be an error."""
    for command in code.replace("\\\n", " ").splitlines():
        if command.startswith("segue serve"):
            done = in_this_process(*shlex.split(command)[1:], "--check", "--port", "0", folder=folder)
            assert done.returncode == 0, done.stderr
            continue
        said = run(["bash", "-c", command], folder)
        if "curl" in command and ">" in command:
            said = (folder / command.rpartition("> ")[2]).read_text(encoding="utf-8")
            assert said.startswith("<!doctype html>")
        elif "curl" in command:
            assert said
            assert '"error"' not in said


def test_what_deploys_it_names_options_that_there_are(tmp_path: Path) -> None:
    known = set(re.findall(r"--[a-z]+", run([sys.executable, "-m", "segue", "serve", "--help"], tmp_path)))
    for name, line in (("segue.service", "ExecStart="), ("Dockerfile", "ENTRYPOINT")):
        text = (DOCS.parent / "deploy" / name).read_text(encoding="utf-8")
        (command,) = [one for one in text.splitlines() if one.startswith(line)]
        used = set(re.findall(r"--[a-z]+", command))
        assert {"--host", "--keys", "--sessions"} <= used <= known


def test_the_design_names_tests_that_there_are() -> None:
    """The table of faults: each name is a test, or with a star the beginning of one."""
    table = (DOCS / "design" / "serving.md").read_text(encoding="utf-8").partition("## Faults")[2]
    named = set(re.findall(r"\b(test_\w+)(\*?)", table.replace("::", " ")))
    tests = Path(__file__).parents[1]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (tests / "serve").glob("test_*.py"))
    text += "\n".join(path.read_text(encoding="utf-8") for path in (tests / "browser").glob("test_*.py"))
    assert len(named) > 30
    for name, star in named:
        known = f"def {name}" if star else f"def {name}("
        assert known in text or (tests / "serve" / f"{name}.py").is_file(), name


def test_both_languages_have_the_same_parts() -> None:
    first, second = (path.read_text(encoding="utf-8") for path in PAGES.values())
    assert [kind for kind, _ in BLOCK.findall(first)] == [kind for kind, _ in BLOCK.findall(second)]
    assert len(re.findall("^## ", first, re.MULTILINE)) == len(re.findall("^## ", second, re.MULTILINE))
    routes = set(re.findall(r"`(?:\w+, )?(?:GET|POST|PUT|DELETE)?[`, 、]*(/[\w/{}]+)`", first))
    assert routes
    assert routes <= set(re.findall(r"(/[\w/{}]+)`", second))
