"""POST /v1/completions: OpenAI's completions, with sessions."""

import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from segue.serve.answers import answer, or_events
from segue.serve.errors import ApiError, shown, too_large
from segue.serve.jobs import Done, Ended, Job, Read, Token, Write
from segue.serve.keeper import Session
from segue.serve.limits import LimitedRoute
from segue.serve.models import Served
from segue.serve.run import GoneError, Run
from segue.serve.schemas import Completion, CompletionRequest
from segue.serve.serving import Serving, serving_of, tenant_of
from segue.serve.sse import DONE, PING, EventStream, event
from segue.serve.writing import Text, how_to_write, usage_of

router = APIRouter(route_class=LimitedRoute, tags=["text"])
Prompt = str | list[int]


class Completing:
    """A completion request with its jobs."""

    def __init__(self, serving: Serving, served: Served, body: CompletionRequest, session: Session | None) -> None:
        self.serving, self.served, self.body, self.session = serving, served, body, session
        self.id = f"cmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.jobs: list[Job[Write]] = []
        self.n = body.n or 1
        self.texts: list[Text] = []
        self.reasons: list[str | None] = []
        self.left = 0
        self.complete = False
        self._given = False

    def number(self, job: Job[Any], choice: int) -> int:
        """Return the index of a text over all prompts."""
        return next(place for place, own in enumerate(self.jobs) if own is job) * self.n + choice

    def take(self, job: Job[Any], found: object) -> dict[str, Any] | None:
        """Record an event and return the chunk to stream for it, if any."""
        match found:
            case Read(scored=scored):
                if self.body.echo:
                    return self._echo(job, scored)
                if not job.task.how.max_tokens:
                    self._end(job, "length")
            case Token(choice=choice, written=written):
                number = self.number(job, choice)
                return self._chunk(number, written.text, self.texts[number].add(written))
            case Ended(choice=choice, reason=reason):
                number = self.number(job, choice)
                self.reasons[number] = reason
                self.left -= 1
                return self._chunk(number, "", None)
        return None

    def _echo(self, job: Job[Write], scored: Any) -> dict[str, Any]:
        given = job.task.prompt
        prompt = given if isinstance(given, str) else self.served.tokenizer.decode(list(given))
        chunk: dict[str, Any] = {}
        for choice in range(self.n):
            number = self.number(job, choice)
            found = self.texts[number].scored(scored or (), prompt)
            piece = self._chunk(number, prompt, found)
            chunk = {**piece, "choices": [*chunk.get("choices", []), *piece["choices"]]}
        if not job.task.how.max_tokens:
            self._end(job, "length")
        return chunk

    def _end(self, job: Job[Write], reason: str) -> None:
        for choice in range(self.n):
            self.reasons[self.number(job, choice)] = reason
            self.left -= 1

    def _chunk(self, number: int, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        choice = {"index": number, "text": text, "logprobs": logprobs, "finish_reason": self.reasons[number]}
        return {**self.head(), "choices": [choice]}

    def head(self) -> dict[str, Any]:
        """Return the fields that every response and chunk begins with."""
        found: dict[str, Any] = {"id": self.id, "object": "text_completion", "created": self.created}
        return found | {"model": self.served.name}

    def usage(self) -> dict[str, Any]:
        """Return the usage of all prompts and texts so far."""
        return usage_of([job.task.reading.counted for job in self.jobs], sum(text.written for text in self.texts))

    def whole(self) -> dict[str, Any]:
        """Return the complete response, for a request without streaming."""
        choices = [
            {
                "index": number,
                "text": text.text,
                "logprobs": text.part() if text.logprobs else None,
                "finish_reason": self.reasons[number],
            }
            for number, text in enumerate(self.texts)
        ]
        return {**self.head(), "choices": choices, "usage": self.usage(), **self.of_session()}

    def of_session(self) -> dict[str, Any]:
        """Return the field that names the session."""
        return {"session": None if self.session is None else self.session.id}

    async def give_back(self, seen: int | None) -> None:
        """Return the session to its keeper, in the state that the client saw: after `seen` tokens, or after all of them
        if the response is complete. Calls after the first have no effect."""
        if self.session is None or self._given:
            return
        self._given = True
        task = self.jobs[0].task if self.jobs else None
        kept = None
        if task is not None and self.complete and task.final is not None:
            kept = task.final
        elif task is not None and seen:
            kept = task.kept_after(seen)
        await self.serving.sessions.give(self.session, kept)


@router.post("/v1/completions", response_model=Completion, responses=or_events())
async def completions(body: CompletionRequest, request: Request) -> Response:
    """Generates text from a prompt; with `stream`, as server-sent events, each a chunk, the last `[DONE]`.

    `usage.prompt_tokens_details` has the number of tokens that the session had read before, that were read now, and
    that did not have to be read. A `session` continues after the prompt and the generated text; if the client
    disconnects, it continues after the last chunk that was sent.
    """
    serving, tenant = serving_of(request), tenant_of(request)
    served = serving.model(body.model, "completions")
    prompts = _prompts(body, served, serving)
    session = None if body.session is None else await serving.sessions.get(tenant, body.session)
    n = _count(body, prompts, serving, session, served)
    how = how_to_write(
        body,
        served,
        serving.settings,
        logprobs=body.logprobs,
        n=n,
        echo=bool(body.echo) and body.logprobs is not None,
        keep=session is not None,
    )
    if not how.max_tokens and not body.echo:
        raise ApiError(
            400,
            "max_tokens must be at least 1 unless echo is set; got 0. Use 1, or set echo.",
            code="invalid_value",
            param="max_tokens",
        )
    run = serving.run(request)
    if session is not None:
        await serving.sessions.check_room(session)
    kept = None if session is None else await serving.sessions.take(session)
    work = Completing(serving, served, body, session)
    try:
        work.jobs = [Job(tenant, Write(served, kept, prompt, how)) for prompt in prompts]
        work.left = len(prompts) * n
        work.texts = [Text(logprobs=body.logprobs is not None) for _ in range(work.left)]
        work.reasons = [None] * work.left
        for job in work.jobs:
            job.task.flows = bool(body.stream)
        serving.tokens_reused += 0 if kept is None else kept.tokens
        worker = serving.engine.writers[served.name]
        run.submit(dict.fromkeys(work.jobs, worker))
        run.watch()
        if body.stream:
            return await _streamed(work, run)
        await _finish(work, run)
        work.complete = True
        return answer(work.whole())
    except BaseException:
        run.close()
        await work.give_back(None)
        raise
    finally:
        if not body.stream:
            run.close()
            await work.give_back(None)


async def _finish(work: Completing, run: Run) -> None:
    open_jobs = set(work.jobs)
    while open_jobs:
        job, found = await run.next()
        if isinstance(found, Done):
            job.task.final = found.result
            open_jobs.discard(job)
        else:
            work.take(job, found)


async def _streamed(work: Completing, run: Run) -> Response:
    """Return the stream once the first prompt has been read, so that an invalid prompt gives an error status, not an
    event."""
    first = await run.next()
    settings = work.serving.settings
    seen = 0

    async def finish() -> None:
        run.close()
        await work.give_back(seen)

    async def pieces() -> AsyncGenerator[bytes]:
        nonlocal seen
        open_jobs = set(work.jobs)
        job, found = first
        while True:
            if isinstance(found, Done):
                job.task.final = found.result
                open_jobs.discard(job)
                if not open_jobs:
                    break
            else:
                chunk = work.take(job, found)
                if chunk is not None:
                    yield event(chunk)
                if isinstance(found, Token) and found.written.id is not None:
                    seen += 1
                    job.task.taken += 1
                    work.serving.engine.nudge()
            while True:
                try:
                    job, found = await run.next(settings.ping)
                    break
                except TimeoutError:
                    yield PING
                except GoneError:
                    return
                except ApiError as error:
                    yield event(error.body())
                    return
        work.complete = True
        try:
            await finish()
        except ApiError as error:  # the session could not be saved
            yield event(error.body())
            return
        options = work.body.stream_options
        if (options is not None and options.include_usage) or work.session is not None:
            head = {**work.head(), "choices": [], "usage": work.usage(), **work.of_session()}
            yield event(head)
        yield DONE

    return EventStream(pieces(), finish=finish, write_timeout=settings.write_timeout)


def _prompts(body: CompletionRequest, served: Served, serving: Serving) -> list[Prompt]:
    given = body.prompt
    prompts: list[Any]
    if isinstance(given, str) or (given and isinstance(given[0], int)):  # noqa: SIM108
        prompts = [given]
    else:
        prompts = list(given)
    if not prompts:
        prompts = [""]
    for prompt in prompts:
        if len(prompt) > serving.settings.max_prompt_tokens * (8 if isinstance(prompt, str) else 1):
            raise too_large("prompt", len(prompt), serving.settings.max_prompt_tokens, setting="max_prompt_tokens")
        wrong = None if isinstance(prompt, str) else next((i for i in prompt if i >= served.tokenizer.size), None)
        if wrong is not None:
            raise ApiError(
                400,
                f"prompt must have ids from 0 to {served.tokenizer.size - 1}; got {shown(wrong)}. They belong to "
                "another tokeniser.",
                code="invalid_value",
                param="prompt",
            )
    return prompts


def _count(
    body: CompletionRequest, prompts: list[Prompt], serving: Serving, session: Session | None, served: Served
) -> int:
    n = body.n or 1
    if n * len(prompts) > serving.settings.max_n:
        raise too_large("n", n * len(prompts), serving.settings.max_n, what="texts of all prompts", setting="max_n")
    problems = [
        (body.best_of not in (None, n), "best_of", "must equal n", body.best_of, "Leave it out"),
        (bool(body.presence_penalty), "presence_penalty", "must be 0", body.presence_penalty, "Use repetition_penalty"),
        (
            bool(body.frequency_penalty),
            "frequency_penalty",
            "must be 0",
            body.frequency_penalty,
            "Use repetition_penalty",
        ),
        (body.suffix is not None, "suffix", "must be left out", body.suffix, "POST /v1/infill fills gaps"),
        (session is not None and n * len(prompts) > 1, "session", "must have one text", n, "Fork it for others"),
        (
            session is not None and session.model != served.name,
            "session",
            "must be of the model",
            "another",
            "Name its model",
        ),
    ]
    for wrong, name, rule, value, remedy in problems:
        if wrong:
            raise ApiError(400, f"{name} {rule}; got {shown(value)}. {remedy}.", code="invalid_value", param=name)
    return n
