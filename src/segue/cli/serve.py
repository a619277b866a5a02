"""`segue serve`: models over HTTP."""

import ipaddress
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.config import settings
from segue.errors import ConfigError

NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def run_server(
    models: Sequence[str],
    *,
    host: str,
    port: int,
    keys: Path | None,
    sessions: str | None,
    overrides: Sequence[str],
    check: bool,
) -> None:
    """Serve until a signal arrives; with `check`, stop once the server has started."""
    check_installed("segue serve")
    from segue.checkpoint.packaged import packaged_models
    from segue.serve.app import make_app
    from segue.serve.keys import read_keys
    from segue.serve.models import load_all
    from segue.serve.redis_store import SCHEMES, RedisStore
    from segue.serve.server import listen, serve
    from segue.serve.serving import Serving
    from segue.serve.settings import ServeSettings

    models = models or list(packaged_models())
    if not models:
        raise ConfigError(
            "segue serve needs a model; got none, and this installation has no packaged models. Give a model folder, "
            "a run folder, or a name on the Hub."
        )
    chosen = settings(ServeSettings, {}, overrides)
    local = is_local(host)
    if not local and keys is None:
        raise ConfigError(
            f"a server that other machines can reach must have keys; got --host {host} without --keys. Give --keys "
            "FILE, with one TENANT KEY per line, or leave --host out."
        )
    known = None if keys is None else read_keys(keys)
    store: RedisStore | Path | None = None if sessions is None else Path(sessions)
    if sessions is not None and sessions.startswith(SCHEMES):
        store = RedisStore(sessions)
    console = Console(stderr=True, highlight=False, emoji=False)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="segue: %(levelname)s %(message)s")
    listening = listen(host, port)
    with console.status("loading models"):
        served = load_all(models, slice_tokens=chosen.slice_tokens)
    serving = Serving(served, chosen, sessions=store, keys=known, local=local)
    at = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host

    def started() -> None:
        for one in served.values():
            console.print(
                f"{one.name}  {one.parameters / 1e6:.1f} M parameters  {', '.join(one.abilities)}", markup=False
            )
        ends = "--check: exiting" if check else "Ctrl-C to stop"
        console.print(f"serving on http://{shown}:{at}  ({ends})", soft_wrap=True, markup=False)

    serve(make_app(serving), serving, listening, started=started, check=check)


def is_local(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_installed(program: str) -> None:
    """Raise ConfigError if a package that servers need is missing."""
    from importlib.util import find_spec

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{program} needs fastapi, uvicorn and prometheus-client; missing: {', '.join(missing)}. Install them: pip "
            "install fastapi uvicorn prometheus-client."
        )


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL",
            help="Model folders, run folders, fine-tuned models, checkpoints or model names. NAME is the name in "
            "requests, by default that of the folder. Default: all packaged models.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than localhost requires --keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port.")] = 8000,
    keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with one TENANT KEY per line. Default: no keys.")
    ] = None,
    sessions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="File that keeps sessions across restarts, or redis://HOST:PORT/0 to share them between servers. "
            "Default: a temporary file.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Limit to change, e.g. max_tokens=1000; repeatable."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load the models, check that the server can start, and exit.")
    ] = False,
) -> None:
    """Serve models over HTTP, with stateful sessions.

    Offers an OpenAI-compatible API for text, and one route per task. Ctrl-C or SIGTERM finishes open requests, saves
    all sessions and exits.

    \b
    Example:
      segue serve run --port 8000
    """
    run_server(models or [], host=host, port=port, keys=keys, sessions=sessions, overrides=settings or [], check=check)
