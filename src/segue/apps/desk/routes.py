"""HTTP routes of a desk. Those of visitors need the id of a conversation, which is secret; others need a key."""

import asyncio
import re
import secrets
import shlex
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response
from pydantic import Field

from segue.apps.desk import reviews, store
from segue.apps.desk.folder import models_with
from segue.apps.desk.phrases import Language
from segue.apps.desk.service import AGENTS, DeskService
from segue.apps.keys import Caller
from segue.apps.web import Strict, address_of, needs
from segue.serve.answers import ERRORS, answer
from segue.serve.errors import ApiError, shown
from segue.serve.limits import LimitedRoute
from segue.serve.sse import PING, EventStream, event

router = APIRouter(route_class=LimitedRoute, responses=ERRORS)
_ID = re.compile(r"[\w.@:+-]{1,128}")
LARGEST = 2**63 - 1
"""Largest integer that the database can store."""
SHOWN_TO_VISITORS = ("kind", "topic", "confidence", "suggestions", "reason")
"""Fields of `about` that visitors see, apart from sources."""


class NewConversation(Strict):
    """Request to open a conversation."""

    person: Annotated[str | None, Field(max_length=128)] = None
    """Your own id of the visitor; it is not authenticated. Default: a new random id."""
    language: Language = "en"
    """Language of the desk's own texts."""


class VisitorMessage(Strict):
    """Message of a visitor."""

    text: Annotated[str, Field(min_length=1)]
    id: Annotated[str, Field(min_length=8, max_length=64)]
    """Your own id for this message, with which it can be sent again without being stored twice."""
    topic: Annotated[str | None, Field(max_length=200)] = None
    """Topic of the suggestion that the visitor took. Default: none."""


class Feedback(Strict):
    """Rating of an answer."""

    message: Annotated[int, Field(ge=1, le=LARGEST)]
    good: bool


class AgentMessage(Strict):
    """Message of an agent."""

    text: Annotated[str, Field(min_length=1)]
    id: Annotated[str | None, Field(min_length=8, max_length=64)] = None
    """Your own id for this message, with which it can be sent again without being stored twice. Default: none."""


class Review(Strict):
    """Decision on a proposal."""

    accepted: bool
    outside: bool = False
    """Whether the question alone is accepted, as one that the desk must not answer."""
    question: Annotated[str | None, Field(min_length=1, max_length=4000)] = None
    answer: Annotated[str | None, Field(min_length=1, max_length=20_000)] = None
    topic: Annotated[str | None, Field(min_length=1, max_length=200)] = None


class AcceptedError(Strict):
    """Accepted share of wrong answers."""

    error: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


def service_of(request: Request) -> DeskService:
    """Return the desk that serves a request."""
    found: Any = request.app.state.service
    assert isinstance(found, DeskService)
    return found


# ------------------------------------------------------------------------------------------------------------ visitors


@router.post("/v1/conversations", status_code=201, tags=["visitor"], dependencies=[needs("visitor")])
async def open_conversation(body: NewConversation, request: Request) -> Response:
    """Open a conversation."""
    person = body.person or f"visitor-{secrets.token_hex(8)}"
    if not _ID.fullmatch(person):
        raise ApiError(
            400,
            f"person must be letters, digits and . _ @ : + -; got {shown(person)}.",
            code="invalid_value",
            param="person",
        )
    found = await service_of(request).open(person=person, language=body.language)
    return answer(_for_visitor(found, []), status=201)


@router.get("/v1/conversations/{id}", tags=["visitor"], dependencies=[needs("visitor")])
async def read_conversation(id: str, request: Request) -> Response:
    """Return a conversation with all its messages."""
    found, said = await _read(service_of(request), id, after=0)
    return answer(_for_visitor(found, said))


@router.post("/v1/conversations/{id}/messages", tags=["visitor"], dependencies=[needs("visitor")])
async def say(id: str, body: VisitorMessage, request: Request) -> Response:
    """Send a message; return it with the reply of the desk, if it leads the conversation."""
    service = service_of(request)
    text = _clean(body.text, service.settings.max_message)
    said = await service.visitor_says(id, text, client=body.id, chosen=body.topic)
    found = await service.conversation(id)
    return answer(_for_visitor(found, said))


@router.get("/v1/conversations/{id}/events", tags=["visitor"], dependencies=[needs("visitor")])
async def listen(id: str, request: Request, after: Annotated[int, Query(ge=0, le=LARGEST)] = 0) -> Response:
    """Stream messages after a number as server-sent events."""
    service = service_of(request)
    await service.conversation(id)
    state = {"after": after, "state": ""}

    async def look() -> Any:
        found, said = await _read(service, id, after=state["after"])  # type: ignore[arg-type]
        if not said and found["state"] == state["state"]:
            return None
        state["after"] = said[-1]["number"] if said else state["after"]
        state["state"] = found["state"]
        return _for_visitor(found, said)

    return _stream(request, id, look)


@router.post("/v1/conversations/{id}/feedback", tags=["visitor"], dependencies=[needs("visitor")])
async def give_feedback(id: str, body: Feedback, request: Request) -> Response:
    """Rate an answer of the desk or of an agent."""
    service = service_of(request)
    await service.conversation(id)
    done = await service.write(
        lambda connection: store.give_feedback(connection, id, body.message, good=body.good), AGENTS
    )
    if not done:
        raise ApiError(
            404,
            f"message must be an answer in this conversation, by the desk or an agent; got {body.message}, "
            "which is none (hand-overs, suggestions and questions cannot be rated). Choose an answer.",
            code="not_an_answer",
            param="message",
        )
    return answer({"message": body.message, "good": body.good})


# -------------------------------------------------------------------------------------------------------------- agents


@router.get("/v1/agent/conversations", tags=["agent"], dependencies=[needs("agent")])
async def list_conversations(
    request: Request,
    state: Literal["desk", "waiting", "agent", "resolved"] | None = None,
    search: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[float, Query(gt=0, allow_inf_nan=False)] = 1e12,
) -> Response:
    """List conversations, latest first, optionally in a state, containing a text, or before a time."""
    found = await service_of(request).database.run(
        lambda connection: store.listed(
            connection, state=state, search=search.replace("\0", "").strip(), limit=limit, before=before
        )
    )
    return answer({"data": found, "now": time.time()})


@router.get("/v1/agent/conversations/{id}", tags=["agent"], dependencies=[needs("agent")])
async def read_record(id: str, request: Request) -> Response:
    """Return a conversation with the reason for the hand-over, its messages, and the candidates of the desk."""
    found, said = await _read(service_of(request), id, after=0)
    record = await service_of(request).database.run(lambda connection: store.record(connection, id))
    return answer({**found, "messages": said, "candidates": record["candidates"]})


@router.post("/v1/agent/conversations/{id}/messages", tags=["agent"])
@router.put("/v1/agent/conversations/{id}/messages", tags=["agent"])
async def reply_as_agent(
    id: str,
    body: AgentMessage,
    request: Request,
    caller: Caller = needs("agent"),  # noqa: B008
) -> Response:
    """Send a message as an agent, and take the conversation over. With an `id`, the request can be repeated."""
    service = service_of(request)
    text = _clean(body.text, service.settings.max_reply)
    await service.agent_does(id, caller.name, "say", text, client=body.id)
    return await read_record(id, request)


@router.post("/v1/agent/conversations/{id}/{action}", tags=["agent"])
async def act(
    id: str,
    action: Literal["take", "release", "resolve"],
    request: Request,
    caller: Caller = needs("agent"),  # noqa: B008
) -> Response:
    """Take a conversation over, hand it back to the desk, or resolve it."""
    await service_of(request).agent_does(id, caller.name, action)
    return await read_record(id, request)


@router.get("/v1/agent/events", tags=["agent"], dependencies=[needs("agent")])
async def listen_to_all(request: Request) -> Response:
    """Stream the number of conversations in each state, whenever any conversation changes."""
    service = service_of(request)

    async def look() -> Any:
        states = await service.database.run(
            lambda connection: dict(connection.execute("SELECT state, count(*) FROM conversations GROUP BY state"))
        )
        return {"states": states, "now": time.time()}

    return _stream(request, AGENTS, look)


@router.get("/v1/agent/reviews", tags=["agent"], dependencies=[needs("agent")])
async def list_reviews(
    request: Request,
    state: Literal["open", "accepted", "outside", "rejected"] = "open",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """List answers of agents from which the desk could learn."""
    found = await service_of(request).database.run(
        lambda connection: reviews.proposals(connection, state=state, limit=limit)
    )
    return answer({"data": found})


@router.put("/v1/agent/reviews/{message}", tags=["agent"])
async def review(
    message: Annotated[int, PathParameter(ge=1, le=LARGEST)],
    body: Review,
    request: Request,
    caller: Caller = needs("agent"),  # noqa: B008
) -> Response:
    """Accept a proposal, with changes if any, or only its question as out of scope, or reject it."""
    if body.outside and (not body.accepted or body.answer is not None or body.topic is not None):
        raise ApiError(
            400,
            "outside must come with accepted true, and without answer and topic; got another combination. Leave out "
            "answer and topic, or outside.",
            code="invalid_value",
            param="outside",
        )
    done = await service_of(request).write(
        lambda connection: reviews.decide(
            connection,
            message,
            accepted=body.accepted,
            reviewer=caller.name,
            question=body.question,
            answer=body.answer,
            topic=body.topic,
            outside=body.outside,
        )
    )
    if not done:
        raise ApiError(404, f"message must be a proposal; got {message}.", code="not_found")
    return answer({"message": message, "accepted": body.accepted, "outside": body.outside})


@router.get("/v1/agent/statistics", tags=["agent"], dependencies=[needs("agent")])
async def read_statistics(request: Request, days: Annotated[float, Query(gt=0, le=3650)] = 30) -> Response:
    """Return the share answered, the share rated helpful, response time, topics, and unanswered questions."""
    service = service_of(request)
    found = await service.database.run(lambda connection: reviews.statistics(connection, days=days))
    return answer({**found, "streams": service.streams, "decision": service.decision()})


# ----------------------------------------------------------------------------------------------------------- operators


@router.put("/v1/operator/error", tags=["operator"], dependencies=[needs("operator")])
async def set_error(body: AcceptedError, request: Request) -> Response:
    """Set the accepted share of wrong answers; the threshold follows from the held-out questions."""
    return answer(await service_of(request).set_error(body.error))


@router.get("/v1/operator/people/{person}", tags=["operator"], dependencies=[needs("operator")])
async def read_person(person: str, request: Request) -> Response:
    """Return everything stored about a person."""
    return answer(await service_of(request).database.run(lambda connection: store.of_person(connection, person)))


@router.delete("/v1/operator/people/{person}", tags=["operator"], dependencies=[needs("operator")])
async def forget_person(person: str, request: Request) -> Response:
    """Delete everything stored about a person. Models trained on the person's accepted questions are not changed, but
    named, with the command that removes them."""
    service = service_of(request)
    kept = await service.database.run(lambda connection: store.of_person(connection, person))
    ids = [one["id"] for one in kept["conversations"]]
    count = await service.write(lambda connection: store.forget(connection, person), AGENTS, *ids)
    await service.database.clean_later()
    models = await asyncio.to_thread(models_with, service.folder, ids)
    command = shlex.join(["segue", "desk", "person", str(service.folder), person, "--delete"]) if models else None
    return answer({"person": person, "deleted_conversations": count, "models": models, "command": command})


# ------------------------------------------------------------------------------------------------------------- helpers


async def _read(service: DeskService, id: str, *, after: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = await service.conversation(id)
    return found, await service.database.run(lambda connection: store.messages(connection, id, after=after))


def _for_visitor(found: dict[str, Any], said: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a conversation without what is for agents: other candidates, files, what the desk remembers."""
    return {
        "id": found["id"],
        "person": found["person"],
        "state": found["state"],
        "agent": found["agent"],
        "messages": [{**one, "about": _shown_about(one["about"])} for one in said],
    }


def _shown_about(about: dict[str, Any]) -> dict[str, Any]:
    """Return what visitors see of `about`. Its `source` is the name of a file, and stays private; theirs is `cited`."""
    found = {name: about[name] for name in SHOWN_TO_VISITORS if name in about}
    if "cited" in about:
        found["source"] = about["cited"]
    if "sources" in about:
        found["sources"] = [{"topic": one["topic"], "source": one.get("cited")} for one in about["sources"]]
    return found


def _clean(text: str, limit: int) -> str:
    kept = text.replace("\0", "").strip()
    if len(kept) > limit:
        raise ApiError(
            400,
            f"text must have at most {limit:,} characters; got {len(kept):,}. Send less, or several messages.",
            code="too_large",
            param="text",
        )
    if not kept:
        raise ApiError(400, "text must have a visible character; got none.", code="invalid_value", param="text")
    return kept


def _stream(request: Request, subject: str, look: Callable[[], Awaitable[Any]]) -> Response:
    """Stream the results of `look`, called at first and whenever there may be something new; None is not sent."""
    service = service_of(request)
    address = address_of(request)
    waiting = service.listen(subject, address)

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        waiting.set()

    gone = asyncio.create_task(until_gone())

    async def pieces() -> AsyncGenerator[bytes]:
        while service.ready and not gone.done():
            waiting.clear()
            try:
                found = await look()
            except ApiError:  # the conversation was deleted
                return
            if found is not None:
                yield event(found)
            try:
                async with asyncio.timeout(service.settings.ping):
                    await waiting.wait()
            except TimeoutError:
                yield PING

    async def finish() -> None:
        gone.cancel()
        service.unlisten(subject, address, waiting)

    return EventStream(pieces(), finish=finish, write_timeout=service.settings.write_timeout)
