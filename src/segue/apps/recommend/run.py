"""The server of a recommender."""

from collections.abc import Callable
from pathlib import Path

from segue.apps.keys import RoleKeys
from segue.apps.recommend.routes import router
from segue.apps.recommend.service import RecommendService
from segue.apps.recommend.settings import ServiceSettings
from segue.apps.running import run_application


def run_recommender(
    folder: Path,
    *,
    host: str,
    port: int,
    keys: RoleKeys | None,
    local: bool,
    settings: ServiceSettings,
    started: Callable[[str], None],
    check: bool,
) -> None:
    """Serve a recommender until a signal arrives (see `run_application`)."""
    run_application(
        "recommend",
        lambda: RecommendService(folder, settings),
        routers=[router],
        starts={"/": "application.html"},
        host=host,
        port=port,
        keys=keys,
        local=local,
        started=started,
        check=check,
    )
