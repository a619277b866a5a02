"""Files and folders are whole or not there, whenever a process is killed; nothing of others is ever lost."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from segue import files
from segue.errors import CheckpointError, DataError
from segue.files import Staging, check_file, check_folder, locate, new_file, settle, write_file, write_folder


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def conversion(target: Path, text: str = "one", *, replace: bool = False) -> None:
    def write(new: Path) -> None:
        (new / "conversion.md").write_text(text)
        (new / "inner").mkdir()
        (new / "inner" / "data").write_text(text)

    write_folder(target, write, kind="conversion", replace=replace)


def in_child(work: Callable[[], None]) -> int:
    """Does it in a process of its own, which may be killed; returns how it ended."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(number: int, call: str, work: Callable[[], None]) -> bool:
    """Kills the work before its call of that number to a function that changes the disk; False if there were fewer."""

    def run() -> None:
        real, count = getattr(os, call), 0

        def counted(*arguments: object, **settings: object) -> object:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **settings)

        setattr(os, call, counted)
        work()

    return in_child(run) == -signal.SIGKILL


# ---------------------------------------------------------------------------------------------------------- one file


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "table.csv"
    with pytest.raises(DataError, match="must be in a folder that exists; got "), new_file(target):
        pass
    files.make_folder_of(target)
    with new_file(target) as file:
        file.write(b"a")
        assert not target.exists()
    assert tree(tmp_path) == {"new/table.csv": b"a"}
    with pytest.raises(
        DataError, match=r"must not exist yet; it does\. Choose another file, or replace it with --repl"
    ):
        new_file(target).__enter__()
    with pytest.raises(ZeroDivisionError), new_file(target, replace=True) as file:
        file.write(bytes([1 // file.tell()]))
    assert tree(tmp_path) == {"new/table.csv": b"a"}
    write_file(target, "中")
    assert tree(tmp_path) == {"new/table.csv": "中".encode()}


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must not exist yet"), new_file(tmp_path / "a"):
        (tmp_path / "a").write_text("theirs")
    assert tree(tmp_path) == {"a": b"theirs"}


def test_what_a_killed_writer_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    def work() -> None:
        with new_file(tmp_path / "a") as file:
            file.write(b"half")
            os._exit(9)

    for name in (".a.segue-notes", ".a.part", ".a.new", ".b.segue-0123456789abcdef"):
        (tmp_path / name).write_text("theirs")
    before = tree(tmp_path)
    in_child(work)
    assert len(tree(tmp_path)) == len(before) + 1
    with new_file(tmp_path / "a") as first:  # a living writer is not disturbed
        first.write(b"first")
        with new_file(tmp_path / "a") as second:
            second.write(b"second")
        (tmp_path / "a").unlink()
    assert tree(tmp_path) == before | {"a": b"first"}


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_file_after_a_kill_is_the_one_before_or_the_new_one(tmp_path: Path, call: str) -> None:
    target = tmp_path / "a"
    number = 1
    while True:
        target.write_bytes(b"old")
        if not killed_at(number, call, lambda: write_file(target, b"new")):
            break
        assert target.read_bytes() in (b"old", b"new")
        number += 1
    assert number > 1
    assert tree(tmp_path) == {"a": b"new"}


def test_a_full_disk_leaves_the_file_before(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def full() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write_file(tmp_path / "a", bytes(5000))
        except DataError as error:
            os._exit(7 if "a must be writable; got File too large. Free some space" in str(error) else 8)

    assert in_child(full) == 7
    assert tree(tmp_path) == {"a": b"old"}


def test_a_disk_that_is_full_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_: int, __: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(DataError, match="must be writable; got No space left on device"):
        conversion(tmp_path / "done")
    assert os.listdir(tmp_path) == []


def test_an_error_when_the_file_is_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a quota, or a file system of the network, reports it: at the end."""

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CheckpointError, match="must be writable; got No space left on device"):
        write_file(tmp_path / "a", b"1", failure=CheckpointError)
    assert tree(tmp_path) == {}


def test_files_that_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("in")
    (tmp_path / "hard").hardlink_to(tmp_path / "input")
    (tmp_path / "soft").symlink_to("input")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "part").write_text("p")
    os.mkfifo(tmp_path / "pipe")
    cases = {
        "soft": "got a link",
        "nowhere": "got a link",
        "folder": "got a folder",
        "pipe": "got a device or a pipe",
        "/dev/null": "got a device or a pipe",
        "input": "must not be an input",
        "hard": "must not be an input",
        "folder/part": "must not be an input",
        "input/below": "must be writable; got Not a directory",
        "/": "must have a name of its own",
        "..": "must have a name of its own",
        "x" * 300: "File name too long",
    }
    inputs = [tmp_path / "input", tmp_path / "folder", tmp_path / "missing"]
    before = tree(tmp_path)
    for name, message in cases.items():
        target = Path(name) if name in ("/", "..") else tmp_path / name
        with pytest.raises(DataError, match=message), new_file(target, replace=True, inputs=inputs):
            pass
    assert tree(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["folder", "hard", "input", "nowhere", "pipe", "soft"]


# ----------------------------------------------------------------------------------------------------- what may go


def test_folders_that_are_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion(tmp_path / "done")
    (tmp_path / "link").symlink_to("done")
    (tmp_path / "file").write_text("f")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "conversion.md").write_text("mine")
    (tmp_path / "fooled").mkdir()
    (tmp_path / "fooled" / "manifest.json").write_text(json.dumps({"conversion.md": "0" * 64, "../file": "0" * 64}))
    write_folder(tmp_path / "export", lambda new: write_file(new / "export.json", "{}"), kind="export")
    cases = {"link": "got a link", "file": "got a file", "other": "something else", "fooled": "something else"}
    cases |= {"export": "must be a conversion that segue wrote", "/": "name of its own", ".": "name of its own"}
    before = tree(tmp_path)
    for name, message in cases.items():
        with pytest.raises(DataError, match=message):
            conversion(Path(name) if name in "/." else tmp_path / name, replace=True)
    monkeypatch.chdir(tmp_path / "done")
    with pytest.raises(DataError, match="a folder that you are in"):
        conversion(tmp_path / "done", replace=True)
    monkeypatch.setenv("HOME", str(tmp_path / "done" / "inner"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="a folder that you are in"):
        conversion(tmp_path / "done", replace=True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    ["notes.txt", "inner/notes.txt", "empty/", "inner/data", "link", "conversion.md"],
)
def test_a_folder_with_anything_of_others_stays(tmp_path: Path, change: str) -> None:
    conversion(tmp_path / "done")
    if change.endswith("/"):
        (tmp_path / "done" / change).mkdir()
    elif change == "link":
        (tmp_path / "done" / "link").symlink_to(tmp_path)
    else:
        (tmp_path / "done" / change).write_text("theirs")
    before = tree(tmp_path)
    with pytest.raises(DataError, match=f"must hold only what segue wrote there, to be replaced; got {change}"):
        conversion(tmp_path / "done", "two", replace=True)
    assert tree(tmp_path) == before


def test_inputs_are_not_replaced(tmp_path: Path) -> None:
    conversion(tmp_path / "done")
    (tmp_path / "link").symlink_to("done")
    for given in ("done", "done/inner/data", "link", "link/inner", "."):
        with pytest.raises(DataError, match="must not be replaced while it is read"):
            check_folder(tmp_path / "done", kind="conversion", replace=True, inputs=[tmp_path / given])
    check_folder(tmp_path / "done", kind="conversion", replace=True, inputs=[tmp_path / "done-2", "hub/name"])


def test_files_of_others_in_a_folder_of_a_run_stay(tmp_path: Path) -> None:
    conversion(tmp_path / "done")
    (tmp_path / "done" / "inner" / "data").write_text("edited")
    (tmp_path / "done" / "notes" / "deep").mkdir(parents=True)
    (tmp_path / "done" / "notes" / "deep" / "a.txt").write_text("theirs")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "data").write_text("outside")
    (tmp_path / "done" / "link").symlink_to(tmp_path / "outside")

    def write(new: Path) -> None:
        (new / "inner").mkdir()
        (new / "inner" / "data").write_text("two")
        (new / "conversion.md").write_text("two")

    write_folder(tmp_path / "done", write, kind="conversion", replace=True, keep_others=True)
    found = tree(tmp_path / "done")
    assert found["inner/data"] == b"two"
    assert found["inner/data.1"] == b"edited"
    assert found["notes/deep/a.txt"] == b"theirs"
    assert os.readlink(tmp_path / "done" / "link") == str(tmp_path / "outside")
    assert tree(tmp_path / "outside") == {"data": b"outside"}
    assert sorted(os.listdir(tmp_path)) == ["done", "outside"]


def test_hidden_folders_of_others_beside_the_target(tmp_path: Path) -> None:
    for name in (".done.writing", ".done.new", ".done.old"):
        for inner in ("old", "new", "store"):
            (tmp_path / name / inner).mkdir(parents=True)
            (tmp_path / name / inner / "thesis.txt").write_text("years of work")
    before = tree(tmp_path)
    with pytest.raises(DataError, match=r"\.done\.writing must be free, for segue to write in"):
        conversion(tmp_path / "done")
    (tmp_path / ".done.writing" / "lock").write_text("")
    with pytest.raises(DataError, match=r"\.done\.writing must be free, for segue to write in"):
        conversion(tmp_path / "done")
    (tmp_path / ".done.writing" / "lock").unlink()
    assert tree(tmp_path) == before
    (tmp_path / ".done.writing").rename(tmp_path / "away")
    conversion(tmp_path / "done")
    assert tree(tmp_path / "away")["old/thesis.txt"] == b"years of work"


# -------------------------------------------------------------------------------------------------- folders and kills


def test_a_folder_is_whole_or_as_it_was(tmp_path: Path) -> None:
    conversion(tmp_path / "a" / "done")
    assert locate(tmp_path / "a" / "done") == tmp_path / "a" / "done"
    with pytest.raises(DataError, match="must not exist yet; got a conversion"):
        conversion(tmp_path / "a" / "done", "two")
    before = tree(tmp_path)

    def broken(new: Path) -> None:
        (new / "half").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="must be writable; got No space left on device"):
        write_folder(tmp_path / "a" / "done", broken, kind="conversion", replace=True)
    assert tree(tmp_path) == before
    conversion(tmp_path / "a" / "done", "two", replace=True)
    assert tree(tmp_path / "a" / "done")["inner/data"] == b"two"
    assert os.listdir(tmp_path / "a") == ["done"]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Staging(tmp_path / "done"), pytest.raises(DataError, match="another one is writing it"):
        conversion(tmp_path / "done")
    conversion(tmp_path / "done")


@pytest.mark.parametrize("call", ["rename", "replace", "unlink", "rmdir", "fsync"])
@pytest.mark.parametrize("exists", [False, True])
def test_two_folders_are_replaced_together_whenever_the_process_is_killed(
    tmp_path: Path, call: str, exists: bool
) -> None:
    pair = [tmp_path / "store", tmp_path / "store-valid"]

    def fill(text: str) -> None:
        with Staging(pair[0]) as first, Staging(pair[1]) as second:
            for one in (first, second):
                one.new.mkdir()
                (one.new / "text").write_text(text)
                (one.new / "manifest.json").write_text(json.dumps({"text": files.sha256(one.new / "text")}))
            first.publish(second)

    outcomes = set()
    number = 1
    while True:
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        if exists:
            fill("old")
        dead = killed_at(number, call, lambda: fill("new"))
        for target in pair if number % 2 else reversed(pair):  # whichever is opened first
            settle(target)
        found = {(path / "text").read_text() if path.exists() else None for path in pair}
        assert len(found) == 1, f"killed before {call} number {number}: {found}"
        outcomes |= found
        fill("later")  # nothing is in the way, and nothing is left
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["store", "store-valid"]
        if not dead:
            break
        number += 1
    assert number > 2
    assert "new" in outcomes
    assert outcomes <= {"new", "old" if exists else None}


def test_a_folder_that_was_being_replaced_is_found(tmp_path: Path) -> None:
    """For readers who may not write: it is read where it is."""
    conversion(tmp_path / "done")
    number, places = 1, set()
    while killed_at(number, "rename", lambda: conversion(tmp_path / "done", "two", replace=True)):
        place = locate(tmp_path / "done")
        places.add(place.name)
        assert (place / "inner" / "data").read_text() in ("one", "two")
        number += 1
    assert places == {"done", "new"}
    conversion(tmp_path / "done", "three", replace=True)
    assert os.listdir(tmp_path) == ["done"]


def test_a_move_that_fails_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion(tmp_path / "done")
    before, real = tree(tmp_path), os.rename

    def rename(source: Path, target: Path) -> None:
        if Path(source).name == "new":
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(DataError, match="must be writable; got Invalid cross-device link"):
            conversion(tmp_path / "done", "two", replace=True)
    assert tree(tmp_path) == before


def test_what_appeared_after_a_kill_is_not_lost(tmp_path: Path) -> None:
    conversion(tmp_path / "done")
    assert killed_at(2, "rename", lambda: conversion(tmp_path / "done", "two", replace=True))
    assert not (tmp_path / "done").exists()
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="must be as it was when its replacement was interrupted"):
        Staging(tmp_path / "done")
    assert tree(tmp_path / "done") == {"thesis.txt": b"years of work"}
    (tmp_path / "done").rename(tmp_path / "thesis")
    settle(tmp_path / "done")
    assert tree(tmp_path / "done")["inner/data"] == b"two"


def test_many_writers_of_one_folder_leave_one_whole(tmp_path: Path) -> None:
    refused = []

    def write(number: int) -> None:
        try:
            conversion(tmp_path / "done", str(number), replace=True)
        except DataError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tree(tmp_path / "done").values())) == 2  # the text, twice, and the manifest
    assert os.listdir(tmp_path) == ["done"]
    assert all("another one is writing it" in message for message in refused)


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.getuid() != 0, reason="mounts a small disk")
def test_a_small_disk(tmp_path: Path) -> None:
    """A real one, in a name space of its own: what fits is written, what does not leaves all as it was."""
    code = f"""
import subprocess, sys
from pathlib import Path
from segue.errors import SegueError
from segue.files import new_file, write_file, write_folder
disk = Path({str(tmp_path)!r})
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk]).returncode:
    sys.exit(77)
def fill(size):
    def write(new):
        (new / "conversion.md").write_text("x")
        (new / "data").write_bytes(bytes(size))
    return write
write_file(disk / "file", b"old")
write_folder(disk / "folder", fill(50_000), kind="conversion")
for attempt in (lambda: write_file(disk / "file", bytes(500_000)),
                lambda: write_folder(disk / "folder", fill(500_000), kind="conversion", replace=True)):
    try:
        attempt()
        sys.exit("no error")
    except SegueError as error:
        assert "must be writable; got No space left on device. Free some space" in str(error), error
assert (disk / "file").read_bytes() == b"old"
assert (disk / "folder" / "data").stat().st_size == 50_000
assert sorted(path.name for path in disk.iterdir()) == ["file", "folder"]
try:
    write_folder(disk, fill(1), kind="conversion", replace=True)
    sys.exit("no error")
except SegueError as error:
    assert "mount point" in str(error), error
"""
    done = subprocess.run(["unshare", "-m", sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mounts here")
    assert done.returncode == 0, done.stderr


def test_checks_alone_change_nothing(tmp_path: Path) -> None:
    check_file(tmp_path / "no" / "file", folder_made=True)
    check_folder(tmp_path / "no" / "folder", kind="store")
    assert os.listdir(tmp_path) == []


def test_a_large_file_of_another_under_a_listed_name_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "made"

    def write(new: Path) -> None:
        (new / "conversion.md").write_text("one")
        (new / "weights").write_bytes(bytes(3 << 20))

    write_folder(target, write, kind="conversion")
    (target / "weights").write_bytes(b"theirs" * (1 << 20))
    before = tree(target)
    with pytest.raises(DataError, match=r"must hold only what segue wrote there.*weights, changed since"):
        write_folder(target, write, kind="conversion", replace=True)
    assert tree(target) == before
