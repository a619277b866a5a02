"""A running application: its port, and the model in use."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from fastapi import APIRouter

from segue.apps.folder import Application
from segue.apps.keys import RoleKeys
from segue.apps.web import AppService, make_app
from segue.errors import SegueError
from segue.serve.server import listen, serve

log = logging.getLogger("segue.apps")
WATCHED = 2.0
"""Seconds between two checks of which model is in use."""


def run_application(
    name: str,
    made: Callable[[], AppService],
    *,
    routers: Sequence[APIRouter],
    starts: Mapping[str, str],
    embedded_by: str = "'none'",
    host: str,
    port: int,
    keys: RoleKeys | None,
    local: bool,
    started: Callable[[str], None],
    check: bool,
) -> None:
    """Run an application until a signal arrives. The port is opened before the service is created, which may take long.
    `started` gets the address when requests are accepted; with `check` the application then stops."""
    listening = listen(host, port)
    service = made()
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    app = make_app(
        name, service=service, routers=routers, starts=starts, embedded_by=embedded_by, keys=keys, local=local
    )
    serve(app, service, listening, started=lambda: started(address), check=check)


async def follow_model(
    application: Application, folder: Path, *, in_use: Callable[[], str], take: Callable[[str], Awaitable[None]]
) -> None:
    """Switch to another model when the folder names one; if it cannot be read, the previous one stays in use."""
    refused = said = ""
    while True:
        await asyncio.sleep(WATCHED)
        try:
            name = application.current_model(folder)
            said = ""
            if name in (in_use(), refused):
                continue
            refused = name
            await take(name)
        except (SegueError, OSError) as error:
            if str(error) != said:  # reported once
                log.error("the model in use goes on: %s", error)
            said = str(error)
            continue
        refused = ""
        log.warning("model %s is in use now", name)
