"""Middleware that authenticates requests, and protects a server without keys against pages of other sites.

A server without keys listens on this machine only. A browser on this machine shows pages of other sites, which could
send requests to the server. So the Host header must be a local name, and an Origin header, if there is one, must be the
server itself.
"""

import re
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from segue.serve.answers import answer
from segue.serve.errors import ApiError, shown
from segue.serve.keys import LOCAL
from segue.serve.page_routes import PREFIX, START
from segue.serve.serving import Serving

OPEN = ("/health", "/ready", "/docs", "/openapi.json")
"""Paths without authentication: load balancers request the first two, and browsers open the others, which reveal
nothing about the models."""
_LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


def check_caller(headers: Headers, *, local: bool) -> None:
    """Raise ApiError if a request to a server without keys has a Host header that is not local, or comes from a page of
    another site."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if local and not _LOCAL.fullmatch(host):
        raise ApiError(
            403,
            f"a server without keys accepts only requests to a local host name; got {shown(host)}. Use localhost, or "
            "start it with --keys.",
            code="wrong_host",
        )
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise ApiError(
            403,
            f"a server without keys refuses requests from pages of other sites; got {shown(origin)}. Start it with "
            "--keys.",
            code="wrong_origin",
        )


class Guard:
    """The outermost middleware: it finds the tenant of a request, counts and times requests, and adds security
    headers."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app, self._serving = app, serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started, metrics = time.monotonic(), self._serving.metrics

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                metrics.requests.labels(route, message["status"]).inc()
                metrics.seconds.labels(route).observe(time.monotonic() - started)
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        try:
            scope["segue.tenant"] = self._tenant(scope["path"], Headers(scope=scope))
        except ApiError as error:
            response = answer(error.body(), status=error.status_code, headers=error.extra_headers())
            await response(scope, receive, sending)
            return
        await self._app(scope, receive, sending)

    def _tenant(self, path: str, headers: Headers) -> str:
        serving = self._serving
        if serving.keys is None:
            check_caller(headers, local=serving.local)
            return LOCAL
        if path in OPEN or path == START or path.startswith(PREFIX):
            return ""
        tenant = serving.keys.tenant(headers.get("authorization"))
        if tenant is None:
            raise ApiError(
                401,
                "a request must have a valid key; got none, or an unknown one. Send the header Authorization: Bearer "
                "KEY.",
                code="invalid_api_key",
            )
        return tenant
