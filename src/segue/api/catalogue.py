"""Named models and configs: packaged models with weights, configs of published models, presets of whole runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segue.api.errors import python_errors
from segue.checkpoint.card import licence_and_languages
from segue.checkpoint.families.writing import only_for_segue as only_for_segue
from segue.checkpoint.files import CARD, LARGEST_CARD, read_small
from segue.checkpoint.packaged import WITHOUT, Packaged, package_folder, packaged_model, packaged_models
from segue.checkpoint.parts import CONFIG, LARGEST_TASK, TASK, TRUNK, read_toml, read_trunk
from segue.config import Config, ModelConfig, dump, model_config, parameter_count, parse, toml
from segue.config.presets import preset_names, preset_text
from segue.errors import ConfigError, similar_names
from segue.model.named import NamedModel, named_models


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A packaged model: one with weights, loaded by name."""

    name: str
    folder: Path
    comes_with_segue: bool
    """True if it is part of the installation; otherwise it is in the folder that SEGUE_MODELS names."""
    bytes: int
    """Total size of the files in bytes."""
    licence: str
    languages: Sequence[str]
    config: ModelConfig
    task: str | None
    """Task that it was fine-tuned on; None for a language model."""
    labels: Sequence[str]
    """Labels of the task."""
    trunk: str | None
    """Packaged model to which it stores low-rank differences; None for a complete model."""

    @property
    def parameters(self) -> int:
        """Number of parameters of the language model."""
        return parameter_count(self.config)

    @property
    def only_for_segue(self) -> str | None:
        """Why it cannot be converted for other libraries; None if it can."""
        return only_for_segue(self.config)


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All named models and configs, by kind."""

    packaged: Mapping[str, PackagedModel]
    """Models with weights."""
    configs: Mapping[str, NamedModel]
    """Configs of published models, without weights: `segue.named(NAME)`."""
    presets: Sequence[str]
    """Configs of whole runs, for `pretrain`."""
    built_with_models: bool
    """True if the installation includes packaged models."""


@python_errors
def models() -> Catalogue:
    """List the named models and configs, without loading torch.

    Returns:
        The models with weights (`packaged`), the configs of published models (`configs`), and the `presets`.

    Raises:
        CheckpointError: If SEGUE_MODELS names no folder, or a model in it is broken.

    Examples:
        >>> found = segue.models()
        >>> "xlnet-base" in found.configs, "small-xlnet" in found.presets
        (True, True)
    """
    return Catalogue(
        packaged={name: _facts(model) for name, model in packaged_models().items()},
        configs=named_models(),
        presets=preset_names(),
        built_with_models=package_folder().is_dir(),
    )


def packaged_names() -> list[str]:
    """Return the names of the packaged models; their files are not read."""
    return sorted(packaged_models())


def config_names() -> list[str]:
    """Return the names of the presets."""
    return preset_names()


def all_names() -> list[str]:
    """Return all names that `models` lists."""
    return sorted({*packaged_models(), *named_models(), *preset_names()})


@dataclass(frozen=True, kw_only=True)
class NamedText:
    """The card or config that a name stands for."""

    text: str
    """The card of a model, or a config as TOML."""
    is_card: bool
    only_for_segue: str | None
    """Why the model cannot be converted for other libraries; None if it can."""


@python_errors
def card_or_config(name: str) -> NamedText:
    """Return the card of a packaged model, after verifying its files, or the config of this name as TOML."""
    model = packaged_model(name)
    if model is not None:
        model.verify()
        card = read_small(model.folder / CARD, limit=LARGEST_CARD).decode("utf-8").rstrip()
        return NamedText(text=card, is_card=True, only_for_segue=only_for_segue(_config(model.folder)))
    if name in named_models():
        known = named_models()[name]
        why = None if known.for_transformers else only_for_segue(known.config)
        return NamedText(text=dump(Config(model=known.config)), is_card=False, only_for_segue=why)
    if name in preset_names():
        text = preset_text(name)
        return NamedText(text=text, is_card=False, only_for_segue=only_for_segue(_preset_model(text, name)))
    near = similar_names(name, all_names(), least=0.3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "See that list."
    hint = hint if package_folder().is_dir() else WITHOUT
    raise ConfigError(f"a name must be one that `segue models` lists; got {name!r}. {hint}")


def _preset_model(text: str, name: str) -> ModelConfig:
    """Return the model config of a preset. The vocabulary size may be absent, since the store of a run determines
    it."""
    values = toml(text, source=name)["model"]
    values.setdefault("vocabulary", {}).setdefault("size", 32000)
    return model_config(**values)


def _config(folder: Path) -> ModelConfig:
    return parse(read_toml(folder / CONFIG)).model


def _facts(model: Packaged) -> PackagedModel:
    folder = model.folder
    licence, languages = licence_and_languages(read_small(folder / CARD, limit=LARGEST_CARD).decode("utf-8"))
    task, labels = None, []
    if (folder / TASK).is_file():
        values = toml(read_small(folder / TASK, limit=LARGEST_TASK).decode("utf-8"), source=str(folder / TASK))
        task = str(values.get("task"))[:40]
        labels = [str(label) for label in (values.get("values") or {}).get("labels") or []]
    return PackagedModel(
        name=model.name,
        folder=folder,
        comes_with_segue=model.comes_with_segue,
        bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        licence=licence,
        languages=languages,
        config=_config(folder),
        task=task,
        labels=labels,
        trunk=read_trunk(folder).name if (folder / TRUNK).is_file() else None,
    )
