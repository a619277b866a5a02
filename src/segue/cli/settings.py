"""Configs on the command line: a file or the name of a preset, with overrides, completed by the store."""

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from segue.config import Config, parse, read_config_file, toml
from segue.data.store import Store
from segue.errors import ConfigError


def preset_names() -> list[str]:
    """The presets that come with segue."""
    return sorted(
        path.name.removesuffix(".toml") for path in files("segue.configs").iterdir() if path.name.endswith(".toml")
    )


def run_config(source: str, overrides: list[str]) -> Config:
    """A config for a run. The size of the vocabulary may be left out: the store knows it."""
    values = toml(_text(source), source=source)
    store = next((text.partition("=")[2] for text in reversed(overrides) if text.startswith("data.store=")), None)
    store = store or _table(values, "data").get("store")
    words = _table(_table(values, "model"), "vocabulary")
    given = "size" in words or any(text.startswith("model.vocabulary.size=") for text in overrides)
    if isinstance(store, str) and store and not given:
        words["size"] = Store.open(store.strip("\"'"), verify=False).vocabulary_size
    return parse(values, overrides)


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The table of this name, a new one where there is none. Where something else is, `parse` will say so."""
    table = values.setdefault(name, {})
    return table if isinstance(table, dict) else {}


def _text(source: str) -> str:
    if Path(source).suffix == ".toml" or os.path.exists(source):
        return read_config_file(source)
    if source not in preset_names():
        raise ConfigError(
            f"a config must be a file or one of {', '.join(preset_names())}; got {source!r}. Check the name."
        )
    return (files("segue.configs") / f"{source}.toml").read_text(encoding="utf-8")
