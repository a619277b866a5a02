"""Configs on the command line: a file or the name of a preset, with overrides, completed by the store."""

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from segue.checkpoint.find import ALIASES
from segue.checkpoint.packaged import packaged_model, packaged_models
from segue.config import Config, ModelConfig, parse, read_config_file, toml
from segue.config.presets import preset_names, preset_text
from segue.data.store import Store
from segue.errors import ConfigError
from segue.model.named import named_models


def check_has_weights(model: str) -> None:
    """Raises for a config or the name of one, with how to make a model of it."""
    file = Path(model).suffix == ".toml" and os.path.isfile(model)
    name = not os.path.exists(model) and model not in ALIASES and (model in preset_names() or model in named_models())
    if (not file and not name) or packaged_model(model) is not None:
        return
    config = model if file or model in preset_names() else f"{model}.toml"
    first = f"segue models {model} > {config}, then " if config != model else ""
    raise ConfigError(
        f"{model} is a config: it has neither weights nor a tokeniser, and a model is needed here. Make one of your "
        f"text: segue prepare TEXT --out STORE, then {first}segue pretrain {config} data.store=STORE --out RUN; then "
        "give RUN. Where only its shape and tokeniser are used (--new-weights), train.steps=1 is enough."
    )


def run_config(source: str, overrides: list[str], *, base: ModelConfig | None = None) -> Config:
    """A config for a run. The size of the vocabulary may be left out: the store knows it. `base` is the model that the
    run starts from, which knows all of [model]."""
    values = toml(_text(source), source=source)
    store = next((text.partition("=")[2] for text in reversed(overrides) if text.startswith("data.store=")), None)
    store = store or _table(values, "data").get("store")
    words = _table(_table(values, "model"), "vocabulary")
    given = "size" in words or any(text.startswith("model.vocabulary.size=") for text in overrides)
    if isinstance(store, str) and store and not given and base is None:
        words["size"] = Store.open(store.strip("\"'"), verify=False).vocabulary_size
    return parse(values, overrides, base=base)


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The table of this name, a new one where there is none. Where something else is, `parse` will say so."""
    table = values.setdefault(name, {})
    return table if isinstance(table, dict) else {}


def _advice(source: str) -> str:
    """What to say to a user whose config is neither a file nor a preset."""
    if packaged_model(source) is not None:
        return f"{source} is a model that is trained already: fine-tune it with `segue finetune {source}`."
    near = get_close_matches(source, [*preset_names(), *packaged_models()], n=1)
    return f"Did you mean {near[0]}?" if near else "Check the name."


def _text(source: str) -> str:
    if Path(source).suffix == ".toml" or os.path.exists(source):
        return read_config_file(source)
    if source not in preset_names():
        raise ConfigError(
            f"a config must be a file or one of {', '.join(preset_names())}; got {source!r}. {_advice(source)}"
        )
    return preset_text(source)
