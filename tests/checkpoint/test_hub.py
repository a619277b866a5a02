"""Models by name: from a server that speaks as the hub does, from its cache, from a mirror; and uploads to it."""

import sys
import time
import types
from pathlib import Path

import pytest
import torch

import segue
from segue.checkpoint import hub as hubs
from segue.checkpoint.card import Facts
from segue.checkpoint.files import CARD, MANIFEST, verify
from segue.checkpoint.find import find
from segue.checkpoint.folder import CONFIG, WEIGHTS, save
from segue.config import load as load_config
from segue.config import parse
from segue.errors import CheckpointError, ConfigError, SegueError, SegueWarning
from segue.model import LanguageModel
from tests.checkpoint.hub_server import Hub, running
from tests.originals import FIXTURES
from tests.tiny import MODELS

constants = pytest.importorskip("huggingface_hub.constants")
MODEL = MODELS["gpt"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)

    def also(new: Path) -> None:
        (new / "tokenizer").mkdir()
        (new / "tokenizer" / "tokenizer.json").write_text("{}")

    save(LanguageModel(MODEL), tmp_path / "model", facts=Facts(), also=also)
    return tmp_path / "model"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub, and an empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SEGUE_MIRROR", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between the attempts of huggingface_hub
    with running(Hub()) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield server


def same(model: LanguageModel, folder: Path) -> bool:
    expected = segue.load(folder).state_dict()
    return all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


# --------------------------------------------------------------------------------------------------- local paths


def test_a_folder_and_a_run(folder, tmp_path) -> None:
    assert segue.load(str(folder)).config == MODEL
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CONFIG).write_bytes((folder / CONFIG).read_bytes())
    with pytest.raises(CheckpointError, match="must hold"):
        segue.load(tmp_path / "run")
    save(LanguageModel(MODELS["shaw"]), tmp_path / "run" / "last")
    assert segue.load(tmp_path / "run").config == MODELS["shaw"]
    folder.rename(tmp_path / "run" / ".best.old")  # as a killed writer leaves it
    assert segue.load(tmp_path / "run").config == MODEL


@pytest.mark.parametrize(
    "name", ["nowhere", "a/b/c", "../nowhere", "a/..", "/no/where", "a b/c", "owner/na\nme", "x" * 250]
)
def test_what_is_neither_a_path_nor_a_name(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="a model must be a folder, a name"):
        segue.load(name)


@pytest.mark.parametrize(("name", "rule"), [("", "the path of a file"), ("x" * 300, "names of at most 255")])
def test_what_cannot_be_a_path(name: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=f"source must be .*{rule}"):
        segue.load(name)


def test_a_path_has_no_revisions(folder) -> None:
    with pytest.raises(CheckpointError, match="has no revisions; got 'main'"):
        segue.load(folder, revision="main")


@pytest.mark.parametrize("revision", ["../../x", "-x", "", "a b", "a\n"])
def test_revisions(revision: str) -> None:
    with pytest.raises(CheckpointError, match="a revision must be a branch"):
        segue.load("owner/name", revision=revision)


def test_without_huggingface_hub(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    monkeypatch.delenv("SEGUE_MIRROR", raising=False)
    with pytest.raises(
        CheckpointError, match=r"not installed\. Install it \(pip install huggingface_hub\), or use a mirror"
    ):
        segue.load("owner/name")


# ------------------------------------------------------------------------------------------------------- the hub


def test_a_name_is_downloaded_once_and_pinned(hub, folder) -> None:
    commit = hub.add("someone/model", contents(folder) | {"tf_model.h5": b"x", "training/optimizer.safetensors": b"y"})
    found = find("someone/model")
    assert (found.name, found.commit) == ("someone/model", commit)
    assert contents(found.path) == contents(folder)
    assert same(segue.load("someone/model"), folder)

    save(LanguageModel(MODELS["shaw"]), folder)
    newer = hub.add("someone/model", contents(folder))
    assert find("someone/model").commit == newer
    assert segue.load("someone/model").config == MODELS["shaw"]
    hub.requests.clear()
    assert segue.load("someone/model", revision=commit).config == MODEL
    assert not [request for request in hub.requests if "resolve" in request]


def test_offline_is_what_was_there_last(hub, folder, monkeypatch) -> None:
    commit = hub.add("someone/model", contents(folder))
    with pytest.raises(CheckpointError, match="on a reachable Hub; got offline mode"):
        segue.load("someone/model", offline=True)
    segue.load("someone/model")
    hub.requests.clear()
    assert find("someone/model", offline=True).commit == commit
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert find("someone/model", revision=commit).commit == commit
    assert same(segue.load("someone/model"), folder)
    assert not [request for request in hub.requests if "someone" in request]


def test_a_hub_that_is_down_does_not_matter_once_it_is_cached(hub, folder) -> None:
    hub.add("someone/model", contents(folder))
    segue.load("someone/model")
    hub.broken = [("/", 500)]
    assert same(segue.load("someone/model"), folder)


def test_redirects_are_followed(hub, folder) -> None:
    hub.add("someone/model", contents(folder))
    hub.broken = [("/resolve/", "redirect")]
    assert same(segue.load("someone/model"), folder)


@pytest.mark.parametrize(
    ("pattern", "kind", "message"),
    [
        ("/api/models", 401, "401.*hf auth login"),
        ("/api/models", 403, "403.*hf auth login"),
        ("/api/models", 404, "404.*Check the name"),
        ("/api/models", 429, "429.*wait some minutes"),
        ("/api/models", 500, "500.*Try again later"),
        ("/resolve/", 500, "500.*Try again later"),
        ("/resolve/.*safetensors", 404, "404.*Check the name"),
        ("/resolve/.*safetensors", "short", "must download completely from the Hub.*Try again"),
    ],
)
def test_what_can_go_wrong(hub, folder, tmp_path, pattern: str, kind: int | str, message: str) -> None:
    hub.add("someone/model", contents(folder))
    hub.broken = [(pattern, kind)]
    with pytest.raises(CheckpointError, match=message):
        segue.load("someone/model")
    assert not list((tmp_path / "hub").rglob(WEIGHTS))
    assert not (tmp_path / "cache").exists()
    hub.broken = []
    assert same(segue.load("someone/model"), folder)


def test_names_and_revisions_that_are_not_there(hub, folder) -> None:
    with pytest.raises(
        CheckpointError, match="no/body must be a local folder or a model on the Hub; it does not exist"
    ):
        segue.load("no/body")
    hub.add("someone/model", contents(folder))
    with pytest.raises(CheckpointError, match="someone/model at v2 must be a revision on the Hub; it does not exist"):
        segue.load("someone/model", revision="v2")


def test_nobody_there(hub, monkeypatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CheckpointError, match=r"on a reachable Hub; got .*refused.*SEGUE_MIRROR"):
        segue.load("xlnet-base-cased")


def test_a_model_without_weights(hub) -> None:
    commit = hub.add("someone/model", {"config.json": b"{}", "README.md": b""})
    with pytest.raises(
        CheckpointError, match=f"must have weights in a format that segue reads.*got none, at commit {commit}"
    ):
        segue.load("someone/model")


@pytest.mark.parametrize("name", ["tokenizer/../../../../../escaped", "model/../../../../../escaped.safetensors"])
def test_a_listing_that_points_elsewhere(hub, folder, tmp_path, name: str) -> None:
    hub.add("someone/model", contents(folder) | {name: b"x"})
    with pytest.raises(CheckpointError):
        segue.load("someone/model")
    assert not list(tmp_path.rglob("escaped*"))


def test_damage_on_the_way(hub, folder) -> None:
    files = contents(folder)
    files[WEIGHTS] = files[WEIGHTS][:-1] + b"\x77"
    hub.add("someone/model", files)
    with pytest.raises(CheckpointError, match="must be unchanged since it was written"):
        segue.load("someone/model")


def test_a_cache_from_elsewhere(folder, tmp_path, monkeypatch) -> None:
    """Laid out as the hub's, under the name from before there were owners."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    base, commit = tmp_path / "hub" / "models--xlnet-base-cased", "c" * 40
    for name, data in contents(folder).items():
        (base / "blobs").mkdir(parents=True, exist_ok=True)
        (base / "blobs" / name.replace("/", "-")).write_bytes(data)
        link = base / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(base / "blobs" / name.replace("/", "-"))
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text(commit)
    assert same(segue.load("xlnet-base-cased", offline=True), folder)
    assert find("xlnet-base-cased", offline=True).commit == commit


# ------------------------------------------------------------------------------------------------------- mirrors


def test_a_mirror(folder, tmp_path, monkeypatch) -> None:
    place = tmp_path / "mirror" / "xlnet" / "xlnet-base-cased"
    place.parent.mkdir(parents=True)
    folder.rename(place)
    assert segue.load("xlnet-base-cased", mirror=tmp_path / "mirror").config == MODEL
    monkeypatch.setenv("SEGUE_MIRROR", str(tmp_path / "mirror"))
    assert segue.load("xlnet/xlnet-base-cased").config == MODEL
    with pytest.raises(CheckpointError, match="the mirror must hold hfl/chinese-xlnet-mid as a folder"):
        segue.load("hfl/chinese-xlnet-mid")
    with pytest.raises(CheckpointError, match="must hold xlnet/xlnet-base-cased/v1 as a folder"):
        segue.load("xlnet-base-cased", revision="v1")
    save(LanguageModel(MODELS["shaw"]), place / ("d" * 40))
    assert find("xlnet-base-cased", revision="d" * 40).commit == "d" * 40
    assert segue.load("xlnet-base-cased", revision="d" * 40).config == MODELS["shaw"]


# --------------------------------------------------------------------------------------------------- conversion


@pytest.fixture
def conversions(folder, monkeypatch) -> list[Path]:
    """A converter that makes the model of the folder out of everything."""
    calls: list[Path] = []

    def convert(source: Path, out: Path, *, compare: bool) -> types.SimpleNamespace:
        calls.append(source)
        save(segue.load(folder), out)
        return types.SimpleNamespace(notes=[])

    module = types.ModuleType("segue.checkpoint.convert")
    monkeypatch.setattr(module, "convert", convert, raising=False)
    monkeypatch.setattr(module, "VERSION", 1, raising=False)
    monkeypatch.setitem(sys.modules, "segue.checkpoint.convert", module)
    return calls


def test_foreign_models_are_converted_once_a_commit(hub, folder, conversions, tmp_path, monkeypatch) -> None:
    files = {"config.json": b"{}", "pytorch_model.bin": b"x", "spiece.model": b"y", "rust_model.ot": b"z"}
    commit = hub.add("xlnet/xlnet-base-cased", files)
    for _ in range(2):
        assert same(segue.load("xlnet-base-cased"), folder)
    assert len(conversions) == 1
    assert sorted(path.name for path in conversions[0].iterdir()) == sorted(set(files) - {"rust_model.ot"})
    (made,) = (tmp_path / "cache" / "segue" / "converted" / "xlnet--xlnet-base-cased").iterdir()
    assert made.name == f"{commit}-v1"
    assert f"The weights come from xlnet/xlnet-base-cased at commit {commit}." in (made / CARD).read_text()
    hub.add("xlnet/xlnet-base-cased", files | {"pytorch_model.bin": b"newer"})
    segue.load("xlnet-base-cased")
    assert len(conversions) == 2
    monkeypatch.setattr(sys.modules["segue.checkpoint.convert"], "VERSION", 2)
    segue.load("xlnet-base-cased")
    assert len(conversions) == 3


def test_safetensors_come_before_pickles(hub, conversions) -> None:
    hub.add("some/one", {"config.json": b"{}", "model.safetensors": b"x", "pytorch_model.bin": b"y"})
    segue.load("some/one")
    assert [path.name for path in conversions[0].iterdir() if path.suffix != ".json"] == [WEIGHTS]


def test_foreign_folders_and_files_are_converted_when_they_change(conversions, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "model.pt").write_bytes(b"x")
    for source in (foreign, foreign, foreign / "model.pt"):
        segue.load(source)
    assert conversions == [foreign, foreign / "model.pt"]
    (foreign / "model.pt").write_bytes(b"longer")
    segue.load(foreign)
    assert len(conversions) == 3
    (foreign / "vocab.txt").write_text("the")  # beside the file
    segue.load(foreign / "model.pt")
    assert len(conversions) == 4


def test_the_prefix_of_a_tensorflow_checkpoint_is_a_path(conversions, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "model.ckpt.index").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    segue.load("owner/model.ckpt")
    assert conversions == [Path("owner/model.ckpt")]


def test_a_folder_without_a_name_is_kept_in_its_place(conversions, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    segue.load("..")
    assert len(list((tmp_path / "cache" / "segue" / "converted" / "a").iterdir())) == 1


def test_a_conversion_that_fails_leaves_nothing(conversions, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def fail(source: Path, out: Path, *, compare: bool) -> None:
        out.mkdir()
        (out / CONFIG).write_text("half")
        raise CheckpointError("not a checkpoint")

    monkeypatch.setattr(sys.modules["segue.checkpoint.convert"], "convert", fail)
    (tmp_path / "foreign").mkdir()
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        segue.load(tmp_path / "foreign")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_the_real_converter(hub, tmp_path, monkeypatch) -> None:
    files = contents(FIXTURES / "xlnet" / "A1_gelu_untied")
    hub.add("xlnet/xlnet-base-cased", {name: data for name, data in files.items() if "finetuned" not in name})
    with pytest.warns(SegueWarning, match=r"model\.memory\.length"):
        model = segue.load("xlnet-base-cased")
    assert model.config.objective == "permutation"
    other = segue.load(FIXTURES / "transformer_xl_pytorch" / "C1_softmax_tied" / "model.pt")
    assert other.config.objective == "causal"
    with pytest.raises(SegueError):
        segue.load(FIXTURES / "README.md")
    assert not list((tmp_path / "cache").rglob(".converting*"))


# ------------------------------------------------------------------------------------------------------- push


def test_push_then_load(hub, folder) -> None:
    pushed = hubs.push(
        hubs.plan_push(folder, "me/model", licence="mit", languages=["en"]), private=True, message="First"
    )
    assert hub.messages == ["First"]
    assert hub.private == {"me/model": True}
    assert pushed.url == f"{hub.url}/me/model/commit/{pushed.commit}"
    assert hub.files("me/model", pushed.commit) == (pushed.commit, contents(folder))
    assert "license: mit" in (folder / CARD).read_text()
    assert same(segue.load("me/model", revision=pushed.commit), folder)


def test_push_sends_no_state_of_training_and_no_other_files(hub, tmp_path) -> None:
    def also(new: Path) -> None:
        (new / "training").mkdir()
        (new / "training" / "state.json").write_text("{}")

    save(LanguageModel(MODEL), tmp_path / "run" / "last", also=also)
    (tmp_path / "run" / "last" / "notes.txt").write_text("private")
    pushed = hubs.push(hubs.plan_push(tmp_path / "run", "me/model"))
    _, files = hub.files("me/model", pushed.commit)
    assert sorted(files) == sorted([CARD, CONFIG, MANIFEST, WEIGHTS])
    verify(find("me/model").path)


def test_push_tells_nobody_where_things_are(hub, tmp_path) -> None:
    data = {"store": "/home/me/secret/wiki", "validation": "../valid/", "segment_length": 16}
    config = parse({"model": MODEL.model_dump(exclude_none=True), "data": data})
    facts = Facts(command="segue pretrain a.toml data.store=/home/me/secret/wiki --out '/tmp/my runs/x' data.lanes=4")
    save(LanguageModel(MODEL), tmp_path / "model", config=config, facts=facts)
    before = contents(tmp_path / "model")
    upload = hubs.plan_push(tmp_path / "model", "me/model")
    assert upload.stripped == [
        "data.store in config.toml",
        "data.validation in config.toml",
        "the command in README.md",
    ]
    _, files = hub.files("me/model", hubs.push(upload).commit)
    assert not [name for name, data in files.items() if b"secret" in data or b"/tmp" in data]
    assert b"    segue pretrain a.toml data.store=wiki --out x data.lanes=4\n" in files[CARD]
    assert {name: len(data) for name, data in files.items()} == upload.files
    pushed = find("me/model").path
    verify(pushed)
    assert segue.load(pushed).config == MODEL
    assert (load_config(pushed / CONFIG).data.store, load_config(pushed / CONFIG).data.validation) == ("wiki", "valid")
    assert contents(tmp_path / "model") == before


def test_push_to_a_branch_and_again(hub, folder) -> None:
    first = hubs.push(hubs.plan_push(folder, "me/model"))
    (folder / CARD).write_text("# My words\n")
    second = hubs.push(hubs.plan_push(folder, "me/model"), revision="draft")
    assert hub.refs["me/model"] == {"main": first.commit, "draft": second.commit}
    assert hub.files("me/model", "draft")[1][CARD] == b"---\nlibrary_name: segue\n---\n# My words\n"


def test_push_checks_first(hub, folder, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="must be named owner/name; got 'model'"):
        hubs.plan_push(folder, "model")
    (tmp_path / "secret").write_text("secret")
    (folder / CARD).unlink()
    (folder / CARD).symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match="links to a place outside"):
        hubs.plan_push(folder, "me/model")
    (folder / CARD).unlink()
    (folder / "tokenizer" / "tokenizer.json").write_text("changed")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json must be unchanged since it was written"):
        hubs.plan_push(folder, "me/model")
    assert not [request for request in hub.requests if "me" in request]


@pytest.mark.parametrize(("pattern", "status"), [("/api/repos/create", 401), ("/commit/", 403), ("/preupload/", 500)])
def test_a_push_that_is_refused(hub, folder, pattern: str, status: int) -> None:
    hub.broken = [(pattern, status)]
    with pytest.raises(CheckpointError, match=f"me/model: the Hub must respond; got .*{status}"):
        hubs.push(hubs.plan_push(folder, "me/model"))
    assert not any(files for commits in hub.commits.values() for files in commits.values())
