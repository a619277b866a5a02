"""Routes about the server: models, health, readiness, metrics, load and version."""

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

import segue
from segue.serve.answers import ERRORS, answer
from segue.serve.errors import not_ready
from segue.serve.models import Served
from segue.serve.pages import describe
from segue.serve.serving import serving_of

router = APIRouter(tags=["service"])


@router.get("/v1/models", responses=ERRORS)
async def models(request: Request) -> Response:
    """Lists the models and what each can do."""
    return answer({"object": "list", "data": [model_body(one) for one in serving_of(request).models.values()]})


@router.get("/v1/models/{name}", responses=ERRORS)
async def model(name: str, request: Request) -> Response:
    """Describes a model."""
    return answer(model_body(serving_of(request).model(name, "tokenize")))


def model_body(served: Served) -> dict[str, Any]:
    """Return the description of a model in the form of OpenAI's API, with the fields that segue adds."""
    config = served.task.config if served.task is not None else None
    if config is None:
        assert served.text is not None
        config = served.text.model.config
    labels = getattr(served.task.task, "labels", None) if served.task is not None else None
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "segue",
        "abilities": list(served.abilities),
        "languages": list(served.languages),
        "objective": config.objective,
        "parameters": served.parameters,
        "vocabulary_size": served.vocabulary_size,
        "memory_length": None if config.memory is None else config.memory.length,
        "layers": config.num_layers,
        "task": None if served.task is None else served.task.kind.name,
        "labels": None if labels is None else [str(label) for label in getattr(labels, "names", labels)],
    }


@router.get("/health")
async def health() -> Response:
    """Returns 200 while the process is running."""
    return answer({"status": "ok"})


@router.get("/ready", responses={503: ERRORS[503]})
async def ready(request: Request) -> Response:
    """Returns 200 while requests are accepted; 503 when the server is shutting down."""
    if not serving_of(request).ready:
        raise not_ready()
    return answer({"status": "ready"})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Returns metrics in the text format of Prometheus."""
    return Response(serving_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/load")
async def load(request: Request) -> Response:
    """Returns the current load."""
    serving = serving_of(request)
    return answer(
        {
            "requests": serving.engine.waiting,
            "writing": sum(writer.active for writer in serving.engine.writers.values()),
            "tokens_written": sum(writer.tokens_written for writer in serving.engine.writers.values()),
            "tokens_read": sum(writer.tokens_read for writer in serving.engine.writers.values()),
            "sessions": len(serving.sessions),
            "sessions_in_memory": serving.sessions.in_memory(),
            "session_bytes": serving.sessions.memory,
            "uptime": time.monotonic() - serving.started,
        }
    )


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Returns the documentation of the routes."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    page = describe(request.app.openapi())
    return Response(page, media_type="text/html; charset=utf-8", headers={"content-security-policy": policy})


@router.get("/version")
async def version() -> Response:
    """Returns the version of segue."""
    return answer({"version": segue.__version__})
