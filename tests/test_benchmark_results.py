"""Results of the benchmarks: where they come from, and the pages that quote them."""

import argparse
import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from benchmarks import (
    everything,
    provenance,
    quoted,
    report,
    serving,
    side_by_side,
    task_report,
)
from benchmarks.task_baselines import METHODS
from benchmarks.task_data import SETS

ROOT = Path(__file__).parents[1]

# ------------------------------------------------------------------------------- where results and figures come from


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with one file of code and one page."""
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "src" / "code.py").write_text("one = 1\n")
    (root / "page.md").write_text("A page.\n")
    for key, value in {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}.items():
        monkeypatch.setenv(key, value)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    git(root, "init", "--quiet")
    monkeypatch.setattr(provenance, "ROOT", root)
    commit(root)
    return root


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> str:
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "a change")
    return git(root, "rev-parse", "HEAD")


def asked(folder: Path, *, quick: bool = False) -> dict[str, object]:
    """A result as a benchmark writes it."""
    options = argparse.Namespace(rounds=2, quick=quick, results=folder, started=0.0, origin=provenance.origin())
    path = side_by_side.write("encoder", "how fast?", [{"work": "a"}], options, more=1)
    result: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return result


def test_a_result_names_its_commit_machine_versions_and_command(repository: Path, tmp_path: Path) -> None:
    result = asked(tmp_path / "results")
    assert result["commit"] == git(repository, "rev-parse", "HEAD")
    assert result["changed"] is False
    for key in ("date", "command", "hardware", "cores", "threads", "python", "torch", "segue", "compiled_kernel"):
        assert result[key] is not None, key
    assert result["torch"] == torch.__version__
    assert str(result["command"]).startswith("python ")
    (repository / "page.md").write_text("Another page.\n")
    assert asked(tmp_path / "results")["changed"] is False
    (repository / "src" / "code.py").write_text("one = 2\n")
    assert asked(tmp_path / "results")["changed"] is True


def test_without_git_a_result_says_that_it_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    result = asked(tmp_path / "results")
    assert result["commit"] is None
    assert provenance.source(result) == "commit not recorded"
    assert not provenance.of_this_code(result)


def test_only_what_this_code_has_not_answered_is_asked_again(repository: Path, tmp_path: Path) -> None:
    question, folder = everything.QUESTIONS[0], tmp_path / "results"
    assert not everything.is_answered(question, folder)
    asked(folder, quick=True)
    assert not everything.is_answered(question, folder)
    asked(folder)
    assert everything.is_answered(question, folder)
    (repository / "page.md").write_text("Another page.\n")
    commit(repository)
    assert everything.is_answered(question, folder)
    (repository / "src" / "code.py").write_text("one = 2\n")
    assert not everything.is_answered(question, folder)
    commit(repository)
    assert not everything.is_answered(question, folder)


def test_one_command_asks_every_question_of_the_page() -> None:
    answers = [what for question in everything.QUESTIONS for what in question.results]
    assert answers == [*report.QUESTIONS, *report.SERVING, *report.WITH_DATA]
    assert [serving.name_of(part) for part in serving.PARTS] == report.SERVING
    used = {what for needed, _ in quoted.PASSAGES.values() for what in needed}
    assert used <= set(answers)
    for question in everything.QUESTIONS:
        words = everything.command(question, data=Path("data"), results=Path("r"), quick=True)
        assert ("--data" in words) == question.with_data
        assert (ROOT / "benchmarks" / f"{question.module}.py").is_file()
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^\t\S*python -m benchmarks\.(\w+)", makefile, flags=re.MULTILINE) == [
        "everything",
        "everything",
        "serving",
        "report",
    ]


def test_every_result_is_written_in_one_place() -> None:
    writers = [path.name for path in sorted((ROOT / "benchmarks").glob("*.py")) if '"results"' in path.read_text()]
    assert writers == ["provenance.py", "task_results.py"]  # the second keeps its parts in a folder of its own
    for name in ("batches", "memory", "task_results", "side_by_side"):
        assert "record(" in (ROOT / "benchmarks" / f"{name}.py").read_text()


def test_the_pages_quote_the_newest_results() -> None:
    """`make bench` writes them; whoever edits a figure, or adds a result without writing the pages, is told here."""
    found = report.newest_results(provenance.RESULTS)
    assert report.PAGE.read_text(encoding="utf-8") == report.page(found)
    names = []
    for path in quoted.PAGES:
        text = path.read_text(encoding="utf-8")
        assert quoted.written(text, found) == text, f"{path.name}: run .venv/bin/python -m benchmarks.report"
        names += [name for name, _ in quoted.PASSAGE.findall(text)]
    assert sorted(names) == sorted(quoted.PASSAGES)


def test_the_pages_of_results_are_those_of_the_newest_results() -> None:
    rows = task_report.newest_rows()
    assert rows
    for words in (task_report.ENGLISH, task_report.CHINESE):
        page = task_report.page(rows, words)
        assert (task_report.DOCS / str(words["file"])).read_text(encoding="utf-8") == page
        assert all(row["name"] in page for row in rows)


def test_all_that_results_name_has_a_translation() -> None:
    names = {one.part for one in SETS} | {name for methods in METHODS.values() for name in methods}
    assert names == set(task_report.IN_CHINESE)


def test_a_figure_that_no_result_gives_is_found() -> None:
    found = report.newest_results(provenance.RESULTS)
    for path in quoted.PAGES:
        text = path.read_text(encoding="utf-8")
        for name, inside in quoted.PASSAGE.findall(text):
            assert re.search(r"\d", inside), name
            wrong = text.replace(inside, re.sub(r"\d(?=\D*$)", "x", inside), 1)
            assert wrong != text
            assert quoted.written(wrong, found) == text


def test_a_passage_without_its_results_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a <!-- bench growth -->b<!-- /bench --> c", encoding="utf-8")
    assert quoted.write_pages({}, [page]) == []
    assert page.read_text(encoding="utf-8") == "a <!-- bench growth -->b<!-- /bench --> c"
