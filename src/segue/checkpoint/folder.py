"""The model folder: `config.toml`, `model.safetensors` and, where there is one, `tokenizer/`.

In: a LanguageModel and a path, or a path. Out: a folder, or a LanguageModel. Other formats are for converters.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from segue.checkpoint.files import locate, write_folder
from segue.config import Config, dump
from segue.config import load as load_config
from segue.errors import CheckpointError
from segue.model import LanguageModel

FORMAT = "segue-1"
CONFIG, WEIGHTS, TOKENIZER = "config.toml", "model.safetensors", "tokenizer"


def save(
    model: LanguageModel,
    folder: str | Path,
    *,
    config: Config | None = None,
    tokenizer: Path | None = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Writes the folder whole or not at all. `config` has settings besides the model's, `tokenizer` is a folder to
    copy, `also` may write more into it."""
    target = Path(folder)
    if target.exists() and not (target / CONFIG).exists():
        raise CheckpointError(
            f"{target} must be a model folder or not exist; got something else. Choose another place."
        )

    def write(new: Path) -> None:
        (new / CONFIG).write_text(dump(config or Config(model=model.config)), encoding="utf-8")
        write_tensors(dict(model.state_dict()), new / WEIGHTS)
        if tokenizer is not None:
            shutil.copytree(tokenizer, new / TOKENIZER)
        if also is not None:
            also(new)

    write_folder(target, write)


def load(folder: str | Path) -> LanguageModel:
    """The model as it was saved, in the same dtype."""
    path = locate(Path(folder))
    if not (path / CONFIG).is_file() or not (path / WEIGHTS).is_file():
        raise CheckpointError(
            f"a model folder must hold {CONFIG} and {WEIGHTS}; got {path} without them. Check the path."
        )
    config = load_config(path / CONFIG).model
    weights = read_tensors(path / WEIGHTS)
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


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Named tensors to a safetensors file."""
    contiguous = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
    try:
        save_file(contiguous, path, metadata={"format": FORMAT})
    except SafetensorError as error:  # how it reports a full disk
        raise OSError(str(error)) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Named tensors of a file that `write_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            written = (file.metadata() or {}).get("format")
            if written != FORMAT:
                raise CheckpointError(f"{path} must have format {FORMAT}; got {written}. Convert it.")
            # Cloned: the file's alignment is not the allocator's, and sums round differently with it.
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} must be a whole safetensors file; got {error}. Copy it again.") from None
