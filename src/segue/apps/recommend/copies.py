"""Back-ups of a recommender: a copy is a recommender too, whole and with a hash of every file."""

import shutil
from pathlib import Path

from segue.apps.copies import check_source
from segue.apps.database import copy_database
from segue.apps.recommend.folder import MODELS, current_model, model_names, use_model
from segue.apps.recommend.rules import RULES
from segue.apps.recommend.store import DATABASE, NAME, STEPS
from segue.checkpoint.files import verify
from segue.files import write_folder


def copy_recommender(source: Path, out: Path, *, check: bool) -> None:
    """Copies a recommender, also while it runs. With `check`, every file of the source is compared with its hash first,
    as it can be in a back-up."""
    name = current_model(source)
    check_source(source, out, what="recommender", check=check)

    def write(folder: Path) -> None:
        for one in model_names(source):
            shutil.copytree(source / MODELS / one, folder / MODELS / one, symlinks=True)
            verify(folder / MODELS / one)
        if (source / DATABASE).is_file():
            copy_database(source / DATABASE, folder / DATABASE, name=NAME, steps=STEPS)
        if (source / RULES).is_file():
            shutil.copyfile(source / RULES, folder / RULES)
        use_model(folder, name)

    write_folder(out, write, kind="recommend", inputs=[source])
    if (out / DATABASE).is_file():
        (out / DATABASE).chmod(0o600)
