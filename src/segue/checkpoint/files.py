"""Folders that are whole or not there: written beside their place, synced, hashed, then moved in.

A folder `name` is written as `.name.new`. When it is complete, the one before becomes `.name.old`, the new one takes
its place, and the old one goes. Whenever a process is killed, `name` or `.name.old` is whole: `locate` says which.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath

from segue.errors import CheckpointError

MANIFEST, CARD = "manifest.json", "README.md"
LARGEST_MANIFEST, LARGEST_CARD = 1 << 20, 1 << 20


def write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Calls `write` with an empty folder, then puts that folder in the place of `target`."""
    new, old = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if old.exists() and not target.exists():  # a writer was killed between two moves
            old.rename(target)
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        new.mkdir()
        write(new)
        files = sorted(path for path in new.rglob("*") if path.is_file())
        hashes = {path.relative_to(new).as_posix(): _sha256(path) for path in files}
        (new / MANIFEST).write_text(manifest_text(hashes), encoding="utf-8")
        for path in [*files, new / MANIFEST]:
            path.chmod(0o644)
            _sync(path)
        _sync(new)
        if target.exists():
            target.rename(old)
        new.rename(target)
        _sync(target.parent)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise CheckpointError(
            f"{target} must be writable; got {error}. Make room or choose another place; what was there before is "
            "untouched."
        ) from error
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def locate(target: Path) -> Path:
    """Where the whole folder is now: in its place, or beside it if a writer was killed between two moves."""
    if os.path.exists(target) or not target.name:  # Path.exists raises where a name is too long to be one
        return target
    _, old = _beside(target)
    return old if os.path.exists(old) else target


def manifest_text(hashes: Mapping[str, str]) -> str:
    """The hash of each file by its name; not of the card, which people may edit."""
    return json.dumps({name: hashes[name] for name in sorted(hashes) if name != CARD}, indent=1)


def read_manifest(folder: Path) -> dict[str, str]:
    """The hashes by name; all names are of places inside the folder."""
    path = folder / MANIFEST
    try:
        hashes = json.loads(read_small(path, limit=LARGEST_MANIFEST).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must be JSON; got {shortened(error)}. Use another copy.") from None
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise CheckpointError(f"{path} must name files with their sha256; got something else. Use another copy.")
    for name in hashes:
        if not _is_plain(name):
            raise CheckpointError(
                f"{path} must name files inside the folder; got {shortened(repr(name))}. Do not use this folder."
            )
    return hashes


def verify(folder: Path, names: Collection[str] | None = None) -> None:
    """Raises unless every file, or each of the named ones, is as it was written."""
    hashes = read_manifest(folder)
    for name in hashes if names is None else names:
        path = folder / name
        try:
            whole = inside(folder, path) and path.is_file() and _sha256(path) == hashes.get(name)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} must be readable; got {shortened(error)}. Use another copy.") from None
        if not whole:
            raise CheckpointError(f"{path} must be as it was written; it is missing or changed. Use another copy.")


def inside(folder: Path, path: Path) -> bool:
    """Whether a file lies in the folder when all links are followed. The snapshots of a hub cache link to the blobs
    of the same model, which count as inside."""
    try:
        real, root = path.resolve(), folder.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return False
    blobs = root.parents[1] / "blobs" if len(root.parents) > 1 and root.parent.name == "snapshots" else root
    return real.is_relative_to(root) or real.is_relative_to(blobs)


def read_small(path: Path, *, limit: int) -> bytes:
    """The bytes of a file that is there and not longer than the limit."""
    try:
        if not path.is_file():  # a device or a pipe would have no end
            raise CheckpointError(f"{path} must be a file; there is none. Check the path, or use another copy.")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, limit) + 1)  # memory for what is there, not for what may be
    except OSError as error:
        raise CheckpointError(f"{path} must be readable; got {error}. Check the path.") from None
    if len(data) > limit:
        raise CheckpointError(f"{path} must have at most {limit:,} bytes; it has more. It is not what its name says.")
    return data


def shortened(value: object) -> str:
    """What a file made an error say, at a length and in characters that fit a message."""
    text = str(value)
    shown = "".join(character if character.isprintable() else " " for character in text[:200])
    return shown if len(text) <= 200 else f"{shown}..."


def _is_plain(name: str) -> bool:
    path = PurePosixPath(name)
    plain = bool(name) and not path.is_absolute() and ".." not in path.parts and path.as_posix() == name
    return plain and not set(name) & {"\\", ":", "\0"} and name != "."


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
