"""Errors of requests, in the JSON shape of OpenAI's API.

    {"error": {"message": "...", "type": "invalid_request_error", "param": "max_tokens", "code": "too_large"}}

As with every SegueError, the message names the thing, the rule, the value and the remedy.
"""

import math
from typing import Any

from starlette.exceptions import HTTPException

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    410: "not_found_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    507: "insufficient_storage_error",
}
_SHOWN = 60


class ApiError(HTTPException):
    """Error that ends a request with a status and a message."""

    def __init__(
        self, status: int, message: str, *, code: str, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(status, message)
        self.message, self.code, self.param, self.retry_after = message, code, param, retry_after

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the response."""
        kind = _TYPES.get(self.status_code, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def extra_headers(self) -> dict[str, str]:
        """Return the headers of the response that depend on the error."""
        found = {"www-authenticate": "Bearer"} if self.status_code == 401 else {}
        if self.retry_after is not None:
            found["retry-after"] = str(max(1, math.ceil(self.retry_after)))
        return found


def shown(value: object) -> str:
    """Return a value of a request for a message or log line: short, on one line, without control characters."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def too_large(param: str, got: int, limit: int, *, what: str = "", setting: str | None = None) -> ApiError:
    """Return the error for a value above a limit; `setting` is the server setting that raises the limit."""
    return ApiError(
        400,
        f"{param} must be at most {limit:,}{f' {what}' if what else ''}; got {got:,}. Ask for less, or start "
        f"the server with --set {setting or param}=...",
        code="too_large",
        param=param,
    )


def busy(retry_after: float = 1.0) -> ApiError:
    """Return the error for a full queue."""
    return ApiError(
        429,
        "the queue is full. Try again later.",
        code="queue_full",
        retry_after=retry_after,
    )


def not_ready() -> ApiError:
    """Return the error for a server that is shutting down."""
    return ApiError(
        503,
        "the server is shutting down. Try again on another server, or later.",
        code="shutting_down",
        retry_after=5.0,
    )
