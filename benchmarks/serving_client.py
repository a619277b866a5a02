"""An HTTP client that uses little of the machine it shares with the server: sockets, events, times.

In: an address, a path, a body. Out: the response, or the events of a stream with their times.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_LINE = 1 << 24
"""Maximum size of one line of a response in bytes."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A complete response."""

    status: int
    body: bytes
    seconds: float

    def json(self) -> Any:
        return json.loads(self.body)

    def right(self) -> "Answer":
        """Return the response; raise RuntimeError if it is an error."""
        if self.status >= 400:
            raise RuntimeError(f"an answer must be no error here; got {self.status}: {self.body[:300]!r}")
        return self


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The events of a stream, and their times, in seconds since the request."""

    events: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def seconds_a_token(self) -> float:
        """Return the mean time of the tokens after the first, which waits for the prompt."""
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)


async def ask(url: str, method: str, path: str, body: dict[str, Any] | bytes | None = None) -> Answer:
    """Send one request on a connection of its own."""
    started = time.perf_counter()
    async with _open(url, method, path, body) as (status, parts):
        found = b"".join([part async for part in parts])
    return Answer(status=status, body=found, seconds=time.perf_counter() - started)


async def stream(url: str, path: str, body: dict[str, Any], *, leave_after: int | None = None) -> Stream:
    """Return the events of a stream that have a token; the client disconnects after `leave_after` of them."""
    started = time.perf_counter()
    found = Stream()
    async with _open(url, "POST", path, body) as (status, parts):
        if status != 200:
            raise RuntimeError(f"a stream must begin; got {status}: {b''.join([part async for part in parts])[:300]!r}")
        async for event in _events(parts):
            if "error" in event:
                raise RuntimeError(f"a stream must have no error; got {event['error']}")
            if _is_token(event):
                found.times.append(time.perf_counter() - started)
                found.events.append(event)
            if leave_after is not None and len(found.events) >= leave_after:
                break
    return found


def _is_token(event: dict[str, Any]) -> bool:
    """Return True if an event of segue's sessions, of completions, or of llama.cpp's own route is a token."""
    if event.get("object") == "session.token":
        return event["id"] is not None
    if "choices" in event:
        return any(choice.get("text") for choice in event["choices"])
    return not event.get("stop", True)


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


@asynccontextmanager
async def _open(
    url: str, method: str, path: str, body: dict[str, Any] | bytes | None
) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
    """Yield the status, and the parts of the body as they arrive. The connection is closed at the end, whatever is
    left."""
    at = urlsplit(url)
    data = json.dumps(body).encode() if isinstance(body, dict) else body or b""
    kind = "application/json" if isinstance(body, dict) or body is None else "application/octet-stream"
    head = f"{method} {path} HTTP/1.1\r\nHost: {at.hostname}:{at.port}\r\nContent-Type: {kind}\r\n"
    head += f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=_LINE)
    try:
        writer.write(head.encode() + data)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        headers: dict[str, str] = {}
        while (line := (await reader.readline()).strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        yield status, _parts(reader, headers)
    finally:
        writer.transport.abort()


async def _parts(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            yield await reader.readexactly(size)
            await reader.readline()
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while part := await reader.read(1 << 16):
            yield part


def median(values: list[float]) -> float:
    return share(values, 0.5)


def share(values: list[float], part: float) -> float:
    """Return the quantile of the values at this share."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
