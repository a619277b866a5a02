"""Shared state of all routes: the models, the engine, the sessions, the settings and the readiness."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request

from segue.serve.engine import Engine
from segue.serve.errors import ApiError, not_ready, shown
from segue.serve.keeper import SessionKeeper
from segue.serve.keys import Keys
from segue.serve.metrics import Metrics
from segue.serve.models import Served
from segue.serve.redis_store import RedisStore
from segue.serve.replicas import SharedSessions
from segue.serve.run import Run
from segue.serve.sessions import Sessions
from segue.serve.settings import ServeSettings
from segue.serve.store import SqliteStore


class Serving:
    """A server without its HTTP layer."""

    def __init__(
        self,
        models: Mapping[str, Served],
        settings: ServeSettings,
        *,
        sessions: Path | RedisStore | None = None,
        keys: Keys | None = None,
        local: bool = True,
    ) -> None:
        self.models, self.settings, self.keys = models, settings, keys
        self.local = local
        """True if the server listens on this machine only."""
        self.engine = Engine(models, settings)
        self.sessions: SessionKeeper
        if isinstance(sessions, RedisStore):
            self.sessions = SharedSessions(models, sessions, settings)
        else:
            self.sessions = Sessions(models, SqliteStore(sessions), settings)
        self.runs: set[Run] = set()
        """Runs of the requests with jobs."""
        self.tokens_reused = 0
        self.metrics = Metrics(self)
        self.ready = False
        self.started = time.monotonic()

    @property
    def waiting(self) -> int:
        """Number of jobs that run or wait."""
        return self.engine.waiting

    async def start(self) -> None:
        """Open the sessions and start the engine."""
        await self.sessions.start()
        self.engine.start(asyncio.get_running_loop())
        self.ready = True

    async def stop(self) -> None:
        """Stop the engine, and write all sessions to disk."""
        self.ready = False
        self.engine.stop()
        await self.sessions.stop()

    def run(self, request: Request) -> Run:
        """Return a run for the jobs of a request; raise ApiError if the server is shutting down."""
        if not self.ready:
            raise not_ready()
        return Run(self.engine, request.receive, self.runs)

    def abandon(self) -> None:
        """End all requests that have not finished, each with an error."""
        for run in list(self.runs):
            run.fail(not_ready())

    def model(self, name: str | None, ability: str) -> Served:
        """Return the model that a request names, or else the only one with the ability."""
        if name is None:
            able = [served for served in self.models.values() if ability in served.abilities]
            if len(able) == 1:
                return able[0]
            if not able:
                raise ApiError(
                    400,
                    f"a model of this server must be one for {ability}; got none. Start the server with one; GET "
                    "/v1/models says what each can do.",
                    code="unsupported",
                )
            names = ", ".join(served.name for served in able)
            raise ApiError(
                400,
                f"model must be given where several can do {ability}; got none. Name one of: {names}.",
                code="model_required",
                param="model",
            )
        served = self.models.get(name)
        if served is None:
            raise ApiError(
                404,
                f"model must be one of {', '.join(self.models)}; got {shown(name)}. GET /v1/models lists them.",
                code="model_not_found",
                param="model",
            )
        if ability not in served.abilities:
            raise ApiError(
                400,
                f"model must be one for {ability}; got {shown(name)}, which can do {', '.join(served.abilities)}. "
                "GET /v1/models says what each can do.",
                code="unsupported",
                param="model",
            )
        return served


def serving_of(request: Request) -> Serving:
    """Return the state of the application that received a request."""
    found: Any = request.app.state.serving
    assert isinstance(found, Serving)
    return found


def tenant_of(request: Request) -> str:
    """Return the tenant of a request, which the guard has found."""
    tenant: str = request.scope["segue.tenant"]
    return tenant
