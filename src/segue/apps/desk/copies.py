"""Back-ups of a desk: a copy is a desk too, whole and with a hash of every file."""

import shutil
from pathlib import Path

from segue.apps.database import copy_database
from segue.apps.desk import store
from segue.apps.desk.folder import (
    DATABASE,
    MODELS,
    current_model,
    has_conversations,
    model_names,
    place_of,
    write_desk,
)
from segue.apps.postgresql import check_url
from segue.checkpoint.files import read_manifest, verify
from segue.errors import CheckpointError, ConfigError
from segue.files import MANIFEST, write_folder


def copy_desk(source: Path, out: Path, *, check: bool, database: str | None) -> None:
    """Copies a desk, also while it runs: models, which never change, and a consistent copy of its conversations, in
    SQLite or in the database of a URL. With `check`, every file of the source is compared with its hash first, as it
    can be in a back-up."""
    name = current_model(source)
    if database is not None:
        check_url(database)
    if out.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"a copy of {source} must be outside of it; got {out}. Choose another folder.")
    _check_plain(source)
    if check:
        verify(source)
        _check_listed(source)

    def write(folder: Path) -> None:
        for one in model_names(source):
            shutil.copytree(source / MODELS / one, folder / MODELS / one, symlinks=True)
            verify(folder / MODELS / one)
        if has_conversations(source):
            place = folder / DATABASE if database is None else database
            copy_database(place_of(source), place, name=store.NAME, steps=store.STEPS)
        write_desk(folder, name, database=database)

    write_folder(out, write, kind="desk", inputs=[source])
    if (out / DATABASE).is_file():
        (out / DATABASE).chmod(0o600)


def _check_plain(source: Path) -> None:
    """A link would bring files of another place into the copy."""
    for path in source.rglob("*"):
        if path.is_symlink():
            raise CheckpointError(f"{path} must be a file of the desk; got a symbolic link. Use another copy.")


def _check_listed(source: Path) -> None:
    """What is not in the manifest of a back-up was put there by somebody else."""
    listed = {*read_manifest(source), MANIFEST}
    for path in source.rglob("*"):
        if path.is_file() and path.relative_to(source).as_posix() not in listed:
            raise CheckpointError(
                f"{path} must be named in {source / MANIFEST}; it is not. Take it away, or use another copy."
            )
