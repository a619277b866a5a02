"""One file, whole or not there: written beside its place, synced, moved in.

A temporary file is locked while its writer lives, so that the next writer of the same file can tell what a killed one
left, and remove it.
"""

import hashlib
import io
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from segue.errors import DataError, SegueError
from segue.files.rule import Failure, check_file

if sys.platform != "win32":
    import fcntl


@contextmanager
def new_file(
    target: Path, *, replace: bool = False, inputs: Iterable[str | Path] = (), failure: Failure = DataError
) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place when all is written and on disk. An error leaves nothing of it, and
    what was there before as it was. Its folder must exist."""
    inputs = list(inputs)
    check_file(target, replace=replace, inputs=inputs, failure=failure)
    try:
        with _beside(target) as (file, part):
            yield file
            file.flush()
            os.fsync(file.fileno())
            check_file(target, replace=replace, inputs=inputs, failure=failure)  # it may have appeared since
            os.replace(part, target)
            sync(target.parent)
    except OSError as error:
        raise unwritable(target, error, failure) from None


@contextmanager
def new_text_file(
    target: Path, *, replace: bool = False, inputs: Iterable[str | Path] = (), failure: Failure = DataError
) -> Iterator[TextIO]:
    """As `new_file`, for text in UTF-8, with line ends as they are written."""
    with new_file(target, replace=replace, inputs=inputs, failure=failure) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield text
        text.detach()


def write_file(target: Path, data: bytes | str, *, failure: Failure = DataError) -> None:
    """Puts a file of segue's own into its place, over the one before."""
    with new_file(target, replace=True, failure=failure) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def make_folder_of(target: Path, *, failure: Failure = DataError) -> None:
    """The folder that a file goes to, if it is not there."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(target, error, failure) from None


def file_identity(path: Path) -> tuple[int, int] | None:
    """Which file has a name now: two equal answers mean the same file. None: there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def unwritable(target: Path, error: OSError, failure: Failure = DataError) -> SegueError:
    """The error for a user whose disk, quota or permissions do not let a file or folder be written."""
    return failure(
        f"{target} must be writable; got {error.strerror or error}. Free some space or choose another path; what was "
        "there before is untouched."
    )


@contextmanager
def _beside(target: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A temporary file in the folder of the target; gone afterwards, if it was not moved."""
    start = f".{target.name[:40]}.segue-"
    ours = re.compile(re.escape(start) + "[0-9a-f]{16}")
    for entry in os.listdir(target.parent):
        if ours.fullmatch(entry):
            _remove_dead(target.parent / entry)
    part = target.with_name(start + secrets.token_hex(8))
    file = part.open("x+b")
    try:
        try_lock(file.fileno())
        yield file, part
    finally:
        with suppress(OSError):  # what a full disk refused stays refused
            file.close()
        part.unlink(missing_ok=True)


def _remove_dead(part: Path) -> None:
    with suppress(OSError), part.open("rb") as file:
        if try_lock(file.fileno()):
            part.unlink()


def try_lock(handle: int) -> bool:
    """Whether the lock of a file is ours now. It is one of the operating system: a killed owner never keeps it."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync(path: Path) -> None:
    """Makes a file, or the names in a folder, last; systems that cannot do it for folders keep their own promises."""
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """The hash of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
