"""The model folder: `config.toml` and `model.safetensors`, written whole or not at all, read with suspicion.

In: a LanguageModel and a path, or a path. Out: a folder, or a LanguageModel. Other formats are for converters.
"""

import os
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from segue.config import Config, dump
from segue.config import load as load_config
from segue.errors import CheckpointError
from segue.model import LanguageModel

FORMAT = "segue-1"
CONFIG, WEIGHTS = "config.toml", "model.safetensors"


def save(model: LanguageModel, folder: str | Path) -> None:
    """Writes the folder beside its place, then moves it there; an older folder there is replaced last."""
    target = Path(folder)
    if target.exists() and not (target / CONFIG).exists():
        raise CheckpointError(
            f"{target} must be a model folder or not exist; got something else. Choose another place."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as work:
        new = Path(work) / "new"
        new.mkdir()
        (new / CONFIG).write_text(dump(Config(model=model.config)), encoding="utf-8")
        weights = {name: value.detach().contiguous().cpu() for name, value in model.state_dict().items()}
        save_file(weights, new / WEIGHTS, metadata={"format": FORMAT})
        for path in (new / CONFIG, new / WEIGHTS):
            path.chmod(0o644)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if target.exists():
            target.rename(Path(work) / "old")
        new.rename(target)


def load(folder: str | Path) -> LanguageModel:
    """The model as it was saved, in the same dtype."""
    path = Path(folder)
    if not (path / CONFIG).is_file() or not (path / WEIGHTS).is_file():
        raise CheckpointError(
            f"a model folder must hold {CONFIG} and {WEIGHTS}; got {path} without them. Check the path."
        )
    config = load_config(path / CONFIG).model
    try:
        with safe_open(path / WEIGHTS, framework="pt") as file:
            written = (file.metadata() or {}).get("format")
            if written != FORMAT:
                raise CheckpointError(f"{path / WEIGHTS} must have format {FORMAT}; got {written}. Convert it.")
            # Cloned: the file's alignment is not the allocator's, and sums round differently with it.
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path / WEIGHTS} must be a whole safetensors file; got {error}. Copy it again."
        ) from None
    with torch.device("meta"):
        model = LanguageModel(config)
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if expected != found:
        wrong = sorted(name for name in expected | found if expected.get(name) != found.get(name))
        name = wrong[0]
        raise CheckpointError(
            f"{path / WEIGHTS} must hold the tensors of its config; got {len(wrong)} that do not fit, first {name}: "
            f"config {expected.get(name)}, file {found.get(name)}. The config belongs to other weights."
        )
    model.load_state_dict(weights, assign=True)
    return model
