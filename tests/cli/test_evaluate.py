"""`segue evaluate --speed` and `--recl` as a user meets them; perplexity is in test_pretrain.py."""

import io
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from segue.checkpoint.folder import save
from segue.config import changed
from segue.data.store import Store
from segue.model import LanguageModel
from tests.cli.test_pretrain import segue
from tests.tiny import MODELS


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("模型")
    lines = [f"第{n}回 话说天下大势，分久必合，合久必分。\nLine {n} of a text.\n" for n in range(40)]
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    segue("prepare", folder / "text.txt", "--out", folder / "store", "--kind", "characters")
    segue("prepare", folder / "text.txt", "--out", folder / "bytes", "--kind", "bytes")
    size = Store.open(folder / "store").vocabulary_size
    for name in ("transformer-xl-enwik8-base", "gpt", "bert-base"):
        torch.manual_seed(0)
        config = changed(MODELS[name], vocabulary={"size": size})
        save(LanguageModel(config), folder / name, tokenizer=folder / "store" / "tokenizer")
    return folder


def rows(output: str, *, columns: int) -> list[list[str]]:
    """The lines of a table that hold numbers."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]
    return [line for line in lines if len(line) == columns and line[0].replace(",", "").isdigit()]


def test_speed_of_a_folder_and_of_a_name(work: Path) -> None:
    output = segue("evaluate", work / "transformer-xl-enwik8-base", "--speed", "--lengths", "24,48", "--repeats", 2)
    assert "2 layers, width 12, 2 heads of 4, inner width 10" in output
    assert "float32" in output
    assert "Median of 2 windows" in output
    table = rows(output, columns=4)
    assert [row[0] for row in table] == ["24", "48"]
    for _, memory, window, ratio in table:
        assert float(memory) > 0
        assert float(ratio.replace(",", "")) == pytest.approx(float(window.replace(",", "")) / float(memory), rel=0.5)
    config = work / "tiny.toml"
    config.write_text((work / "transformer-xl-enwik8-base" / "config.toml").read_text(encoding="utf-8"))
    output = segue("evaluate", config, work / "store", "--speed", "--lengths", 8, "--segment-length", 5)
    assert "random weights" in output
    assert "segments of 5 tokens" in output
    assert "store" in output


def test_published_numbers_stand_beside(work: Path) -> None:
    output = segue("evaluate", work / "transformer-xl-enwik8-base", "--speed", "--lengths", 800, "--repeats", 1)
    header = ["attention length", "memory ms/token", "window ms/token", "times slower", "published"]
    assert header in [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]
    (row,) = rows(output, columns=5)
    assert (row[0], row[4]) == ("800", "363")


def test_effective_lengths_of_two_models(work: Path) -> None:
    models = (work / "transformer-xl-enwik8-base", work / "store", "--recl", "--against", work / "gpt")
    output = segue("evaluate", *models, "--lengths", "4,8,64", "--limit", 200, "--plot", work / "recl.png")
    assert "contexts by memory" in output
    assert "at most its 48 positions" in output
    assert "136 tokens predicted, starting at token 64" in output
    assert [row[0] for row in rows(output, columns=3)] == ["4", "8", "64"]
    assert [row[0] for row in rows(output, columns=4)] == ["1", "2"]
    assert (work / "recl.png").stat().st_size > 5000
    alone = segue("evaluate", work / "gpt", work / "store", "--recl", "--lengths", "4,8", "--exact-context")
    assert "1,000 tokens predicted" in alone
    assert "its own group" in alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{xl}",), "perplexity needs a store"),
        (("{xl}", "--speed", "--recl"), "Choose one"),
        (("{xl}", "{store}", "--lengths", "8"), "requires --speed or --recl"),
        (("{xl}", "--speed", "--lengths", "long"), "whole numbers"),
        (("{xl}", "--speed", "--lengths", "0"), "at least 1"),
        (("{xl}", "--speed", "--sweep", "memory_length=8"), "got --sweep"),
        (("{xl}", "{store}", "--speed"), "tokens for these lengths"),
        (("{xl}", "{bytes}", "--speed"), "tokeniser of the model"),
        (("{bert}", "--speed"), 'objective "masked"'),
        (("transformer-xl", "--speed"), "Did you mean"),
        (("{xl}", "--recl"), "--recl needs a store"),
        (("{xl}", "{store}", "--recl", "--lengths", "8"), "two or more that ascend"),
        (("{xl}", "{store}", "--recl", "--lengths", "8,99999"), "longer text"),
        (("{xl}", "{store}", "--recl", "--lengths", "8,9", "--limit", "99999"), "at most the length of the text"),
        (("{xl}", "{store}", "--recl", "--order", "random"), "got --order"),
        (("{xl}", "{store}", "--recl", "--against", "{bert}"), 'objective "causal"'),
        (("{xl}", "{bytes}", "--recl"), "tokeniser of the model"),
        (("nowhere", "{store}", "--recl"), "a model must be a folder, a name"),
    ],
)
def test_mistakes_are_explained(work: Path, arguments: tuple[str, ...], message: str) -> None:
    places = {
        "xl": work / "transformer-xl-enwik8-base",
        "bert": work / "bert-base",
        "store": work / "store",
        "bytes": work / "bytes",
    }
    assert message in segue("evaluate", *(word.format(**places) for word in arguments), code=2)


def test_a_group_has_one_tokeniser(work: Path) -> None:
    """Another tokeniser of the same size is refused: its ids mean other things."""
    lines = (work / "text.txt").read_text(encoding="utf-8").translate(str.maketrans("话说", "風雲"))
    (work / "other.txt").write_text(lines, encoding="utf-8")
    segue("prepare", work / "other.txt", "--out", work / "other", "--kind", "characters")
    message = segue("evaluate", work / "gpt", work / "other", "--recl", "--lengths", "4,8", code=2)
    assert "must have the tokeniser of the model; got another than" in message
    assert message == segue("evaluate", work / "gpt", work / "other", "--segment-length", 8, code=2)
    message = segue("evaluate", work / "gpt", work / "other", "--speed", "--lengths", 4, code=2)
    assert f"Prepare the text with --tokenizer {work / 'gpt' / 'tokenizer'}" in message


@pytest.mark.parametrize("way", [("--segment-length", 8), ("--speed", "--lengths", 4), ("--recl", "--lengths", "4,8")])
def test_a_damaged_store_or_a_text_is_no_store(work: Path, way: tuple[object, ...]) -> None:
    message = segue("evaluate", work / "gpt", work / "text.txt", *way, code=2)
    command = f"segue prepare {work / 'text.txt'} --out {work / 'text.store'} --tokenizer {work / 'gpt' / 'tokenizer'}"
    assert f"got the file {work / 'text.txt'}. Prepare a store from it first: {command}." in unquoted(message)
    shutil.copytree(work / "store", work / "damaged", dirs_exist_ok=True)
    path = work / "damaged" / "tokens-00000.bin"
    path.write_bytes(path.read_bytes()[2:] + b"\1\0")
    assert "tokens-00000.bin must have the sha256" in segue("evaluate", work / "gpt", work / "damaged", *way, code=2)


def unquoted(text: str) -> str:
    return text.replace("'", "")


def test_a_plot_that_cannot_be_made_is_refused_before_the_work(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object, **__: object) -> None:
        pytest.fail("the work was done first")

    monkeypatch.setattr("segue.api.evaluate.evaluate_causal", measured)
    monkeypatch.setattr("segue.api.evaluate_context.context_losses", measured)
    model, store = work / "transformer-xl-enwik8-base", work / "store"
    for way in (("--segment-length", 8, "--sweep", "memory_length=4,8"), ("--recl", "--lengths", "4,8")):
        refused = {
            work / "plot.xyz": "must be an image file",
            work / "nowhere" / "plot.png": "must be in a folder that exists",
            work: "must be a file or not exist yet",
        }
        for plot, why in refused.items():
            assert why in segue("evaluate", model, store, *way, "--plot", plot, code=2)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "matplotlib", None)
            message = segue("evaluate", model, store, *way, "--plot", work / "plot.png", code=2)
            assert "plots need matplotlib" in message


def test_lines_say_how_far_it_is_where_there_is_no_terminal(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("segue.cli.reporting.LINE_EVERY", 0.0)
    errors = io.StringIO()
    monkeypatch.setattr("segue.cli.reporting.Console", lambda **_: Console(file=errors, highlight=False, width=160))
    model, store = work / "transformer-xl-enwik8-base", work / "store"
    segue("evaluate", model, store, "--segment-length", 8, "--sweep", "memory_length=4,8", "--limit", 200)
    lines = errors.getvalue().splitlines()
    assert any(re.fullmatch(r"evaluate, memory 4: [\d,]+ of [\d,]+, \d+%, [\d.]+ s left", line) for line in lines)
    assert any(line.startswith("evaluate, memory 8: ") for line in lines)
