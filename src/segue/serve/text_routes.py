"""Routes of language models other than generation: embeddings, likelihood, infilling and tokenisation."""

import base64
import math
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from segue.errors import DataError
from segue.infer.documents import text_parts
from segue.infer.embed import EmbedSettings
from segue.infer.infill import InfilledText, infill_text
from segue.infer.score import ScoreSettings, ScoreTotals, TokenScore
from segue.infer.score import score as score_texts
from segue.serve.answers import ERRORS, answer
from segue.serve.errors import ApiError, shown, too_large
from segue.serve.jobs import Job
from segue.serve.limits import LimitedRoute
from segue.serve.models import Served
from segue.serve.pool import Call
from segue.serve.serving import serving_of, tenant_of
from segue.serve.task_jobs import Embed
from segue.serve.task_schemas import (
    DetokenizeRequest,
    EmbeddingRequest,
    InfillRequest,
    LikelihoodRequest,
    TokenizeRequest,
)
from segue.serve.writing import finite, sampling_of

router = APIRouter(route_class=LimitedRoute, tags=["text"])
_LONGEST_INFILL = 20_000
"""Maximum number of characters: the whole text is read at once, and every token attends to every other."""


@router.post("/v1/embeddings", responses=ERRORS)
async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embeds each text as a vector: `data[{index, object: "embedding", embedding}]`, as in OpenAI's API."""
    serving = serving_of(request)
    served = serving.model(body.model, "embeddings")
    assert served.text is not None
    limits = serving.settings
    texts = _texts(body.input, served)
    if not 1 <= len(texts) <= limits.max_inputs:
        raise too_large("input", len(texts), limits.max_inputs, what="texts, and at least 1", setting="max_inputs")
    width = served.text.model.config.hidden_width
    if body.dimensions not in (None, width):
        raise ApiError(
            400,
            f"dimensions must be {width}, the width of the model; got {body.dimensions}. Leave it out.",
            code="invalid_value",
            param="dimensions",
        )
    settings = EmbedSettings(
        layer=body.layer,
        pool=body.pool or "mean",
        normalise=body.normalise,
        segment_length=served.text.segment_length,
    )
    run = serving.run(request)
    try:
        task = Embed(
            served,
            texts,
            settings,
            limit=limits.max_input_tokens,
            breathe=serving.engine.breathe,
        )
        job = Job(tenant_of(request), task)
        run.submit({job: serving.engine.pool})
        run.watch()
        vectors = await run.done(job)
    finally:
        run.close()
    data = [
        {"index": number, "object": "embedding", "embedding": _encoded(vector, body.encoding_format)}
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": task.tokens, "total_tokens": task.tokens}
    return answer({"object": "list", "model": served.name, "data": data, "usage": usage})


def _texts(given: Any, served: Served) -> list[str]:
    if isinstance(given, str):
        return [given]
    if given and isinstance(given[0], int):
        given = [given]
    return [one if isinstance(one, str) else served.tokenizer.decode(_ids(one, served)) for one in given]


def _ids(ids: list[int], served: Served) -> list[int]:
    wrong = next((index for index in ids if index >= served.tokenizer.size), None)
    if wrong is not None:
        raise ApiError(
            400,
            f"ids must be from 0 to {served.tokenizer.size - 1}; got {shown(wrong)}. They belong to another tokeniser.",
            code="invalid_value",
        )
    return ids


def _encoded(vector: Any, form: str | None) -> Any:
    if form == "base64":
        return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
    return [float(value) for value in vector]


# ---------------------------------------------------------------------------------------------------------- likelihood


@router.post("/v1/likelihood", responses=ERRORS)
async def likelihood(body: LikelihoodRequest, request: Request) -> Response:
    """Computes the likelihood of texts: `data[{index, logprob, perplexity, bits_per_character, tokens}]`, as `segue
    score` does.

    An XLNet predicts in any order; a masked model gives a pseudo-likelihood.
    """
    serving = serving_of(request)
    served = serving.model(body.model, "likelihood")
    texts = [body.input] if isinstance(body.input, str) else body.input
    limits = serving.settings
    if not 1 <= len(texts) <= limits.max_inputs:
        raise too_large("input", len(texts), limits.max_inputs, what="texts, and at least 1", setting="max_inputs")
    assert served.text is not None
    settings = ScoreSettings(
        by="token",
        order=body.order,
        seed=body.seed,
        segment_length=served.text.segment_length,
    )

    def compute() -> tuple[list[dict[str, Any]], int]:
        return _scored(served, texts, settings, limit=limits.max_echo_tokens, breathe=serving.engine.breathe)

    (data, tokens) = await _call(request, compute)
    if not body.tokens:
        data = [{name: value for name, value in one.items() if name != "tokens"} for one in data]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return answer({"object": "list", "model": served.name, "data": data, "usage": usage})


def _scored(
    served: Served, texts: list[str], settings: ScoreSettings, *, limit: int, breathe: Any
) -> tuple[list[dict[str, Any]], int]:
    assert served.text is not None
    model, tokenizer = served.text.model, served.tokenizer
    count = sum(len(tokenizer.encode(text)) for text in texts)
    if count > limit:
        raise DataError(f"texts to score must have at most {limit:,} tokens together; got {count:,}. Send less.")
    rows: list[list[TokenScore]] = [[] for _ in texts]
    totals = ScoreTotals()
    for row in score_texts(
        model, tokenizer, text_parts(texts), settings, totals=totals, progress=lambda tokens: breathe()
    ):
        assert isinstance(row, TokenScore)
        rows[row.document - 1].append(row)
    return [_document(number, texts[number], own) for number, own in enumerate(rows)], totals.tokens


def _document(number: int, text: str, rows: list[TokenScore]) -> dict[str, Any]:
    values = [row.log_probability for row in rows if row.log_probability is not None]
    total = math.fsum(values)
    return {
        "index": number,
        "object": "likelihood",
        "logprob": finite(total),
        "perplexity": math.exp(min(700.0, -total / len(values))) if values else None,
        "bits_per_character": -total / math.log(2) / len(text) if values and text else None,
        "tokens": [
            {
                "token": row.token,
                "id": row.id,
                "start": row.start,
                "end": row.end,
                "logprob": None if row.log_probability is None else finite(row.log_probability),
            }
            for row in rows
        ],
    }


# -------------------------------------------------------------------------------------------------------------- infill


@router.post("/v1/infill", responses=ERRORS)
async def infill(body: InfillRequest, request: Request) -> Response:
    """Fills the gaps of a text with an XLNet, in any order: `{text, gaps, logprob, tokens}`. It takes the most likely
    tokens, unless the request has sampling settings."""
    serving = serving_of(request)
    served = serving.model(body.model, "infill")
    if len(body.text) > _LONGEST_INFILL:
        raise too_large("text", len(body.text), _LONGEST_INFILL, what="characters", setting="nothing else")
    settings = sampling_of(body, served, serving.settings, logprobs=body.logprobs or 0)
    drawn = (body.temperature, body.top_p, body.top_k, body.min_p, body.typical)
    if all(value is None for value in drawn):
        settings = replace(settings, greedy=True, seed=body.seed or 0)
    lengths = body.length if isinstance(body.length, int) else list(body.length)
    total = sum(lengths) if isinstance(lengths, list) else lengths * max(1, body.text.count(body.gap))
    if total > serving.settings.max_tokens:
        raise too_large("length", total, serving.settings.max_tokens, what="tokens", setting="max_tokens")

    def compute() -> InfilledText:
        assert served.text is not None
        return infill_text(
            served.text.model,
            served.tokenizer,
            body.text,
            gap=body.gap,
            lengths=lengths,
            order=body.order,
            settings=settings,
        )

    found: InfilledText = await _call(request, compute)
    return answer(_filled(found, served))


def _filled(found: InfilledText, served: Served) -> dict[str, Any]:
    token = served.tokenizer.token
    return {
        "object": "infill",
        "model": served.name,
        "text": found.text,
        "gaps": list(found.gaps),
        "logprob": finite(found.result.log_probability),
        "tokens": [
            {
                "token": piece,
                "id": one.token,
                "position": one.position,
                "logprob": finite(one.log_probability),
                "top": [{"token": token(index), "logprob": finite(value)} for index, value in one.alternatives],
            }
            for piece, one in zip(found.pieces, found.result.filled, strict=True)
        ],
        "usage": {
            "prompt_tokens": len(found.result.ids) - len(found.result.filled),
            "completion_tokens": len(found.result.filled),
            "total_tokens": len(found.result.ids),
        },
    }


# ---------------------------------------------------------------------------------------------------------------- ids


@router.post("/tokenize", responses=ERRORS)
async def tokenize(body: TokenizeRequest, request: Request) -> Response:
    """Encodes a text as ids, with their offsets: `{count, tokens, pieces, starts, ends, max_model_len}`."""
    served = serving_of(request).model(body.model, "tokenize")
    if body.add_special_tokens:
        raise ApiError(
            400,
            "add_special_tokens must be false, since text never makes special tokens; got true. Leave it out.",
            code="invalid_value",
            param="add_special_tokens",
        )
    found = await _call(request, lambda: served.tokenizer.encode_with_offsets(body.prompt))
    ids = found.ids.tolist()
    return answer(
        {
            "count": len(ids),
            "max_model_len": None,
            "tokens": ids,
            "pieces": [served.tokenizer.token(index) for index in ids],
            "starts": found.starts.tolist(),
            "ends": found.ends.tolist(),
        }
    )


@router.post("/detokenize", responses=ERRORS)
async def detokenize(body: DetokenizeRequest, request: Request) -> Response:
    """Decodes ids as a text: `{prompt}`. Special tokens have no text."""
    served = serving_of(request).model(body.model, "tokenize")
    ids = _ids(body.tokens, served)
    text = await _call(request, lambda: served.tokenizer.decode(ids))
    return answer({"prompt": text})


@router.get("/tokenizer_info", responses=ERRORS)
async def tokenizer_info(
    request: Request,
    model: Annotated[str | None, Query(max_length=200, description="Name of the model. Default: the only one.")] = None,
) -> Response:
    """Describes a tokeniser. No text becomes a special token, so special tokens have no text here."""
    served = serving_of(request).model(model, "tokenize")
    return answer(
        {
            "tokenizer_class": type(served.tokenizer).__name__,
            "vocab_size": served.tokenizer.size,
            "special_tokens": dict(served.tokenizer.specials),
            "bos_token": None,
            "eos_token": None,
            "pad_token": None,
        }
    )


async def _call(request: Request, function: Any) -> Any:
    """Call a function in the worker thread, without batching."""
    serving = serving_of(request)
    run = serving.run(request)
    try:
        job = Job(tenant_of(request), Call(function))
        run.submit({job: serving.engine.calls})
        run.watch()
        return await run.done(job)
    finally:
        run.close()
