"""A run folder is its own before anything is written in it, and is cleared without what others put there."""

import os
import resource
from pathlib import Path

import pytest

from segue.checkpoint.folder import save
from segue.errors import DataError
from segue.model import LanguageModel
from segue.train.run_folder import one_at_a_time, remove_run
from tests.tiny import MODELS


def write_best(run: Path) -> None:
    save(LanguageModel(MODELS["transformer-xl-enwik8-base"]), run / "best")


def test_a_folder_belongs_to_one_kind_of_run_and_one_run_at_a_time(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    with one_at_a_time(run, "pretrain"), pytest.raises(DataError, match="in use by another run"):
        one_at_a_time(run, "pretrain").__enter__()
    (run / "notes.txt").write_text("theirs")
    with one_at_a_time(run, "pretrain"):
        pass
    with pytest.raises(DataError, match=r"must be empty or a fine-tuning run; got other files: notes\.txt"):
        one_at_a_time(run, "finetune").__enter__()
    assert (run / "lock").read_text() == "segue pretrain\n"


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "lock", "last", "best/manifest.json"])
def test_files_of_others_with_the_names_of_a_run(tmp_path: Path, name: str) -> None:
    """The config that the run is started with may lie in that folder."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match="must be empty or a run; got other files"):
        one_at_a_time(tmp_path, "pretrain").__enter__()
    assert (tmp_path / name).read_text() == "{}"
    assert os.listdir(tmp_path) == [name.partition("/")[0]]


def test_a_copied_run_goes_on(tmp_path: Path) -> None:
    write_best(tmp_path)
    with one_at_a_time(tmp_path, "pretrain"):
        assert (tmp_path / "lock").read_text() == "segue pretrain\n"


def test_a_full_disk_leaves_no_half_mark(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, before[1]))
    try:
        with pytest.raises(DataError, match="must be writable; got File too large"):
            one_at_a_time(tmp_path / "run", "pretrain").__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with one_at_a_time(tmp_path / "run", "pretrain"):
        pass


def test_removing_a_run_leaves_what_others_put_there(tmp_path: Path) -> None:
    run = tmp_path / "0000"
    for others in ([], ["notes.txt", "best/notes.txt", "best/config.toml"]):
        with one_at_a_time(run, "finetune"):
            write_best(run)
            (run / "metrics.jsonl").write_text("{}\n")
        for name in others:
            (run / name).write_text("theirs")
        remove_run(run)
        assert sorted(path.relative_to(run).as_posix() for path in run.rglob("*.*")) == sorted(others)
        assert run.exists() == bool(others)
    remove_run(run)  # no longer known as a run
    assert (run / "notes.txt").read_text() == "theirs"
