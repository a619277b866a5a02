"""No verb deletes or overwrites a file that segue did not write, nor one that it reads, with --replace or without.

The verbs are those of the command line that take --out, --plot, --save or --replace: a new one must be added here.
"""

import itertools
import json
import os
import random
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from segue.cli.app import APPLICATIONS, command_of
from segue.cli.app import VERBS as ALL_VERBS
from segue.data import samples
from segue.data.store import Store
from segue.study import pool
from tests.command import command
from tests.study.studies import forked_worker
from tests.tasks.models import ENGLISH, write_model
from tests.train.test_finetune import reviews, table

STUDY = """seeds = [1]
corpus = {files = ["text.txt"], kind = "characters", validation_share = 0.5}
budget = {tokens = 16, points = 1}
[base]
data = {lanes = 2, segment_length = 8}
model = {num_layers = 1, width = 16, num_heads = 2, inner_width = 16, memory = {length = 4}}
[[variants]]
name = "memory"
[[variants]]
name = "no memory"
without = ["model.memory"]
"""
CONFIG = """[data]
store = "store"
lanes = 2
segment_length = 8
[model]
num_layers = 1
width = 8
num_heads = 2
inner_width = 8
memory.length = 8
[model.positions]
kind = "xl"
[model.vocabulary]
size = {size}
[train]
steps = 2
warmup_steps = 1
learning_rate = 1e-3
log_every = 1
"""
LEARN = ["train.epochs=1", "train.batch_size=16", "read.summary=mean"]


@dataclass(frozen=True, kw_only=True)
class Verb:
    """How a verb is called."""

    arguments: list[str]
    """OUT stands for what is written."""
    name: str
    """Name of what is written."""
    folder: bool = False
    replace: bool = True
    """Whether it has --replace; others go on in their own folder, or refuse one."""
    reads: list[str] = field(default_factory=list)
    inside: bool = True
    """Whether it may write into a folder that it reads."""
    quick: bool = True


VERBS = {
    "pretrain": Verb(arguments=["config.toml", "--out", "OUT"], name="run", folder=True, replace=False,
                     reads=["config.toml", "store"], quick=False),
    "finetune": Verb(arguments=["model", *LEARN, "--task", "classify", "--train", "rows.jsonl", "--out", "OUT"],
                     name="topics", folder=True, replace=False, reads=["rows.jsonl", "model"], quick=False),
    "tune": Verb(arguments=["model", *LEARN, "--train", "rows.jsonl", "--trials", "1", "--out", "OUT"], name="study",
                 folder=True, replace=False, reads=["rows.jsonl", "model"], quick=False),
    "study": Verb(arguments=["study.toml", "--out", "OUT"], name="studies", folder=True, replace=False,
                  reads=["study.toml"], quick=False),
    "demo": Verb(arguments=["--steps", "1", "--out", "OUT"], name="demo", folder=True, replace=False, quick=False),
    "prepare": Verb(arguments=["text.txt", "corpus", "--kind", "bytes", "--validation-share", "0.5", "--out", "OUT"],
                    name="data", folder=True, reads=["text.txt", "corpus"]),
    "convert": Verb(arguments=["model", "OUT", "--to", "original"], name="theirs", folder=True, reads=["model"]),
    "package": Verb(arguments=["model", "OUT", "--license", "mit", "--language", "en"], name="packed", folder=True,
                    reads=["model"]),
    "export": Verb(arguments=["model", "--what", "step", "--format", "torch", "--out", "OUT"], name="program",
                   folder=True, reads=["model"], quick=False),
    "plot": Verb(arguments=["run", "--out", "OUT"], name="runs.png", reads=["run/metrics.jsonl"]),
    "evaluate": Verb(arguments=["model", "store", "--segment-length", "8", "--sweep", "memory_length=4", "--limit",
                                "20", "--plot", "OUT"], name="sweep.png", reads=["model", "store"]),
    "predict": Verb(arguments=["topics", "rows.jsonl", "--out", "OUT"], name="answers.csv",
                    reads=["rows.jsonl", "topics/best"]),
    "score": Verb(arguments=["model", "text.txt", "--out", "OUT"], name="scores.jsonl", reads=["text.txt", "model"]),
    "embed": Verb(arguments=["model", "text.txt", "--out", "OUT"], name="vectors.jsonl", reads=["text.txt", "model"]),
    "explain": Verb(arguments=["model", "text.txt", "--no-ablations", "--out", "OUT"], name="page.html",
                    reads=["text.txt", "model"]),
    "generate": Verb(arguments=["model", "The", "--max-tokens", "1", "--save", "OUT"], name="one.session",
                     reads=["model"]),
    "sample": Verb(arguments=["english", "--out", "OUT"], name="english.txt"),
    "desk learn": Verb(arguments=["faq.csv", "--model", "none", "--out", "OUT"], name="desk", folder=True,
                       replace=False, reads=["faq.csv"], quick=False),
    "desk back-up": Verb(arguments=["help-desk", "--out", "OUT"], name="copy", folder=True, replace=False,
                         reads=["help-desk"], inside=False),
    "desk restore": Verb(arguments=["saved-desk", "--out", "OUT"], name="desk", folder=True, replace=False,
                         reads=["saved-desk"], quick=False),
    "monitor learn": Verb(arguments=["labelled.csv", "--out", "OUT"], name="monitor", folder=True, replace=False,
                          reads=["labelled.csv"], quick=False),
    "monitor back-up": Verb(arguments=["watch", "--out", "OUT"], name="copy", folder=True, replace=False,
                            reads=["watch"], inside=False),
    "monitor restore": Verb(arguments=["saved-watch", "--out", "OUT"], name="monitor", folder=True, replace=False,
                            reads=["saved-watch"], quick=False),
    "monitor export": Verb(arguments=["watch", "--out", "OUT"], name="texts.csv", reads=["watch/models"]),
    "monitor report": Verb(arguments=["watch", "--day", "2024-05-01", "--out", "OUT"], name="day.html",
                           reads=["watch/models"]),
    "recommend learn": Verb(arguments=["--events", "events.csv", "--out", "OUT", "--set", "epochs=1", "--set",
                                       "width=8", "--set", "layers=1"], name="rec", folder=True, replace=False,
                            reads=["events.csv"], quick=False),
    "recommend back-up": Verb(arguments=["rec-made", "--out", "OUT"], name="copy", folder=True, replace=False,
                              reads=["rec-made"], inside=False),
    "recommend restore": Verb(arguments=["rec-saved", "--out", "OUT"], name="rec", folder=True, replace=False,
                              reads=["rec-saved"], quick=False),
}  # fmt: skip
FAMILIAR = ["README.md", "notes.txt", "config.toml", "metrics.jsonl", "lock", "manifest.json", "conversion.md", "old",
            "export.json", "documents.bin", "report.md", "study.db", "runs.png", "english.txt"]  # fmt: skip
FOLDERS = ["best", "last", "trials/0000", "tokenizer", "inner", "new", "old"]


def segue(*arguments: str) -> tuple[int, str]:
    """In this process. An exception that is no message for the user fails the test."""
    done = command(*arguments)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def tree(folder: Path) -> dict[str, bytes]:
    """Every file and link."""
    found = {}
    for place, folders, files in os.walk(folder):  # quicker than Path.rglob
        inside = os.path.relpath(place, folder)
        for name in (*folders, *files):
            path, key = os.path.join(place, name), os.path.normpath(os.path.join(inside, name))
            if os.path.islink(path):
                found[key] = os.readlink(path).encode()
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    found[key] = file.read()
    return found


def grow(folder: Path, draw: random.Random, *, count: int) -> None:
    """Files of others, with names that segue uses too."""
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(count):
        place = folder / draw.choice(["", "", *FOLDERS])
        path = place / draw.choice(FAMILIAR)
        if not os.path.lexists(path) and not any(parent.is_file() for parent in path.parents):
            place.mkdir(parents=True, exist_ok=True)
            path.write_bytes(draw.choice([b"", b"{}", b"segue\n", draw.randbytes(9)]))


def around(target: Path, draw: random.Random) -> None:
    """Files of others beside a target, with the names of its temporary ones among them."""
    grow(target.parent, draw, count=3)
    for name in (".new", ".old", ".part", ".segue-notes"):
        grow(target.with_name(f".{target.name}{name}"), draw, count=2)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the verbs read."""
    folder = tmp_path_factory.mktemp("originals")
    write_model(folder / "model", objective="causal")
    shutil.rmtree(folder / "model-tokenizer")
    (folder / "text.txt").write_text(ENGLISH.replace("\n", "\n\n"))
    (folder / "corpus").mkdir()
    (folder / "corpus" / "more.txt").write_text(ENGLISH[:100])
    table(folder / "rows.jsonl", reviews(24))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert segue("prepare", "text.txt", "--tokenizer", "model/tokenizer", "--out", "store")[0] == 0
        (folder / "study.toml").write_text(STUDY)
        (folder / "config.toml").write_text(CONFIG.format(size=Store.open("store").vocabulary_size))
        (folder / "faq.csv").write_text("question,answer\nwhere is it,There.\nhow much,Nothing.\n")
        (folder / "labelled.csv").write_text("text,sentiment\nprofit rose,positive\na loss,negative\n")
        written = {"pretrain": "run", "finetune": "topics", "desk learn": "help-desk", "desk back-up": "saved-desk"}
        written |= {"monitor learn": "watch", "monitor back-up": "saved-watch"}
        done = [f"u{n % 3},i{n % 4},{n}\n" for n in range(24)]
        (folder / "events.csv").write_text("user,item,time\n" + "".join(done))
        written |= {"recommend learn": "rec-made", "recommend back-up": "rec-saved"}
        for verb, out in written.items():
            code, output = call(verb, out)
            assert code == 0, output
    return folder


def call(verb: str, out: str, *more: str) -> tuple[int, str]:
    return segue(*verb.split(), *(out if argument == "OUT" else argument for argument in VERBS[verb].arguments), *more)


@pytest.fixture
def world(
    originals: Path, few_modules: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Path]:
    """A fresh copy of what the verbs read, as the current folder."""
    count = itertools.count()
    monkeypatch.setattr(samples, "_library", lambda: iter(few_modules[:20]))

    def make() -> Path:
        place = tmp_path / str(next(count))
        shutil.copytree(originals, place, symlinks=True)
        monkeypatch.chdir(place)
        return place

    return make


def test_every_verb_that_writes_is_here() -> None:
    writing = {"out", "plot", "save", "replace"}
    inner = [f"{verb} {name}" for verb, names in APPLICATIONS.items() for name in names]
    found = {name: {one.name for one in command_of(name).params} for name in (*ALL_VERBS, *inner)}
    assert {name for name, options in found.items() if options & writing} - {"push"} == set(VERBS)
    assert {name for name, options in found.items() if "replace" in options} == {
        name for name, verb in VERBS.items() if verb.replace
    }


def lost(before: dict[str, bytes], after: dict[str, bytes], *, own: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """Names of files that were there, are not segue's own, and are gone or changed; and of what segue left lying."""
    gone = [name for name, data in before.items() if name not in own and after.get(name) != data]
    left = [name for name in after if name not in before and (".writing" in name or ".segue-" in name)]
    return gone + left


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_of_others_is_lost(verb: str, world: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    if verb == "tune":
        pytest.importorskip("optuna")
    monkeypatch.setattr(pool, "_started", forked_worker)  # of studies
    how, draw = VERBS[verb], random.Random(verb)
    options = [(), ("--replace",)] if how.replace else [()]

    # Where files of others are: a folder is refused, a file is replaced if that is asked for.
    for more, count in itertools.product(options, (1, 3, 8) if how.folder else (1,)):
        here = world()
        target = here / "out" / how.name
        around(target, draw)
        if how.folder:
            grow(target, draw, count=count)
        else:
            target.write_bytes(draw.randbytes(9))
        before = tree(here)
        code, output = call(verb, str(target), *more)
        replaced = {target.relative_to(here).as_posix()} if more and not how.folder else set()
        assert lost(before, tree(here), own=replaced) == [], output
        assert (code == 0) == bool(replaced), output
        assert ("--replace" in output) == (not how.folder and not more)

    # A link to such a place, and a place of the other kind.
    for more in options:
        here = world()
        grow(here / "elsewhere", draw, count=5)
        (here / "elsewhere" / "file").write_text("theirs")
        (here / "link").symlink_to("elsewhere" if how.folder else "elsewhere/file")
        for target in ("link", "elsewhere/file" if how.folder else "elsewhere", "/", ".", ".."):
            before = tree(here)
            code, output = call(verb, target, *more)
            assert code == 2, output
            assert lost(before, tree(here)) == [], output

    # What the verb reads, above it and below it.
    for given, more in itertools.product(how.reads, options):
        here = world()
        before = tree(here)
        for target in (given, str(Path(given).parent), f"{given}/../{Path(given).name}"):
            code, output = call(verb, target, *more)
            assert code == 2, output
            assert lost(before, tree(here)) == [], output
        inner = sorted(name for name in before if name.startswith(f"{given}/"))
        for target in inner[:4]:
            code, output = call(verb, target, *more)
            assert code == 2, output
            assert lost(before, tree(here)) == [], output
        if (here / given).is_file():
            (here / "hard").hardlink_to(given)
            code, output = call(verb, "hard", *more)
            assert code == 2, output
            assert lost(before, tree(here)) == [], output

    if verb == "demo":  # takes minutes; tests/cli/test_demo.py runs it
        return

    # A new place among files of others; then again, and again with files of others in it.
    here = world()
    target = here / "out" / how.name
    around(target, draw)
    before = tree(here)
    code, output = call(verb, str(target))
    assert code == 0, output
    after = tree(here)
    assert lost(before, after) == []
    own = after.keys() - before.keys()
    assert own
    if how.replace:
        assert call(verb, str(target))[0] == 2
        assert tree(here) == after
        code, output = call(verb, str(target), "--replace")
        assert code == 0, output
        assert lost(after, tree(here), own=own) == []
    after = tree(here)
    if how.folder:
        grow(target, draw, count=6)
        (target / "thesis.txt").write_text("years of work")
        (target / "empty").mkdir()
    for more in options:
        before = tree(here)
        code, output = call(verb, str(target), *more)
        assert lost(before, tree(here), own=own & after.keys()) == [], output
        if how.replace and how.folder:
            assert code == 2, output
            assert more == () or "must hold only what segue wrote there, to be replaced; got" in output

    # A new place inside what is read changes nothing that was there.
    for given in how.reads if how.quick else []:
        here = world()
        if (here / given).is_dir():
            before = tree(here)
            code, output = call(verb, f"{given}/{how.name}")
            assert code == (0 if how.inside else 2), output
            assert lost(before, tree(here)) == [], output


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("verb", [name for name, verb in VERBS.items() if verb.replace])
def test_a_full_disk_leaves_what_was_there(verb: str, world: Callable[[], Path]) -> None:
    how, here = VERBS[verb], world()
    if not how.folder:
        (here / how.name).write_text("before")
    elif how.quick:
        assert call(verb, how.name)[0] == 0
    before = tree(here)
    with full_disk():
        code, output = call(verb, how.name, "--replace")
    assert code == 2, output
    said = " ".join(output.split())
    assert re.search(rf"{re.escape(how.name)}.* must be (writable|written to disk); got ", said), output
    assert tree(here) == before


def test_a_default_name_counts_too(world: Callable[[], Path]) -> None:
    here = world()
    (here / "runs.png").write_text("theirs")
    (here / "english-modules.jsonl").write_text("theirs")
    for arguments in (["plot", "run"], ["sample", "english-modules"]):
        code, output = segue(*arguments)
        assert code == 2
        assert "must not exist yet; it does. Choose another file, or replace it with --replace." in " ".join(
            output.split()
        )
    assert (here / "runs.png").read_text() == (here / "english-modules.jsonl").read_text() == "theirs"


def test_a_session_goes_on_in_its_own_file(world: Callable[[], Path]) -> None:
    world()
    assert call("generate", "one.session")[0] == 0
    before = Path("one.session").read_bytes()
    assert call("generate", "one.session")[0] == 2
    assert call("generate", "one.session", "--load", "one.session")[0] == 0
    assert Path("one.session").read_bytes() != before
    assert json.loads(Path("rows.jsonl").read_text().splitlines()[0])
