"""What the verbs of applications share: options, checks before a server starts, and what is said."""

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console

from segue.cli.console import say
from segue.cli.serve import is_local
from segue.errors import ConfigError

SECRET = "SEGUE_WEBHOOK_SECRET"
OutOption: TypeAlias = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write; it must not exist yet.")]
DatabaseOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="PostgreSQL that keeps what comes in: postgresql://user@host/name. Default: SQLite, in the folder.",
    ),
]
HeldSeedOption: TypeAlias = Annotated[int, typer.Option(help="Seed of what is held back.")]
ToOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the model. Default: the one before the one in use.")
]
DeleteOption: TypeAlias = Annotated[bool, typer.Option("--delete", help="Delete all of it.")]
HostOption: TypeAlias = Annotated[str, typer.Option(help="Address to listen on; any but this machine needs --keys.")]
PortOption: TypeAlias = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any that is free.")]
KeysOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with lines ROLE NAME KEY: agent, operator. Default: no keys."),
]


def log_to_terminal() -> None:
    """Warnings of a server, on standard error."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="segue: %(levelname)s %(message)s")


def check_reachable(host: str, keys: Path | None, *, what: str) -> None:
    """Raises where others can reach a server that has no keys."""
    if not is_local(host) and keys is None:
        raise ConfigError(
            f"{what} that others can reach must have keys; got --host {host} without. Give --keys FILE, with lines "
            "ROLE NAME KEY, or leave --host out."
        )


def with_secret(webhook: str | None) -> tuple[str, str] | None:
    """The address of webhooks with the secret of the environment."""
    if webhook is None:
        return None
    if not os.environ.get(SECRET):
        raise ConfigError(f"--webhook needs a secret of at least 16 characters in {SECRET}; got none. Set it.")
    return webhook, os.environ[SECRET]


def folder_or_temporary(folder: Path | None, *, name: str, what: str, demo: bool) -> Path:
    """The folder to run; with --demo, one may be made."""
    if folder is None and not demo:
        raise ConfigError(f"segue {name} run must have {what}; got none. Name its folder, or try --demo.")
    return folder if folder is not None else Path(tempfile.mkdtemp(prefix=f"segue-{name}-")) / name


def show_address(console: Console, address: str) -> None:
    """Where the server listens; the last line before it waits."""
    console.print(f"serving on {address}  (Ctrl-C stops it)", soft_wrap=True, markup=False)


def show_switch(name: str, folder: Path, *, model: str, switched: bool) -> None:
    """What learning again has changed."""
    console = Console(highlight=False, emoji=False)
    if switched:
        say(console, f"Model {model} is in use now. segue {name} roll-back {folder} goes back.")
    else:
        say(console, f"The model in use stays. The new one is kept as {model}.")


def show_rolled_back(model: str) -> None:
    """Which model is in use after a roll-back."""
    say(Console(highlight=False, emoji=False), f"Model {model} is in use now.")


def show_copy(folder: Path, out: Path) -> None:
    """What came of a back-up."""
    say(Console(highlight=False, emoji=False), f"{out} is a copy of {folder}, and can be restored or run.")


def show_restored(copy: Path, out: Path) -> None:
    """What came of a restored back-up."""
    say(Console(highlight=False, emoji=False), f"{out} is as it was when {copy} was made.")


def show_json(found: Any, *, indent: int | None = None) -> None:
    """Values for another program, or for a file."""
    text = json.dumps(found, ensure_ascii=False, indent=indent)
    Console(highlight=False, emoji=False).print(text, markup=False, soft_wrap=True)
