"""Copies of an application's folder, which applications share: what a copy may be made of."""

from pathlib import Path

from segue.checkpoint.files import read_manifest, verify
from segue.errors import CheckpointError, ConfigError
from segue.files import MANIFEST


def check_source(source: Path, out: Path, *, what: str, check: bool) -> None:
    """Raises unless `out` is outside of the source and the source has no symbolic links, which would bring files of
    another place into the copy. With `check`, as a back-up can be, each file is compared with its hash, and none may be
    there that the manifest does not name. `what` is the word for the folder in messages."""
    if out.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"a copy of {source} must be outside of it; got {out}. Choose another folder.")
    for path in source.rglob("*"):
        if path.is_symlink():
            raise CheckpointError(f"{path} must be a file of the {what}; got a symbolic link. Use another copy.")
    if not check:
        return
    verify(source)
    listed = {*read_manifest(source), MANIFEST}
    for path in source.rglob("*"):
        if path.is_file() and path.relative_to(source).as_posix() not in listed:
            raise CheckpointError(
                f"{path} must be named in {source / MANIFEST}; it is not. Take it away, or use another copy."
            )
