"""`segue serve`: models over HTTP."""

import ipaddress
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

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
    """Serves until it is told to stop; with `check`, stops when it could begin."""
    _check_installed()
    from segue.checkpoint.packaged import packaged_models
    from segue.serve.keys import read_keys
    from segue.serve.models import load_all
    from segue.serve.server import listen, serve
    from segue.serve.serving import Serving
    from segue.serve.settings import ServeSettings

    models = models or list(packaged_models())
    if not models:
        raise ConfigError(
            "segue serve must have a model; got none, and none comes with this installation. Name a model folder, "
            "a run folder, or a name on the hub."
        )
    chosen = settings(ServeSettings, {}, overrides)
    local = _is_local(host)
    if not local and keys is None:
        raise ConfigError(
            f"a server that others can reach must have keys; got --host {host} without. Give --keys FILE, with a line "
            "TENANT KEY for each, or leave --host out."
        )
    known = None if keys is None else read_keys(keys)
    console = Console(stderr=True, highlight=False)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="segue: %(levelname)s %(message)s")
    listening = listen(host, port)
    with console.status("loading models"):
        served = load_all(models, slice_tokens=chosen.slice_tokens)
    path = None if sessions is None else Path(sessions)
    serving = Serving(served, chosen, sessions=path, keys=known, local=local)
    at = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host

    def started() -> None:
        for one in served.values():
            console.print(f"{one.name}  {one.parameters / 1e6:.1f} M parameters  {', '.join(one.abilities)}")
        console.print(f"serving on http://{shown}:{at}  (Ctrl-C stops it)", soft_wrap=True)

    serve(serving, listening, started=started, check=check)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_installed() -> None:
    from importlib.util import find_spec

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"segue serve needs fastapi, uvicorn and prometheus-client; got none of: {', '.join(missing)}. Install "
            "them: pip install fastapi uvicorn prometheus-client."
        )
