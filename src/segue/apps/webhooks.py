"""Webhooks: what happened, told to another server, signed and retried.

An event is a row of the table `outbox`, written in the transaction of what it tells of: both are there or neither. It
is sent until the receiver answers with 2xx, each time with the same id, so that a receiver that remembers ids has each
event once whatever was killed when. The events of one subject are sent in their order.

    POST URL
    content-type: application/json
    x-segue-event: ID
    x-segue-signature: t=SECONDS,v1=HMAC-SHA256(SECRET, "SECONDS.BODY") in hexadecimal digits

The URL is the operator's; none that comes with data is ever called, and redirects are not followed.
"""

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import re
import secrets
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, urlsplit

from segue.apps.database import Connection, Database
from segue.errors import ConfigError

log = logging.getLogger("segue.apps")
TABLE = """
CREATE TABLE outbox (
  number NUMBERED, id TEXT NOT NULL UNIQUE, subject TEXT NOT NULL, body TEXT NOT NULL,
  tries BIGINT NOT NULL DEFAULT 0, next_try DOUBLE PRECISION NOT NULL, delivered DOUBLE PRECISION,
  given_up DOUBLE PRECISION);
CREATE INDEX outbox_waiting ON outbox (next_try) WHERE delivered IS NULL AND given_up IS NULL;
CREATE INDEX outbox_of_subject ON outbox (subject, number);
"""
"""For the steps of a schema."""
WAITS = (1.0, 5.0, 30.0, 120.0, 600.0, 3600.0)
"""Seconds before each try after the first; the last again and again,"""
MOST_TRIES = 50
"""until then: about two days."""
TIMEOUT = 10.0
_PRINTED = re.compile(r"[!-~]+")
TOLERANCE = 300.0
"""Seconds after which a signature is too old."""


def put(connection: Connection, kind: str, subject: str, values: Mapping[str, Any]) -> None:
    """Writes an event in the transaction of what it tells of."""
    id = secrets.token_hex(16)
    body = json.dumps({"id": id, "event": kind, "created": time.time(), **values}, ensure_ascii=False)
    connection.execute("INSERT INTO outbox (id, subject, body, next_try) VALUES (?, ?, ?, 0)", (id, subject, body))


def sign(secret: str, body: bytes, *, now: float) -> str:
    """The signature of a body."""
    digest = hmac.new(secret.encode(), f"{int(now)}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={int(now)},v1={digest}"


def is_signed(secret: str, body: bytes, signature: str, *, now: float) -> bool:
    """For receivers: whether a body comes from who knows the secret, and lately.

    >>> is_signed("secret", b"{}", sign("secret", b"{}", now=1000), now=1010)
    True
    >>> is_signed("secret", b"{ }", sign("secret", b"{}", now=1000), now=1010)
    False
    """
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    sent = fields.get("t", "")
    if not sent.isdigit() or abs(now - int(sent)) > TOLERANCE:
        return False
    return hmac.compare_digest(sign(secret, body, now=int(sent)).encode(), signature.encode())


def check_webhook(url: str, secret: str) -> SplitResult:
    """The parts of an address that events can be sent to."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none
        fits = bool(parts.hostname) and bool((parts.hostname or "").encode("idna"))
    except ValueError:
        fits = False
    if not fits or parts.scheme not in ("http", "https") or not _PRINTED.fullmatch(url):
        raise ConfigError(
            "the address of webhooks must begin with http:// or https://, with a host, a port up to 65535 if any, and "
            f"ASCII characters without spaces; got {url[:80]!r}. Give a whole URL, with % codes for other characters."
        )
    if len(secret) < 16:
        raise ConfigError("the secret of webhooks must have at least 16 characters; got fewer. Use a longer one.")
    return parts


class Webhooks:
    """Sends what is in the outbox, as long as it runs."""

    def __init__(self, database: Database, *, url: str, secret: str) -> None:
        parts = check_webhook(url, secret)
        self._database, self._parts, self._secret = database, parts, secret
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-webhooks")
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins with what is left from before."""
        self._task = asyncio.create_task(self._loop())

    def wake(self) -> None:
        """There is something new."""
        self._more.set()

    async def stop(self) -> None:
        """What was not sent stays in the outbox."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _loop(self) -> None:
        while True:
            self._more.clear()
            try:
                waiting = await self._database.run(_due)
                for number, id, body, tries in waiting:
                    await self._deliver(number, id, body, tries)
            except Exception as error:  # whatever it is, the next events are sent
                log.error("webhooks: %s: %s", type(error).__name__, error)
                waiting = []
            if not waiting:
                try:
                    async with asyncio.timeout(1.0):
                        await self._more.wait()
                except TimeoutError:
                    pass

    async def _deliver(self, number: int, id: str, body: str, tries: int) -> None:
        loop = asyncio.get_running_loop()
        problem = await loop.run_in_executor(self._pool, self._post, id, body.encode())
        now = time.time()

        def note(connection: Connection) -> None:
            if problem is None:
                connection.execute("UPDATE outbox SET delivered = ? WHERE number = ?", (now, number))
                return
            wait = WAITS[min(tries, len(WAITS) - 1)]
            given_up = now if tries + 1 >= MOST_TRIES else None
            connection.execute(
                "UPDATE outbox SET tries = tries + 1, next_try = ?, given_up = ? WHERE number = ?",
                (now + wait, given_up, number),
            )

        await self._database.run(note)
        if problem is not None:
            log.warning("webhook %s was not taken: %s", id, problem)

    def _post(self, id: str, body: bytes) -> str | None:
        """None, or what went wrong."""
        parts = self._parts
        assert parts.hostname is not None
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
        headers = {
            "content-type": "application/json",
            "x-segue-event": id,
            "x-segue-signature": sign(self._secret, body, now=time.time()),
        }
        try:
            connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError) as error:
            return str(error)[:200] or type(error).__name__
        finally:
            connection.close()
        return None if 200 <= status < 300 else f"HTTP {status}"


def _due(connection: Connection) -> list[tuple[int, str, str, int]]:
    """What is to be sent now: of each subject only the first that was not taken, so that the order holds."""
    return connection.execute(
        "SELECT number, id, body, tries FROM outbox AS one WHERE delivered IS NULL AND given_up IS NULL "
        "AND next_try <= ? AND NOT EXISTS (SELECT 1 FROM outbox AS other WHERE other.subject = one.subject "
        "AND other.number < one.number AND other.delivered IS NULL AND other.given_up IS NULL) "
        "ORDER BY number LIMIT 50",
        (time.time(),),
    ).fetchall()
