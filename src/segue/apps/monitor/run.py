"""A monitor on a port."""

from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI

from segue.apps.keys import RoleKeys
from segue.apps.monitor.alarm_routes import router as alarm_router
from segue.apps.monitor.routes import router
from segue.apps.monitor.service import MonitorService
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import Listed
from segue.apps.web import Rate, make_app
from segue.apps.webhooks import check_webhook
from segue.serve.server import listen, serve

STARTS = {"/": "monitor.html"}


def monitor_app(service: MonitorService, *, keys: RoleKeys | None, local: bool) -> FastAPI:
    """The application around a monitor."""
    settings = service.settings
    return make_app(
        title="segue monitor",
        service=service,
        routers=[router, alarm_router],
        limits=settings,
        packages=("segue.serve", "segue.apps", "segue.apps.monitor"),
        starts=STARTS,
        embedded_by="'none'",
        keys=keys,
        local=local,
        rate=Rate(rate=settings.rate, most=settings.burst),
        proxy=settings.trusted_proxy,
    )


def run_monitor(
    folder: Path,
    *,
    listed: Listed,
    host: str,
    port: int,
    keys: RoleKeys | None,
    local: bool,
    settings: MonitorSettings,
    webhook: tuple[str, str] | None,
    password: str,
    started: Callable[[str], None],
    check: bool = False,
) -> None:
    """Runs until a signal comes. `started` is told the address when requests are taken; with `check` it ends then."""
    if webhook is not None:
        check_webhook(*webhook)
    listening = listen(host, port)
    service = MonitorService(folder, settings, listed=listed, webhook=webhook, password=password)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    app = monitor_app(service, keys=keys, local=local)
    serve(app, service, listening, started=lambda: started(address), check=check)
