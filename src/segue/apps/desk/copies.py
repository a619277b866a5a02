"""Back-ups of a desk: a copy is a desk too, whole and with a hash of every file."""

import shutil
from pathlib import Path

from segue.apps.database import copy_database
from segue.apps.desk.folder import DATABASE, MODELS, current_model, model_names, use_model
from segue.checkpoint.files import verify
from segue.files import write_folder


def copy_desk(source: Path, out: Path, *, check: bool) -> None:
    """Copies a desk, also while it runs: models, which never change, and a consistent copy of its database. With
    `check`, every file of the source is compared with its hash first, as it can be in a back-up."""
    name = current_model(source)
    if check:
        verify(source)

    def write(folder: Path) -> None:
        for one in model_names(source):
            shutil.copytree(source / MODELS / one, folder / MODELS / one)
            verify(folder / MODELS / one)
        if (source / DATABASE).is_file():
            copy_database(source / DATABASE, folder / DATABASE)
        use_model(folder, name)

    write_folder(out, write, kind="desk", inputs=[source])
    if (out / DATABASE).is_file():
        (out / DATABASE).chmod(0o600)
