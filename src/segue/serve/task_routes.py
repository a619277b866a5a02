"""Routes of tasks: one for each task, and those of other servers for some of them: classify, rerank, score."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from segue.serve.answers import ERRORS, answer
from segue.serve.errors import ApiError, shown, too_large
from segue.serve.jobs import Job
from segue.serve.limits import LimitedRoute
from segue.serve.models import Served
from segue.serve.serving import Serving, serving_of, tenant_of
from segue.serve.task_jobs import Predict
from segue.serve.task_schemas import PairScoreRequest, RerankRequest, TaskAnswer, TaskRequest
from segue.tasks.table import TASKS
from segue.tasks.task import Prediction, TaskKind

router = APIRouter(route_class=LimitedRoute, tags=["tasks"])


async def predict(
    request: Request, served: Served, rows: Sequence[dict[str, Any]]
) -> tuple[list[Prediction], dict[str, int]]:
    """Return the predictions of a fine-tuned model, and the usage."""
    serving = serving_of(request)
    limits = serving.settings
    if not 1 <= len(rows) <= limits.max_inputs:
        raise too_large("input", len(rows), limits.max_inputs, what="rows, and at least 1", setting="max_inputs")
    run = serving.run(request)
    try:
        task = Predict(served, rows, limit=limits.max_input_tokens)
        job = Job(tenant_of(request), task)
        run.submit({job: serving.engine.pool})
        run.watch()
        found: list[Prediction] = await run.done(job)
    finally:
        run.close()
    return found, {"prompt_tokens": task.tokens, "total_tokens": task.tokens}


def _route(kind: TaskKind) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def ask(body: TaskRequest, request: Request) -> Response:
        served = serving_of(request).model(body.model, kind.name)
        given = body.input
        one = isinstance(given, str | dict) or (_takes_pairs(kind) and _is_pair(given))
        rows = [row_of(kind, row, number) for number, row in enumerate([given] if one else given)]
        found, usage = await predict(request, served, rows)
        data = [
            {"index": number, "object": kind.name, **_of_classes(served, prediction), **prediction.columns}
            for number, prediction in enumerate(found)
        ]
        return answer({"object": "list", "model": served.name, "data": data, "usage": usage})

    ask.__name__ = kind.name
    ask.__doc__ = f"{kind.help} A prediction for each row, with the columns that `segue predict` writes."
    return ask


for _kind in TASKS.values():
    router.post(f"/v1/{_kind.name}", response_model=TaskAnswer, responses=ERRORS)(_route(_kind))
router.post("/classify", response_model=TaskAnswer, responses=ERRORS, operation_id="classify_short")(
    _route(TASKS["classify"])
)


def _takes_pairs(kind: TaskKind) -> bool:
    return len([column for column in kind.columns if not column.answer]) == 2


def _is_pair(given: Any) -> bool:
    return isinstance(given, list) and len(given) == 2 and all(isinstance(text, str) for text in given)


def row_of(kind: TaskKind, given: Any, number: int) -> dict[str, Any]:
    """Return the columns of a row by their roles, whichever of its usual names the request gives a column."""
    columns = [column for column in kind.columns if not column.answer]
    needed = [column for column in columns if not column.optional]
    if isinstance(given, str):
        role = "text" if any(column.role == "text" for column in columns) else needed[0].role
        if len(needed) <= 1:
            return {role: given}
    elif isinstance(given, list):
        if _takes_pairs(kind) and _is_pair(given):
            return {column.role: text for column, text in zip(columns, given, strict=True)}
        if kind.name == "tag":
            return {"tokens": given}
    else:
        found = {}
        for key, value in given.items():
            column = next((one for one in columns if key == one.role), None) or next(
                (one for one in columns if key in one.names and one.role not in found and one.role not in given), None
            )
            if column is None:
                raise _wrong_row(kind, number, f"a column {shown(key)}")
            found[column.role] = value
        missing = [column.role for column in needed if column.role not in found]
        if not missing:
            return found
        raise _wrong_row(kind, number, f"none for {', '.join(missing)}")
    raise _wrong_row(kind, number, f"a {type(given).__name__}")


def _wrong_row(kind: TaskKind, number: int, got: str) -> ApiError:
    names = ", ".join(f"{one.role}{' (optional)' if one.optional else ''}" for one in kind.columns if not one.answer)
    return ApiError(
        400,
        f"input {number} must have the columns of the task {kind.name}: {names}; got {got}. Send an object with them.",
        code="invalid_value",
        param="input",
    )


def _of_classes(served: Served, prediction: Prediction) -> dict[str, Any]:
    """Return the fields that other servers have for the prediction of a classifier."""
    assert served.task is not None
    if served.task.kind.name not in ("classify", "pair"):
        return {}
    probabilities = [float(value) for value in prediction.value]
    label = prediction.columns["prediction"]
    return {"label": label, "probs": probabilities, "num_classes": len(probabilities)}


# -------------------------------------------------------------------------------------------------- rerank and score


@router.post("/v1/rerank", responses=ERRORS)
@router.post("/rerank", responses=ERRORS, operation_id="rerank_short")
async def rerank(body: RerankRequest, request: Request) -> Response:
    """Sorts documents by their relevance to a query, best first: `results[{index, relevance_score, document}]`."""
    served = serving_of(request).model(body.model, "rank")
    texts = [_text_of(one) for one in body.documents]
    _check_documents(serving_of(request), texts)
    found, usage = await predict(request, served, [{"query": body.query, "documents": texts}])
    scores = [float(value) for value in found[0].value]
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[: body.top_n]
    results = [
        {
            "index": place,
            "relevance_score": scores[place],
            **({"document": {"text": texts[place]}} if body.return_documents else {}),
        }
        for place in order
    ]
    return answer({"object": "list", "model": served.name, "results": results, "usage": usage})


@router.post("/v1/score", responses=ERRORS)
@router.post("/score", responses=ERRORS, operation_id="score_short")
async def score(body: PairScoreRequest, request: Request) -> Response:
    """Scores how well each document matches its query: `data[{index, object: "score", score}]`."""
    queries, documents = body.queries or body.text_1, body.documents or body.text_2
    if queries is None or documents is None:
        raise ApiError(
            400, "queries and documents must both be given; got one. Send both.", code="invalid_value", param="queries"
        )
    documents = [documents] if isinstance(documents, str) else documents
    queries = [queries] * len(documents) if isinstance(queries, str) else queries
    if len(queries) == 1:
        queries = queries * len(documents)
    if len(queries) != len(documents):
        raise ApiError(
            400,
            f"queries must be one, or as many as documents; got {len(queries)} and {len(documents)}. Send one.",
            code="invalid_value",
            param="queries",
        )
    serving = serving_of(request)
    _check_documents(serving, documents)
    served = _pair_model(serving, body.model)
    assert served.task is not None
    rank = served.task.kind.name == "rank"
    names = ("query", "document") if rank else ("text", "second")
    rows = [dict(zip(names, pair, strict=True)) for pair in zip(queries, documents, strict=True)]
    found, usage = await predict(request, served, rows)
    values = [float(one.value[0] if rank else one.value) for one in found]
    data = [{"index": number, "object": "score", "score": value} for number, value in enumerate(values)]
    return answer({"object": "list", "model": served.name, "data": data, "usage": usage})


def _pair_model(serving: Serving, name: str | None) -> Served:
    served = serving.models.get(name) if name is not None else None
    ability = "regress" if served is not None and "regress" in served.abilities else "rank"
    return serving.model(name, ability)


def _text_of(document: str | dict[str, str]) -> str:
    if isinstance(document, str):
        return document
    if set(document) != {"text"}:
        raise ApiError(
            400,
            f"a document must be a text, or an object with a text alone; got {shown(sorted(document))}. Send texts.",
            code="invalid_value",
            param="documents",
        )
    return document["text"]


def _check_documents(serving: Serving, documents: Sequence[str]) -> None:
    limit = serving.settings.max_inputs
    if not 1 <= len(documents) <= limit:
        raise too_large("documents", len(documents), limit, what="and at least 1", setting="max_inputs")
