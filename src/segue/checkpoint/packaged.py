"""Models that come with segue, and those in the folder SEGUE_MODELS: found by name, verified file by file.

In: a name. Out: its folder, after the sha256 of every file was compared with its manifest; or a hint for the error
message if there is none. A model of the user's folder comes before one of the package with the same name.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import segue
from segue.checkpoint.files import CARD, read_manifest, verify
from segue.checkpoint.parts import is_model_folder
from segue.config.presets import preset_names
from segue.errors import CheckpointError, similar_names
from segue.model.named import named_models

VARIABLE = "SEGUE_MODELS"
ALIASES = {
    "xlnet-base-cased": "xlnet/xlnet-base-cased",
    "xlnet-large-cased": "xlnet/xlnet-large-cased",
    "transfo-xl-wt103": "transfo-xl/transfo-xl-wt103",
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "bert-base-cased": "google-bert/bert-base-cased",
    "bert-base-chinese": "google-bert/bert-base-chinese",
    "gpt2": "openai-community/gpt2",
}
"""Old hub names without an owner, and their current names."""
WITHOUT = (
    "This installation of segue was built without its models (SEGUE_NO_MODELS): if it is one of those, install segue "
    "again without that setting."
)


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """A model available by name on this machine."""

    name: str
    folder: Path
    comes_with_segue: bool

    def verify(self) -> None:
        """Raise CheckpointError unless every file, the card included, is unchanged since it was written."""
        remedy = "Install segue again." if self.comes_with_segue else "Copy the model again."
        verify(self.folder, sorted(read_manifest(self.folder).keys() | {CARD}), remedy=remedy)


def package_folder() -> Path:
    """Return the folder of the models that come with segue; it is missing if segue was built without them."""
    return Path(segue.__file__).with_name("models")


def packaged_models() -> dict[str, Packaged]:
    """Return all packaged models by name, those of the package first."""
    found = _models(package_folder(), comes_with_segue=True)
    if own := os.environ.get(VARIABLE):
        if not Path(own).is_dir():
            raise CheckpointError(f"{VARIABLE} must be a folder of models; got {own}. Correct it, or unset it.")
        found |= _models(Path(own), comes_with_segue=False)
    return found


def packaged_model(name: str) -> Packaged | None:
    """Return the packaged model of this name; None if there is none. A name has no slash: `./NAME` is a path."""
    return None if not name or Path(name).name != name else packaged_models().get(name)


def nearest_name(name: str, *, others: Iterable[str] = ()) -> str:
    """Return a hint for a user who gave an unknown name: a similar name, or where all names are listed."""
    if name in named_models() or name in preset_names():
        return f"{name} is a config without weights: `segue pretrain` trains it. `segue models` lists what has weights."
    if not package_folder().is_dir():
        return WITHOUT
    models = [*packaged_models(), *others]
    if near := similar_names(name, models):
        return f"Did you mean {' or '.join(near)}?"
    if near := similar_names(name, sorted({*preset_names(), *named_models()})):
        return f"Did you mean {near[0]}, a config without weights?"
    return "Check the path; `segue models` lists the names."


def _models(folder: Path, *, comes_with_segue: bool) -> dict[str, Packaged]:
    paths = sorted(path for path in folder.iterdir() if is_model_folder(path)) if folder.is_dir() else []
    return {path.name: Packaged(name=path.name, folder=path, comes_with_segue=comes_with_segue) for path in paths}
