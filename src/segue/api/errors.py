"""Public functions: checked arguments, and errors that name arguments in place of command-line options."""

import re
from collections.abc import Callable
from functools import wraps

from segue.arguments import P, R, checks_arguments
from segue.errors import SegueError

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
_SAME = (
    "prepare",
    "pretrain",
    "plan",
    "plot",
    "evaluate",
    "finetune",
    "tune",
    "predict",
    "compare",
    "score",
    "embed",
    "generate",
    "infill",
    "convert",
    "inspect",
    "package",
    "push",
    "doctor",
    "models",
)
_LISTS = ("models", "studies", "samples")
FUNCTIONS = {**{name: name for name in _SAME}, "study": "studies", "sample": "samples"}
"""Functions by the commands that messages name; the last two as commands that list names."""
_COLUMNS = re.compile(r"--column \w+=\w+(?: --column \w+=\w+)*")
_VALUE = (
    r"[A-Z]+\b|\d+(?:\.\d+)?|'[^']*'|[a-z]+[-_]?\d[\w-]*"
    r"|(?:unigram|bpe|words|characters|bytes|block|line|file|record|csv|tsv|json|jsonl|parquet|conll|squad|tag)\b"
)
_OPTION = re.compile(rf"(?<![\w-])--(no-)?([a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?: ({_VALUE}))?")
_COMMAND = re.compile(
    rf"`segue (?P<quoted>{'|'.join(FUNCTIONS)})(?P<rest>(?: [^`]*)?)`"
    rf"|\bsegue (?P<bare>{'|'.join(FUNCTIONS)})\b(?P<words>(?: [A-Z]+\b| --[a-z-]+(?: (?:{_VALUE}))?)*)"
)


def in_python(message: str) -> str:
    """Replace command-line options in a message by arguments, and commands by calls.

    >>> in_python("Choose another --out, or allow more: --malformed-share 0.10.")
    'Choose another out, or allow more: malformed_share=0.10.'
    >>> in_python("Prepare a store: segue prepare INPUT --out STORE. `segue models` lists the names.")
    'Prepare a store: segue.prepare(INPUT, out=STORE). `segue.models()` lists the names.'
    >>> in_python("Fine-tune it: `segue finetune xlnet-mini-en --task tag`.")
    "Fine-tune it: `segue.finetune('xlnet-mini-en', task='tag')`."
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
        return name if value is None else f"{name}={_literal(value)}"

    def columns(match: re.Match[str]) -> str:
        pairs = [word.split("=") for word in match[0].split() if "=" in word]
        return "columns={" + ", ".join(f'"{role}": {name}' for role, name in pairs) + "}"

    message = message.replace("replace it with --replace", "pass replace=True")
    return _OPTION.sub(argument, _COLUMNS.sub(columns, _COMMAND.sub(_call, message)))


def _call(match: re.Match[str]) -> str:
    """Return a command as a call of its function; without arguments and quotes, as the name of the function."""
    name = FUNCTIONS[match["quoted"] or match["bare"]]
    words = (match["rest"] or match["words"] or "").split()
    if not words:
        called = f"segue.{name}()" if name in _LISTS else f"segue.{name}"
        return f"`{called}`" if match["quoted"] else called
    given: list[str] = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            value = _literal(words.pop(0)) if words and not words[0].startswith("--") else "..."
            word = word.removeprefix("--")
            given.append(f"{ARGUMENTS.get(word, word.replace('-', '_'))}={value}")
        else:
            given.append(_literal(word))
    call = f"segue.{name}({', '.join(given)})"
    return f"`{call}`" if match["quoted"] else call


def _literal(word: str) -> str:
    """Return a word of a command as a value of Python; placeholders, numbers and quoted texts are left as they are."""
    return word if word.isupper() or word[0].isdigit() or word[0] == "'" else repr(word)


def python_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that its arguments are checked by their type hints (`arguments`), and its errors
    name arguments. The command line, which calls it too, uses `SegueError.on_command_line`, where options keep
    their names."""

    checking = checks_arguments(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return checking(*args, **kwargs)
        except SegueError as error:
            error.args = (in_python(str(error)),)
            raise

    return call
