"""`segue score` and `segue embed` from files to tables, as a user runs them."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from segue.checkpoint.folder import save
from segue.cli import main
from segue.config import changed
from segue.infer.embed import EmbedSettings, embed_texts
from segue.infer.score import ScoreSettings, score_texts
from segue.model import LanguageModel
from segue.text.files import save_tokenizer
from tests.command import command, standard_input
from tests.infer.texts import TOKENIZER
from tests.tiny import MODELS, noisy

TEXT = "ab 中文\n天地 cd\n\n人字gh\n"
BLOCKS = ["ab 中文\n天地 cd", "人字gh"]


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def segue(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process: starting another takes longer than all that these tests compute."""

    def run(*arguments: str) -> Done:
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["segue", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    save_tokenizer(TOKENIZER, folder / "tokenizer")
    for name in ("transformer-xl-enwik8-base", "xlnet-base"):
        save(model_of(name), folder / name, tokenizer=folder / "tokenizer")
    save(model_of("xlnet-base"), folder / "silent")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return folder


def model_of(name: str) -> LanguageModel:
    return noisy(changed(MODELS[name], memory={"length": 9})).float()


def test_score_to_standard_output_by_token(place: Path, segue: Callable[..., Done]) -> None:
    done = segue("score", str(place / "transformer-xl-enwik8-base"), str(place / "text.txt"), "--by", "token")
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    model = model_of("transformer-xl-enwik8-base")
    expected = list(score_texts(model, TOKENIZER, BLOCKS, ScoreSettings(by="token")))
    assert len(rows) == sum(map(len, BLOCKS))
    for row, own in zip(rows, expected, strict=True):
        assert list(row) == ["document", "source", "line", "token", "id", "start", "end", "log_probability"]
        assert BLOCKS[row["document"] - 1][row["start"] : row["end"]] == row["token"]
        assert row["log_probability"] == pytest.approx(own.log_probability, abs=1e-5)


def test_score_files_of_every_format_add_up(place: Path, tmp_path: Path, segue: Callable[..., Done]) -> None:
    model = str(place / "xlnet-base")
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": block}) + "\n" for block in BLOCKS), encoding="utf-8")
    common = ("--order", "backward", "--segment-length", "6")
    documents = segue("score", model, str(source), *common, "--out", str(tmp_path / "documents.csv"))
    assert documents.code == 0, documents.stderr
    assert documents.stdout == ""
    for word in ("documents", "perplexity", "order backward", "tokens/s", "documents.csv"):
        assert word in documents.stderr
    assert segue("score", model, str(source), *common, "--by", "line", "--out", str(tmp_path / "lines.tsv")).code == 0
    assert segue("score", model, str(source), *common, "--by", "token", "--out", str(tmp_path / "t.parquet")).code == 0
    with (tmp_path / "documents.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with (tmp_path / "lines.tsv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    assert [row["text"] for row in rows] == BLOCKS
    assert [(line["document"], line["line"], line["text"]) for line in lines] == [
        ("1", "1", "ab 中文\n"), ("1", "2", "天地 cd"), ("2", "1", "人字gh")]  # fmt: skip
    pyarrow = pytest.importorskip("pyarrow.parquet")
    tokens = pyarrow.read_table(tmp_path / "t.parquet").to_pylist()
    for row in rows:
        total = float(row["log_probability"])
        assert sum(float(line["log_probability"]) for line in lines if line["document"] == row["document"]) == total
        assert sum(t["log_probability"] for t in tokens if str(t["document"]) == row["document"]) == total


def test_score_standard_input(place: Path) -> None:
    with standard_input(TEXT):
        model = place / "transformer-xl-enwik8-base"
        done = command("score", model, "-", "--documents", "line", "--to", "csv", width=100)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["text"] for row in rows] == ["ab 中文", "天地 cd", "人字gh"]
    assert {row["source"] for row in rows} == {"-"}
    assert "1 documents without text, skipped" in done.stderr


def test_an_interrupt_leaves_no_file(
    place: Path, tmp_path: Path, segue: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **settings: object) -> Iterator[object]:
        assert [name.startswith(".scores.jsonl.segue-") for name in os.listdir(tmp_path)] == [True]
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("segue.api.score.scores", interrupted)
    out = str(tmp_path / "scores.jsonl")
    done = segue("score", str(place / "transformer-xl-enwik8-base"), str(place / "text.txt"), "--out", out)
    assert (done.code, os.listdir(tmp_path)) == (130, [])


def test_embed_to_every_format(place: Path, tmp_path: Path, segue: Callable[..., Done]) -> None:
    expected = embed_texts(model_of("xlnet-base"), TOKENIZER, BLOCKS)
    for name in ("vectors.npy", "vectors.jsonl", "vectors.parquet"):
        done = segue(
            "embed", str(place / "xlnet-base"), str(place / "text.txt"), "--out", str(tmp_path / name), "--text"
        )
        assert done.code == 0, done.stderr
        assert "2 of width 12" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["vectors.jsonl", "vectors.npy", "vectors.parquet"]
    found = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    assert (found.dtype, found.shape) == (np.float32, (2, 12))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    rows = [json.loads(line) for line in (tmp_path / "vectors.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == BLOCKS
    pyarrow = pytest.importorskip("pyarrow.parquet")
    for table in (rows, pyarrow.read_table(tmp_path / "vectors.parquet").to_pylist()):
        assert list(table[0]) == ["document", "source", "tokens", "text", "vector"]
        np.testing.assert_array_equal(np.array([row["vector"] for row in table], dtype=np.float32), found)


def test_embed_by_line_with_choices(place: Path, tmp_path: Path, segue: Callable[..., Done]) -> None:
    out = tmp_path / "lines.npy"
    choices = ("--by", "line", "--layer", "-2", "--pool", "max", "--no-normalise", "--no-memory", "--batch-tokens", "7")
    done = segue("embed", str(place / "xlnet-base"), str(place / "text.txt"), "--out", str(out), *choices)
    assert done.code == 0, done.stderr
    settings = EmbedSettings(layer=1, pool="max", normalise=False)
    expected = embed_texts(model_of("xlnet-base"), TOKENIZER, ["人字gh"], settings)
    assert np.load(out).shape == (3, 12)
    np.testing.assert_allclose(np.load(out)[2], expected[0], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("score", "{}/xlnet-base", "{}/nowhere.txt"), "nowhere.txt must exist"),
        (("score", "{}/xlnet-base", "The room was clean."), "to read a text itself, give it on standard input, with -"),
        (("score", "{}/xlnet-base", "{}/text.txt", "--out", "{}/scores.xls"), "must end in .jsonl, .csv, .tsv"),
        (("score", "{}/xlnet-base", "{}/text.txt", "--out", "{}/no/scores.csv"), "must be in a folder that exists"),
        (("score", "{}/xlnet-base", "{}/text.txt", "--to", "parquet"), "parquet must go to a file"),
        (("score", "{}/silent", "{}/text.txt"), "must have a tokeniser to read text"),
        (("score", "{}/nothing", "{}/text.txt"), "a model must be a folder"),
        (("score", "{}/transformer-xl-enwik8-base", "{}/text.txt", "--order", "random"), 'objective "permutation"'),
        (("embed", "{}/xlnet-base", "{}/text.txt", "--out", "{}/vectors.txt"), "must end in .npy, .parquet or .jsonl"),
        (("embed", "{}/xlnet-base", "{}/text.txt", "--out", "{}/v.npy", "--layer", "9"), "the layer must be from 0"),
        (("embed", "{}/xlnet-base", "{}/empty.txt", "--out", "{}/v.npy"), "must contain text; got none"),
    ],
)
def test_errors_are_one_message_and_leave_nothing(
    place: Path, segue: Callable[..., Done], arguments: tuple[str, ...], message: str
) -> None:
    (place / "empty.txt").write_text("")
    before = sorted(os.listdir(place))
    done = segue(*(argument.format(place) for argument in arguments))
    assert done.code == 2
    assert done.stderr.startswith("segue: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(place)) == before


@pytest.mark.parametrize("verb", ["score", "embed"])
def test_progress_is_told_where_there_is_no_terminal(
    verb: str, place: Path, tmp_path: Path, segue: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.cli.output_tables.LINE_EVERY", 0.0)
    out = tmp_path / ("scores.jsonl" if verb == "score" else "vectors.npy")
    done = segue(verb, str(place / "xlnet-base"), str(place / "text.txt"), "--out", str(out))
    assert done.code == 0, done.stderr
    assert "100%, 15 tokens, " in done.stderr
