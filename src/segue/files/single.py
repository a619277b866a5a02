"""Atomic writing of a file: written beside its final path, synced, renamed.

A temporary file is locked while its writer lives, so that the next writer of the same file can recognise and remove
what a killed one left.
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
    """Open a file for writing that is renamed to its path when it is complete and on disk. After an error nothing of it
    remains, and an earlier file is unchanged. Its folder must exist."""
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
    """Like `new_file`, for text in UTF-8, with line ends as they are written."""
    with new_file(target, replace=replace, inputs=inputs, failure=failure) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield text
        text.detach()


def write_file(target: Path, data: bytes | str, *, failure: Failure = DataError) -> None:
    """Write a file of segue's own, replacing an earlier one."""
    with new_file(target, replace=True, failure=failure) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def make_folder_of(target: Path, *, failure: Failure = DataError) -> None:
    """Create the folder of a file, if it does not exist."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(target, error, failure) from None


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path: equal values mean the same file; None if it does not exist."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def unwritable(target: Path, error: OSError, failure: Failure = DataError) -> SegueError:
    """Return the error for a file or folder that the disk, a quota or permissions do not allow to be written."""
    return failure(
        f"{target} must be writable; got {error.strerror or error}. Free some space or choose another path; what was "
        "there before is untouched."
    )


@contextmanager
def _beside(target: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Yield a temporary file in the folder of the target; it is removed afterwards, unless it was moved."""
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
    """Try to lock a file; return True if the lock is ours. It is a lock of the operating system: a killed owner never
    keeps it."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk; systems that cannot do it for folders keep their own
    guarantees."""
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
