"""HTTP routes of a monitor: trends, texts, sources, events. All need the key of an agent or an operator."""

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import UTC
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response
from pydantic import Field

from segue.apps.cells import EARLIEST, MILLISECONDS
from segue.apps.keys import Caller
from segue.apps.monitor import listing, queries, reviews
from segue.apps.monitor.daily import daily_report
from segue.apps.monitor.export import AT_ONCE, csv_lines, exported, page_of, parquet_bytes
from segue.apps.monitor.folder import models_with
from segue.apps.monitor.labelled import SENTIMENTS
from segue.apps.monitor.model import MOST_ENTITIES, MonitorModel, Sentiment
from segue.apps.monitor.prices import beside, closes_between
from segue.apps.monitor.service import MonitorService
from segue.apps.monitor.sources import POSTED
from segue.apps.monitor.texts import Rows, Text
from segue.apps.monitor.watch import DAY
from segue.apps.web import Strict, needs
from segue.errors import ConfigError
from segue.serve.answers import ERRORS, answer
from segue.serve.errors import ApiError, too_large
from segue.serve.limits import LimitedRoute
from segue.serve.sse import PING, EventStream, event

router = APIRouter(route_class=LimitedRoute, responses=ERRORS)
LARGEST = 2**63 - 1
Moment = Annotated[float, Query(ge=-1e12, le=1e12, allow_inf_nan=False)]
Name = Annotated[str, Query(max_length=200)]
Number = Annotated[int, PathParameter(ge=1, le=LARGEST)]
Tone = Literal["negative", "neutral", "positive"]
SHOWN = 20
"""Maximum number of texts in an event."""


class Posted(Strict):
    """Texts to read."""

    texts: Annotated[list[dict[str, Any]], Field(min_length=1)]
    """Objects with `text`, and optionally `title`, `time`, `author` and `id`: an id is read once."""


class Label(Strict):
    """A correction of the predictions for a text."""

    sentiment: Tone | None = None
    topic: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    entities: Annotated[dict[str, Tone], Field(max_length=MOST_ENTITIES)] = Field(default_factory=dict)
    """Sentiment by code, for entities that the text names."""


class Names(Strict):
    """Decisions on proposed names."""

    taken: Annotated[dict[str, str], Field(max_length=100)] = Field(default_factory=dict)
    """Codes by name: a code of the list gets another name, an unknown code is a new entity."""
    dismissed: Annotated[list[str], Field(max_length=100)] = Field(default_factory=list)
    proposed: Annotated[list[str], Field(max_length=100)] = Field(default_factory=list)
    """Dismissed names to propose again."""


class Decision(Strict):
    """Decision on a correction."""

    accepted: bool


def service_of(request: Request) -> MonitorService:
    """Return the monitor behind a request."""
    found: Any = request.app.state.service
    assert isinstance(found, MonitorService)
    return found


def missing(what: str, number: int) -> ApiError:
    """Return the error for something that does not exist."""
    return ApiError(404, f"{what} must be one that the monitor has; got {number}.", code="not_found")


# -------------------------------------------------------------------------------------------------------------- trends


@router.get("/v1/overview", tags=["trends"], dependencies=[needs("agent")])
async def overview(
    request: Request,
    days: Annotated[float, Query(gt=0, le=92)] = 7,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Return entities and topics of the last days up to the newest text: volume, sentiment, and the period before."""
    service = service_of(request)

    def work(connection: Any) -> dict[str, Any]:
        span = queries.span(connection)
        end = span[1] if span is not None else time.time()
        window = {"start": end - days * DAY, "end": end + 1}
        return {
            "span": span,
            **window,
            "entities": queries.overview(connection, **window, limit=limit),
            "topics": queries.topics(connection, **window),
            "open_alarms": queries.open_incidents(connection),
        }

    found = await service.database.run(work)
    names = {one.code: one.names[0] if one.names else one.code for one in service.model.entities.all}
    for one in found["entities"]:
        one["name"] = names.get(one["entity"], one["entity"])
    return answer({**found, "model": service.model_name, "topic_names": list(service.model.topics)})


@router.get("/v1/timeline", tags=["trends"], dependencies=[needs("agent")])
async def timeline(
    request: Request,
    start: Moment,
    end: Moment,
    entity: Name = "",
    topic: Name = "",
) -> Response:
    """Return points by hour or day, with alarms, and the price if there is one."""
    service = service_of(request)
    if not start < end <= start + 3650 * DAY:
        raise ApiError(400, "end must be after start, by at most ten years; it is not.", code="invalid_value")

    def work(connection: Any) -> dict[str, Any]:
        found = queries.timeline(connection, entity=entity, topic=topic, start=start, end=end)
        alarms = queries.alarms(connection, entity=entity, topic=topic, start=start, end=end)
        means = queries.daily_means(connection, entity, start=start, end=end) if entity in service.prices else {}
        return {**found, "alarms": alarms, "means": means}

    found = await service.database.run(work)
    means = found.pop("means")
    kept = closes_between(service.prices.get(entity, {}), start=start, end=end)
    price = await asyncio.to_thread(beside, means, kept) if kept and not topic else None
    return answer({"entity": entity, "topic": topic, **found, "price": price})


@router.get("/v1/within", tags=["trends"], dependencies=[needs("agent")])
async def within(
    request: Request,
    start: Moment,
    end: Moment,
    entity: Name = "",
    topic: Name = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """Return the topics of an entity or of all texts, or the entities of a topic: volume, sentiment, and the period
    before. Longer periods are cut to their last 92 days."""
    if not start < end:
        raise ApiError(400, "end must be after start; it is not.", code="invalid_value")
    if entity and topic:
        raise ApiError(400, "entity or topic must be given; got both.", code="invalid_value")
    first = max(start, end - 92 * DAY)
    found = await service_of(request).database.run(
        lambda connection: queries.within(connection, entity=entity, topic=topic, start=first, end=end, limit=limit)
    )
    return answer({"entity": entity, "topic": topic, "start": first, "end": end, "data": found})


# --------------------------------------------------------------------------------------------------------------- texts


@router.get("/v1/texts", tags=["texts"], dependencies=[needs("agent")])
async def list_texts(
    request: Request,
    entity: Name = "",
    topic: Name = "",
    sentiment: Literal["", "negative", "neutral", "positive"] = "",
    start: Moment = -1e12,
    before: Moment = 1e12,
    before_number: Annotated[int, Query(ge=0, le=LARGEST)] = LARGEST,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """List the texts of a subject, the latest first."""
    found = await service_of(request).database.run(
        lambda connection: queries.texts(
            connection,
            entity=entity,
            topic=topic,
            sentiment=sentiment,
            start=start,
            before=(before, before_number),
            limit=limit,
        )
    )
    return answer({"data": found})


@router.post("/v1/texts", tags=["texts"], dependencies=[needs("agent")])
async def post_texts(body: Posted, request: Request) -> Response:
    """Read texts; those with an id that was sent before are skipped."""
    service = service_of(request)
    if len(body.texts) > service.settings.max_texts:
        raise too_large("texts", len(body.texts), service.settings.max_texts, what="texts", setting="max_texts")
    written, refused = await service.post(body.texts, Rows(source=POSTED, zone=UTC))
    return answer(
        {
            "texts": written.numbers,
            "known": written.known,
            "refused": [reason for reason, _ in refused],
            "alarms": written.alarms,
        }
    )


@router.get("/v1/texts/{number}", tags=["texts"], dependencies=[needs("agent")])
async def read_text(number: Number, request: Request, entity: Name = "") -> Response:
    """Return a text with the contributions of its words, and of the network if there is one, to its sentiment or to the
    sentiment towards one of its entities."""
    service = service_of(request)
    found = await service.database.run(lambda connection: queries.one_text(connection, number))
    if found is None:
        raise missing("a text", number)
    whole = Text(id="", source="", time=0.0, title=found["title"], text=found["text"]).whole
    label = str(found["sentiment"])
    if entity:
        if entity not in found["entities"]:
            raise missing_entity()
        label = told_of(*found["entities"][entity])
    try:
        pieces, network = await asyncio.to_thread(decided, service.model, whole, label, entity or None)
    except ConfigError:  # an entity that the list had when the text was read, and has no longer
        pieces, network = [[whole, 0.0]], None
    return answer({**found, "pieces": pieces, "network": network, "about": {"entity": entity, "sentiment": label}})


def missing_entity() -> ApiError:
    """Return the error for an entity that the text does not name."""
    return ApiError(400, "entity must be one that the text names; it is not.", code="invalid_value", param="entity")


def told_of(negative: float, positive: float) -> str:
    """Return the most probable sentiment towards an entity."""
    return Sentiment(negative=negative, neutral=1 - negative - positive, positive=positive).label


def decided(model: MonitorModel, text: str, label: str, entity: str | None) -> tuple[list[list[Any]], float | None]:
    """Return the contributions of words, and of the network."""
    return highlighted(model, text, label, entity), model.by_network(text, label=label, entity=entity)


def highlighted(model: MonitorModel, text: str, label: str, entity: str | None) -> list[list[Any]]:
    """Return the pieces of a text with their contributions, scaled so that the largest is 1."""
    words = model.deciding(text if entity else text[:20_000], label=label, entity=entity)
    largest = max((abs(one.weight) for one in words), default=0.0) or 1.0
    found: list[list[Any]] = []
    place = 0
    for one in words:
        if one.start > place:
            found.append([text[place : one.start], 0.0])
        found.append([text[one.start : one.end], round(one.weight / largest, 3)])
        place = one.end
    return [*found, [text[place:], 0.0]] if place < len(text) else found


@router.put("/v1/texts/{number}/label", tags=["texts"])
async def correct_label(
    number: Number,
    body: Label,
    request: Request,
    caller: Caller = needs("agent"),  # noqa: B008
) -> Response:
    """Correct the predictions for a text and its entities; corrections are learned after a review."""
    service = service_of(request)
    if body.sentiment is None and body.topic is None and not body.entities:
        message = "a correction must have a sentiment, a topic or sentiments of entities; got none of them."
        raise ApiError(400, message, code="invalid_value")
    if body.topic is not None and body.topic not in service.model.topics:
        raise ApiError(400, "topic must be one that the monitor knows; it is not.", code="invalid_value", param="topic")
    found = await service.database.run(lambda connection: queries.one_text(connection, number))
    if found is None:
        raise missing("a text", number)
    if not set(body.entities) <= set(found["entities"]):
        raise missing_entity()
    done = await service.database.run(
        lambda connection: reviews.correct(
            connection,
            number,
            sentiment=body.sentiment,
            topic=body.topic,
            entities=body.entities,
            agent=caller.name,
        )
    )
    if not done:  # deleted in between
        raise missing("a text", number)
    return answer({"text": number, "sentiment": body.sentiment, "topic": body.topic, "entities": body.entities})


@router.get("/v1/events", tags=["texts"], dependencies=[needs("agent")])
async def events(request: Request, after: Annotated[int, Query(ge=0, le=LARGEST)] = 0) -> Response:
    """Stream new texts and the number of open incidents as server-sent events."""
    service = service_of(request)
    waiting = service.listen()
    state = {"after": after}

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        waiting.set()

    gone = asyncio.create_task(until_gone())

    def look(connection: Any) -> dict[str, Any]:
        return {
            "texts": queries.latest(connection, after=state["after"], limit=SHOWN),
            "open_alarms": queries.open_incidents(connection),
        }

    async def pieces() -> AsyncGenerator[bytes]:
        while service.ready and not gone.done():
            waiting.clear()
            found = await service.database.run(look)
            if found["texts"]:
                state["after"] = found["texts"][-1]["number"]
            yield event(found)
            try:
                async with asyncio.timeout(service.settings.ping):
                    await waiting.wait()
            except TimeoutError:
                yield PING
            await asyncio.sleep(0.2)  # a fast stream is shown in pieces that a person can see

    async def finish() -> None:
        gone.cancel()
        service.unlisten(waiting)

    return EventStream(pieces(), finish=finish, write_timeout=service.settings.write_timeout)


# ---------------------------------------------------------------------------------------------------- tables and files


@router.get("/v1/export", tags=["texts"], dependencies=[needs("agent")])
async def export(
    request: Request,
    format: Literal["csv", "parquet"] = "csv",
    entity: Name = "",
    topic: Name = "",
    start: Moment = -1e12,
    end: Moment = 1e12,
) -> Response:
    """Export texts between two times, the latest first, at most `max_export` of them."""
    service = service_of(request)
    rows: list[dict[str, Any]] = []
    before = (end, 0)
    while len(rows) < service.settings.max_export:
        found = await service.database.run(
            lambda connection, before=before: page_of(  # type: ignore[misc]
                connection, entity=entity, topic=topic, start=start, before=before
            )
        )
        rows += [exported(one, entity) for one in found]
        if len(found) < AT_ONCE:
            break
        before = (found[-1]["time"], found[-1]["number"])
    rows = rows[: service.settings.max_export]
    if format == "parquet":
        data, media = await asyncio.to_thread(parquet_bytes, rows), "application/vnd.apache.parquet"
    else:
        data, media = csv_lines(rows, header=True).encode(), "text/csv; charset=utf-8"
    headers = {"content-disposition": f'attachment; filename="texts.{format}"'}
    return Response(data, media_type=media, headers=headers)


@router.get("/v1/report", tags=["trends"], dependencies=[needs("agent")])
async def report(
    request: Request, day: Annotated[float, Query(ge=EARLIEST, le=MILLISECONDS, allow_inf_nan=False)]
) -> Response:
    """Return the report of a day as HTML."""
    page = await service_of(request).database.run(lambda connection: daily_report(connection, day))
    return Response(page, media_type="text/html; charset=utf-8")


@router.get("/v1/sources", tags=["service"], dependencies=[needs("agent")])
async def sources(request: Request) -> Response:
    """Return the state of each source, the last rejected rows, and proposed names."""
    service = service_of(request)
    found = await service.database.run(
        lambda connection: {
            "sources": queries.sources(connection),
            "refused": queries.refused(connection, limit=20),
            "names": queries.names(connection, limit=30),
        }
    )
    known = {one["name"] for one in found["sources"]}
    for one in service.listed.source:
        if one.name not in known:
            empty = {"taken": 0, "known": 0, "refused": 0, "last": None, "problem": None}
            found["sources"].append({"name": one.name, **empty})
    return answer(
        {
            **found,
            "find_names": service.settings.find_names,
            "summary": service.about["summary"],
            "model": service.model_name,
        }
    )


# ----------------------------------------------------------------------------------------------------------- operators


@router.get("/v1/reviews", tags=["operator"], dependencies=[needs("agent")])
async def list_reviews(
    request: Request,
    state: Literal["open", "accepted", "rejected"] = "open",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """List corrections."""
    found = await service_of(request).database.run(
        lambda connection: reviews.proposals(connection, state=state, limit=limit)
    )
    return answer({"data": found, "sentiments": SENTIMENTS})


@router.put("/v1/reviews/{number}", tags=["operator"])
async def review(
    number: Number,
    body: Decision,
    request: Request,
    caller: Caller = needs("operator"),  # noqa: B008
) -> Response:
    """Accept or reject a correction."""
    done = await service_of(request).database.run(
        lambda connection: reviews.decide(connection, number, accepted=body.accepted, reviewer=caller.name)
    )
    if not done:
        raise missing("a correction", number)
    return answer({"text": number, "accepted": body.accepted})


@router.post("/v1/operator/names", tags=["operator"], dependencies=[needs("operator")])
async def decide_names(body: Names, request: Request) -> Response:
    """Add names to the list, each with its code, dismiss others, or propose them again; return the name of the model
    with the list."""
    service = service_of(request)
    for names, state in ((body.dismissed, listing.DISMISSED), (body.proposed, listing.OPEN)):
        if names:
            await service.database.run(
                lambda connection, names=names, state=state: listing.decide(connection, names, state)  # type: ignore[misc]
            )
    if body.taken:
        try:
            listing.check_listed(body.taken)
        except ConfigError as error:
            raise ApiError(400, str(error), code="invalid_value", param="taken") from None
        await service.list_names(body.taken)
    return answer({"model": service.model_name, "entities": len(service.model.entities.all)})


@router.get("/v1/operator/people/{person:path}", tags=["operator"], dependencies=[needs("operator")])
async def read_person(person: str, request: Request) -> Response:
    """Return all texts of an author."""
    return answer(await service_of(request).database.run(lambda connection: reviews.of_person(connection, person)))


@router.delete("/v1/operator/people/{person:path}", tags=["operator"], dependencies=[needs("operator")])
async def forget_person(person: str, request: Request) -> Response:
    """Delete all texts of an author with their counts; return the models that were trained on corrections of them."""
    service = service_of(request)
    found = await service.database.run(lambda connection: reviews.of_person(connection, person))
    count = await service.database.run(lambda connection: reviews.forget(connection, person))
    await service.database.clean_later()
    models = await asyncio.to_thread(models_with, service.folder, reviews.whole_texts(found))
    return answer({"person": person, "deleted_texts": count, "models": models})
