"""Back-ups of a recommender: a copy is a recommender too, whole and with a hash of every file."""

import shutil
from pathlib import Path

from segue.apps.database import copy_database
from segue.apps.recommend.folder import MODELS, current_model, model_names, use_model
from segue.apps.recommend.store import DATABASE, NAME, STEPS
from segue.checkpoint.files import read_manifest, verify
from segue.errors import CheckpointError, ConfigError
from segue.files import MANIFEST, write_folder


def copy_recommender(source: Path, out: Path, *, check: bool) -> None:
    """Copies a recommender, also while it runs. With `check`, every file of the source is compared with its hash first,
    as it can be in a back-up."""
    name = current_model(source)
    if out.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"a copy of {source} must be outside of it; got {out}. Choose another folder.")
    for path in source.rglob("*"):
        if path.is_symlink():
            raise CheckpointError(f"{path} must be a file of the recommender; got a symbolic link. Use another copy.")
    if check:
        verify(source)
        listed = {*read_manifest(source), MANIFEST}
        for path in source.rglob("*"):
            if path.is_file() and path.relative_to(source).as_posix() not in listed:
                raise CheckpointError(
                    f"{path} must be named in {source / MANIFEST}; it is not. Take it away, or use another copy."
                )

    def write(folder: Path) -> None:
        for one in model_names(source):
            shutil.copytree(source / MODELS / one, folder / MODELS / one, symlinks=True)
            verify(folder / MODELS / one)
        if (source / DATABASE).is_file():
            copy_database(source / DATABASE, folder / DATABASE, name=NAME, steps=STEPS)
        use_model(folder, name)

    write_folder(out, write, kind="recommend", inputs=[source])
    if (out / DATABASE).is_file():
        (out / DATABASE).chmod(0o600)
