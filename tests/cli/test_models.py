"""`segue models`, `segue package`, and verbs that take the names of packaged models."""

import json
from pathlib import Path

import pytest

from segue.checkpoint.families.writing import only_for_segue
from segue.cli.app import app
from segue.cli.predict import is_table
from segue.errors import ConfigError, DataError, SegueError, SegueWarning
from segue.model.named import named_models
from segue.tasks.folder import save_task_model
from segue.tasks.table import TASKS
from tests.cli.test_predict import LEARNED
from tests.tasks.made import task_model
from tests.tasks.models import CHINESE, ENGLISH, write_model


def run(*words: str | Path) -> None:
    app([str(word) for word in words], standalone_mode=False)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretrained model, and fine-tuned ones of three tasks on it."""
    place = tmp_path_factory.mktemp("sources")
    source = write_model(place / "pretrained")
    for name in ("classify", "pair", "answer", "rank"):
        made = task_model(TASKS[name], source, LEARNED[name])
        save_task_model(made, place / name, tokenizer=source / "tokenizer")
    return place


@pytest.fixture
def names(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packaged models `tiny-en` and `mood-en` in the folder SEGUE_MODELS."""
    (tmp_path / "here").mkdir()
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SEGUE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    licence = ("--license", "mit", "--language", "en")
    Path("notes.md").write_text("## Data\n\nSix sentences.\n")
    run("package", sources / "pretrained", tmp_path / "models" / "tiny-en", *licence, "--notes", "notes.md")
    run("package", sources / "classify", tmp_path / "models" / "mood-en", *licence, "--trunk", "tiny-en", "--rank", "4")
    return tmp_path / "models"


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_models_and_configs_are_listed_apart(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("models")
    text = said(capsys)
    models, configs = text.split("Configs, without weights")
    assert "tiny-en 0.0 M parameters, " in models
    assert "en, permutation, licence mit" in models
    assert "classify (=bad, good), on tiny-en, licence mit" in models
    assert "xlnet-base" not in models
    assert "xlnet-base" in configs
    assert "small-xlnet" in configs


def test_what_packaging_says(names: Path, sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    licence = ("--license", "mit", "--language", "en")
    run("package", sources / "classify", "again", *licence, "--trunk", "tiny-en", "--rank", "4")
    text = said(capsys)
    assert "of the squared differences to tiny-en are kept. The result is a different model: evaluate it." in text
    assert "The model card lacks: Training data, Metrics, Command. Add it with --notes FILE." in text
    with pytest.raises(ConfigError, match="rank requires trunk") as caught:
        run("package", sources / "classify", "other", *licence, "--rank", "4")
    assert "--rank requires --trunk" in caught.value.on_command_line
    with pytest.raises(SegueError, match="must not exist yet"):
        run("package", sources / "classify", "again", *licence)


def test_the_card_of_one(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    run("models", "tiny-en")
    card = capsys.readouterr().out
    assert card.startswith("---\nlicense: mit\n")
    assert "Six sentences." in card
    assert "segue only" not in card


def test_what_is_for_segue_alone_says_so(names: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("models", "small-xlnet")
    shown = capsys.readouterr()
    assert "norm_first = true" in shown.out
    assert "segue only: XLNet" in shown.err
    assert "model.norm_first must be False, got True" in shown.err
    run("models", "xlnet-base")
    assert "segue only" not in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"Did you mean tiny-en\?"):
        run("models", "tiny-em")


def test_texts_are_answered(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    run("predict", "mood-en", "a clean room", "a dull film")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == ["a clean room", "a dull film"]
    Path("in.jsonl").write_text('{"text": "a clean room"}\n{"text": "a dull film"}\n')
    run("predict", "mood-en", "in.jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


def test_a_task_of_two_texts_takes_them_in_turn(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("predict", sources / "pair", "a man", "a person", "a man", "no one")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(row.values())[:2] for row in rows] == [["a man", "a person"], ["a man", "no one"]]
    run("predict", sources / "answer", "She was born in Paris.", "Where?")
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert row["context"] == "She was born in Paris."
    assert "answer" in row
    with pytest.raises(ConfigError, match="must come 2 for each row, first then second; got 3"):
        run("predict", sources / "pair", "a man", "a person", "a man")
    with pytest.raises(ConfigError, match="a model for the task rank needs a table"):
        run("predict", sources / "rank", "a coat")


def test_what_is_a_table(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").write_text("text\n")
    for table in ("-", "datasets:imdb", "rows", "nowhere.csv", "nowhere.JSONL", "nowhere.tsv.xz", "."):
        assert is_table([table]), table
    for texts in (["A good film."], ["很好"], ["a", "b"], ["nowhere.csv", "b"], ["x" * 100_000]):
        assert not is_table(texts), texts
    for wrong in (["rows", "b"], ["a", "-"]):
        with pytest.raises(ConfigError, match="several arguments are read as texts"):
            is_table(wrong)
    with pytest.raises(DataError, match=r"nowhere\.csv must exist"):
        run("predict", sources / "classify", "nowhere.csv")


def test_verbs_take_names(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.txt").write_text(ENGLISH)
    run("score", "tiny-en", "text.txt", "--out", "scores.csv")
    run("embed", "tiny-en", "text.txt", "--out", "vectors.npy")
    run("infill", "tiny-en", "The room ___ clean.", "--length", "1")
    run("prepare", "text.txt", "--out", "store", "--tokenizer", names / "tiny-en" / "tokenizer")
    run("evaluate", "tiny-en", "store", "--segment-length", "16")
    run("inspect", "tiny-en")
    run("inspect", "mood-en")
    assert "kept as differences to tiny-en" in said(capsys)
    run("convert", "tiny-en", "converted", "--no-compare")
    with pytest.raises(SegueError, match="is a model that is trained already"):
        run("plan", "tiny-en")
    with pytest.raises(SegueError, match="must be a language model; got a model fine-tuned on"):
        run("generate", "mood-en", "A text")


def test_text_in_another_language_is_noticed(names: Path) -> None:
    Path("text.txt").write_text(CHINESE)
    with pytest.warns(SegueWarning, match="another language"):
        run("score", "tiny-en", "text.txt", "--out", "scores.csv")
    with pytest.warns(SegueWarning, match="another language"):
        run("predict", "mood-en", "房间很干净")
    run("prepare", "text.txt", "--out", "store", "--tokenizer", names / "tiny-en" / "tokenizer")
    with pytest.warns(SegueWarning, match="another language"):
        run("evaluate", "tiny-en", "store", "--segment-length", "16")
    rows = [{"text": line, "label": str(number % 2)} for number, line in enumerate(CHINESE.splitlines() * 2)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.warns(SegueWarning, match="another language"):
        run("finetune", "tiny-en", "--task", "classify", "--train", "rows.jsonl", "--out", "run", "--no-baselines",
            "train.epochs=1")  # fmt: skip


@pytest.mark.parametrize("name", named_models())
def test_what_is_said_of_a_named_config_is_what_its_conversion_says(name: str) -> None:
    model = named_models()[name]
    assert (only_for_segue(model.config) is None) == model.for_transformers
