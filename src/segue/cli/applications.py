"""Shared parts of the application commands: options, checks before a server starts, and messages."""

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
        help="PostgreSQL database for incoming data, e.g. postgresql://user@host/name. Default: SQLite, in the folder.",
    ),
]
HeldSeedOption: TypeAlias = Annotated[int, typer.Option(help="Seed for the held-out split.")]
ToOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Model to return to. Default: the previous one.")
]
DeleteOption: TypeAlias = Annotated[bool, typer.Option("--delete", help="Delete the data instead of printing it.")]
HostOption: TypeAlias = Annotated[
    str, typer.Option(help="Address to listen on; any other than localhost requires --keys.")
]
PortOption: TypeAlias = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port.")]
KeysOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with one ROLE NAME KEY per line; roles: agent, operator. Default: no keys."
    ),
]


def log_to_terminal() -> None:
    """Log warnings of a server to standard error."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="segue: %(levelname)s %(message)s")


def check_reachable(host: str, keys: Path | None, *, what: str) -> None:
    """Raise ConfigError if other machines can reach a server without keys."""
    if not is_local(host) and keys is None:
        raise ConfigError(
            f"{what} that other machines can reach must have keys; got --host {host} without --keys. Give --keys FILE, "
            "with one ROLE NAME KEY per line, or leave --host out."
        )


def with_secret(webhook: str | None) -> tuple[str, str] | None:
    """Return the URL of webhooks with the secret from the environment."""
    if webhook is None:
        return None
    if not os.environ.get(SECRET):
        raise ConfigError(f"--webhook needs a secret of at least 16 characters in {SECRET}; got none. Set it.")
    return webhook, os.environ[SECRET]


def folder_or_temporary(folder: Path | None, *, name: str, what: str, demo: bool) -> Path:
    """Return the folder to run; with --demo, it may be a temporary one."""
    if folder is None and not demo:
        raise ConfigError(f"segue {name} run needs {what}; got none. Give its folder, or try --demo.")
    return folder if folder is not None else Path(tempfile.mkdtemp(prefix=f"segue-{name}-")) / name


def show_address(console: Console, address: str) -> None:
    """Print the address of the server; the last line before it waits."""
    console.print(f"serving on {address}  (Ctrl-C to stop)", soft_wrap=True, markup=False)


def show_checked(console: Console, folder: Path, *, model: str, host: str) -> None:
    """Report that a server could start, with --check."""
    console.print(
        f"{folder} can be run: model {model} was loaded, and the server started on {host} and stopped again. To run "
        "it, leave out --check.",
        soft_wrap=True,
        markup=False,
    )


def show_switch(name: str, folder: Path, *, model: str, switched: bool) -> None:
    """Report the result of retraining."""
    console = Console(highlight=False, emoji=False)
    if switched:
        say(console, f"Model {model} is now in use. To return to the previous one: segue {name} roll-back {folder}")
    else:
        say(console, f"The current model stays in use. The new one is kept as {model}.")


def show_rolled_back(model: str, *, before: str, command: str) -> None:
    """Report a roll-back from the model in use before to another, and the command that undoes it."""
    if before == model:
        text = f"Model {model} was already in use; nothing was changed."
    else:
        text = (
            f"Model {model} is now in use instead of {before}; a server that is running switches within seconds. To "
            f"undo this: {command} --to {before}"
        )
    say(Console(highlight=False, emoji=False), text)


def show_copy(folder: Path, out: Path) -> None:
    """Report a back-up."""
    say(Console(highlight=False, emoji=False), f"Backed up {folder} to {out}, which can be restored, or run as it is.")


def show_restored(copy: Path, out: Path) -> None:
    """Report a restored back-up."""
    say(Console(highlight=False, emoji=False), f"Restored {out} from {copy}; every file matches its hash.")


def show_json(found: Any, *, indent: int | None = None) -> None:
    """Print values as JSON, for another program or a file."""
    text = json.dumps(found, ensure_ascii=False, indent=indent)
    Console(highlight=False, emoji=False).print(text, markup=False, soft_wrap=True)
