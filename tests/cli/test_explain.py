"""`segue explain` as a user meets it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from segue.checkpoint.folder import TOKENIZER
from segue.cli.app import app
from segue.errors import SegueError
from segue.tasks.folder import save_task_model
from segue.tasks.table import TASKS
from tests.tasks.made import task_model
from tests.tasks.models import write_model

ROWS = [{"first": "clean", "second": "a", "label": "x"}, {"first": "b", "second": "dull", "label": "y"}]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    write_model(folder / "xl", objective="causal")
    write_model(folder / "xlnet")
    save_task_model(
        task_model(TASKS["pair"], folder / "xlnet", ROWS), folder / "pairs", tokenizer=folder / "xlnet" / TOKENIZER
    )
    return folder


def run(*arguments: object, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, ["explain", *map(str, arguments)], input=stdin, catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def values_of(page: Path) -> Any:
    return json.loads(re.search(r'id="values">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)[1])  # type: ignore[index]


def test_two_sides_an_order_and_words(models: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The room was clean.", encoding="utf-8")
    row = json.dumps({"first": "The room was clean", "second": "A dull film"})
    output = run(
        models / "xlnet", tmp_path / "text.txt", "--order", "backward", "--task-model", models / "pairs", "--row", row,
        "--beside-text", "A dull film.", "--layers", "1", "--out", tmp_path / "page.html", "--no-ablations",
    )  # fmt: skip
    assert "comprehensiveness" in output
    first, second = values_of(tmp_path / "page.html")
    assert (first["text"], second["text"]) == ("The room was clean.", "A dull film.")
    assert first["maps"]["layers"] == [1]
    assert first["words"]["task"] == "pair"
    assert first["order"]["order"] == list(range(len(first["order"]["tokens"])))[::-1]


def test_standard_input_and_a_fine_tuned_model_alone(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    output = run(models / "xl", "-", "--out", out, stdin="The room was clean.")
    assert "without position_bias" in output
    assert values_of(out)[0]["text"] == "The room was clean."
    row = json.dumps({"first": "The room", "second": "dull"})
    run(models / "pairs", "The room", "--row", row, "--out", out, "--replace")
    (found,) = values_of(out)
    assert "maps" not in found
    assert found["words"]["answer"] in ("x", "y")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/xl", "The room", "--order", "random", "--out", "{}/a.html"], "a factorisation order needs"),
        (
            ["{}/xl", "The room", "--order", "first", "--out", "{}/a.html"],
            "--order must be comma-separated whole numbers",
        ),
        (["{}/xlnet", "The room", "--order", "1,1", "--out", "{}/a.html"], "every position once"),
        (["{}/xl", "The room", "--layers", "7", "--out", "{}/a.html"], "layers must be among the 2"),
        (["{}/pairs", "The room", "--out", "{}/a.html"], "must have columns"),
        (["{}/pairs", "The room", "--row", "[1]", "--out", "{}/a.html"], "--row must be a JSON object"),
        (["{}/xl", "The room", "--out", "{}/a.docx"], "must be an image file"),
        (["{}/xl", "The room", "--show", "u", "--out", "{}/a.png"], "shows one of"),
        (["{}/xl", "The room", "--layer", "9", "--out", "{}/a.png"], "one of the 2 layers"),
        (["{}/xl", "", "--out", "{}/a.html"], "got 0"),
    ],
)
def test_what_cannot_be_explained_is_said(arguments: list[str], message: str, models: Path) -> None:
    with pytest.raises(SegueError) as raised:
        run(*(argument.replace("{}", str(models)) for argument in arguments))
    assert message in raised.value.on_command_line
    assert not list(models.glob("a.*"))
