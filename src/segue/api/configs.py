"""Configs of runs: a file, a preset or a Config, with changed settings, completed from the store."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from segue.checkpoint.packaged import ALIASES, packaged_model, packaged_models
from segue.config import Config, ModelConfig, dump, parse, read_config_file, toml, toml_value
from segue.config.presets import preset_names, preset_text
from segue.config.schema import LARGEST_VOCABULARY
from segue.data.store import Store
from segue.errors import ConfigError, kind_of, similar_names
from segue.model.named import named_models
from segue.train.command import written


def check_has_weights(model: str) -> None:
    """Raise ConfigError for a config, or the name of one, and say how to train a model from it."""
    file = Path(model).suffix == ".toml" and os.path.isfile(model)
    name = not os.path.exists(model) and model not in ALIASES and (model in preset_names() or model in named_models())
    if (not file and not name) or packaged_model(model) is not None:
        return
    config = model if file or model in preset_names() else f"{model}.toml"
    first = f"segue models {model} > {config}, then " if config != model else ""
    enough = "train.steps=1 is enough."
    raise ConfigError(
        f"{model} is a config, with neither weights nor a tokeniser; a model is needed here.",
        remedy=f"Pretrain one on your text: segue.prepare(TEXT, STORE), then segue.pretrain({config!r}, RUN, "
        f"store=STORE); then give RUN. Where only the shape and tokeniser are used (new_weights=True), {enough}",
        option=f"Pretrain one on your text: segue prepare TEXT --out STORE, then {first}segue pretrain {config} "
        "data.store=STORE --out RUN; then give RUN. Where only the shape and tokeniser are used (--new-weights), "
        f"{enough}",
    )


def run_config(source: str | Path | Config, overrides: Sequence[str], *, base: ModelConfig | None = None) -> Config:
    """Return the config of a run. The vocabulary size may be absent: it is read from the store. `base` is the model
    that the run starts from, which supplies all [model] settings."""
    values = toml(dump(source) if isinstance(source, Config) else _text(str(source)), source=str(source)[:200])
    store = next((text.partition("=")[2] for text in reversed(overrides) if text.startswith("data.store=")), None)
    store = toml_value(store) if store is not None else _table(values, "data").get("store")
    words = _table(_table(values, "model"), "vocabulary")
    given = "size" in words or any(text.startswith("model.vocabulary.size=") for text in overrides)
    if isinstance(store, str) and store and not given and base is None:
        words["size"] = Store.open(store, verify=False).vocabulary_size
    about_data = bool(_table(values, "data")) or any(text.startswith("data.") for text in overrides)
    if not store and not given and base is None and about_data:
        # A store that is missing or misspelt is the problem; the unknown size only follows from it.
        words["size"] = LARGEST_VOCABULARY
        parse(values, overrides)
        del words["size"]
    return parse(values, overrides, base=base)


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the table of this name, created if absent. If the name holds something else, `parse` reports it."""
    table = values.setdefault(name, {})
    return table if isinstance(table, dict) else {}


def _advice(source: str) -> str:
    """Return the remedy for a config that is neither a file nor a preset."""
    if packaged_model(source) is not None:
        return f"{source} is a model that is trained already: fine-tune it with `segue finetune {source}`."
    if source in named_models():
        return (
            f"{source} is the config of a model, without data and training: write it to a file with "
            f"`segue models {source} > {source}.toml`, and add [data] and [train] as a preset has them."
        )
    near = similar_names(source, [*preset_names(), *packaged_models()])
    return f"Did you mean {' or '.join(near)}?" if near else "Check the name."


def _text(source: str) -> str:
    if Path(source).suffix == ".toml" or os.path.exists(source):
        return read_config_file(source)
    if source not in preset_names():
        raise ConfigError(
            f"a config must be a file or one of {', '.join(preset_names())}; got {source!r}. {_advice(source)}"
        )
    return preset_text(source)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names.

    >>> flat({"train": {"steps": 10}, "model.width": 64})
    {'train.steps': 10, 'model.width': 64}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


Settings: TypeAlias = Mapping[str, Any] | Sequence[str]
"""Settings by dotted name, {"train.steps": 10} or nested, or as on the command line, ["train.steps=10"]."""


def overrides(settings: Settings | None) -> list[str]:
    """Return settings in the form of the command line.

    >>> overrides({"train": {"steps": 10}, "data.store": Path("corpus")})
    ['train.steps=10', 'data.store=corpus']
    """
    if settings is not None and not isinstance(settings, Mapping):
        return list(settings)
    return [f"{key}={_value(key, value)}" for key, value in flat(settings or {}).items()]


def _value(key: str, value: Any) -> str:
    """Return the value of a setting in the form of the command line."""
    try:
        return written(str(value) if isinstance(value, Path) else value)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{key} must be a number, a text, True, False, or a list of them; got {kind_of(value)}. Correct it."
        ) from None


def chosen_config(
    config: str | Path | Config,
    *,
    store: str | Path | Store | None = None,
    validation: str | Path | Store | None = None,
    settings: Settings | None = None,
    base: ModelConfig | None = None,
) -> Config:
    """Return the config of a run from the given arguments. `base` is the model that it starts from."""
    data = {
        f"data.{key}": one.path if isinstance(one, Store) else Path(one)
        for key, one in (("store", store), ("validation", validation))
        if one is not None
    }
    return run_config(config, [*overrides(settings), *overrides(data)], base=base)
