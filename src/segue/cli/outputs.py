"""What the verbs that write a file or a folder have in common: their `--replace`."""

from typing import Annotated, TypeAlias

import typer

ReplaceFileOption: TypeAlias = Annotated[
    bool, typer.Option("--replace", help="Replace the file if it exists; never one that the command reads.")
]
ReplaceFolderOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--replace", help="Replace the folder if segue wrote it and nothing else is in it; never one that it reads."
    ),
]
