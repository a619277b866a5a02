"""The route of explanations, which returns the page that `segue explain` writes.

The worker thread computes an explanation in parts, so that other requests proceed in between.
"""

from collections.abc import Generator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from segue.errors import DataError
from segue.explain.decision import decide
from segue.explain.faithful import explaining_words
from segue.explain.page import POLICY, explanation_page
from segue.explain.report import Explanation, explaining_text
from segue.serve.answers import ERRORS
from segue.serve.errors import ApiError
from segue.serve.jobs import Job, Took, Waiting
from segue.serve.limits import LimitedRoute
from segue.serve.models import Served
from segue.serve.serving import serving_of, tenant_of
from segue.serve.task_routes import row_of
from segue.serve.task_schemas import ExplainRequest

router = APIRouter(route_class=LimitedRoute, tags=["explain"])
_PAGE: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    200: {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "A page that needs nothing else."},
}


@router.post("/v1/explain", responses=_PAGE, response_class=Response)
async def explain(body: ExplainRequest, request: Request) -> Response:
    """Explains as an HTML page what a language model attends to in a text and how its attention scores come about, or
    which words determined the prediction of a fine-tuned model."""
    serving = serving_of(request)
    served = serving.model(body.model, "explain")
    run = serving.run(request)
    try:
        job = Job(tenant_of(request), Explain(served, body, limit=serving.settings.max_explain_tokens))
        run.submit({job: serving.engine.calls})
        run.watch()
        page: str = await run.done(job)
    finally:
        run.close()
    headers = {"content-security-policy": f"{POLICY}; sandbox allow-scripts", "cache-control": "no-store"}
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


class Explain:
    """Job that explains one text."""

    def __init__(self, served: Served, body: ExplainRequest, *, limit: int) -> None:
        self._served, self._body, self._limit = served, body, limit
        self._row: Mapping[str, Any] = {} if served.task is None else row_of(served.task.kind, body.input, 0)
        if served.task is None and not isinstance(body.input, str):
            raise ApiError(
                400,
                "input must be a text for a language model; got columns. Send one text.",
                code="invalid_value",
                param="input",
            )
        self._page = ""

    def work(self) -> Generator[int | Waiting | Took]:
        """Compute the explanation in parts."""
        self._check_length()
        yield 0
        steps = self._words() if self._served.task is not None else self._text()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self._page = explanation_page([end.value])
                return
            yield 0

    def result(self) -> str:
        """Return the page."""
        return self._page

    def _text(self) -> Generator[str, None, Explanation]:
        assert self._served.text is not None
        assert isinstance(self._body.input, str)
        return explaining_text(
            self._served.text,
            self._body.input,
            name=self._served.name,
            order=self._body.order,
            seed=self._body.seed,
            ablate=self._body.ablations,
        )

    def _words(self) -> Generator[str, None, Explanation]:
        assert self._served.task is not None
        decision = decide(self._served.task, self._row)
        yield "answer"
        words = yield from explaining_words(decision, seed=self._body.seed)
        return Explanation(name=self._served.name, text="\n".join(_texts(self._row)), words=words)

    def _check_length(self) -> None:
        texts = [self._body.input] if isinstance(self._body.input, str) else _texts(self._row)
        tokens = sum(len(self._served.tokenizer.encode(text)) for text in texts)
        if tokens > self._limit:
            raise DataError(
                f"a text to explain must have at most {self._limit:,} tokens (max_explain_tokens); got {tokens:,}. "
                "Send a part of it, or use `segue explain`."
            )


def _texts(value: Any) -> list[str]:
    """Return all texts in the columns of a row."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]
