"""What all routes share: the models, the engine, the sessions, the settings, and whether the server takes requests."""

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
    """A server, but for HTTP."""

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
        """Whether it listens to this machine alone."""
        self.engine = Engine(models, settings)
        self.sessions: SessionKeeper
        if isinstance(sessions, RedisStore):
            self.sessions = SharedSessions(models, sessions, settings)
        else:
            self.sessions = Sessions(models, SqliteStore(sessions), settings)
        self.runs: set[Run] = set()
        """Runs of the requests that have jobs."""
        self.tokens_reused = 0
        self.metrics = Metrics(self)
        self.ready = False
        self.started = time.monotonic()

    @property
    def waiting(self) -> int:
        """Requests that compute or wait."""
        return self.engine.waiting

    async def start(self) -> None:
        """Reads which sessions there are, and begins to compute."""
        await self.sessions.start()
        self.engine.start(asyncio.get_running_loop())
        self.ready = True

    async def stop(self) -> None:
        """Ends what computes, and writes all sessions to disk."""
        self.ready = False
        self.engine.stop()
        await self.sessions.stop()

    def run(self, request: Request) -> Run:
        """For the jobs of a request."""
        if not self.ready:
            raise not_ready()
        return Run(self.engine, request.receive, self.runs)

    def abandon(self) -> None:
        """Ends all requests that have not ended, with an error for each."""
        for run in list(self.runs):
            run.fail(not_ready())

    def model(self, name: str | None, ability: str) -> Served:
        """The model that a request names, or the only one there is for it."""
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
    """The state of the application that a request came to."""
    found: Any = request.app.state.serving
    assert isinstance(found, Serving)
    return found


def tenant_of(request: Request) -> str:
    """Whose request it is; the guard has found out."""
    tenant: str = request.scope["segue.tenant"]
    return tenant
