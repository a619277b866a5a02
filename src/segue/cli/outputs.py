"""What the verbs that write a file, a folder or rows have in common: their `--replace`, and an output that is open."""

import os
import sys
from typing import Annotated, TypeAlias

import typer

from segue.errors import ConfigError

ReplaceFileOption: TypeAlias = Annotated[
    bool, typer.Option("--replace", help="Replace the file if it exists; never one that the command reads.")
]
ReplaceFolderOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--replace", help="Replace the folder if segue wrote it and nothing else is in it; never one that it reads."
    ),
]


def check_standard_output() -> None:
    """Refuses a standard output that was closed (`>&-`), where rows would be lost. Another stands in for it, so that
    messages do no harm (`segue.cli`)."""
    if getattr(sys.stdout, "name", None) == os.devnull:
        raise ConfigError("rows must go to a file or to standard output; got one that is closed. Give --out FILE.")
