"""Checks of arguments by the type hints of a function, and the hints that say more than a type.

A number that is a str, a bool or NaN, an unknown choice, a path that cannot name a file, are reported before any work,
as on the command line. `checks_arguments` decorates methods, `api.errors.python_errors` the public functions, and
`check_types` is for the fields of settings.
"""

import math
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from segue.errors import ConfigError, DataError, SegueError, kind_of, with_article

P = ParamSpec("P")
R = TypeVar("R")
LONGEST_PATH, LONGEST_NAME = 4096, 255
"""Maximum number of bytes of a path, and of a name in it, on Linux."""
LARGEST = 2**63 - 1
"""Largest whole number."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """The range of a number, as metadata of a type hint."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    finite: bool = True

    def allows(self, value: float) -> bool:
        """Return True if the value is in the range."""
        return (
            not math.isnan(value)
            and (not self.finite or math.isfinite(value))
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __repr__(self) -> str:
        """Return the range in words: "at least 1", "from 0 to 1", "above 0"."""
        if self.least is not None and self.most is not None:
            return f"from {self.least:,} to {self.most:,}"
        words = [("at least", self.least), ("at most", self.most), ("above", self.above), ("below", self.below)]
        return " and ".join(f"{word} {limit:,}" for word, limit in words if limit is not None) or "a finite number"


@dataclass(frozen=True, kw_only=True)
class Described:
    """What an argument must be, in words, and what to give instead of something else, as metadata of a type hint."""

    what: str
    remedy: str
    error: type[SegueError] = ConfigError

    def __repr__(self) -> str:
        return self.what


Positive: TypeAlias = Annotated[int, Number(least=1)]
Index: TypeAlias = Annotated[int, Number(least=0)]
Seed: TypeAlias = Annotated[int, Number(least=0)]
Workers: TypeAlias = Annotated[int, Number(least=1, most=1024)]
"""A number of processes."""
Share: TypeAlias = Annotated[float, Number(least=0, most=1)]
Bias: TypeAlias = Mapping[str, Annotated[float, Number(below=math.inf, finite=False)]]
"""Numbers to add to the logits of tokens; -inf forbids a token."""
OneText: TypeAlias = Annotated[
    str, Described(what="a str", remedy="Call the function once for each text.", error=DataError)
]
ModelPath: TypeAlias = Annotated[
    str | Path, Described(what="a path or a name", remedy='Use a folder, or a name such as "xlnet-mini-en".')
]

_REMEDIES = {
    "Batch": "Use segue.Batch(ids_BQ=ids).",
    "Config": "Use a preset name, or a TOML file.",
    "MonitorSettings": "Use segue.MonitorSettings(false_alarms=1), for example.",
    "Memory": "Use the memory of the output for the previous segment.",
    "RecommenderSettings": "Use segue.RecommenderSettings(epochs=10), for example.",
    "SamplingSettings": "Use segue.SamplingSettings(temperature=0.8), for example.",
    "Store": "Use the result of segue.prepare, or its folder.",
    "TableSettings": 'Use segue.TableSettings(delimiter=";"), for example.',
    "TextModel": "Open a model: segue.open(PATH).",
}
"""What to give for a class."""


def checked(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a call by name, with numbers of other libraries as numbers of Python. Raises a SegueError
    for one that its type hint does not allow. None if the arguments do not fit the signature, which Python reports."""
    own, hints, parameters = _signature(function)
    try:
        bound = own.bind(*args, **kwargs)
    except TypeError:
        return None
    for name, value in bound.arguments.items():
        if name in hints:
            bound.arguments[name] = parameters[name].allowed(value, hints[name])
    return dict(bound.arguments)


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function or method so that its arguments are checked by their type hints."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = checked(function, args, kwargs)
        return function(*args, **kwargs) if given is None else function(**given)  # type: ignore[call-arg]

    return call


def check_types(settings: Any, *, but: Collection[str] = ()) -> None:
    """Raise a SegueError for a field of a dataclass whose type is not that of its hint; ranges are left to the class.
    `but` names fields to leave out."""
    kind: Any = type(settings)
    for name, hint in _fields(kind).items():
        if name not in but:
            optional = any(one.type is type(None) for one in _alternatives(hint))
            _Argument(name=name, option=name, optional=optional).fitting(getattr(settings, name), hint)


@cache
def _fields(settings: type) -> dict[str, Any]:
    return get_type_hints(settings, include_extras=True)


@cache
def _signature(function: Callable[..., Any]) -> tuple[Signature, dict[str, Any], dict[str, "_Argument"]]:
    own = signature(function)
    parameters = {name: _argument(parameter) for name, parameter in own.parameters.items()}
    return own, get_type_hints(function, include_extras=True), parameters


def check_path(name: str, value: str | os.PathLike[str]) -> None:
    """Raise ConfigError for a path that cannot be that of a file."""
    _check_path(name, value, option=name)


def _check_path(name: str, value: str | os.PathLike[str], *, option: str) -> None:
    text = os.fspath(value)
    try:
        size = len(os.fsencode(text))
        longest = max(len(os.fsencode(part)) for part in text.split(os.sep))
    except UnicodeEncodeError:
        raise _error(name, option, "a path in valid Unicode", f"{text[:40]!a}", "Correct it.") from None
    if not text:
        raise _error(name, option, "the path of a file or folder", "an empty text", "Give its path.")
    if "\0" in text:
        raise _error(name, option, "a path without NUL characters", f"{text[:40]!r}", "Check the path.")
    if size > LONGEST_PATH or longest > LONGEST_NAME:
        rule = f"a path of at most {LONGEST_PATH:,} bytes, with names of at most {LONGEST_NAME}"
        got = f"{size:,} bytes, with a name of {longest:,}"
        raise _error(name, option, rule, got, "Use a shorter one.")


def _error(
    name: str, option: str, rule: str, got: str, remedy: str, error: type[SegueError] = ConfigError
) -> SegueError:
    made = error(f"{name} must be {rule}; got {got}. {remedy}")
    made.on_command_line = f"{option} must be {rule}; got {got}. {remedy}"
    return made


def _argument(parameter: Parameter) -> "_Argument":
    name = parameter.name
    option = f"--{name.replace('_', '-')}" if parameter.kind is Parameter.KEYWORD_ONLY else name
    return _Argument(name=name, option=option, optional=parameter.default is None)


@dataclass(frozen=True, kw_only=True)
class _Argument:
    """An argument of a call, or a part of one, for messages about it."""

    name: str
    option: str
    optional: bool = False

    def allowed(self, value: Any, hint: Any) -> Any:
        """Return the value if the hint allows it; otherwise raise an error."""
        hints = _alternatives(hint)
        if value is None and any(one.type is type(None) for one in hints):
            return value
        is_path = {str, Path} <= {one.type for one in hints}
        if is_path and isinstance(value, str | os.PathLike):
            _check_path(self.name, value, option=self.option)
            return value if isinstance(value, str | Path) else Path(value)
        return self.converted(value, self.fitting(value, hint), hints)

    def fitting(self, value: Any, hint: Any) -> "_Hint":
        """Return the first type of a hint that the value has; raise an error if there is none."""
        hints = _alternatives(hint)
        found = next((one for one in hints if _fits(value, one.type)), None)
        if found is None:
            raise self.mismatch(value, hints, is_path={str, Path} <= {one.type for one in hints})
        return found

    def converted(self, value: Any, hint: "_Hint", hints: "tuple[_Hint, ...]") -> Any:
        """Return a value of the right type as a plain one; raise an error if it is outside its range or choices, or a
        part of it is wrong."""
        kind = get_origin(hint.type) or hint.type
        if kind is Literal:
            return self.choice(value, [choice for one in hints for choice in _choices(one.type)])
        if kind is bool:
            return bool(value)
        if kind in (int, float):
            return self.number(value, kind, hint.number or Number())
        if kind is Sequence and get_args(hint.type):
            return self.parts(value, get_args(hint.type)[0])
        if kind is Mapping and get_args(hint.type):
            keys, values = get_args(hint.type)
            return {
                self.part(" (its keys)").allowed(key, keys): self.part(f"[{key!r}]").allowed(one, values)
                for key, one in value.items()
            }
        return value

    def parts(self, values: Iterable[Any], wanted: Any) -> list[Any]:
        values, plain = list(values), _plain(wanted)
        if plain is not None and all(isinstance(one, plain) for one in values):  # nothing to convert or to report
            return values
        return [self.part(f"[{number}]").allowed(one, wanted) for number, one in enumerate(values)]

    def part(self, place: str) -> "_Argument":
        return _Argument(name=self.name + place, option=self.option + place)

    def choice(self, value: Any, choices: list[Any]) -> Any:
        if value in choices:
            return value
        near = get_close_matches(str(value), [str(one) for one in choices], n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else "Use one of them."
        raise _error(self.name, self.option, _either([str(one) for one in choices]), f"{value!r:.80}", remedy)

    def number(self, value: Any, kind: type, rule: Number) -> float:
        found: float = int(value) if kind is int else value if isinstance(value, int | float) else float(value)
        if kind is int and abs(found) > LARGEST:
            rule = rule if rule.most is not None or found < 0 else Number(most=LARGEST)
        elif rule.allows(found):
            return found
        remedy = f"Use {rule.least:,} or more" if rule.least is not None and rule.most is None else "Use such a number"
        raise _error(self.name, self.option, repr(rule), _digits(found), f"{remedy}{self.or_none}.")

    @property
    def or_none(self) -> str:
        return ", or leave it out" if self.optional else ""

    def mismatch(self, value: Any, hints: "tuple[_Hint, ...]", *, is_path: bool) -> SegueError:
        described = next((one.described for one in hints if one.described is not None), None)
        got = kind_of(value)
        if described is not None:
            return _error(self.name, self.option, described.what, got, described.remedy, described.error)
        words = dict.fromkeys(_in_words(one, is_path=is_path) for one in hints if one.type is not type(None))
        if isinstance(value, str | bool) and words.keys() & {"a whole number", "a number"}:
            got, remedy = f"{value!r:.80}", f"Use 1, for example{self.or_none}."
        elif isinstance(value, int | float) and words.keys() & {"a whole number", "a number"}:
            got, remedy = _digits(value), f"Use 1, for example{self.or_none}."
        else:
            wanted = [one.type.__name__ for one in hints if isinstance(one.type, type)]
            remedy = next((_REMEDIES[name] for name in wanted if name in _REMEDIES), "")
            first = next(iter(words))
            remedy = remedy or _GIVE.get(first, "") or f"Give {first}{self.or_none}."
        return _error(self.name, self.option, _either(list(words)), got, remedy)


_GIVE = {
    "a list": "Put it into a list.",
    "True or False": "Use one of them.",
    "a function": "Give a function that takes one event.",
}


@dataclass(frozen=True, kw_only=True)
class _Hint:
    """One of the types that a type hint allows, with its metadata."""

    type: Any
    number: Number | None = None
    described: Described | None = None


@cache  # hints are few, and taking one apart costs more than most checks
def _alternatives(hint: Any, number: Number | None = None, described: Described | None = None) -> tuple[_Hint, ...]:
    if get_origin(hint) is Annotated:
        hint, *said = get_args(hint)
        number = next((one for one in said if isinstance(one, Number)), number)
        described = next((one for one in said if isinstance(one, Described)), described)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(one for inner in get_args(hint) for one in _alternatives(inner, number, described))
    if get_origin(hint) is Annotated:
        return _alternatives(hint, number, described)
    return (_Hint(type=hint, number=number, described=described),)


@cache
def _plain(hint: Any) -> type | None:
    """Return the class of a hint that allows exactly its instances, which are returned as they are; else None."""
    hints = _alternatives(hint)
    kind = get_origin(hints[0].type) or hints[0].type
    converted = (bool, int, float, Sequence, Mapping, Callable, Any)
    return kind if len(hints) == 1 and isinstance(kind, type) and kind not in converted else None


def _fits(value: Any, hint: Any) -> bool:
    kind = get_origin(hint) or hint
    if kind is Any:
        return True
    if kind is Literal:
        return isinstance(value, str)
    if kind is bool:
        return type(value).__name__ in ("bool", "bool_")  # also of numpy
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool) and _has_float(value)
    if kind is Sequence:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | os.PathLike)
    if kind is Callable:
        return callable(value)
    return not isinstance(kind, type) or isinstance(value, kind)


def _has_float(value: Real) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _digits(value: object) -> str:
    """Return a number as text of limited length; Python does not print integers of very many digits."""
    try:
        text = f"{value}"
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:40]}..."


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def _in_words(hint: _Hint, *, is_path: bool) -> str:
    kind = get_origin(hint.type) or hint.type
    if kind is Literal:
        return _either([str(one) for one in _choices(hint.type)])
    if is_path and kind in (str, Path):
        return "a path"
    known = {
        int: "a whole number",
        float: "a number",
        bool: "True or False",
        str: "a str",
        Path: "a Path",
        Sequence: "a list",
        Mapping: "a dict",
        Callable: "a function",
    }
    return known.get(kind) or with_article(getattr(kind, "__name__", str(kind)))


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
