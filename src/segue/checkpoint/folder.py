"""The model folder: `config.toml`, `model.safetensors`, optionally `tokenizer/`, and a card, `README.md`.

In: a LanguageModel and a path, or a path. Out: a folder, or a LanguageModel. Other formats are for converters.

A folder is checked before anything is allocated for it: the header of the weights must fit the size of its file, and
the config must ask for exactly the tensors that the header names. Then the hashes of the files are compared, then the
weights are read.
"""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from segue.checkpoint.card import Facts, make_card
from segue.checkpoint.files import CARD, inside, locate, shortened, verify
from segue.checkpoint.parts import CONFIG as CONFIG
from segue.checkpoint.parts import HEAD as HEAD
from segue.checkpoint.parts import LARGEST_CONFIG as LARGEST_CONFIG
from segue.checkpoint.parts import LARGEST_TASK as LARGEST_TASK
from segue.checkpoint.parts import LONGEST_LINE as LONGEST_LINE
from segue.checkpoint.parts import TASK as TASK
from segue.checkpoint.parts import TOKENIZER as TOKENIZER
from segue.checkpoint.parts import TRUNK as TRUNK
from segue.checkpoint.parts import WEIGHTS as WEIGHTS
from segue.checkpoint.parts import is_model_folder as is_model_folder
from segue.checkpoint.parts import model_of_run as model_of_run
from segue.checkpoint.parts import read_toml as read_toml
from segue.checkpoint.safetensors_files import SafetensorsFile
from segue.checkpoint.source import FLOATS, check_memory, readable
from segue.config import Config, ModelConfig, dump, parse
from segue.errors import CheckpointError, SegueWarning
from segue.files import Fill, write_folder
from segue.model import LanguageModel
from segue.model.build import shapes_only

FORMAT = 1
HALF = (torch.float16, torch.bfloat16)
NGRAMS = "ngrams.safetensors"
"""File of the n-grams that a classifier combines with its model, as `tasks.wide` writes them."""

Model = TypeVar("Model", bound=nn.Module)


def replace_model(target: Path, write: Fill) -> None:
    """Write a model folder over the one before; unrelated files in it stay."""
    write_folder(target, write, kind="model", replace=True, keep_others=True, failure=CheckpointError)


def save(
    model: LanguageModel,
    folder: str | Path,
    *,
    config: Config | None = None,
    tokenizer: Path | None = None,
    facts: Facts | None = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Save the model atomically, over the model that was there. `config` has settings besides the model's, `tokenizer`
    is a folder to copy, `facts` are the facts about the training for the card, `also` may write more files."""

    def write(new: Path) -> None:
        write_model(model, new, config=config, tokenizer=tokenizer, facts=facts)
        if also is not None:
            also(new)

    replace_model(Path(folder), write)


def write_model(
    model: LanguageModel,
    new: Path,
    *,
    config: Config | None = None,
    tokenizer: Path | None = None,
    facts: Facts | None = None,
) -> None:
    """Write the files of a model folder into an empty one."""
    (new / CONFIG).write_text(dump(config or Config(model=model.config)), encoding="utf-8")
    write_tensors(dict(model.state_dict()), new / WEIGHTS)
    if tokenizer is not None:
        shutil.copytree(tokenizer, new / TOKENIZER)
    (new / CARD).write_text(make_card(model.config, parameters_of(model), facts or Facts()), encoding="utf-8")


def load(folder: str | Path, *, check: bool = True, as_stored: bool = False) -> LanguageModel:
    """Load a saved model. Weights of 16 bits are converted to float32, with the same values, unless `as_stored`.
    `check` compares the files with their hashes; without it, a config that was edited by hand is accepted. Weights that
    are not finite give a SegueWarning."""
    with readable(Path(folder)):
        path = locate(Path(folder))
        model = _language_model(path)
        if check:
            verify(path, [CONFIG, WEIGHTS])
        fill(model, path, as_stored=as_stored)
    return model


def read_config(folder: str | Path) -> tuple[ModelConfig, int]:
    """Return the config of a model folder and its number of parameters, without reading weights. Performs the checks of
    `load` except for the hashes."""
    with readable(Path(folder)):
        model = _language_model(locate(Path(folder)))
    return model.config, parameters_of(model)


def parameters_of(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def not_finite(model: nn.Module) -> str | None:
    """Return a note on weights that are not finite; None if all are."""
    names = [name for name, value in model.state_dict().items() if not bool(value.isfinite().all())]
    if not names:
        return None
    which = f"1 tensor holds NaN or infinity, {names[0]}"
    if len(names) > 1:
        which = f"{len(names)} tensors hold NaN or infinity, first {names[0]}"
    return f"{which}: a training that failed, or a bad copy."


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write named tensors to a safetensors file."""
    contiguous = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
    try:
        save_file(contiguous, path, metadata={"format": f"segue-{FORMAT}"})
    except SafetensorError as error:  # safetensors reports a full disk like this
        raise OSError(str(error)) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the named tensors of a file written by `write_tensors`."""
    file = SafetensorsFile(path)
    _check_format(file)
    return _tensors(file)


def examined(path: Path, make: Callable[[ModelConfig], Model]) -> Model:
    """Return the model that `make` builds for the config, without weights, if config and weights match."""
    if not is_model_folder(path):
        raise CheckpointError(
            f"a model folder must hold {CONFIG} and {WEIGHTS}; got {path} without them. Check the path."
        )
    if (path / TRUNK).is_file():
        raise CheckpointError(
            f"{path} holds the differences to another model, {TRUNK} says to which; got a place that needs the whole "
            "model. Make it whole first: segue.checkpoint.find.model_folder(segue.checkpoint.find.find(PATH))."
        )
    for name in (CONFIG, WEIGHTS):
        if not inside(path, path / name):
            raise CheckpointError(f"{path / name} must be in its folder; it links to a place outside. Copy it there.")
    file = SafetensorsFile(path / WEIGHTS)
    _check_format(file)
    shapes = {name: torch.empty(info.shape, dtype=info.dtype, device="meta") for name, info in file.tensors.items()}
    values = read_toml(path / CONFIG)
    try:
        config = parse(values).model
    except (ValueError, RecursionError) as error:  # an integer with too many digits to print, or deeply nested tables
        raise CheckpointError(f"{path / CONFIG} must be a config; got {shortened(error)}. Use another copy.") from None
    return _fitting(config, make, shapes, path / WEIGHTS)


def fill(model: nn.Module, path: Path, *, as_stored: bool = False) -> None:
    """Read the weights of a folder into the model that `examined` returned, as float32 unless `as_stored`."""
    tensors = _tensors(SafetensorsFile(path / WEIGHTS))
    model.load_state_dict(tensors if as_stored else widened(tensors), assign=True)
    if problem := not_finite(model):
        warnings.warn(f"{path / WEIGHTS}: {problem}", SegueWarning, stacklevel=3)


def widened(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with those of 16 bits converted to float32, with the same values."""
    return {name: value.float() if value.dtype in HALF else value for name, value in tensors.items()}


def _language_model(path: Path) -> LanguageModel:
    if (path / HEAD).is_file():
        raise CheckpointError(
            f"{path} must hold a language model; got a model with a head, {HEAD}. Use segue.checkpoint.heads.load_head."
        )
    return examined(path, LanguageModel)


def _check_format(file: SafetensorsFile) -> None:
    path, written = file.path, file.metadata.get("format", "none")
    name, _, number = written.partition("-")
    if name != "segue" or not number.isascii() or not number.isdigit() or len(number) > 4:
        raise CheckpointError(
            f"{path} must have format segue-{FORMAT}; got {shortened(written)}. Convert it: segue convert."
        )
    if int(number) != FORMAT:
        remedy = "Update segue to read it." if int(number) > FORMAT else "Convert it with a version that reads it."
        raise CheckpointError(f"{path} must have format segue-{FORMAT}; got segue-{number}. {remedy}")


def _fitting(config: ModelConfig, make: Callable[[ModelConfig], Model], shapes: dict[str, Tensor], path: Path) -> Model:
    """Return the model of the config, without weights, if the tensors match it. A config that needs far more tensors
    than there are would take long to build even without weights, so it is refused first."""
    there = sum(value.numel() for value in shapes.values())
    targets = 1 if config.auxiliary is None else config.auxiliary.targets
    queries = config.num_layers * config.num_heads * config.resolved_head_width * config.width
    if max(config.num_layers * targets, len(config.vocabulary.cutoffs)) > len(shapes) or queries > there:
        raise CheckpointError(
            f"{path} must hold the tensors of its config; got {len(shapes)} tensors of {there:,} numbers together, "
            "fewer than the config needs. The config belongs to other weights."
        )
    try:
        with shapes_only():
            model = make(config)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{path} must hold the tensors of its config, and that model cannot be built; got {shortened(error)}. "
            "The config belongs to other weights."
        ) from None
    expected = model.state_dict()
    wrong = sorted(name for name in expected | shapes if _kind(expected.get(name)) != _kind(shapes.get(name)))
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{path} must hold the tensors of its config; got {len(wrong)} that do not fit, first {shortened(name)}: "
            f"config {_kind(expected.get(name))}, file {_kind(shapes.get(name))}. The config belongs to other weights."
        )
    return model


def _kind(tensor: Tensor | None) -> str:
    """Return the shape, with the dtype if it is not one that weights may have."""
    if tensor is None:
        return "none"
    return f"{tuple(tensor.shape)}" + ("" if tensor.dtype in FLOATS else f" {tensor.dtype}")


def _tensors(file: SafetensorsFile) -> dict[str, Tensor]:
    """Read each tensor into newly allocated memory: sums round differently with the file's alignment."""
    check_memory(file.path, file.tensors)
    return {name: file.read(name) for name in file.tensors}
