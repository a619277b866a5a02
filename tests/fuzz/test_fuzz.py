"""Hostile arguments, files and surroundings for every verb: a few now, half an hour of them with `make test-long`."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.cases import COMMANDS, SLOW, Case, make_case, verbs
from tests.fuzz.run import attempt, campaign, imports
from tests.fuzz.world import make

FOUND = [
    (["plot", "run", "--out", "text.txt"], {}),
    (["inspect", "fifo"], {}),
    (["plan", "fifo"], {}),
    (["evaluate", "run/last", "text.txt/x"], {}),
    (["prepare", "text.txt", "--out", "new", "--kind", "bytes", "--validation-share", "0.5", "--seed", "9" * 200], {}),
    (["prepare", "text.txt", "--out", "new", "--vocabulary-size", "99999999999999"], {}),
    (["prepare", "text.txt", "--out", "new", "--kind", "bytes", "--encoding", "punycode"], {}),
    (["predict", "tuned", "table.csv", "--out", "fifo"], {}),
    (["score", "model", "text.txt", "--out", "fifo", "--to", "csv"], {}),
    (["generate", "model", "The", "--max-tokens", "2", "--save", "fifo"], {}),
    (["plot", "run", "--out", "fifo"], {}),
    (["sample", "english", "--out", "fifo", "--replace"], {}),
    (["embed", "model", "table.parquet", "--out", "vectors.parquet"], {"spoiled": "table.parquet"}),
    (["score", "model", "text.txt.zst", "--out", "scores.parquet"], {"spoiled": "text.txt.zst"}),
]
"""Commands that once ended in a traceback, or would if a reader were less careful."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    imports()
    return make(tmp_path_factory.mktemp("fuzz") / "world")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another user must be able to reach it, too."""
    folder = tmp_path_factory.mktemp("work")
    for path in (folder, *list(folder.parents)[:2]):
        path.chmod(0o755)
    folder.chmod(0o777)
    return folder


def test_every_verb_is_tried() -> None:
    assert set(COMMANDS) == set(verbs())


@pytest.mark.parametrize("verb", [name for name in COMMANDS if name not in SLOW])
def test_every_verb_works_in_the_world(verb: str, world: Path, work: Path) -> None:
    """Or the cases would only try the first thing that goes wrong."""
    if verb == "push":
        pytest.importorskip("huggingface_hub")
    case = Case(seed=0, verb=verb, arguments=list(COMMANDS[verb][0]), stdin=b"The room\n")
    outcome = attempt(case, world, work)
    assert outcome.code == 0, outcome.errors
    assert not outcome.wrong


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(12))
def test_a_few_cases(number: int, world: Path, work: Path) -> None:
    case = make_case(number)
    outcome = attempt(case, world, work)
    assert not outcome.wrong, f"{case}\n{outcome.errors}"


@pytest.mark.parametrize(("arguments", "settings"), FOUND)
def test_what_was_found(arguments: list[str], settings: dict[str, Any], world: Path, work: Path) -> None:
    spoiled = settings.pop("spoiled", None)
    case = Case(seed=0, verb=arguments[0], arguments=arguments, stdin=b"The room\n", **settings)
    if spoiled is not None:
        case.spoil.append(lambda place: (place / spoiled).write_bytes(b"something else"))  # type: ignore[arg-type]
    outcome = attempt(case, world, work, seconds=20)
    assert not outcome.wrong, f"{case}\n{outcome.errors}"
    assert outcome.code == 2
    assert "Traceback" not in outcome.errors


def test_a_segment_longer_than_the_text_takes_no_more_than_the_text(world: Path, work: Path) -> None:
    arguments = ["evaluate", "run/last", "store", "--segment-length", "2147483647", "--limit", "8"]
    outcome = attempt(Case(seed=0, verb="evaluate", arguments=arguments), world, work)
    assert outcome.code == 0, outcome.errors
    assert not outcome.wrong


@pytest.mark.long
def test_nothing_is_uncaught_however_long_it_is_tried(world: Path, work: Path) -> None:
    """FUZZ_SECONDS and FUZZ_SEED choose how long, and where it begins."""
    seconds, seed = float(os.environ.get("FUZZ_SECONDS", "1800")), int(os.environ.get("FUZZ_SEED", "100000"))
    found = campaign(seconds, seed=seed, world=world, work=work)
    assert not found, "\n".join(f"{outcome.wrong}: {outcome.case}" for outcome in found)
