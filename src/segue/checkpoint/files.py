"""The manifest of a model folder, and safe reading of files from untrusted folders."""

import json
import os
from collections.abc import Collection
from pathlib import Path

from segue.errors import CheckpointError
from segue.files import MANIFEST as MANIFEST
from segue.files import is_plain, sha256
from segue.files import locate as locate
from segue.files import manifest_text as manifest_text

CARD = "README.md"
LARGEST_MANIFEST, LARGEST_CARD = 1 << 20, 1 << 20


def read_manifest(folder: Path) -> dict[str, str]:
    """Return the hashes by file name; every name is a path inside the folder."""
    path = folder / MANIFEST
    try:
        hashes = json.loads(read_small(path, limit=LARGEST_MANIFEST).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must be JSON; got {shortened(error)}. Use another copy.") from None
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise CheckpointError(f"{path} must name files with their sha256; got something else. Use another copy.")
    for name in hashes:
        if not is_plain(name):
            raise CheckpointError(
                f"{path} must name files inside the folder; got {shortened(repr(name))}. Do not use this folder."
            )
    return hashes


def verify(folder: Path, names: Collection[str] | None = None, *, remedy: str = "Use another copy.") -> None:
    """Raise CheckpointError unless every file, or each of the named ones, is unchanged since it was written. The card
    may be edited, unless it is named."""
    hashes = read_manifest(folder)
    for name in sorted(hashes.keys() - {CARD}) if names is None else names:
        path = folder / name
        try:
            whole = inside(folder, path) and path.is_file() and sha256(path) == hashes.get(name)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} must be readable; got {shortened(error)}. {remedy}") from None
        if not whole:
            raise CheckpointError(f"{path} must be unchanged since it was written; it is missing or changed. {remedy}")


def inside(folder: Path, path: Path) -> bool:
    """Return True if a file lies in the folder after all links are followed. The snapshots of a hub cache link to the
    blobs of the same model, which count as inside."""
    try:
        real, root = path.resolve(), folder.resolve()
    except (OSError, RuntimeError):  # a cycle of links
        return False
    blobs = root.parents[1] / "blobs" if len(root.parents) > 1 and root.parent.name == "snapshots" else root
    return real.is_relative_to(root) or real.is_relative_to(blobs)


def read_small(path: Path, *, limit: int) -> bytes:
    """Return the bytes of a file; raise CheckpointError if it is missing or longer than the limit."""
    try:
        if not path.is_file():  # a device or a pipe has no end
            raise CheckpointError(f"{path} must be a file; it does not exist. Check the path, or use another copy.")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, limit) + 1)  # allocates for the actual size, not for the limit
    except OSError as error:
        raise CheckpointError(f"{path} must be readable; got {error}. Check the path.") from None
    if len(data) > limit:
        raise CheckpointError(
            f"{path} must have at most {limit:,} bytes; it has more. It is not what its name suggests."
        )
    return data


def shortened(value: object) -> str:
    """Return the text of a value from an untrusted file, truncated and printable, for an error message."""
    text = str(value)
    shown = "".join(character if character.isprintable() else " " for character in text[:200])
    return shown if len(text) <= 200 else f"{shown}..."
