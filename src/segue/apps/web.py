"""The web layer of an application: authentication, rate limits, errors in one shape, and pages.

`make_app` builds the application around its routes. The guard finds the caller (`caller_of`), limits the rate of each
address, and adds headers; a route declares the role it requires with `needs`.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import segue
from segue.apps.database import DatabaseAwayError, DatabaseDamagedError, DatabaseFullError, DatabaseMovedError
from segue.apps.keys import ANYONE, LOCAL, Caller, Role, RoleKeys
from segue.serve.answers import ERRORS, add_error_answers, answer
from segue.serve.errors import ApiError, not_ready
from segue.serve.guard import HEADERS, OPEN, check_caller
from segue.serve.limits import BodyLimits, LimitedRoute
from segue.serve.page_routes import PREFIX, page_router
from segue.serve.server import ServerSettings, Service

log = logging.getLogger("segue.apps")
_MOST_ADDRESSES = 10_000
_router = APIRouter(route_class=LimitedRoute, responses=ERRORS, tags=["service"])


class Strict(BaseModel):
    """A request body in which unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Rate:
    """Rate limit per address: a token bucket that fills by `rate` per second, up to `most`."""

    def __init__(self, *, rate: float, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._most, self._clock = rate, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> float | None:
        """Take one request; or, if none is left, return the seconds until there will be one."""
        now = self._clock()
        left, since = self._left.pop(address, (float(self._most), now))
        left = min(self._most, left + (now - since) * self._rate)
        wait = None if left >= 1 else (1 - left) / self._rate
        self._left[address] = (left - 1 if wait is None else left, now)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.popitem(last=False)
        return wait


class _Guard:
    """The outermost middleware."""

    def __init__(
        self, app: ASGIApp, keys: RoleKeys | None, local: bool, rate: Rate, free: Sequence[str], proxy: str
    ) -> None:
        self._app, self._keys, self._local, self._rate, self._free = app, keys, local, rate, free
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        try:
            headers = Headers(scope=scope)
            scope["segue.address"] = forwarded(headers, scope.get("client"), proxy=self._proxy)
            scope["segue.caller"] = self._caller(scope["path"], headers, scope["segue.address"])
        except ApiError as error:
            response = answer(error.body(), status=error.status_code, headers=error.extra_headers())
            await response(scope, receive, sending)
            return
        await self._app(scope, receive, sending)

    def _caller(self, path: str, headers: Headers, address: str) -> Caller:
        if path in OPEN or path in self._free or path.startswith(PREFIX):
            if self._keys is None:
                check_caller(headers, local=self._local)
            return ANYONE
        if self._keys is None:
            check_caller(headers, local=self._local)
            caller: Caller | None = LOCAL
        else:
            caller = self._keys.caller(headers.get("authorization"))
        if caller is None or not caller.may("agent"):
            self._count(address)
        if caller is None:
            raise ApiError(
                401,
                "a request must have a valid key; got none, or an unknown one. Send the header Authorization: Bearer "
                "KEY.",
                code="invalid_api_key",
            )
        return caller

    def _count(self, address: str) -> None:
        wait = self._rate.take(address)
        if wait is not None:
            raise ApiError(
                429,
                "too many requests from this address. Try again later.",
                code="too_many_requests",
                retry_after=wait,
            )


class AppSettings(BodyLimits, ServerSettings, Protocol):
    """Limits of an application."""

    @property
    def rate(self) -> float:
        """Number of requests per second that an address may make."""

    @property
    def burst(self) -> int:
        """Number of requests that an address may make at once."""

    @property
    def trusted_proxy(self) -> str:
        """Address of the proxy whose X-Forwarded-For header is trusted."""


class AppService(Service, Protocol):
    """Interface of the service behind the routes of an application."""

    @property
    def settings(self) -> AppSettings:
        """Limits of the application."""


def make_app(
    name: str,
    *,
    service: AppService,
    routers: Sequence[APIRouter],
    starts: Mapping[str, str],
    embedded_by: str,
    keys: RoleKeys | None,
    local: bool,
) -> FastAPI:
    """Return an application by its name: its routes, the shared routes, and its pages, with the paths `starts`."""
    settings = service.settings
    app = FastAPI(
        title=f"segue {name}", version=segue.__version__, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.service, app.state.limits = service, settings
    for router in (*routers, _router):
        app.include_router(router)
    packages = ("segue.serve", "segue.apps", f"segue.apps.{name}")
    app.include_router(page_router(*packages, starts=starts, embedded_by=embedded_by))
    add_error_answers(app)
    for kind in _DATABASE_ANSWERS:
        app.add_exception_handler(kind, _database_error)
    for path in app.openapi()["paths"].values():
        for route in path.values():
            route["responses"].pop("422", None)  # invalid requests are answered with 400
    rate = Rate(rate=settings.rate, most=settings.burst)
    app.add_middleware(_Guard, keys=keys, local=local, rate=rate, free=tuple(starts), proxy=settings.trusted_proxy)
    return app


_DATABASE_ANSWERS: Mapping[type[Exception], tuple[int, str, str, float | None]] = {
    DatabaseFullError: (507, "store_full", "have room; its disk is full. Send the request again later.", 60.0),
    DatabaseAwayError: (503, "store_away", "answer; it does not now. Send the request again later.", 2.0),
    DatabaseMovedError: (500, "store_moved", "stay where it is; it was moved. Its operator must start again.", None),
    DatabaseDamagedError: (500, "store_damaged", "be whole; it is damaged. Its operator must restore a back-up.", None),
}


async def _database_error(request: Request, error: Exception) -> Response:
    """Return the response to a database error. Nothing was written: the same request can be sent again."""
    log.error("a request failed: %s", error)
    status, code, said, wait = _DATABASE_ANSWERS[type(error)]
    found = ApiError(status, f"the database must {said}", code=code, retry_after=wait)
    return answer(found.body(), status=found.status_code, headers=found.extra_headers())


def caller_of(request: Request) -> Caller:
    """Return the caller of a request, which the guard has found."""
    found: Caller = request.scope["segue.caller"]
    return found


def address_of(request: Request) -> str:
    """Return the address of a request, which the guard has found."""
    return str(request.scope["segue.address"])


def forwarded(headers: Headers, client: Any, *, proxy: str) -> str:
    """Return the address of a request; if it comes from the proxy, the one that the proxy added last."""
    address = str(client[0]) if client else ""
    if not proxy or address != proxy:
        return address
    return headers.get("x-forwarded-for", "").rpartition(",")[2].strip()[:64] or address


def needs(role: Role) -> Any:
    """Return a dependency for a route that raises ApiError unless the caller has this role, or one above it."""

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        if not caller.may(role):
            raise ApiError(
                403 if caller.name else 401,
                f"this request needs the key of an {role}; got that of role {caller.role}. Use another key.",
                code="wrong_role",
            )
        return caller

    return Depends(check)


# ------------------------------------------------------------------------------------------------------- shared routes


@_router.get("/v1/me", dependencies=[needs("visitor")])
async def _me(request: Request) -> Response:
    """Returns the role and name of the caller."""
    caller = caller_of(request)
    return answer({"role": caller.role, "name": caller.name})


@_router.get("/health")
async def _health() -> Response:
    """Returns 200 while the process is running."""
    return answer({"status": "ok"})


@_router.get("/ready")
async def _ready(request: Request) -> Response:
    """Returns 200 while requests are accepted."""
    if not request.app.state.service.ready:
        raise not_ready()
    return answer({"status": "ready"})
