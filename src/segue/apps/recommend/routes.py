"""HTTP routes of a recommender: events, lists, items, models, and personal data."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response
from pydantic import Field

from segue.apps.folder import model_names
from segue.apps.recommend import store
from segue.apps.recommend.folder import models_with
from segue.apps.recommend.ranking import Name, Wish
from segue.apps.recommend.service import RecommendService, described
from segue.apps.recommend.tables import DEFAULT_KIND, LONGEST_TEXT, MOST_TAGS, Event
from segue.apps.web import Strict, needs
from segue.serve.answers import ERRORS, answer
from segue.serve.errors import ApiError, too_large
from segue.serve.limits import LimitedRoute

router = APIRouter(route_class=LimitedRoute, responses=ERRORS)
Moment = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
AHEAD = 86_400.0
"""Maximum number of seconds by which the time of an event may be in the future: clocks differ."""
Id = Annotated[Name, PathParameter()]


class Done(Strict):
    """An event of a user."""

    user: Name
    item: Name
    kind: Name = DEFAULT_KIND
    time: Moment | None = None
    """Time in seconds since 1970, at most a day ahead. Default: now."""
    id: Annotated[str | None, Field(min_length=8, max_length=64)] = None
    """Id of your own; an event sent again with the same id is not stored again. Default: none."""


class Events(Strict):
    """Events to store."""

    events: Annotated[list[Done], Field(min_length=1)]


class Thing(Strict):
    """An item. The fields that are left out keep their values, if the item is known."""

    id: Name
    title: Annotated[str, Field(max_length=LONGEST_TEXT)] = ""
    description: Annotated[str, Field(max_length=LONGEST_TEXT)] = ""
    tags: Annotated[list[Name], Field(max_length=MOST_TAGS, default_factory=list)]
    price: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    """Price; null for none."""

    def change(self) -> dict[str, Any]:
        """Return the fields that were given. An item that was withdrawn comes back."""
        found = self.model_dump(exclude_unset=True) | {"withdrawn": False}
        return found | ({"tags": tuple(found["tags"])} if "tags" in found else {})


class Things(Strict):
    """Items to add or change."""

    items: Annotated[list[Thing], Field(min_length=1)]


class Then(Strict):
    """A hypothetical event."""

    item: Name
    kind: Name = DEFAULT_KIND


class Asked(Strict):
    """Request for a list."""

    user: Name
    count: Annotated[int, Field(ge=1)] = 10
    wish: Wish = Wish()
    then: Annotated[list[Then], Field(max_length=20, default_factory=list)]
    """Hypothetical next events of the user, read by a fork of the session and not stored."""
    why: bool = False
    """Whether to give the reason for each item."""
    model: Annotated[str | None, Field(pattern="^[0-9]{1,9}$")] = None
    """Name of another model. Default: the current one."""


class Alike(Strict):
    """Request for similar items."""

    item: Name
    count: Annotated[int, Field(ge=1)] = 10
    wish: Wish = Wish()


def service_of(request: Request) -> RecommendService:
    """Return the service of a request."""
    found: Any = request.app.state.service
    assert isinstance(found, RecommendService)
    return found


def _check_count(service: RecommendService, count: int) -> None:
    if count > service.settings.max_list:
        raise too_large("count", count, service.settings.max_list, setting="max_list")


@router.post("/v1/events", tags=["lists"], dependencies=[needs("agent")])
async def post_events(body: Events, request: Request) -> Response:
    """Store events, all or none, before responding. Each event is one step in the session of its user."""
    service = service_of(request)
    if len(body.events) > service.settings.max_events:
        raise too_large("events", len(body.events), service.settings.max_events, what="events", setting="max_events")
    now = time.time()
    for place, one in enumerate(body.events):
        if one.time is not None and one.time > now + AHEAD:
            raise ApiError(
                400,
                f"the time of an event must be at most a day ahead, in seconds since 1970; got {one.time:.0f}. Correct "
                "it, or leave it out.",
                code="invalid_value",
                param=f"events[{place}].time",
            )
    events = [
        (one.id, Event(user=one.user, item=one.item, kind=one.kind, time=now if one.time is None else one.time))
        for one in body.events
    ]
    return answer({"events": await service.compute(lambda: service.take_events(events))})


@router.post("/v1/recommend", tags=["lists"], dependencies=[needs("agent")])
async def recommend(body: Asked, request: Request) -> Response:
    """Recommend items to a user, most likely first, with optional filters, adjustments and reasons."""
    service = service_of(request)
    _check_count(service, body.count)
    now = time.time()
    then = [Event(user=body.user, item=one.item, kind=one.kind, time=now) for one in body.then]
    return answer(
        await service.compute(
            lambda: service.suggest(
                body.user, wish=body.wish, count=body.count, then=then, why=body.why, model=body.model
            )
        )
    )


@router.post("/v1/similar", tags=["lists"], dependencies=[needs("agent")])
async def similar(body: Alike, request: Request) -> Response:
    """Return the items with the most similar vectors."""
    service = service_of(request)
    _check_count(service, body.count)
    found = await service.compute(lambda: service.similar(body.item, count=body.count, wish=body.wish))
    return answer({"item": body.item, "items": found})


@router.get("/v1/items", tags=["items"], dependencies=[needs("agent")])
async def find_items(
    request: Request,
    words: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 30,
) -> Response:
    """Return the items whose id, title or tags contain all words, most popular first."""
    service = service_of(request)

    def work() -> list[dict[str, Any]]:
        model = service.loaded(None).model
        wanted = words.casefold().split()
        fitting = [
            place
            for place, item in enumerate(model.items, start=1)
            if not item.withdrawn
            and all(word in f"{item.id} {item.title} {' '.join(item.tags)}".casefold() for word in wanted)
        ]
        fitting.sort(key=lambda place: -int(model.counts_V[place]))
        return [described(model.items[place - 1]) | {"seen": int(model.counts_V[place])} for place in fitting[:limit]]

    return answer({"items": await service.compute(work)})


@router.post("/v1/items", tags=["items"], dependencies=[needs("operator")])
async def post_items(body: Things, request: Request) -> Response:
    """Add items, which can be recommended at once by their texts, or change the given fields of known ones."""
    service = service_of(request)
    if len(body.items) > service.settings.max_items:
        raise too_large("items", len(body.items), service.settings.max_items, what="items", setting="max_items")
    changes = [one.change() for one in body.items]
    return answer({"new": await service.compute(lambda: service.take_items(changes))})


@router.delete("/v1/items/{item:path}", tags=["items"], dependencies=[needs("operator")])
async def withdraw_item(item: Id, request: Request) -> Response:
    """Withdraw an item: it is never listed any more, unless it is added again. Its events stay."""
    service = service_of(request)
    await service.compute(lambda: service.withdraw(item))
    return answer({"item": item, "withdrawn": True})


@router.get("/v1/users/{user:path}", tags=["lists"], dependencies=[needs("agent")])
async def read_user(user: Id, request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> Response:
    """Return the last events of a user, latest first."""
    service = service_of(request)

    def work() -> list[dict[str, Any]]:
        model = service.loaded(None).model
        events = service.database.do(lambda connection: store.history(connection, user, last=limit))
        return [
            {
                "number": number,
                "item": one.item,
                "title": model.items[model.places[one.item] - 1].title if one.item in model.places else "",
                "kind": one.kind,
                "time": one.time,
            }
            for number, one in reversed(events)
        ]

    return answer({"user": user, "events": await service.compute(work)})


@router.get("/v1/models", tags=["service"], dependencies=[needs("agent")])
async def models(request: Request) -> Response:
    """Return the names of the models, and the evaluation of the current one on held-out events."""
    service = service_of(request)
    about = service.current.about
    return answer(
        {
            "models": model_names(service.folder),
            "in_use": service.current.name,
            "summary": about["summary"],
            "kinds": about.get("occurring", sorted(service.current.model.kinds)),
            "tags": list(service.current.model.features.tags),
        }
    )


@router.get("/v1/operator/people/{person:path}", tags=["operator"], dependencies=[needs("operator")])
async def read_person(person: Id, request: Request) -> Response:
    """Return all stored data of a person."""
    service = service_of(request)
    return answer(
        await service.compute(lambda: service.database.do(lambda connection: store.of_person(connection, person)))
    )


@router.delete("/v1/operator/people/{person:path}", tags=["operator"], dependencies=[needs("operator")])
async def forget_person(person: Id, request: Request) -> Response:
    """Delete all data of a person, and name the models that were trained on it."""
    service = service_of(request)
    found = await service.compute(lambda: service.forget(person))
    return answer(
        {
            "person": person,
            "deleted_events": len(found["events"]),
            "models": models_with(service.folder, found["events"]),
        }
    )
