"""Loading, changing and validating configs, and writing them as TOML.

In: a TOML file, a nested dict, `section.key=value` overrides. Out: a frozen `Config`, or one `ConfigError` that lists
every problem.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import ValidationError

from segue.config.messages import explain, parts, path_of, shown
from segue.config.rules import broken_rules
from segue.config.schema import LARGEST_VOCABULARY, Config, ModelConfig, Section
from segue.errors import ConfigError

S = TypeVar("S", bound=Section)
LARGEST_FILE = 2**18  # bytes
LONGEST_LINE = 2**13  # the time to parse a key grows with the square of its number of dots
DEEPEST = 8  # nested tables; no setting is deeper than four
MOST_SHOWN = 20  # problems
MAY_DIFFER = frozenset(
    {
        "model.objective",
        "model.memory.length",
        "model.memory.reuse_length",
        "model.dropout",
        "model.attention_dropout",
    }
)
"""Model settings that another stage of training may change: the weights of the layers do not depend on them."""
MAY_BE_ADDED = "model.segments"
"""Setting that another stage may add to a model without it."""


def load(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, apply `section.key=value` overrides, and validate all of it."""
    return parse(toml(read_config_file(path), source=str(path)), overrides)


def read_config_file(path: str | Path) -> str:
    """Return the text of a config file; raise ConfigError for a pipe or a device, which may have no end."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise ConfigError(f"{path} must be a readable UTF-8 TOML file; got a folder or a device. Check the path.")
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} must be a readable UTF-8 TOML file; got {error}. Check the path and the encoding."
        ) from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path} must have at most {LARGEST_FILE:,} bytes; it has more. It is not a config.")
    return text


def toml(text: str, *, source: str) -> dict[str, Any]:
    """Parse a TOML text; `source` is its name in errors."""
    if max(map(len, text.splitlines()), default=0) > LONGEST_LINE:
        raise ConfigError(f"{source} must have lines of at most {LONGEST_LINE:,} characters; one is longer. Split it.")
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} must be TOML; got {error}. Correct it there.") from None
    except RecursionError:
        raise ConfigError(f"{source} must be TOML of a config; got lists or tables nested too deeply.") from None


def toml_value(text: str) -> Any:
    """Return the value after `key=` on the command line: a TOML value, or else the text as it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if len(text) <= LONGEST_LINE else text
    except (ValueError, RecursionError):  # an integer of too many digits is then not a number either
        return text


def parse(values: Mapping[str, Any], overrides: Sequence[str] = (), *, base: ModelConfig | None = None) -> Config:
    """Validate nested values; raise one ConfigError with every problem. `base` is the model whose weights will be used:
    it completes [model], which may differ from it only in `MAY_DIFFER` and `MAY_BE_ADDED`."""
    merged = _copy(values)
    problems = [text for override in overrides if (text := _apply(merged, override))]
    if base is not None and isinstance(merged.setdefault("model", {}), dict):
        agreeing, contradictions = _compared(merged["model"], base.model_dump(mode="json"), "model")
        merged["model"] = merge(base.model_dump(mode="json", exclude_none=True), agreeing)
        problems += contradictions
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        problems += _explained(error, Config)
        problems += _rules_among_the_good(merged, error)
    else:
        problems += [message for _, message in broken_rules(config)]
        if not problems:
            return config
    raise ConfigError(_listed("The config has", problems))


def settings(root: type[S], values: Mapping[str, Any], overrides: Sequence[str] = ()) -> S:
    """Validate settings of another root than `Config`, with the same messages."""
    merged = _copy(values)
    problems = [text for override in overrides if (text := _apply(merged, override))]
    try:
        result = root.model_validate(merged)
    except ValidationError as error:
        problems += _explained(error, root)
    else:
        if not problems:
            return result
    raise ConfigError(_listed("The settings have", problems))


def settings_error(error: ValidationError, root: type[Section]) -> ConfigError:
    """Return an error of pydantic as one that explains each problem."""
    return ConfigError(_listed("The settings have", _explained(error, root)))


def model_config(**values: Any) -> ModelConfig:
    """Return a validated `ModelConfig` from plain keyword values, as in the `[model]` table of a file."""
    return parse({"model": values}).model


def changed(config: ModelConfig, **values: Any) -> ModelConfig:
    """Return the same model config with some settings changed; sections take dicts that are merged, None removes a
    key."""
    return model_config(**merge(config.model_dump(exclude_none=True), values))


def dump(config: Config) -> str:
    """Return the whole config as TOML, including defaults."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _explained(error: ValidationError, root: type[Section]) -> list[str]:
    """Explain each problem; of very many, as a file of another kind has them, only the first, because it takes time."""
    details = error.errors()
    rest = [f"{path_of(detail['loc'])}: {detail['msg']}" for detail in details[MOST_SHOWN:]]
    return [explain(detail, root) for detail in details[:MOST_SHOWN]] + rest


def _listed(what: str, problems: Sequence[str]) -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"- {text}" for text in problems[:MOST_SHOWN]]
    more = [f"- and {len(problems) - MOST_SHOWN} more"] if len(problems) > MOST_SHOWN else []
    return "\n".join([f"{what} {count}:", *lines, *more])


def _compared(given: Mapping[str, Any], base: Mapping[str, Any], table: str) -> tuple[dict[str, Any], list[str]]:
    """Return the given values without those that contradict `base`, and the contradictions as messages."""
    agreeing, problems = {}, []
    for key, value in given.items():
        name, own = f"{table}.{key}", base.get(key)
        if isinstance(value, Mapping) and isinstance(own, Mapping):
            agreeing[key], more = _compared(value, own, name)
            problems += more
        elif (
            key not in base  # an unknown key is for the schema to report
            or value == own
            or name in MAY_DIFFER
            or (name == MAY_BE_ADDED and own is None)
        ):
            agreeing[key] = value
        else:
            there = "leaves it out" if own is None else f"has {shown(own)}"
            problems.append(
                f"{name} must be that of the model that the run starts from, which {there}; got {shown(value)}. "
                "Leave it out."
            )
    return agreeing, problems


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge new settings over old ones; tables are merged, unless their kinds differ. None removes a key."""
    merged = dict(old)
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            other_kind = "kind" in value and value["kind"] != merged[key].get("kind")
            merged[key] = dict(value) if other_kind else merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _copy(values: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    if depth > DEEPEST:
        raise ConfigError(f"a config must have tables at most {DEEPEST} deep; got deeper ones. Check its brackets.")
    return {k: _copy(v, depth + 1) if isinstance(v, Mapping) else v for k, v in values.items()}


def _apply(values: dict[str, Any], override: str) -> str | None:
    """Set one `section.key=value` in place; return what is wrong with it, if anything."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(parts) > DEEPEST:
        return f"an override must read section.key=value; got {shown(override)}. Write model.width=512, for example."
    value = toml_value(text)
    for part in parts[:-1]:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            return (
                f"{shown(key)} must name a setting inside a section; got {shown(part)}, which is none. Check the name."
            )
        values = inner
    values[parts[-1]] = value
    return None


def _rules_among_the_good(merged: dict[str, Any], error: ValidationError) -> list[str]:
    """Return the broken rules that involve only settings which are valid by themselves, so that all problems are
    reported at once."""
    bad = {path_of(detail["loc"]) for detail in error.errors()}
    for detail in error.errors():
        table: Any = merged
        keys = [part for part in parts(detail["loc"]) if isinstance(part, str)]
        for key in keys[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(keys[-1], None)
    if not isinstance(merged.get("model"), dict):
        merged["model"] = {}
    try:
        merged["model"].setdefault("vocabulary", {}).setdefault("size", LARGEST_VOCABULARY)
        if isinstance(merged["model"].get("memory"), dict):
            merged["model"]["memory"].setdefault("length", 1)
        if isinstance(merged.get("data"), dict):
            merged["data"].setdefault("store", "")
        config = Config.model_validate(merged)
    except (ValidationError, AttributeError):
        return []
    return [
        message
        for names, message in broken_rules(config)
        if not any(_overlap(name, wrong) for name in names for wrong in bad)
    ]


def _overlap(name: str, wrong: str) -> bool:
    """Return True if one of two settings is, or contains, the other."""
    return f"{name}.".startswith(f"{wrong}.") or f"{wrong}.".startswith(f"{name}.")
