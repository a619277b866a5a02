"""Serving a desk on a port."""

from collections.abc import Callable
from pathlib import Path

from segue.apps.desk.routes import router
from segue.apps.desk.service import DeskService
from segue.apps.desk.settings import DeskSettings
from segue.apps.keys import RoleKeys
from segue.apps.running import run_application
from segue.apps.webhooks import check_webhook

STARTS = {"/": "visitor.html", "/agent": "application.html", "/widget.js": "widget.js"}


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
    check: bool,
) -> None:
    """Serve a desk until a signal arrives, as `run_application` does."""
    if webhook is not None:
        check_webhook(*webhook)
    run_application(
        "desk",
        lambda: DeskService(folder, settings, webhook=webhook),
        routers=[router],
        starts=STARTS,
        embedded_by=settings.embed or "'none'",
        host=host,
        port=port,
        keys=keys,
        local=local,
        started=started,
        check=check,
    )
