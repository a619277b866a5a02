"""JSON requests with limits on size, time and depth, and without the constants that JSON does not have (NaN,
Infinity)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol

from fastapi import Request, Response
from fastapi.routing import APIRoute

from segue.serve.errors import ApiError

_DEEPEST = 32
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""JSON escape of half of a surrogate pair."""


class BodyLimits(Protocol):
    """Limits on request bodies; an application stores them as `app.state.limits`."""

    @property
    def max_body(self) -> int:
        """Maximum size of a JSON request in bytes."""

    @property
    def body_timeout(self) -> float:
        """Timeout in seconds for a JSON request to arrive."""


class LimitedRequest(Request):
    """A request with a JSON body of limited size."""

    async def body(self) -> bytes:
        """Return the whole body."""
        if not hasattr(self, "_body"):
            settings: BodyLimits = self.app.state.limits
            data = bytearray()
            async for part in read_parts(self, limit=settings.max_body, timeout=settings.body_timeout, each=False):
                data += part
            self._body = bytes(data)
        return self._body

    async def json(self) -> Any:
        """Return the parsed body."""
        try:
            value = json.loads(await self.body(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            reason = "too deep" if isinstance(error, RecursionError) else str(error)[:80]
            raise ApiError(
                400, f"a request must be JSON in UTF-8; got other bytes: {reason}. Check it.", code="invalid_json"
            ) from None
        if _HALF.search(await self.body()) and not _is_text(value):
            raise ApiError(
                400,
                "a text must have whole characters; got half of one, as an escape of JSON. Send it in UTF-8.",
                code="invalid_text",
            )
        if _depth(value) > _DEEPEST:
            raise ApiError(
                400, f"JSON must be at most {_DEEPEST} deep; got deeper. Send a flat request.", code="invalid_json"
            )
        return value


class LimitedRoute(APIRoute):
    """A route that reads its requests with these limits."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def limited(request: Request) -> Response:
            return await handle(LimitedRequest(request.scope, request.receive))

        return limited


async def read_parts(request: Request, *, limit: int, timeout: float, each: bool) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they arrive. `timeout` is for the whole body, or with `each` for each part."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise too_long(limit)
    total = 0
    end = asyncio.get_running_loop().time() + timeout
    while True:
        try:
            now = asyncio.get_running_loop().time()
            async with asyncio.timeout(timeout if each else max(0.0, end - now)):
                message = await request.receive()
        except TimeoutError:
            raise ApiError(
                408, f"a request must arrive within {timeout:g} seconds; it did not. Send it again.", code="timeout"
            ) from None
        if message["type"] == "http.disconnect":
            raise ApiError(400, "the request is incomplete: the client disconnected. Send it again.", code="incomplete")
        part: bytes = message.get("body", b"")
        total += len(part)
        if total > limit:
            raise too_long(limit)
        if part:
            yield part
        if not message.get("more_body", False):
            return


def too_long(limit: int) -> ApiError:
    """Return the error for a body that is too large. The rest of it is not read: the connection is closed."""
    return ApiError(413, f"a request must have at most {limit:,} bytes; got more. Send less.", code="request_too_large")


def _depth(value: Any, deep: int = 0) -> int:
    """Return the nesting depth of lists and objects, counted up to the limit."""
    if deep > _DEEPEST or not isinstance(value, list | dict):
        return deep
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(one, deep + 1) for one in inner if isinstance(one, list | dict)), default=deep + 1)


def _is_text(value: Any) -> bool:
    """Return True if no text contains half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text}, which is not a JSON number")
