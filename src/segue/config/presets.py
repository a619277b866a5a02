"""The presets of segue: configs of whole runs, by name."""

from importlib.resources import files


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(
        path.name.removesuffix(".toml") for path in files("segue.configs").iterdir() if path.name.endswith(".toml")
    )


def preset_text(name: str) -> str:
    """Return a preset as TOML."""
    return (files("segue.configs") / f"{name}.toml").read_text(encoding="utf-8")
