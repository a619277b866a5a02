"""Forms in which functions accept a model, and loading it once for repeated use."""

from pathlib import Path
from typing import Annotated, TypeAlias
from weakref import WeakKeyDictionary

import torch

from segue.api.errors import python_errors
from segue.arguments import Described, ModelPath, Positive
from segue.checkpoint.find import find, is_here, model_folder
from segue.checkpoint.find import path_of as path_of
from segue.checkpoint.folder import HEAD, TASK, TOKENIZER, read_toml
from segue.checkpoint.folder import load as load_folder
from segue.config import ModelConfig
from segue.config import load as load_config
from segue.errors import CheckpointError, ConfigError, kind_of
from segue.infer.session import Session as Session
from segue.infer.session import check_device
from segue.infer.text_model import TextModel, load_text_model, segment_length_of
from segue.model import LanguageModel
from segue.model.named import named
from segue.tasks.similarity import SIMILARITY
from segue.text.files import load_tokenizer

ModelLike: TypeAlias = Annotated[
    str | Path | LanguageModel | TextModel,
    Described(
        what="a path, a name, or a loaded model", remedy='Use "xlnet-mini-en" or segue.load("run"), for example.'
    ),
]
"""A model folder, a run folder, a checkpoint of another library, a name; or the result of `load` or
`load_text_model`."""

_READERS: WeakKeyDictionary[LanguageModel, Path] = WeakKeyDictionary()
"""Folder of each loaded model, where its tokeniser is."""


@python_errors
def load(
    source: ModelPath, *, revision: str | None = None, offline: bool | None = None, mirror: str | Path | None = None
) -> LanguageModel:
    """Load a language model as an `nn.Module`.

    Args:
        source: A model folder, a run folder (its `best/`, else its `last/`), a checkpoint of another library, a
            packaged model, or a name on the Hugging Face Hub.
        revision: Branch, tag or commit of a model on the Hub. Default: the main branch.
        offline: Whether to use only the local cache of the Hub. Default: as set by HF_HUB_OFFLINE.
        mirror: Folder with models by name, used in place of the Hub. Default: SEGUE_MIRROR, if set.

    Returns:
        The model, ready for `score`, `embed`, `generate` and the others, or for your own code.

    Raises:
        CheckpointError: If the model does not exist, or its files are damaged.

    Examples:
        >>> model = segue.load("model")
        >>> model.config.objective
        'causal'
    """
    folder = model_folder(find(source, revision=revision, offline=offline, mirror=mirror))
    if (folder / TASK).is_file() and (folder / HEAD).is_file():
        raise CheckpointError(
            f"{source} must be a language model; got a model fine-tuned on a task.",
            remedy=f"Use segue.load_finetuned({str(source)!r}).",
            option=f"Use segue predict {source} FILE.",
        )
    model = load_folder(folder)
    _READERS[model] = folder
    return model


@python_errors
def open(
    source: ModelLike, *, memory_length: Positive | None = None, int8: bool = False, device: str = "cpu"
) -> Session:
    """Open a session with a model, to read text of any length at constant cost per token, and to generate, score, fork
    and save.

    Args:
        source: A model folder, a run folder, a checkpoint of another library, a name on the Hub, or a loaded model.
        memory_length: Memory length in tokens. Default: as in training.
        int8: Whether to quantise weights to 8 bits: a quarter of the memory, faster on a CPU, with nearly the same
            results.
        device: Device to compute on. Default: "cpu".

    Returns:
        A new session, which has read nothing yet.

    Raises:
        CheckpointError: If the model does not exist, or has no tokeniser.
        ConfigError: If the memory length is not valid for the model.

    Examples:
        >>> session = segue.open("model")
        >>> session.feed("The room was")
        0
        >>> text = "".join(session.stream(max_tokens=8))
    """
    check_device(device)
    return Session(text_model(source), memory_length=memory_length, int8=int8, device=device)


def with_folder(model: ModelLike) -> tuple[LanguageModel, Path | None]:
    """Return the model and its folder; None for a model that was built in this process."""
    if isinstance(model, str | Path):
        found = load(model)
        return found, _READERS[found]
    whole = model.model if isinstance(model, TextModel) else model
    if not isinstance(whole, LanguageModel):
        raise _no_model(model)
    return whole, _READERS.get(whole)


def model_or_random(model: ModelLike) -> tuple[LanguageModel, Path | None, bool]:
    """Return a model and its folder; or, for a config file or config name, a model with random weights from a fixed
    seed. The third value is True for random weights."""
    if not isinstance(model, str | Path) or (Path(model).suffix != ".toml" and is_here(model)):
        return *with_folder(model), False
    config = load_config(model).model if Path(model).suffix == ".toml" else named(str(model))
    return drawn_model(config), None, True


def drawn_model(config: ModelConfig) -> LanguageModel:
    """Return a model with random weights from a fixed seed; the caller's random state is preserved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LanguageModel(config)


def check_language_model(model: ModelLike, *, embeds: bool = False) -> None:
    """Raise ConfigError for a model that was fine-tuned on a task, and say how to use it. `embeds`: a model fine-tuned
    on the task similarity is accepted, because its embeddings are what it was fine-tuned for."""
    if not isinstance(model, str | Path):
        return
    path = path_of(model) / TASK
    if path.is_file() and not (embeds and read_toml(path).get("task") == SIMILARITY.name):
        raise ConfigError(
            f"{model} must be a language model; got a model fine-tuned on the task "
            f"{str(read_toml(path).get('task'))[:40]}.",
            remedy=f"Use segue.predict({str(model)!r}, rows).",
            option=f"Use segue predict {model} FILE.",
        )


def _no_model(given: object) -> ConfigError:
    return ConfigError(
        f'a model must be a path, a name, or a loaded model; got {kind_of(given)}. Use segue.load("run"), for example.'
    )


def text_model(model: ModelLike) -> TextModel:
    """Return a model with its tokeniser, from any accepted form of a model."""
    if isinstance(model, TextModel):
        return model
    if isinstance(model, str | Path):
        return load_text_model(model)
    if not isinstance(model, LanguageModel):
        raise _no_model(model)
    folder = _READERS.get(model)
    if folder is None or not (folder / TOKENIZER).is_dir():
        raise CheckpointError(
            "a model must have a tokeniser to read text; got one without. Load it with segue.load from a folder that "
            "has one, or use segue.TextModel(model=..., tokenizer=..., segment_length=...)."
        )
    return TextModel(
        model=model.eval(),
        tokenizer=load_tokenizer(folder / TOKENIZER),
        segment_length=segment_length_of(folder),
    )
