"""Help: of every verb, at every width, in whole words; completion; and what is imported for it."""

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import segue
from segue.api.hub import package
from segue.cli.app import APPLICATIONS, VERBS, app, command_of
from segue.data.prepare import prepare
from tests.tasks.models import write_model

CLI = Path(segue.__file__).parent / "cli"
WIDTHS = (50, 80, 100)
SUMMARIES = VERBS | {f"{verb} {name}": said for verb, inner in APPLICATIONS.items() for name, said in inner.items()}
"""Help of every verb, including those of applications."""
UNCLEAR = re.compile(r"\b[Ll]eft out:|\bso many\b|\bso often\b|^Of \b|\bsay\.|\bIts (size|format)\b|may be repeated")
"""Fragments and private words that help texts once had."""


def help_of(verb: str | None, width: int, flag: str = "--help") -> str:
    result = CliRunner().invoke(app, [flag] if verb is None else [*verb.split(), flag], terminal_width=width)
    assert result.exit_code == 0, result.output
    return result.output


def words(text: str) -> list[str]:
    return text.split()


def function_of(verb: str) -> Any:
    first, *rest = verb.split()
    return getattr(import_module(f"segue.cli.{first}"), rest[0].replace("-", "_") if rest else first)


@pytest.mark.parametrize("verb", SUMMARIES)
def test_nothing_is_cut_at_any_width(verb: str) -> None:
    """Every word of every option and help text is there, and no line is longer than the terminal but for one that
    cannot be broken: an example, the usage, or the name of an option with its values."""
    command = command_of(verb)
    for width in WIDTHS:
        text = help_of(verb, width)
        joined = "".join(words(text))
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                continue
            for option in parameter.opts if parameter.param_type_name == "option" else []:
                assert re.search(rf"(?<!\S){re.escape(option)}(?![\w-])", text), (option, width)
            if parameter.name != "help":
                assert "".join(words(str(parameter.help))) in joined, (parameter.name, width)
        for line in text.splitlines():
            whole = line.lstrip().startswith(("segue ", "-", "Usage:")) or len(words(line)) == 1
            assert len(line) <= width or whole, (width, line)
        assert "…" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_verbs_is_whole(width: int) -> None:
    joined = "".join(words(help_of(None, width)))
    for verb, summary in VERBS.items():
        assert "".join(words(verb + summary)) in joined


@pytest.mark.parametrize("verb", SUMMARIES)
def test_the_help_of_a_verb_has_its_summary_an_example_and_defaults(verb: str) -> None:
    text = inspect.cleandoc(function_of(verb).__doc__)
    assert text.splitlines()[0] == SUMMARIES[verb]
    examples = re.findall(rf"^  segue {verb}\b.*$", text, flags=re.MULTILINE)
    assert examples, "an example"
    assert all(len(example) <= 78 for example in examples)
    assert help_of(verb, 80, "-h") == help_of(verb, 80)
    for parameter in command_of(verb).params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        said = str(parameter.help)
        assert said.endswith("."), said
        assert said[0].isupper() or said.startswith(("-", "spiece")), said
        assert not UNCLEAR.search(said), said
        if said_default(parameter):
            assert "Default:" in said, (parameter.name, said)


def said_default(parameter: Any) -> bool:
    default = parameter.default
    return isinstance(default, int | float | str) and not isinstance(default, bool) and default != ""


def test_examples_are_commands_that_parse() -> None:
    """Their options exist, and so does every required one."""
    for verb in SUMMARIES.keys() - APPLICATIONS.keys():
        command = command_of(verb)
        for line in re.findall(rf"^ *segue ({verb}\b.*)$", inspect.cleandoc(function_of(verb).__doc__), flags=re.M):
            given = {word for word in line.split() if word.startswith("--")}
            known = {option for parameter in command.params for option in parameter.opts}
            assert given <= known, line
            needed = [one for one in command.params if one.required and one.param_type_name == "option"]
            assert all(set(one.opts) & given for one in needed), line


def test_every_verb_has_a_file_of_its_own() -> None:
    for verb in VERBS:
        names = [
            node.name for node in ast.parse((CLI / f"{verb}.py").read_text()).body if isinstance(node, ast.FunctionDef)
        ]
        assert verb in names
    registered = ast.parse((CLI / "app.py").read_text())
    assert not [node for node in ast.walk(registered) if isinstance(node, ast.FunctionDef) and node.name in VERBS]


# ---------------------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_every_shell(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # whatever shell runs the tests
    result = CliRunner().invoke(app, ["--show-completion", shell], prog_name="segue")
    assert result.exit_code == 0
    assert "_SEGUE_COMPLETE" in result.output


def completed(words: str, current: str, folder: Path) -> list[str]:
    """What bash is offered after these words, while `current` is typed."""
    count = len(words.split())
    result = subprocess.run(
        [sys.executable, "-c", "from segue.cli.app import app; app(prog_name='segue')"],
        env={
            "_SEGUE_COMPLETE": "complete_bash",
            "COMP_WORDS": f"{words} {current}",
            "COMP_CWORD": str(count),
            "PYTHONPATH": str(CLI.parents[1]),
            "PATH": "/usr/bin:/bin",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_names_and_paths_are_completed(tmp_path: Path) -> None:
    (tmp_path / "small-run").mkdir()
    assert completed("segue", "pre", tmp_path) == ["prepare", "pretrain", "predict"]
    found = completed("segue plan", "small", tmp_path)
    assert {"small-xlnet", "small-transformer-xl", "small-run/"} <= set(found)
    assert "xlnet-base" in completed("segue models", "xlnet-b", tmp_path)


# ---------------------------------------------------------------------------------------------------- imports


WITHOUT_TORCH = [
    ["--help"],
    ["--version"],
    ["models"],
    ["models", "xlnet-base"],
    ["models", "small-xlnet"],
    ["models", "my-model"],
    ["models", "--help"],
    ["inspect", "--help"],
    ["inspect", "store"],
    ["plan", "--help"],
    ["plan", "no-such-config"],
    ["sample"],
    ["prepare", "--help"],
]
RUN_ALL = """
import sys
from segue.cli.app import app
from segue.errors import ConfigError
for arguments in {commands!r}:
    try:
        app(arguments)
    except SystemExit as end:
        assert end.code in (0, None), (arguments, end.code)
    except ConfigError:
        assert "no-such-config" in arguments
    assert "torch" not in sys.modules, arguments
"""


def test_verbs_that_need_no_model_load_no_torch(tmp_path: Path) -> None:
    """All in one process, which no verb may make slow for the next."""
    (tmp_path / "text.txt").write_text("one text\n\nanother text\n", encoding="utf-8")
    prepare([tmp_path / "text.txt"], out=tmp_path / "store", kind="characters")
    package(write_model(tmp_path / "model"), tmp_path / "mine" / "my-model", license="mit", languages=["en"])
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL.format(commands=WITHOUT_TORCH)],
        cwd=tmp_path,
        env=os.environ | {"SEGUE_MODELS": str(tmp_path / "mine")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "my-model  " in done.stdout


@pytest.mark.parametrize("width", WIDTHS)
def test_lists_of_verbs_have_whole_lines(width: int) -> None:
    for application, inner in APPLICATIONS.items():
        text = " ".join(words(help_of(application, width)))
        assert all(said in text for said in inner.values())
