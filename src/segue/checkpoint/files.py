"""Folders that are whole or not there: written beside their place, synced, hashed, then moved in.

A folder `name` is written as `.name.new`. When it is complete, the one before becomes `.name.old`, the new one takes
its place, and the old one goes. Whenever a process is killed, `name` or `.name.old` is whole: `locate` says which.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from segue.errors import CheckpointError

MANIFEST = "manifest.json"


def write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Calls `write` with an empty folder, then puts that folder in the place of `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new, old = _beside(target)
    if old.exists() and not target.exists():  # a writer was killed between two moves
        old.rename(target)
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir()
    try:
        write(new)
        files = sorted(path for path in new.rglob("*") if path.is_file())
        hashes = {str(path.relative_to(new)): _sha256(path) for path in files}
        (new / MANIFEST).write_text(json.dumps(hashes, indent=1), encoding="utf-8")
        for path in [*files, new / MANIFEST]:
            path.chmod(0o644)
            _sync(path)
        _sync(new)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise CheckpointError(
            f"{target} must be writable; got {error}. Make room and try again; what was there before is untouched."
        ) from error
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if target.exists():
        target.rename(old)
    new.rename(target)
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def locate(target: Path) -> Path:
    """Where the whole folder is now: in its place, or beside it if a writer was killed between two moves."""
    if target.exists() or not target.name:
        return target
    _, old = _beside(target)
    return old if old.exists() else target


def verify(folder: Path) -> None:
    """Raises unless every file is as it was written."""
    try:
        hashes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} must hold a readable {MANIFEST}; got {error}. Use another copy.") from None
    for name, expected in hashes.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file() or _sha256(path) != expected:
            raise CheckpointError(f"{path} must be as it was written; it is missing or changed. Use another copy.")


def _beside(target: Path) -> tuple[Path, Path]:
    return target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
