"""Back-ups of a desk: a copy is a desk too, whole and with a hash of every file."""

import shutil
from pathlib import Path

from segue.apps.copies import check_source
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
from segue.checkpoint.files import verify
from segue.files import write_folder


def copy_desk(source: Path, out: Path, *, check: bool, database: str | None) -> None:
    """Copies a desk, also while it runs: models, which never change, and a consistent copy of its conversations, in
    SQLite or in the database of a URL. With `check`, every file of the source is compared with its hash first, as it
    can be in a back-up."""
    name = current_model(source)
    if database is not None:
        check_url(database)
    check_source(source, out, what="desk", check=check)

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
