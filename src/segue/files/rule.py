"""The rule of what may be replaced, as stated in the docstring of this package."""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from segue.errors import DataError, SegueError

MANIFEST = "manifest.json"
Kind = Literal[
    "store",
    "conversion",
    "export",
    "model",
    "desk",
    "desk-model",
    "monitor",
    "monitor-model",
    "recommend",
    "recommend-model",
]
Failure = type[SegueError]
_LISTED: Mapping[Kind, tuple[str, ...]] = {
    "store": ("documents.bin",),
    "conversion": ("conversion.md",),
    "export": ("export.json",),
    "model": ("config.toml", "model.safetensors"),
    "desk": ("desk.json",),
    "desk-model": ("model.json", "knowledge.jsonl"),
    "monitor": ("monitor.json",),
    "monitor-model": ("model.json", "rows.jsonl"),
    "recommend": ("recommend.json",),
    "recommend-model": ("model.json", "items.jsonl"),
}
"""Files that the manifest of a folder of each kind must list."""
_LARGEST_MANIFEST = 1 << 26
_SMALL = 1 << 20
"""Bytes. When a training run saves its state over the previous one, larger files are recognised by their names: they
are not edited by hand, and hashing them at every save would take long. `--replace` compares every file."""


def check_file(
    target: Path,
    *,
    replace: bool = False,
    inputs: Iterable[str | Path] = (),
    folder_made: bool = False,
    failure: Failure = DataError,
) -> None:
    """Raise an error unless a file may be written at `target`, in a folder that exists or, with `folder_made`, will be
    created."""
    found = _existing(target, failure)
    if not folder_made and not target.absolute().parent.is_dir():
        raise failure(f"{target} must be in a folder that exists; got {target.parent}, which does not. Make it first.")
    if found is None:
        return
    if not stat.S_ISREG(found.st_mode):
        raise failure(f"{target} must be a file or not exist yet; got {_what(found)}. Choose another file.")
    if (given := _related(target, inputs)) is not None:
        raise failure(
            f"{target} must not be an input of the command; it is {given} or a part of it. Choose another file."
        )
    if not replace:
        raise failure(f"{target} must not exist yet; it does. Choose another file, or replace it with --replace.")


def check_folder(
    target: Path,
    *,
    kind: Kind,
    replace: bool = False,
    keep_others: bool = False,
    inputs: Iterable[str | Path] = (),
    failure: Failure = DataError,
) -> None:
    """Raise an error unless a folder may be written at `target`. With `keep_others`, files of others in it are allowed,
    because they will be kept (`Staging.publish`)."""
    found = _existing(target, failure)
    if found is None:
        return
    wanted = f"{target} must be {_named(kind)} that segue wrote, or not exist yet"
    if not stat.S_ISDIR(found.st_mode):
        raise failure(f"{wanted}; got {_what(found)}. Choose another place.")
    if os.path.ismount(target) or _holds(target, (".", os.path.expanduser("~"))):
        raise failure(f"{wanted}; got a mount point, or a folder that you are in. Choose another place.")
    try:
        if not any(target.iterdir()):
            return
        written = written_files(target)
        others = [] if written is None or keep_others or not replace else list(_others(target, written))
    except OSError as error:
        raise failure(f"{target} must be readable; got {error.strerror or error}. Choose another place.") from None
    if not _is_kind(written, kind):
        raise failure(f"{wanted}; got something else. Choose another place.")
    if not replace:
        raise failure(
            f"{target} must not exist yet; got {_named(kind)}. Choose another place, or replace it with --replace."
        )
    if others:
        named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        raise failure(
            f"{target} must hold only what segue wrote there, to be replaced; got {named}. Move it away, or choose "
            "another place."
        )
    if (given := _related(target, inputs)) is not None:
        raise failure(f"{target} must not be replaced while it is read; got {given} as an input. Choose another place.")


def is_written(folder: Path, *, kind: Kind) -> bool:
    """Return True if segue wrote a folder of this kind there; files of others may be in it too."""
    return _is_kind(written_files(folder), kind)


def _is_kind(written: Mapping[str, str] | None, kind: Kind) -> bool:
    return written is not None and all(name in written for name in _LISTED[kind])


def _existing(target: Path, failure: Failure) -> os.stat_result | None:
    """Return the status of a path that can be written; None if nothing exists there."""
    if not target.name or target.name == ".." or "\0" in target.name:
        raise failure(f"what is written must have a name of its own; got {str(target)!r}. Choose a new name.")
    try:
        return os.lstat(target)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise failure(f"{target} must be writable; got {reason}. Choose another place.") from None


def _named(kind: Kind) -> str:
    names = {
        "store": "a store",
        "conversion": "a conversion",
        "export": "an export",
        "model": "a model folder",
        "desk": "a desk",
        "desk-model": "a model of a desk",
        "monitor": "a monitor",
        "monitor-model": "a model of a monitor",
        "recommend": "a recommender",
        "recommend-model": "a model of a recommender",
    }
    return names[kind]


def _what(found: os.stat_result) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(found.st_mode), "a device or a pipe")


# ---------------------------------------------------------------------------------------------------------- inputs


def _related(target: Path, inputs: Iterable[str | Path]) -> str | Path | None:
    """Return the first input that is the target, contains it, or is inside it. Links of both kinds are followed."""
    own = list(_identities(target))
    for given in inputs:
        other = list(_identities(given))
        if own and other and (own[0] in other or other[0] in own):
            return given
    return None


def _holds(folder: Path, places: Iterable[str | Path]) -> bool:
    """Return True if the folder is one of the paths, or above one."""
    own = list(_identities(folder))[:1]
    return any(own[0] in _identities(place) for place in places if own)


def _identities(path: str | Path) -> Iterator[tuple[int, int]]:
    """Yield the identity of the file or folder at a path, then those of all folders above; nothing if it does not
    exist."""
    try:
        real = Path(path).resolve(strict=True)
        for place in (real, *real.parents):
            found = place.stat()
            yield found.st_dev, found.st_ino
    except (OSError, RuntimeError, ValueError):
        return


# -------------------------------------------------------------------------------------------------------- contents


def written_files(folder: Path) -> dict[str, str] | None:
    """Return the files that segue wrote into a folder, with their sha256, as in its manifest; None without one."""
    path = folder / MANIFEST
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_MANIFEST:
            return None
        content = json.loads(path.read_bytes())
        if content.get("kind") == "segue-store":
            content = {name: record["sha256"] for name, record in content["files"].items()}
        fits = all(is_plain(name) and isinstance(digest, str) and len(digest) == 64 for name, digest in content.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return content if fits else None


def is_own(path: Path, digest: str | None, *, thorough: bool) -> bool:
    """Return True if a file is the one that segue wrote with this sha256; without `thorough`, large files are
    recognised by name."""
    found = os.lstat(path)
    if digest is None or not stat.S_ISREG(found.st_mode):
        return False
    if found.st_size > _SMALL and not thorough:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def _others(folder: Path, written: Mapping[str, str]) -> Iterator[str]:
    """Yield the contents of a folder that segue did not write, or that were changed since."""
    folders = {parent.as_posix() for name in written for parent in PurePosixPath(name).parents}
    for path in everything_in(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            if name not in folders:
                yield f"{name}/"
        elif name != MANIFEST and not is_own(path, written.get(name), thorough=True):
            yield f"{name}, changed since" if name in written else name


def everything_in(folder: Path) -> Iterator[Path]:
    """Yield all files and folders below a folder, the contents of a folder before it; links are not followed."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    for entry in inside:
        if entry.is_dir(follow_symlinks=False):
            yield from everything_in(Path(entry.path))
        yield Path(entry.path)


def is_plain(name: str) -> bool:
    """Return True if a name in a manifest is a path inside the folder."""
    path = PurePosixPath(name)
    plain = bool(name) and not path.is_absolute() and ".." not in path.parts and path.as_posix() == name
    return plain and not set(name) & {"\\", ":", "\0"} and name != "."
