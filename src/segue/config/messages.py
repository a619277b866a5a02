"""Pydantic's errors as messages: the thing, the rule, the value and the remedy; the nearest setting for an unknown
one."""

import difflib
from collections.abc import Iterator
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from segue.config.schema import POSITION_KINDS, Config, Section

SHOWN = 120
"""Maximum number of characters of a value in a message."""


def shown(value: object) -> str:
    """Return a value as text of limited length, whatever it is."""
    try:
        text = repr(value)
    except (
        ValueError,
        RecursionError,
    ):  # an integer of more digits than Python prints, or tables nested without end
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def parts(loc: tuple[str | int, ...]) -> list[str | int]:
    """Return a pydantic location without the union tag that it inserts after `positions`."""
    return [
        part
        for before, part in zip((None, *loc), loc, strict=False)
        if not (before == "positions" and part in POSITION_KINDS)
    ]


def path_of(loc: tuple[str | int, ...]) -> str:
    path = ".".join(map(str, parts(loc)))
    return path if len(path) <= SHOWN else f"{path[:SHOWN]}..."


def _sections(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every table of settings with its dotted name; `positions` once for each kind."""
    yield prefix, section
    for name, field in section.model_fields.items():
        options = get_args(field.annotation) or (field.annotation,)
        for option in options:
            if isinstance(option, type) and issubclass(option, Section):
                yield from _sections(option, f"{prefix}.{name}" if prefix else name)


def explain(detail: ErrorDetails, root: type[BaseModel] = Config) -> str:
    """Return the message for one error in settings of `root`."""
    path, value = path_of(detail["loc"]), shown(detail["input"])
    context = detail.get("ctx", {})
    table, _, key = path.rpartition(".")
    match detail["type"]:
        case "extra_forbidden":
            return _explain_unknown(root, path, table, key, detail["loc"])
        case "missing" if not table:
            several = get_origin(root.model_fields[key].annotation) is tuple
            return f"{path} must be given; got nothing. Add a {f'[[{key}]]' if several else f'[{key}]'} table."
        case "missing":
            return f"{path} must be given; got nothing. Add {key} = ... under [{table}]."
        case "literal_error" | "union_tag_invalid":
            expected = context.get("expected") or context["expected_tags"]
            got = shown(context["tag"]) if "tag" in context else value
            where = f"{path}.kind" if "tag" in context else path
            return f"{where} must be {expected}; got {got}. Use one of these."
        case "greater_than_equal":
            return f"{path} must be at least {context['ge']:g}; got {value}. {_remedy(root, table, key)}"
        case "greater_than":
            return f"{path} must be above {context['gt']:g}; got {value}. {_remedy(root, table, key)}"
        case "less_than":
            return f"{path} must be below {context['lt']:g}; got {value}. {_remedy(root, table, key)}"
        case "less_than_equal":
            return f"{path} must be at most {_number(context['le'])}; got {value}. {_remedy(root, table, key)}"
        case "too_long":
            return f"{path} must have at most {context['max_length']} entries; it has more. {_remedy(root, table, key)}"
        case "int_type" | "int_from_float":
            return f"{path} must be a whole number; got {value}. {_remedy(root, table, key)}"
        case "float_type" | "finite_number":
            return f"{path} must be a finite number; got {value}. {_remedy(root, table, key)}"
        case "bool_type":
            return f"{path} must be true or false; got {value}. {_remedy(root, table, key)}"
        case _:
            rule = detail["msg"].removeprefix("Input should be ")
            return f"{path} must be {rule}; got {value}. {_remedy(root, table, key)}"


def _number(value: int | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _explain_unknown(root: type[BaseModel], path: str, table: str, key: str, loc: tuple[str | int, ...]) -> str:
    tables = list(_sections(root))
    owners = [cls for name, cls in tables if name == table and key in cls.model_fields]
    if owners:  # a setting of another kind of positions
        kind = owners[0].model_fields["kind"].default
        return f'{path} must go with kind "{kind}"; got kind "{loc[-2]}". Remove it, or change the kind.'
    tags = {part for part in loc if part in POSITION_KINDS}
    known = [
        f"{name}.{field}".lstrip(".")
        for name, cls in tables
        for field in cls.model_fields
        if not tags or name != table or cls.model_fields["kind"].default in tags
    ]
    siblings = [name for name in known if name.rpartition(".")[0] == table]
    for candidates, cutoff in ((known, 1.0), (siblings, 0.6), (known, 0.75)):
        names = {name.rpartition(".")[2]: name for name in reversed(candidates)}
        if nearest := difflib.get_close_matches(key, names, n=1, cutoff=cutoff):
            return f"{path} is not a setting. Did you mean {names[nearest[0]]}?"
    here = ", ".join(name.rpartition(".")[2] for name in siblings)
    return f"{path} is not a setting. The settings here are: {here}."


def _remedy(root: type[BaseModel], table: str, key: str) -> str:
    for name, cls in _sections(root):
        if name == table and key in cls.model_fields and not cls.model_fields[key].is_required():
            default = cls.model_fields[key].default
            if default is None:
                return "Correct it, or leave it out."
            return f"Correct it, or leave it out for {default!r}."
    return "Correct it."
