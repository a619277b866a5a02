"""Search space: parses expressions into ranges and choices, checked against the existing settings.

train.learning_rate=1e-5..1e-3:log    a range, on a logarithmic scale
train.epochs=2..6                     a range of whole numbers, where the setting is one
train.batch_size=8,16,32              choices
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from segue.config import toml_value
from segue.errors import ConfigError
from segue.tasks.automatic import usual_rate
from segue.tasks.task import TaskKind
from segue.train.command import written
from segue.train.finetune import finetune_settings

EXAMPLE = "Write train.learning_rate=1e-5..1e-3:log or train.batch_size=8,16,32, for example."
RATE_FACTOR = 5


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from low to high, both inclusive."""

    key: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.key}={written(self.low)}..{written(self.high)}{':log' if self.log else ''}"

    def holds(self, value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of several values."""

    key: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.key}={','.join(map(written, self.values))}"

    def holds(self, value: Any) -> bool:
        return value in self.values


Dimension = Range | Choice


def default_space(width: int, *, new_weights: bool) -> list[Dimension]:
    """Return the settings that matter most for a model of this width: the learning rate, around its default, the
    layer-wise decay, and the batch size. Not the epochs: a longer run is behind at first, and would be pruned for it.
    """
    rate = usual_rate(width, new_weights=new_weights)
    return [
        Range(key="train.learning_rate", low=rate / RATE_FACTOR, high=rate * RATE_FACTOR, log=True),
        Range(key="train.layer_decay", low=0.7, high=1.0),
        Choice(key="train.batch_size", values=(8, 16, 32)),
    ]


def search_space(expressions: Sequence[str], *, kind: TaskKind, fixed: Sequence[str]) -> list[Dimension]:
    """Parse the expressions; raise one ConfigError that lists all problems."""
    found: list[Dimension] = []
    problems = []
    for expression in expressions:
        try:
            found.append(dimension(expression, kind=kind, fixed=fixed))
        except ConfigError as error:
            problems.append(str(error))
    keys = [one.key for one in found]
    problems += [f"a setting may be searched once; got {key} twice. Leave one out." for key in _repeated(keys)]
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def dimension(expression: str, *, kind: TaskKind, fixed: Sequence[str]) -> Dimension:
    """Parse one expression; its values must be valid for the setting."""
    key, equals, text = expression.partition("=")
    key, text = key.strip(), text.strip()
    if not equals or not text or "." not in key:
        raise ConfigError(
            f"--search must have the form section.key=low..high or section.key=a,b,c; got {expression!r}. {EXAMPLE}"
        )
    if key == "train.seed":
        raise ConfigError(
            "--search may not set train.seed: a lucky seed is no better setting, and it may choose the validation "
            "examples. Give train.seed=N as a fixed setting."
        )
    if any(one.partition("=")[0].strip() == key for one in fixed):
        raise ConfigError(f"{key} must be searched or fixed; got both. Leave one out.")
    made = _range(key, text, kind) if ".." in text else _choice(key, text)
    ends = made.values if isinstance(made, Choice) else (made.low, made.high)
    for value in ends:
        finetune_settings(kind, {}, [f"{key}={written(value)}"])
    return made


def _range(key: str, text: str, kind: TaskKind) -> Range:
    body, colon, scale = text.partition(":")
    if colon and scale != "log":
        raise ConfigError(
            f"the scale of --search {key} must be log or nothing; got {scale!r}. Write :log, or leave it."
        )
    parts = body.split("..")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise ConfigError(f"--search {key} must go from one number to another; got {body!r}. {EXAMPLE}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"--search {key} must go from a lower number to a higher one; got {body!r}. {EXAMPLE}")
    log = bool(colon)
    if log and low <= 0:
        raise ConfigError(f"--search {key} with :log must begin above 0; got {parts[0]}. Use 1e-6, for example.")
    types = _types_of(key, kind)
    if float in types or not types:  # an unknown setting is reported when its values are tried
        return Range(key=key, low=low, high=high, log=log)
    if int not in types or bool in types:
        raise ConfigError(f"{key} is not a number, so it has no range. Give choices: --search {key}=a,b.")
    if not (low.is_integer() and high.is_integer()):
        raise ConfigError(
            f"--search {key} must go from one whole number to another; got {body!r}. Use 1..5, for example."
        )
    return Range(key=key, low=int(low), high=int(high), log=log, whole=True)


def _choice(key: str, text: str) -> Choice:
    if text.endswith(":log"):
        raise ConfigError(f"--search {key} has choices, which have no scale; got {text!r}. Leave :log out.")
    values = [toml_value(part.strip()) for part in text.split(",")]
    if "" in values:
        raise ConfigError(f"--search {key} must have a value on each side of a comma; got {text!r}. {EXAMPLE}")
    if len(values) < 2 or _repeated([repr(value) for value in values]):
        raise ConfigError(
            f"--search {key} must have at least two different values; got {text!r}. For one, give {key}=VALUE."
        )
    return Choice(key=key, values=tuple(values))


def _types_of(key: str, kind: TaskKind) -> set[Any]:
    """Return the plain types of a setting; none if there is no such setting."""
    section, _, name = key.partition(".")
    values = finetune_settings(kind, {})
    fields: Mapping[str, Any] = type(getattr(values, section)).model_fields if hasattr(values, section) else {}
    return _plain(fields[name].annotation) if name in fields else set()


def _plain(annotation: Any) -> set[Any]:
    inner = get_args(annotation)
    if not inner:
        return {annotation}
    return {found for one in inner if isinstance(one, type) or get_args(one) for found in _plain(one)}


def _repeated(values: Sequence[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})
