"""A recommender on a port."""

from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI

from segue.apps.keys import RoleKeys
from segue.apps.recommend.routes import router
from segue.apps.recommend.service import RecommendService
from segue.apps.recommend.settings import ServiceSettings
from segue.apps.web import Rate, make_app
from segue.serve.server import listen, serve

STARTS = {"/": "recommend.html"}


def recommend_app(service: RecommendService, *, keys: RoleKeys | None, local: bool) -> FastAPI:
    """The application around a recommender."""
    settings = service.settings
    return make_app(
        title="segue recommend",
        service=service,
        routers=[router],
        limits=settings,
        packages=("segue.serve", "segue.apps", "segue.apps.recommend"),
        starts=STARTS,
        embedded_by="'none'",
        keys=keys,
        local=local,
        rate=Rate(rate=settings.rate, most=settings.burst),
        proxy=settings.trusted_proxy,
    )


def run_recommender(
    folder: Path,
    *,
    host: str,
    port: int,
    keys: RoleKeys | None,
    local: bool,
    settings: ServiceSettings,
    started: Callable[[str], None],
    check: bool = False,
) -> None:
    """Runs until a signal comes. `started` is told the address when requests are taken; with `check` it ends then."""
    listening = listen(host, port)
    service = RecommendService(folder, settings)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    serve(
        recommend_app(service, keys=keys, local=local),
        service,
        listening,
        started=lambda: started(address),
        check=check,
    )
