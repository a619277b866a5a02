"""Errors that reach Python speak of arguments."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import segue
from segue.api.errors import ARGUMENTS, in_python
from segue.errors import DataError, SegueError, kind_of
from tests.api.test_documented import FUNCTIONS

SOURCE = Path(segue.__file__).parent
ELSEWHERE = {
    "train/command.py": "it writes commands",
    "report/pages.py": "names of style sheets",
    "checkpoint/private.py": "it reads commands",
    "train/tune_report.py": "reports show the command",
    "data/packages.py": "it calls pip",
}


def test_options_in_messages_are_arguments_of_functions() -> None:
    """So that a message makes sense when its options are turned into arguments."""
    arguments = {name for function in FUNCTIONS for name in inspect.signature(getattr(segue, function)).parameters}
    arguments |= {f"tables.{field.name}" for field in fields(segue.TableSettings)} | {"malformed_share"}
    found = 0
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE)
        if part.parts[0] in ("cli", "serve") or str(part) in ELSEWHERE:
            continue
        for text in messages(path):
            for option in re.findall(r"(?<![\w-])--(?:no-)?([a-z][a-z-]*[a-z])", text):
                found += 1
                assert ARGUMENTS.get(option, option.replace("-", "_")) in arguments, f"{path}: {text}"
    assert found > 20


def messages(path: Path) -> Iterator[str]:
    """The texts in a file that are no docstrings and not for the command line alone."""
    source = path.read_text(encoding="utf-8")
    if "--" not in source:  # it has no options, and to parse it takes longer than to read it
        return
    tree = ast.parse(source)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "option":
            left_out |= {id(inner) for inner in ast.walk(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value


def test_a_message_of_python_names_no_option(place: Path) -> None:
    Path("there").mkdir()
    Path("there", "other").write_text("x", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        segue.finetune("model", [{"text": "a", "label": "b"}] * 8, out="there", progress=False)
    assert "--" not in str(caught.value)
    assert "another out" in str(caught.value)
    assert "another --out" in caught.value.on_command_line


@pytest.mark.parametrize(
    "message",
    [
        "my--file must be a file; got ----.",
        "a - b -- c",
        "--",
    ],
)
def test_what_is_no_option_stays(message: str) -> None:
    assert in_python(message) == message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Prepare one: segue prepare INPUT --out STORE.", "Prepare one: segue.prepare(INPUT, out=STORE)."),
        ("`segue models` lists the names.", "`segue.models()` lists the names."),
        ("Try segue doctor MODEL.", "Try segue.doctor(MODEL)."),
        ("Use `segue finetune xlnet-mini-en`.", "Use `segue.finetune('xlnet-mini-en')`."),
        ("Use segue pretrain --from RUN.", "Use segue.pretrain(start=RUN)."),
        ("as segue tune writes it", "as segue.tune writes it"),
        ("Allow more: --malformed-share 0.10.", "Allow more: malformed_share=0.10."),
        ("try --encoding gb18030 here", "try encoding='gb18030' here"),
        ("Use --documents block.", "Use documents='block'."),
        ("Use --column positives=NAME --column negatives=NAME.", 'Use columns={"positives": NAME, "negatives": NAME}.'),
    ],
)
def test_commands_become_calls(message: str, expected: str) -> None:
    assert in_python(message) == expected


def test_advice_is_python_in_python_and_a_command_on_the_command_line(place: Path) -> None:
    with pytest.raises(DataError) as caught:
        segue.evaluate("model", "nothing", segment_length=8)
    assert str(caught.value).endswith("prepare a store: segue.prepare(INPUT, out=STORE).")
    assert caught.value.on_command_line.endswith("prepare a store: segue prepare INPUT --out STORE.")


def test_errors_are_segue_errors() -> None:
    with pytest.raises(SegueError, match="model must be a path, a name, or a loaded model; got an int"):
        segue.score(3, "a")  # type: ignore[call-overload]


def test_a_head_has_no_scores_and_vectors(place: Path) -> None:
    for function in (segue.score, segue.embed):
        with pytest.raises(
            SegueError, match=r"^sentiment must be a language model; .* Use segue.predict\('sentiment', rows"
        ):
            function("sentiment", "a")


@pytest.mark.parametrize("given", [["good", "film"], None, Path("a.txt"), 5])
def test_a_text_to_write_on_is_one_text(place: Path, given: object) -> None:
    name = kind_of(given)
    with pytest.raises(DataError, match=f"^prompt must be a str; got {name}. Call the function once for each text.$"):
        segue.generate("model", given)  # type: ignore[call-overload]
    with pytest.raises(DataError, match=f"^text must be a str; got {name}"):
        segue.infill("xlnet", given)  # type: ignore[arg-type]
    with pytest.raises(SegueError, match="count must be from 1 to 1,000,000; got 0"):
        segue.generate("model", "good", count=0)


def test_a_finetuned_model_is_loaded_by_another_function(place: Path) -> None:
    with pytest.raises(SegueError, match=r"^sentiment must be a language model; .*segue.load_finetuned\('sentiment'\)"):
        segue.load("sentiment")
    with pytest.raises(SegueError, match=r"got 'clasify'\. Did you mean 'classify'\?"):
        segue.finetune("model", [{"text": "a", "label": "b"}] * 8, task="clasify", progress=False)


def test_names_are_those_of_the_library() -> None:
    assert {name for name in dir(segue) if not name.startswith("__")} == set(segue.__all__) - {"__version__"}
