"""Routes of sessions: create, list, feed, write, score, fork, download and restore the state, delete."""

import codecs
import math
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from segue.infer.saved_session import Kept
from segue.serve.answers import ERRORS, answer, or_events
from segue.serve.errors import ApiError, too_large
from segue.serve.jobs import Done, Ended, Feed, Job, Score, Token, Took, Write
from segue.serve.keeper import Session
from segue.serve.limits import LimitedRoute, read_parts
from segue.serve.run import GoneError, Run
from segue.serve.schemas import (
    DeletedSession,
    FedAnswer,
    ScoredAnswer,
    ScoreRequest,
    SessionAnswer,
    SessionList,
    SessionRequest,
    WriteRequest,
    Written,
)
from segue.serve.serving import Serving, serving_of, tenant_of
from segue.serve.sse import DONE, PING, EventStream, event
from segue.serve.writing import finite, how_to_write, token_body, top_body, usage_of

router = APIRouter(prefix="/v1/sessions", route_class=LimitedRoute, tags=["sessions"])
plain = APIRouter(prefix="/v1/sessions", tags=["sessions"])
"""Routes whose bodies are not JSON."""
SessionId = Annotated[str, Path(alias="id", min_length=1, max_length=64, description="The id of a session.")]
BYTES = "application/octet-stream"
_MOST_LISTED = 1000


@router.post("", response_model=SessionAnswer, status_code=201, responses=ERRORS)
async def create(body: SessionRequest, request: Request) -> Response:
    """Creates an empty session."""
    serving = serving_of(request)
    serving.run(request)
    served = serving.model(body.model, "sessions")
    return answer((await serving.sessions.create(tenant_of(request), served.name)).body(), status=201)


@router.get("", response_model=SessionList, responses=ERRORS)
async def list_all(
    request: Request,
    limit: Annotated[
        int, Query(ge=1, le=_MOST_LISTED, description="Maximum number of sessions to return. Default: 100.")
    ] = 100,
    after: Annotated[
        str | None, Query(max_length=64, description="Id of the last session of the previous page.")
    ] = None,
) -> Response:
    """Lists your sessions, the oldest first."""
    found, has_more = await serving_of(request).sessions.page(tenant_of(request), after=after, limit=limit)
    return answer({"object": "list", "data": [session.body() for session in found], "has_more": has_more})


@router.get("/{id}", response_model=SessionAnswer, responses=ERRORS)
async def show(id: SessionId, request: Request) -> Response:
    """Describes a session."""
    return answer((await _session(request, id)).body())


@router.delete("/{id}", response_model=DeletedSession, responses=ERRORS)
async def delete(id: SessionId, request: Request) -> Response:
    """Deletes a session, in memory and on disk."""
    session = await _session(request, id)
    await serving_of(request).sessions.delete(session)
    return answer({"id": session.id, "object": "session.deleted", "deleted": True})


@router.post("/{id}/fork", response_model=SessionAnswer, status_code=201, responses=ERRORS)
async def fork(id: SessionId, request: Request) -> Response:
    """Creates a session with the same state. The two are independent; what they have in common is stored once."""
    serving = serving_of(request)
    serving.run(request)
    return answer((await serving.sessions.fork(await _session(request, id))).body(), status=201)


# ---------------------------------------------------------------------------------------------------- feed and score


@plain.post(
    "/{id}/feed",
    response_model=FedAnswer,
    responses=ERRORS,
    openapi_extra={
        "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
async def feed(id: SessionId, request: Request) -> Response:
    """Feeds a text to the session: the body, as it is, in UTF-8, of any length, sent in parts of any size.

    The text continues the one fed before. Memory use does not grow with the text. A request that fails or is aborted
    leaves the session as it was.
    """
    serving, session = serving_of(request), await _session(request, id)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        raise ApiError(
            415,
            "a text that is fed must be the body itself; got application/json. Send text/plain, without quotes.",
            code="invalid_content_type",
        )
    await serving.sessions.check_room(session)
    run = serving.run(request)
    kept = await serving.sessions.take(session)
    found: Kept | None = None
    try:
        task = Feed(serving.models[session.model], kept)
        job = Job(tenant_of(request), task)
        worker = serving.engine.writers[session.model]
        run.submit({job: worker})
        characters = 0
        async for text in _texts(request, serving):
            characters += len(text)
            task.parts.append(text)
            serving.engine.wake(job, worker)
            while not isinstance((await run.next())[1], Took):
                pass
        task.complete = True
        serving.engine.wake(job, worker)
        run.watch()
        found = await run.done(job)
        return answer(
            {
                "object": "session.fed",
                "characters": characters,
                "usage": usage_of([task.counted], 0),
                "session": {**session.body(), **_after(found)},
            }
        )
    finally:
        run.close()
        await serving.sessions.give(session, found)


async def _texts(request: Request, serving: Serving) -> AsyncGenerator[str]:
    """Yield the body as decoded text, in parts."""
    settings = serving.settings
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        async for part in read_parts(request, limit=settings.max_feed, timeout=settings.body_timeout, each=True):
            if text := decoder.decode(part):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text
    except UnicodeDecodeError as error:
        raise ApiError(
            400,
            f"a text must be in UTF-8; got other bytes: {error.reason}. Send it in UTF-8.",
            code="invalid_text",
        ) from None


@router.post("/{id}/score", response_model=ScoredAnswer, responses=ERRORS)
async def score(id: SessionId, body: ScoreRequest, request: Request) -> Response:
    """Feeds a text to the session and returns the probability of each token, given everything that the session had
    read."""
    serving, session = serving_of(request), await _session(request, id)
    top = body.logprobs or 0
    settings = serving.settings
    if top > settings.max_logprobs:
        raise too_large("logprobs", top, settings.max_logprobs, setting="max_logprobs")
    if body.keep:
        await serving.sessions.check_room(session)
    run = serving.run(request)
    kept = await serving.sessions.take(session)
    found: Kept | None = None
    try:
        task = Score(
            serving.models[session.model],
            kept,
            body.text,
            top=top,
            limit=settings.max_echo_tokens,
        )
        job = Job(tenant_of(request), task)
        run.submit({job: serving.engine.writers[session.model]})
        run.watch()
        result: Kept = await run.done(job)
        found = result if body.keep else None
        return answer(_scored(task, {**session.body(), "busy": False, **(_after(found) if found else {})}))
    finally:
        run.close()
        await serving.sessions.give(session, found)


def _scored(task: Score, session: dict[str, Any]) -> dict[str, Any]:
    values = [one.log_probability for one in task.scored if one.log_probability is not None]
    total = math.fsum(values)
    return {
        "object": "session.scored",
        "logprob": finite(total),
        "perplexity": math.exp(min(700.0, -total / len(values))) if values else None,
        "tokens": [
            {
                "token": one.token,
                "id": one.id,
                "start": one.start,
                "end": one.end,
                "logprob": None if one.log_probability is None else finite(one.log_probability),
                "top": top_body(one.alternatives),
            }
            for one in task.scored
        ],
        "usage": usage_of([task.reading.counted], 0),
        "session": session,
    }


# -------------------------------------------------------------------------------------------------------------- write


@router.post("/{id}/write", response_model=Written, responses=or_events())
async def write(id: SessionId, body: WriteRequest, request: Request) -> Response:
    """Feeds a prompt to the session and generates text; as server-sent events, token by token, or with `"stream":
    false` at once.

    Each event is a token (`"object": "session.token"`); the one before `[DONE]` says how generation ended. If the
    client disconnects, the session continues after the last event that was sent.
    """
    serving, session = serving_of(request), await _session(request, id)
    served = serving.models.get(session.model)
    if served is None:
        await serving.sessions.take(session)  # raises the error that says what is wrong
        raise AssertionError
    how = how_to_write(body, served, serving.settings, logprobs=body.logprobs, keep=True)
    if not how.max_tokens:
        raise ApiError(
            400,
            "max_tokens of a session must be at least 1; got 0. Use 1, or feed the text.",
            code="invalid_value",
            param="max_tokens",
        )
    await serving.sessions.check_room(session)
    run = serving.run(request)
    kept = await serving.sessions.take(session)
    stream = body.stream is None or body.stream
    task = Write(served, kept, body.prompt, how)
    task.flows = stream
    job = Job(tenant_of(request), task)
    writing = _Writing(serving, session, task, run)
    serving.tokens_reused += kept.tokens
    try:
        run.submit({job: serving.engine.writers[session.model]})
        run.watch()
        if stream:
            first = await run.next()
            return EventStream(
                writing.pieces(first), finish=writing.finish, write_timeout=serving.settings.write_timeout
            )
        tokens = [token async for token in writing.tokens(await run.next())]
        writing.seen = None
        return answer({**writing.ended(), "tokens": tokens})
    except BaseException:
        writing.seen = 0
        await writing.finish()
        raise
    finally:
        if not stream:
            await writing.finish()


class _Writing:
    """A generation request to a session."""

    def __init__(self, serving: Serving, session: Session, task: Write, run: Run) -> None:
        self.serving, self.session, self.task, self.run = serving, session, task, run
        self.seen: int | None = 0
        """Number of tokens that were sent; None: all of them, and the session continues from the end."""
        self.text = ""
        self.reason = "length"
        self._given = False

    async def tokens(
        self, first: tuple[Job[Any], Any], ping: float | None = None
    ) -> AsyncGenerator[dict[str, Any] | None]:
        """Yield tokens as they are generated; None if there was none for `ping` seconds."""
        _, found = first
        while not isinstance(found, Done):
            match found:
                case Token(written=written):
                    self.text += written.text
                    yield token_body(written)
                case Ended(reason=reason):
                    self.reason = reason
            while True:
                try:
                    _, found = await self.run.next(ping)
                    break
                except TimeoutError:
                    yield None
        self.task.final = found.result

    async def pieces(self, first: tuple[Job[Any], Any]) -> AsyncGenerator[bytes]:
        """Yield the events of the stream."""
        try:
            async for token in self.tokens(first, self.serving.settings.ping):
                if token is None:
                    yield PING
                    continue
                yield event({"object": "session.token", **token})
                if token["id"] is not None:
                    assert self.seen is not None
                    self.seen += 1
                    self.task.taken += 1
                    self.serving.engine.nudge()
        except GoneError:
            return
        except ApiError as error:
            yield event(error.body())
            return
        self.seen = None
        try:
            await self.finish()
        except ApiError as error:  # the session could not be saved
            yield event(error.body())
            return
        yield event({**self.ended(), "tokens": []})
        yield DONE

    def ended(self) -> dict[str, Any]:
        """Return the last event."""
        assert self.task.final is not None
        return {
            "object": "session.written",
            "text": self.text,
            "finish_reason": self.reason,
            "usage": usage_of([self.task.reading.counted], len(self.task.tokens[0])),
            "session": {**self.session.body(), **_after(self.task.final)},
        }

    async def finish(self) -> None:
        """Return the session to its keeper, in the state that the client saw. Calls after the first have no effect."""
        if self._given:
            return
        self._given = True
        self.run.close()
        kept = self.task.final if self.seen is None else self.task.kept_after(self.seen) if self.seen else None
        await self.serving.sessions.give(self.session, kept)


# -------------------------------------------------------------------------------------------------------------- state


@plain.get(
    "/{id}/state",
    response_class=Response,
    responses={**ERRORS, 200: {"content": {BYTES: {}}, "description": "The state."}},
)
async def get_state(id: SessionId, request: Request) -> Response:
    """Returns the state of the session as a file for this model. It is signed: no other file is accepted back."""
    data = await serving_of(request).sessions.state(await _session(request, id))
    return Response(data, media_type=BYTES, headers={"content-disposition": 'attachment; filename="session.state"'})


@plain.put(
    "/{id}/state",
    response_model=SessionAnswer,
    responses=ERRORS,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {BYTES: {"schema": {"type": "string", "format": "binary"}}},
        },
    },
)
async def put_state(id: SessionId, request: Request) -> Response:
    """Replaces the state of the session with one that was downloaded."""
    serving, session = serving_of(request), await _session(request, id)
    serving.run(request)
    await serving.sessions.check_room(session)
    limit = serving.sessions.largest_state(session.model)
    data = bytearray()
    async for part in read_parts(request, limit=limit, timeout=serving.settings.body_timeout, each=True):
        data += part
    await serving.sessions.restore(session, bytes(data))
    return answer(session.body())


async def _session(request: Request, id: str) -> Session:
    return await serving_of(request).sessions.get(tenant_of(request), id)


def _after(kept: Kept) -> dict[str, Any]:
    """Return the fields of a session that will have the state `kept`, before it is stored."""
    return {
        "tokens": kept.tokens,
        "bytes": kept.size,
        "waiting": kept.text.text[kept.text.read :],
        "busy": False,
        "place": "memory",
    }
