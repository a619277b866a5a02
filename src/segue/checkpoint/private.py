"""Removal of local paths from published files, because paths reveal private information.

In: the text of a config or of a card. Out: the text with paths reduced to their last names, and the changes.
"""

import re
import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

import tomli_w

_COMMAND = re.compile(r"^    segue .*$", re.MULTILINE)
"""Pattern of a command on a card."""


def public_config(text: str) -> tuple[str, list[str]]:
    """Return a config with paths reduced to their last names, and the settings that had them. `[model]` has none."""
    values = tomllib.loads(text)
    changed: list[str] = []
    public = {
        name: section if name == "model" else _stripped(section, name, changed) for name, section in values.items()
    }
    return (tomli_w.dumps(public), changed) if changed else (text, [])


def _stripped(value: Any, name: str, changed: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _stripped(inner, f"{name}.{key}", changed) for key, inner in value.items()}
    if isinstance(value, list):
        return [_stripped(inner, name, changed) for inner in value]
    if not isinstance(value, str) or not re.search(r"[/\\]", value):
        return value
    if name not in changed:
        changed.append(name)
    return _last_name(value)


def public_card(text: str) -> tuple[str, bool]:
    """Return a card with the absolute paths in its commands reduced to their last names, and whether it had any."""
    public = _COMMAND.sub(lambda found: "    " + _public_command(found[0].strip()), text)
    return public, public != text


def _public_command(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError:  # an unterminated quote: not a command, or a truncated one
        return command
    stripped = [_public_word(word) for word in words]
    return shlex.join(stripped) if stripped != words else command


def _public_word(word: str) -> str:
    """Return `PATH`, `--option=PATH` or `section.key=PATH` with an absolute path reduced to its last name."""
    key, equals, value = word.partition("=") if re.match(r"[\w.-]+=", word) else ("", "", word)
    return f"{key}{equals}{_last_name(value)}" if re.match(r"/|~|\\\\|[A-Za-z]:[/\\]", value) else word


def _last_name(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
