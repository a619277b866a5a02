"""JSON responses, and the exception handlers that turn every error into one."""

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from segue.errors import SegueError
from segue.serve.errors import ApiError, shown
from segue.serve.run import GoneError, explained
from segue.serve.schemas import ErrorAnswer

log = logging.getLogger("segue.serve")
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": what}
    for status, what in {
        400: "Invalid request; the message says what to change.",
        401: "The key is missing or wrong.",
        403: "The request comes from a web page of another origin.",
        404: "There is no such model or session.",
        408: "The request took too long to arrive.",
        409: "The session is in use, or its state belongs to another model.",
        413: "The request is too large.",
        415: "Unsupported media type of the request body.",
        429: "Rate limit or quota exceeded; Retry-After says when to try again.",
        500: "Internal server error.",
        503: "The server is shutting down or overloaded.",
        507: "The session store is full.",
    }.items()
}
_CLOSED = 499
"""Status for the log: the client disconnected before the response."""


def or_events() -> dict[int | str, dict[str, Any]]:
    """Return the documented responses of a route that can stream; a new dict for each route, because FastAPI changes
    it."""
    schema = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    content = {"text/event-stream": {"schema": schema}}
    return {
        **ERRORS,
        200: {"content": content, "description": "The whole response, or a stream of server-sent events."},
    }


def answer(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response in UTF-8."""
    data = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(data.encode("utf-8", "replace"), status, headers, media_type="application/json")


def add_error_answers(app: FastAPI) -> None:
    """Add exception handlers that give every error the same JSON shape."""

    async def of_api(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        if error.status_code >= 500 and error.__cause__ is not None:
            log.error("a request failed", exc_info=error.__cause__)
        return answer(error.body(), status=error.status_code, headers=error.extra_headers())

    async def of_segue(request: Request, error: Exception) -> Response:
        return await of_api(request, explained(error))

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error, ApiError):
            return await of_api(request, error)
        path = shown(request.url.path)
        messages = {
            404: (f"{path} must be a path of this server; it is not. GET /openapi.json lists them.", "not_found"),
            405: (
                f"{path} does not support the method {shown(request.method)}. GET /openapi.json lists those it has.",
                "method",
            ),
        }
        message, code = messages.get(error.status_code, (str(error.detail)[:200], "invalid_request"))
        other = ApiError(error.status_code, message, code=code)
        return answer(other.body(), status=error.status_code, headers=dict(error.headers or {}))

    async def of_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return await of_api(request, _unnamed_json(request, error) or _problem(error))

    async def of_gone(request: Request, error: Exception) -> Response:
        return Response(status_code=_CLOSED)

    async def of_fault(request: Request, error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return await of_api(request, ApiError(500, explained(error).message, code="internal_error"))

    app.add_exception_handler(ApiError, of_api)
    app.add_exception_handler(SegueError, of_segue)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(GoneError, of_gone)
    app.add_exception_handler(Exception, of_fault)


def _unnamed_json(request: Request, error: RequestValidationError) -> ApiError | None:
    """Return the error for a body that was not parsed as JSON because of its content type; None for any other error."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    whole = any(one["loc"] == ("body",) and one["type"] != "missing" for one in error.errors())
    if not whole or kind == "application/json" or kind.endswith("+json"):
        return None
    return ApiError(
        400,
        f"a request must have the header content-type: application/json; got {shown(kind) if kind else 'none'}. Add "
        "it: curl -H 'content-type: application/json'.",
        code="content_type",
    )


_FORMS = {"str", "int", "float", "bool", "list", "dict", "none"}
"""Pydantic's names for the alternatives of a union type, which are not part of a field's path."""


def _place(parts: tuple[int | str, ...]) -> str:
    """Return the path of a problem as clients write it: events[0].id."""
    named = [part for part in parts if isinstance(part, int) or (part.isidentifier() and part not in _FORMS)]
    if parts[0] in ("body", "query", "path", "header", "cookie"):
        named = named[1:]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in named).removeprefix(".")


def _problem(error: RequestValidationError) -> ApiError:
    """Return the error for the first problem; if a field allows several types, for the type that came nearest."""
    problems = error.errors()
    first = max(problems[:50], key=lambda one: (len([p for p in one["loc"] if isinstance(p, int)]), one is problems[0]))
    if len({str(one["loc"][1:2]) for one in problems}) > 1:
        first = problems[0]
    place = _place(first["loc"])
    name = shown(place)[1:-1] if place else "the request"
    match first["type"]:
        case "missing":
            what = f"{name} must be given; got none."
        case "extra_forbidden":
            what = f"a field must be one that the route has; got {name}."
        case _:
            rule = first["msg"].removeprefix("Value error, ").removeprefix("Input should ").removesuffix(".")
            rule = rule if rule.startswith("be ") else f"be right ({rule})"
            what = f"{name} must {rule}; got {shown(first.get('input'))}."
    remedy = "GET /openapi.json describes the request."
    return ApiError(400, f"{what} {remedy}", code="invalid_value", param=name if place else None)
