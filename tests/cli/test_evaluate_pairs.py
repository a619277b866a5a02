"""`segue evaluate --pairs` as a user meets it."""

import csv
import json
from pathlib import Path

import pytest

from segue.checkpoint.folder import save
from segue.model import LanguageModel
from segue.text.files import save_tokenizer
from tests.cli.test_pretrain import both, segue
from tests.infer.texts import TOKENIZER
from tests.tiny import MODELS, noisy

ROWS = [
    {"UID": "one", "phenomenon": "词序", "sentence_good": "天地人", "sentence_bad": "人地天"},
    {"UID": "one", "phenomenon": "词序", "sentence_good": "ab cd", "sentence_bad": "cd ab"},
    {"UID": "two", "phenomenon": "词序", "sentence_good": "中文 a", "sentence_bad": "中文"},
    {"UID": "three", "phenomenon": "other", "sentence_good": "gh", "sentence_bad": "gh"},
]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("对")
    save_tokenizer(TOKENIZER, folder / "tokenizer")
    for name in ("transformer-xl-enwik8-base", "xlnet-base", "bert-base"):
        save(noisy(MODELS[name]).float(), folder / name, tokenizer=folder / "tokenizer")
    save(LanguageModel(MODELS["gpt"]), folder / "silent")
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "unnamed.jsonl").write_text('{"a": "ab", "b": "ba"}\n', encoding="utf-8")
    (folder / "broken.jsonl").write_text('{"good": "ab", "bad": "ba"}\n{"good": "a\n', encoding="utf-8")
    return folder


def test_a_table_and_what_was_odd(work: Path) -> None:
    output, errors = both("evaluate", work / "transformer-xl-enwik8-base", "--pairs", work / "pairs.jsonl")
    cells = [line.split() for line in output.splitlines()]
    assert cells[0] == ["phenomenon", "paradigms", "pairs", "ties", "accuracy"]
    assert cells[1][:4] == ["词序", "2", "3", "0"]
    assert cells[2] == ["other", "1", "1", "1", "50.00"]
    assert cells[3][:5] == ["all", "pairs", "3", "4", "1"]
    assert cells[4][:3] == ["mean", "of", "paradigms"]
    assert "the first from the end of a document" in output
    assert "1 of 4 pairs have the same sentence twice" in errors


@pytest.mark.parametrize(
    ("model", "options", "way"),
    [
        ("transformer-xl-enwik8-base", (), "log-probability, each token from those before it"),
        ("xlnet-base", (), "pseudo-likelihood, each token from all others, after"),
        ("xlnet-base", ("--orders", 3, "--seed", 1), "mean log-probability over 3 random orders"),
        ("bert-base", (), "pseudo-likelihood, each token from all others"),
    ],
)
def test_json_and_rows_agree(work: Path, tmp_path: Path, model: str, options: tuple[object, ...], way: str) -> None:
    out = tmp_path / "rows.csv"
    output = segue("evaluate", work / model, "--pairs", work / "pairs.jsonl", "--json", "--out", out, *options)
    found = json.loads(output)
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["good"] for row in rows] == [row["sentence_good"] for row in ROWS]
    differences = [float(row["log_probability_good"]) - float(row["log_probability_bad"]) for row in rows]
    right = [1.0 if value > 0 else 0.5 if value == 0 else 0.0 for value in differences]
    assert right[3] == 0.5
    assert found["accuracy"] == pytest.approx(sum(right) / 4)
    assert found["paradigms"]["one"] == {
        "pairs": 2, "ties": 0, "accuracy": pytest.approx(sum(right[:2]) / 2), "phenomenon": "词序",
    }  # fmt: skip
    assert found["mean_of_paradigms"] == pytest.approx((sum(right[:2]) / 2 + right[2] + right[3]) / 3)
    assert found["scored_by"].startswith(way)


def test_columns_are_named(work: Path) -> None:
    model = work / "transformer-xl-enwik8-base"
    named = ("--column", "good=a", "--column", "bad=b")
    found = json.loads(segue("evaluate", model, "--pairs", work / "unnamed.jsonl", *named, "--json"))
    assert found["pairs"] == 1
    assert list(found["paradigms"]) == ["unnamed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{xl}", "--pairs", "{work}/unnamed.jsonl"), "got 'a', 'b'. Name one of them with --column good=NAME"),
        (("{xl}", "--pairs", "{work}/broken.jsonl"), "line 2"),
        (("{xl}", "--pairs", "{work}/nothing.jsonl"), "must exist"),
        (("{xl}", "--pairs", "{work}/pairs.jsonl", "--orders", "2"), 'random orders need objective "permutation"'),
        (("{xl}", "{work}", "--pairs", "{work}/pairs.jsonl"), "takes no store"),
        (("{xl}", "--pairs", "{work}/pairs.jsonl", "--window", "8"), "got --window"),
        (("{xl}", "--pairs", "{work}/pairs.jsonl", "--speed"), "Choose one"),
        (("{xl}", "--pairs", "{work}/pairs.jsonl", "--out", "{work}/rows.txt"), "must end in .jsonl"),
        (("{xl}", "--pairs", "{work}/pairs.jsonl", "--out", "{work}/pairs.jsonl", "--replace"), "must not be an input"),
        (("{xl}", "{work}", "--json"), "--json requires --pairs"),
        (("{xl}", "{work}", "--seed", "0"), "--seed requires --pairs"),
        (("{work}/silent", "--pairs", "{work}/pairs.jsonl"), "must have a tokeniser"),
    ],
)
def test_mistakes_are_explained(work: Path, arguments: tuple[str, ...], message: str) -> None:
    places = {"xl": work / "transformer-xl-enwik8-base", "work": work}
    assert message in segue("evaluate", *(word.format(**places) for word in arguments), code=2)
