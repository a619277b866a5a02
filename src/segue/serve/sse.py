"""Server-sent events: an answer that comes as it is made."""

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
"""Made once: `json.dumps` with these settings makes an encoder for each event."""


def event(value: Any) -> bytes:
    """One event."""
    return b"data: " + _encode(value).encode() + b"\n\n"


class EventStream(Response):
    """Sends what an iterator gives, and calls `finish`, however that ends. A client that takes nothing for
    `write_timeout` seconds counts as gone."""

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
        except TimeoutError:  # the connection is closed, because the answer is not complete
            return
        finally:
            await self._pieces.aclose()
            with contextlib.suppress(ApiError):  # nobody is there to be told; the log has it
                await self._finish()
