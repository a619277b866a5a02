"""Models by name: what is packaged, how it is found, that every file is checked, and how one is written."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import segue
from segue.checkpoint import packaged
from segue.checkpoint.card import licence_and_languages
from segue.checkpoint.files import MANIFEST, verify
from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import NGRAMS, TOKENIZER, TRUNK, WEIGHTS, is_model_folder, load
from segue.checkpoint.hub import plan_push
from segue.checkpoint.packaged import package_folder, packaged_models
from segue.checkpoint.packing import package
from segue.checkpoint.safetensors_files import read_header
from segue.errors import CheckpointError, SegueWarning
from segue.evaluation.baselines import NgramClassifier
from segue.tasks.folder import load_task_model, save_task_model
from segue.tasks.table import TASKS
from segue.tasks.wide import Wide
from segue.text.ngrams import learn_ngrams
from tests.tasks.made import task_model
from tests.tasks.models import write_model

LARGEST, LARGEST_TOGETHER = 12_000_000, 50_000_000
ROWS = [{"text": "a clean room", "label": "good"}, {"text": "a dull film", "label": "bad"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models: `tiny-en`, and `mood-en`, which is fine-tuned from it and kept as differences."""
    place = tmp_path_factory.mktemp("packaged")
    package(write_model(place / "source"), place / "models" / "tiny-en", licence="mit", languages=["en"])
    return place


@pytest.fixture
def models(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that SEGUE_MODELS names, with an empty current folder and an empty cache."""
    folder = tmp_path / "models"
    shutil.copytree(made / "models", folder)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SEGUE_MODELS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SEGUE_MIRROR", raising=False)
    return folder


@pytest.fixture
def tuned(models: Path, made: Path, tmp_path: Path) -> Path:
    """A fine-tuned model of the trunk: a head, one matrix changed by rank 2, one bias changed."""
    task = task_model(TASKS["classify"], made / "source", ROWS)
    trunk = load(models / "tiny-en").trunk
    task.model.get_submodule("trunk").load_state_dict(trunk.state_dict())
    torch.manual_seed(2)
    with torch.no_grad():
        attention = task.model.get_submodule("trunk.reader.layers.0.attention")
        query = attention.get_parameter("query.weight")
        query += 0.1 * torch.randn(len(query), 2) @ torch.randn(2, query.shape[1])
        task.model.get_parameter("trunk.reader.layers.0.attention_norm.bias").add_(0.25)
    save_task_model(task, tmp_path / "tuned", tokenizer=made / "source" / "tokenizer")
    return tmp_path / "tuned"


# ----------------------------------------------------------------------------------------------------- the package


def test_the_models_of_the_package_are_small_and_whole() -> None:
    sizes = {}
    for name, model in packaged_models().items():
        if model.comes_with_segue:
            model.verify()
            sizes[name] = sum(path.stat().st_size for path in model.folder.rglob("*") if path.is_file())
            licence, languages = licence_and_languages((model.folder / "README.md").read_text(encoding="utf-8"))
            assert licence != "unknown", name
            assert languages, name
            kept = {path.relative_to(model.folder).as_posix() for path in model.folder.rglob("*") if path.is_file()}
            assert kept == {*json.loads((model.folder / MANIFEST).read_text()), MANIFEST}, name
    assert all(size <= LARGEST for size in sizes.values()), sizes
    assert sum(sizes.values()) <= LARGEST_TOGETHER, sizes
    folders = [path for path in package_folder().iterdir() if path.is_dir()]
    assert all(is_model_folder(path) for path in folders), folders


# ----------------------------------------------------------------------------------------------------------- names


def test_a_name_is_a_model(models: Path) -> None:
    loaded = segue.load("tiny-en")
    assert {value.dtype for value in loaded.state_dict().values()} == {torch.float32}
    session = segue.open("tiny-en")
    session.feed("The room was clean.")
    assert session.tokens_read
    assert find("tiny-en").path == models / "tiny-en"


def test_a_path_comes_before_a_name(models: Path, made: Path) -> None:
    shutil.copytree(made / "source", "tiny-en")
    with pytest.warns(SegueWarning, match="tiny-en is a path here and a packaged model: the path is taken"):
        assert find("tiny-en").path == Path("tiny-en")
    assert find("./tiny-en").path == Path("tiny-en")
    shutil.rmtree("tiny-en")
    with pytest.raises(CheckpointError, match="a model must be a folder"):
        find("./tiny-en")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiny-ne", "Did you mean tiny-en?"),
        ("xlnet-base", "xlnet-base is a config without weights: `segue.pretrain` trains it"),
        ("small-xlnet", "small-xlnet is a config without weights"),
        ("small-xlnett", "Did you mean small-xlnet, a config without weights?"),
        ("xlnet-base-case", "Did you mean xlnet-base-cased?"),
        ("something else", "`segue.models()` lists the names"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(name: str, said: str, models: Path) -> None:
    with pytest.raises(CheckpointError) as error:
        segue.load(name)
    assert said in str(error.value)


def test_without_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEGUE_MODELS", raising=False)
    monkeypatch.setattr(packaged, "package_folder", lambda: tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"was built without its models \(SEGUE_NO_MODELS\)"):
        segue.load("transformer-xl-mini-en")  # though a config has a similar name
    monkeypatch.setenv("SEGUE_MODELS", str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointError, match="SEGUE_MODELS must be a folder of models"):
        segue.load("transformer-xl-mini-en")


@pytest.mark.parametrize("name", ["config.toml", WEIGHTS, "tokenizer/spiece.model", "README.md"])
def test_every_file_is_checked(name: str, models: Path) -> None:
    path = models / "tiny-en" / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        CheckpointError, match=r"must be unchanged since it was written; it is missing or changed\. Copy the model"
    ):
        segue.load("tiny-en")
    path.unlink()
    with pytest.raises(CheckpointError):
        segue.load("tiny-en")


def test_a_damaged_model_of_the_package_is_installed_again(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEGUE_MODELS")
    monkeypatch.setattr(packaged, "package_folder", lambda: models)
    (models / "tiny-en" / WEIGHTS).write_bytes(b"")
    with pytest.raises(CheckpointError, match=rf"{WEIGHTS} must be unchanged.*Install segue again\."):
        segue.load("tiny-en")


# --------------------------------------------------------------------------------------------------------- writing


def test_a_model_is_packaged_in_bfloat16_with_its_values(models: Path, made: Path) -> None:
    verify(models / "tiny-en")
    assert {info.dtype for info in read_header(models / "tiny-en" / WEIGHTS).tensors.values()} == {torch.bfloat16}
    source, written = load(made / "source").state_dict(), load(models / "tiny-en").state_dict()
    for name, value in source.items():
        assert torch.equal(written[name], value.bfloat16().float())
    card = (models / "tiny-en" / "README.md").read_text(encoding="utf-8")
    assert licence_and_languages(card) == ("mit", ["en"])
    assert 'segue.load("tiny-en")' in card


def test_the_averaged_weights_of_a_stopped_run_are_taken(made: Path, tmp_path: Path) -> None:
    from segue.checkpoint.folder import read_tensors, save, write_tensors

    model = load(made / "source")
    average = {name: value + 1 for name, value in model.state_dict().items()}

    def also(new: Path) -> None:
        (new / "training").mkdir()
        write_tensors(average, new / "training" / "average.safetensors")

    save(model, tmp_path / "run" / "last", tokenizer=made / "source" / "tokenizer", also=also)
    packed = package(tmp_path / "run", tmp_path / "average", licence="mit", languages=["en"])
    assert packed.averaged
    assert "training" not in {path.name for path in (tmp_path / "average").iterdir()}
    assert packed.unknown == ["Training data", "Metrics", "Command"]
    written = read_tensors(tmp_path / "average" / WEIGHTS)
    assert all(torch.equal(written[name], value.bfloat16()) for name, value in average.items())


def test_what_cannot_be_packaged(models: Path, made: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="lower-case letters"):
        package(made / "source", tmp_path / "My Model", licence="mit", languages=["en"])
    with pytest.raises(CheckpointError, match="a licence must be a lower-case identifier"):
        package(made / "source", tmp_path / "model", licence="My own", languages=["en"])
    with pytest.raises(CheckpointError, match="must not exist yet"):
        package(made / "source", models / "tiny-en", licence="mit", languages=["en"])
    other = write_model(tmp_path / "chinese", language="chinese")
    with pytest.raises(CheckpointError, match="must have the tokeniser of its trunk, tiny-en; got another"):
        package(other, tmp_path / "model", licence="mit", languages=["en"], trunk="tiny-en")
    with pytest.raises(CheckpointError, match=r"a trunk must be a packaged model; got 'tiny'. Did you mean tiny-en\?"):
        package(made / "source", tmp_path / "model", licence="mit", languages=["en"], trunk="tiny")


# ----------------------------------------------------------------------------------------------------- differences


def test_differences_become_the_model_again(models: Path, tuned: Path) -> None:
    packed = package(tuned, models / "mood-en", licence="mit", languages=["en"], trunk="tiny-en", rank=2)
    assert set(packed.files) == {"README.md", "config.toml", "head.toml", MANIFEST, WEIGHTS, "task.toml", TRUNK}
    assert packed.files[WEIGHTS] < (tuned / WEIGHTS).stat().st_size / 4
    assert packed.kept is not None
    assert packed.kept > 0.999
    before, after = load_task_model(tuned).model.state_dict(), load_task_model("mood-en").model.state_dict()
    trunk = load(models / "tiny-en").state_dict()
    assert before.keys() == after.keys()
    for name, value in after.items():
        assert value.dtype == torch.float32
        if name in trunk and torch.equal(before[name], trunk[name]):
            assert torch.equal(value, before[name]), name  # to the bit, where fine-tuning changed nothing
        else:
            assert (value - before[name]).norm() <= 0.02 * before[name].norm(), name
    whole = model_folder(find("mood-en"))
    assert not whole.is_relative_to(models)
    assert model_folder(find("mood-en")) == whole


@pytest.mark.parametrize("trunk", [None, "tiny-en"], ids=["whole", "differences"])
def test_n_grams_of_a_classifier_are_packaged_with_it(trunk: str | None, models: Path, tuned: Path) -> None:
    made = load_task_model(tuned)
    ngrams = learn_ngrams([row["text"] for row in ROWS], "words", most=99)
    weight_VC = np.ones((len(ngrams.terms), 2), dtype=np.float32)
    classifier = NgramClassifier(ngrams=ngrams, weight_VC=weight_VC, bias_C=np.zeros(2), multiple=False)
    wide = Wide(classifier=classifier, network=0.5, ngrams=0.25)
    save_task_model(replace(made, wide=wide), tuned, tokenizer=models / "tiny-en" / TOKENIZER)
    assert NGRAMS in plan_push(tuned, "someone/mood").files
    package(tuned, models / "mood-en", licence="mit", languages=["en"], trunk=trunk, rank=2)
    again = load_task_model("mood-en").wide
    assert again is not None
    assert (again.network, again.ngrams, again.classifier.ngrams.terms) == (0.5, 0.25, ngrams.terms)


def test_the_rank_decides_what_is_kept(models: Path, tuned: Path, tmp_path: Path) -> None:
    kept = [
        package(tuned, tmp_path / f"rank-{rank}", licence="mit", languages=["en"], trunk="tiny-en", rank=rank).kept
        for rank in (1, 2)
    ]
    assert kept[0] is not None
    assert kept[1] is not None
    assert 0.2 < kept[0] < 0.99 < kept[1]


def test_differences_need_their_trunk(models: Path, tuned: Path, made: Path) -> None:
    package(tuned, models / "mood-en", licence="mit", languages=["en"], trunk="tiny-en", rank=2)
    shutil.rmtree(models / "tiny-en")
    with pytest.raises(CheckpointError, match="is made of the packaged model tiny-en, which must be there"):
        load_task_model("mood-en")
    model = load(made / "source")
    with torch.no_grad():
        next(model.parameters()).add_(1)
    from segue.checkpoint.folder import save

    save(model, made / "changed", tokenizer=made / "source" / "tokenizer")
    package(made / "changed", models / "tiny-en", licence="mit", languages=["en"])
    with pytest.raises(CheckpointError, match="is made of a tiny-en whose weights have the sha256"):
        load_task_model("mood-en")


def test_differences_that_do_not_fit_are_refused(models: Path, tuned: Path) -> None:
    from segue.checkpoint.folder import read_tensors, write_tensors
    from segue.files import manifest_text, sha256

    package(tuned, models / "mood-en", licence="mit", languages=["en"], trunk="tiny-en", rank=2)
    path = models / "mood-en" / WEIGHTS
    tensors = read_tensors(path)

    def written(changed: dict[str, torch.Tensor]) -> None:
        write_tensors(changed, path)
        hashes = json.loads((models / "mood-en" / MANIFEST).read_text())
        (models / "mood-en" / MANIFEST).write_text(manifest_text(hashes | {WEIGHTS: sha256(path)}))

    left = next(name for name in tensors if name.endswith(".left"))
    written(tensors | {left: tensors[left][:-1]})
    with pytest.raises(CheckpointError, match="got none that fits for trunk"):
        load_task_model("mood-en")
    written(tensors | {"nothing.left": tensors[left].clone()})
    with pytest.raises(CheckpointError, match=r"got others, first nothing\.left"):
        load_task_model("mood-en")
    head = next(name for name in tensors if name.startswith("classifier"))
    written({name: value for name, value in tensors.items() if name != head})
    with pytest.raises(CheckpointError, match="got none that fits for classifier"):
        load_task_model("mood-en")
