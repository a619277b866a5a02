"""Webhooks: signed events for another server, with retries.

An event is a row of the table `outbox` (`segue.apps.outbox`), sent until the receiver responds with 2xx. The events of
one subject are sent in their order, from the first start with an address on.

    POST URL
    content-type: application/json
    x-segue-event: ID
    x-segue-signature: t=SECONDS,v1=HMAC-SHA256(SECRET, "SECONDS.BODY") in hexadecimal digits

The URL is set by the operator; no URL in the data is ever called, and redirects are not followed.
"""

import hashlib
import hmac
import http.client
import json
import re
import secrets
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from segue.apps.database import Connection, Database
from segue.apps.outbox import COLUMNS, TIMEOUT, Outbox, deadline
from segue.errors import ConfigError

TABLE = f"""
CREATE TABLE outbox ({COLUMNS});
CREATE INDEX outbox_waiting ON outbox (next_try) WHERE delivered IS NULL AND given_up IS NULL;
CREATE INDEX outbox_of_subject ON outbox (subject, number);
"""
"""SQL for the steps of a schema."""
_PRINTED = re.compile(r"[!-~]+")
TOLERANCE = 300.0
"""Seconds after which a signature is too old."""


def put(connection: Connection, kind: str, subject: str, values: Mapping[str, Any]) -> None:
    """Write an event in the transaction of the change that it reports."""
    id = secrets.token_hex(16)
    body = json.dumps({"id": id, "event": kind, "created": time.time(), **values}, ensure_ascii=False)
    connection.execute("INSERT INTO outbox (id, subject, body, next_try) VALUES (?, ?, ?, 0)", (id, subject, body))


def sign(secret: str, body: bytes, *, now: float) -> str:
    """Return the signature of a body."""
    digest = hmac.new(secret.encode(), f"{int(now)}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={int(now)},v1={digest}"


def is_signed(secret: str, body: bytes, signature: str, *, now: float) -> bool:
    """Return True if a body was signed with the secret, and recently; for receivers.

    >>> is_signed("secret", b"{}", sign("secret", b"{}", now=1000), now=1010)
    True
    >>> is_signed("secret", b"{ }", sign("secret", b"{}", now=1000), now=1010)
    False
    """
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    sent = fields.get("t", "")
    if not (sent.isascii() and sent.isdecimal() and len(sent) < 16) or abs(now - int(sent)) > TOLERANCE:
        return False
    return hmac.compare_digest(sign(secret, body, now=int(sent)).encode(), signature.encode())


def check_webhook(url: str, secret: str) -> SplitResult:
    """Return the parts of a webhook URL; raise ConfigError if it or the secret is invalid."""
    parts = check_address(url, what="a webhook URL")
    if len(secret) < 16:
        raise ConfigError("the webhook secret must have at least 16 characters; got fewer. Use a longer one.")
    return parts


def check_address(url: str, *, what: str) -> SplitResult:
    """Return the parts of an HTTP address; raise ConfigError, which names `what` it is, if it is not one."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is invalid
        fits = bool(parts.hostname) and bool((parts.hostname or "").encode("idna"))
    except ValueError:
        fits = False
    if not fits or parts.scheme not in ("http", "https") or not _PRINTED.fullmatch(url):
        raise ConfigError(
            f"{what} must begin with http:// or https://, and have a host, an optional port up to 65535, and "
            f"ASCII characters without spaces; got {url[:80]!r}. Give a complete URL, with other characters "
            "percent-encoded."
        )
    return parts


def webhooks(database: Database, *, url: str, secret: str) -> Outbox:
    """Return an outbox that sends the events of a database to a URL."""
    parts = check_webhook(url, secret)
    return Outbox(database, "outbox", lambda id, _, body: _post(parts, id, body.encode(), secret=secret), in_order=True)


def _post(parts: SplitResult, id: str, body: bytes, *, secret: str) -> str | None:
    """Send an event; return None, or what went wrong."""
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
        "x-segue-signature": sign(secret, body, now=time.time()),
    }
    try:
        with deadline(lambda: connection.sock):
            connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(error)[:200] or type(error).__name__
    finally:
        connection.close()
    return None if 200 <= status < 300 else f"HTTP {status}"
