"""Start of a monitor server."""

from collections.abc import Callable
from pathlib import Path

from segue.apps.keys import RoleKeys
from segue.apps.monitor.alarm_routes import router as alarm_router
from segue.apps.monitor.routes import router
from segue.apps.monitor.service import MonitorService
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import Listed
from segue.apps.running import run_application
from segue.apps.webhooks import check_webhook


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
    check: bool,
) -> None:
    """Serve a monitor until a signal arrives (see `run_application`)."""
    if webhook is not None:
        check_webhook(*webhook)
    run_application(
        "monitor",
        lambda: MonitorService(folder, settings, listed=listed, webhook=webhook, password=password),
        routers=[router, alarm_router],
        starts={"/": "application.html"},
        host=host,
        port=port,
        keys=keys,
        local=local,
        started=started,
        check=check,
    )
