"""HTTP routes of alarms: list, read, acknowledge, comment."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from segue.apps.keys import Caller
from segue.apps.monitor import queries
from segue.apps.monitor.groups import grouped
from segue.apps.monitor.routes import Name, Number, missing, service_of
from segue.apps.monitor.views import told
from segue.apps.web import Strict, needs
from segue.serve.answers import ERRORS, answer
from segue.serve.errors import ApiError, too_large
from segue.serve.limits import LimitedRoute

router = APIRouter(route_class=LimitedRoute, responses=ERRORS)


class Comment(Strict):
    """A comment on an alarm."""

    text: Annotated[str, Field(min_length=1)]


@router.get("/v1/alarms", tags=["alarms"], dependencies=[needs("agent")])
async def list_alarms(
    request: Request,
    state: Literal["", "open", "acknowledged"] = "",
    entity: Name = "",
    topic: Name = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """List alarms, the latest first: all, or those of an entity, a topic, or an entity within a topic."""
    asked = entity if entity or topic else None
    found = await service_of(request).database.run(
        lambda connection: queries.alarms(connection, state=state, entity=asked, topic=topic, limit=limit)
    )
    return answer({"data": [told(one) for one in found]})


@router.get("/v1/alarms/{number}", tags=["alarms"], dependencies=[needs("agent")])
async def read_alarm(number: Number, request: Request) -> Response:
    """Return an alarm with its reason, figures, grouped texts, comments, and related alarms."""
    found = await service_of(request).database.run(lambda connection: queries.one_alarm(connection, number))
    if found is None:
        raise missing("an alarm", number)
    return answer({**told(found), "groups": await asyncio.to_thread(grouped, found["texts"])})


@router.post("/v1/alarms/{number}/acknowledge", tags=["alarms"])
async def acknowledge(
    number: Number,
    request: Request,
    caller: Caller = needs("agent"),  # noqa: B008
) -> Response:
    """Acknowledge an alarm and the other alarms of its incident."""
    service = service_of(request)
    if not await service.database.run(lambda connection: queries.acknowledge(connection, number, caller.name)):
        raise missing("an alarm", number)
    service.wake()
    return await read_alarm(number, request)


@router.post("/v1/alarms/{number}/comments", tags=["alarms"])
async def comment(
    number: Number,
    body: Comment,
    request: Request,
    caller: Caller = needs("agent"),  # noqa: B008
) -> Response:
    """Add a comment to an alarm."""
    service = service_of(request)
    text = body.text.replace("\0", "").strip()
    if len(text) > service.settings.max_comment:
        raise too_large("text", len(text), service.settings.max_comment, what="characters", setting="max_comment")
    if not text:
        raise ApiError(400, "text must have a visible character; got none.", code="invalid_value", param="text")
    if not await service.database.run(lambda connection: queries.comment(connection, number, caller.name, text)):
        raise missing("an alarm", number)
    return await read_alarm(number, request)
