"""A desk on a port."""

from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI

from segue.apps.desk.routes import router
from segue.apps.desk.service import DeskService
from segue.apps.desk.settings import DeskSettings
from segue.apps.keys import RoleKeys
from segue.apps.web import Rate, make_app
from segue.apps.webhooks import check_webhook
from segue.serve.server import listen, serve

STARTS = {"/": "visitor.html", "/agent": "agent.html", "/widget.js": "widget.js"}


def desk_app(service: DeskService, *, keys: RoleKeys | None, local: bool) -> FastAPI:
    """The application around a desk."""
    settings = service.settings
    return make_app(
        title="segue desk",
        service=service,
        routers=[router],
        limits=settings,
        packages=("segue.serve", "segue.apps", "segue.apps.desk"),
        starts=STARTS,
        embedded_by=settings.embed or "'none'",
        keys=keys,
        local=local,
        rate=Rate(rate=settings.rate, most=settings.burst),
        proxy=settings.trusted_proxy,
    )


def run_desk(
    folder: Path,
    *,
    host: str,
    port: int,
    keys: RoleKeys | None,
    local: bool,
    settings: DeskSettings,
    webhook: tuple[str, str] | None,
    started: Callable[[str], None],
    check: bool = False,
) -> None:
    """Runs until a signal comes. `started` is told the address when requests are taken; with `check` it ends then."""
    if webhook is not None:
        check_webhook(*webhook)
    listening = listen(host, port)
    service = DeskService(folder, settings, webhook=webhook)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    app = desk_app(service, keys=keys, local=local)
    serve(app, service, listening, started=lambda: started(address), check=check)
