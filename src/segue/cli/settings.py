"""Configs on the command line: a file or the name of a preset, with overrides, completed by the store."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from segue.config import Config, parse
from segue.data.store import Store
from segue.errors import ConfigError


def preset_names() -> list[str]:
    """The presets that come with segue."""
    return sorted(
        path.name.removesuffix(".toml") for path in files("segue.configs").iterdir() if path.name.endswith(".toml")
    )


def run_config(source: str, overrides: list[str]) -> Config:
    """A config for a run. The size of the vocabulary may be left out: the store knows it."""
    text = _text(source)
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} must be TOML; got {error}. Correct that place.") from None
    store = next((text.partition("=")[2] for text in reversed(overrides) if text.startswith("data.store=")), None)
    store = store or values.get("data", {}).get("store")
    words = values.setdefault("model", {}).setdefault("vocabulary", {})
    if store and "size" not in words and not any(text.startswith("model.vocabulary.size=") for text in overrides):
        words["size"] = Store.open(store.strip("\"'"), verify=False).vocabulary_size
    return parse(values, overrides)


def _text(source: str) -> str:
    path = Path(source)
    if path.suffix == ".toml" or path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{source} must be a readable UTF-8 TOML file; got {error}. Check the path.") from None
    if source not in preset_names():
        raise ConfigError(
            f"a config must be a file or one of {', '.join(preset_names())}; got {source!r}. Check the name."
        )
    return (files("segue.configs") / f"{source}.toml").read_text(encoding="utf-8")
