"""The READMEs and docs say what is true: their commands run, their code runs, their links lead somewhere."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from segue.cli.app import app

ROOT = Path(__file__).parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def commands() -> list[str]:
    lines = [line for block in blocks(READMES[0], "bash") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.strip()]


def test_both_languages_show_the_same_code() -> None:
    for language, count in (("bash", 7), ("python", 4)):
        assert blocks(READMES[0], language) == blocks(READMES[1], language)
        assert len(blocks(READMES[0], language)) == count


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = blocks(READMES[0], "python")
    for code in examples:
        if OPENS_A_RUN in code:
            continue
        exec(compile(code, "README.md", "exec"), {})
        printed = capsys.readouterr().out
        promised = re.findall(r"print\(.*?\)  # (torch\.Size\(.*?\)|tensor\(.*?\)|\d+)", code)
        for text in promised:
            assert text in printed


OPENS_A_RUN = 'segue.open("run")'
"""The example with this needs what the commands make, and runs after them."""
SMALLER = ["model.num_layers=1", "model.width=16", "model.num_heads=2", "model.inner_width=16", "train.steps=4"]
"""Added to the commands that train, which would take minutes as they stand."""
RUN_ELSEWHERE = {"segue doctor", "segue tour"}
"""They stand so in tests/cli/test_commands.py, which reads what they print."""


@pytest.mark.usefixtures("few_texts")
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, in one folder, as they stand in the README but for SMALLER and RUN_ELSEWHERE, with few texts.
    Those of `make` are only looked up: the demo takes minutes, and tests/cli/test_demo.py runs a small one."""
    monkeypatch.chdir(tmp_path)
    programs = [command.split()[:2] for command in commands()]
    assert programs == [
        ["make", "demo"],
        ["make", "test"],
        ["segue", "models"],
        ["segue", "generate"],
        ["segue", "infill"],
        ["segue", "predict"],
        ["segue", "sample"],
        ["segue", "prepare"],
        ["segue", "plan"],
        ["segue", "pretrain"],
        ["segue", "evaluate"],
        ["segue", "plot"],
        ["segue", "sample"],
        ["segue", "finetune"],
        ["segue", "predict"],
        ["segue", "generate"],
        ["segue", "score"],
        ["segue", "embed"],
        ["segue", "evaluate"],
        ["segue", "serve"],
        ["segue", "models"],
        ["segue", "models"],
        ["segue", "doctor"],
        ["segue", "tour"],
    ]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(commands()) >= RUN_ELSEWHERE
    for command in commands():
        if command in RUN_ELSEWHERE:
            continue
        program, *arguments = shlex.split(command)
        if program == "make":
            assert arguments[0] in targets
            continue
        if arguments[0] in ("plan", "pretrain"):
            arguments[2:2] = [text for text in SMALLER if not (text.startswith("train") and arguments[0] == "pretrain")]
            arguments = [text.replace("train.steps=200", "train.steps=4") for text in arguments]
        if arguments[0] == "prepare":
            arguments += ["--vocabulary-size", "400"]
        if arguments[0] == "serve":
            arguments += ["--check", "--port", "0"]
        assert not app(arguments, standalone_mode=False), command
    (code,) = (code for code in blocks(READMES[0], "python") if OPENS_A_RUN in code)
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("page", [page for page in PAGES if ".zh-CN" in page.name], ids=lambda page: page.name)
def test_chinese_pages_keep_to_one_word_for_a_thing(page: Path) -> None:
    """The words of CONTRIBUTING.md, where those that must not stand there can be told by their spelling."""
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"[\u4e00-\u9fff] ?tokens?\b", prose)
    assert not re.findall(r"词片|段间循环|双流注意力|因子分解|相对位移|微调头|纳特|说明卡|训练目录|随包|教程", prose)
    assert not re.findall(r"\d %", re.sub(r"^\|.*", "", prose, flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
    for name in re.findall(r"`((?:tests|docs|src)/[\w./-]+\.\w+)(?:::\w+)?`", text):
        assert (ROOT / name).exists(), name
    for file, test in re.findall(r"`(?:tests/)?(?:model/|evaluation/)?(test_\w+\.py)::(\w+)`", text):
        sources = [path.read_text() for path in (ROOT / "tests").rglob(file)]
        assert sources, file
        assert any(f"def {test}(" in source for source in sources), f"{file}::{test}"


def test_worked_examples_and_quoted_code_are_true() -> None:
    assert runpy.run_path(str(ROOT / "docs" / "examples.py"))["untrue"]() == []
