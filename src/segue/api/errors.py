"""Public functions: checked arguments, and errors that name arguments in place of command-line options."""

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from segue.api.arguments import checked
from segue.errors import SegueError

P = ParamSpec("P")
R = TypeVar("R")
ARGUMENTS = {
    "from": "start",
    "set": "settings",
    "search": "space",
    "column": "columns",
    "columns": "tables.columns",
    "delimiter": "tables.delimiter",
    "quoting": "tables.quoting",
}
"""Options whose argument has a different name; all others are the option with underscores."""
_COLUMN = re.compile(r"--column (\w+)=(\w+)")
_OPTION = re.compile(r"(?<![\w-])--(no-)?([a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?: ([A-Z]+)\b)?")


def in_python(message: str) -> str:
    """Replace command-line options in a message by arguments.

    >>> in_python("Choose another --out, or allow more: --malformed-share 0.10.")
    'Choose another out, or allow more: malformed_share 0.10.'
    >>> in_python("Name it with --column tokens=NAME; leave --no-verify out.")
    'Name it with columns={"tokens": NAME}; leave verify=False out.'
    >>> in_python("Choose another file, or replace it with --replace.")
    'Choose another file, or pass replace=True.'
    """

    def argument(match: re.Match[str]) -> str:
        negated, name, value = match.groups()
        name = ARGUMENTS.get(name, name.replace("-", "_"))
        if negated:
            return f"{name}=False"
        return name if value is None else f"{name}={value}"

    message = message.replace("replace it with --replace", "pass replace=True")
    return _OPTION.sub(argument, _COLUMN.sub(r'columns={"\1": \2}', message))


def python_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that its arguments are checked by their type hints (`api.arguments`), and its
    errors name arguments. The command line, which calls it too, uses `SegueError.on_command_line`, where options keep
    their names."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = checked(function, args, kwargs)
            return function(*args, **kwargs) if given is None else function(**given)
        except SegueError as error:
            error.args = (in_python(str(error)),)
            raise

    return call
