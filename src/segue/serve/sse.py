"""Server-sent events: responses that are sent while they are computed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from segue.serve.errors import ApiError

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""Created once: `json.dumps` with these settings creates an encoder for each event."""


def event(value: Any) -> bytes:
    """Return a value as an event."""
    return b"data: " + _encode(value).encode() + b"\n\n"


class EventStream(Response):
    """Response that sends the output of an iterator, and calls `finish` however it ends. A client that accepts nothing
    for `write_timeout` seconds is considered gone."""

    def __init__(
        self, pieces: AsyncGenerator[bytes], *, finish: Callable[[], Awaitable[None]], write_timeout: float
    ) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._pieces, self._finish, self._timeout = pieces, finish, write_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for piece in self._pieces:
                async with asyncio.timeout(self._timeout):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:  # the connection is closed, because the response is incomplete
            return
        finally:
            await self._pieces.aclose()
            with contextlib.suppress(ApiError):  # no client is left to be told; the log has it
                await self._finish()
