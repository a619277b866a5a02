"""Log-probabilities of texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, overload

from segue.api.errors import python_errors
from segue.api.models import ModelLike, check_language_model, text_model
from segue.api.progress import Progress, counted, progress_callback, streamed
from segue.api.texts import Texts, documents_of, texts_of
from segue.arguments import Index, Positive, Seed
from segue.data.readers import DocumentRule
from segue.errors import ConfigError, DataError
from segue.infer.documents import SHOWN, text_parts
from segue.infer.score import By, Order, ScoreSettings
from segue.infer.score import score as scores
from segue.infer.score_rows import ScoreRow, ScoreTotals, TextScore, TokenScore, summed
from segue.infer.text_model import TextModel


@overload
def score(
    model: ModelLike,
    texts: Texts,
    *,
    by: Literal["document", "line"] = ...,
    context: str | Sequence[str] | None = ...,
    likeliest: bool = ...,
    order: Order | Sequence[Index] = ...,
    seed: Seed = ...,
    pseudo: bool = ...,
    segment_length: Positive | None = ...,
    batch_tokens: Positive = ...,
    field: str = ...,
    documents: DocumentRule | None = ...,
    encoding: str = ...,
    progress: bool = ...,
    on_event: Callable[[Progress], object] | None = ...,
) -> list[TextScore]: ...


@overload
def score(
    model: ModelLike,
    texts: Texts,
    *,
    by: Literal["token"],
    context: str | Sequence[str] | None = ...,
    likeliest: bool = ...,
    order: Order | Sequence[Index] = ...,
    seed: Seed = ...,
    pseudo: bool = ...,
    segment_length: Positive | None = ...,
    batch_tokens: Positive = ...,
    field: str = ...,
    documents: DocumentRule | None = ...,
    encoding: str = ...,
    progress: bool = ...,
    on_event: Callable[[Progress], object] | None = ...,
) -> list[TokenScore]: ...


@python_errors
def score(
    model: ModelLike,
    texts: Texts,
    *,
    by: By = "document",
    context: str | Sequence[str] | None = None,
    likeliest: bool = True,
    order: Order | Sequence[Index] = "forward",
    seed: Seed = 0,
    pseudo: bool = False,
    segment_length: Positive | None = None,
    batch_tokens: Positive = 4096,
    field: str = "text",
    documents: DocumentRule | None = None,
    encoding: str = "utf-8",
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> list[TextScore] | list[TokenScore]:
    """Compute log-probabilities of texts, each as a whole, by line or by token.

    A causal model predicts each token from those before it, as far as its memory reaches. A permutation model predicts
    the tokens of a segment in a factorisation order. A masked model predicts each token from all others of its window:
    a pseudo-likelihood, which is not a probability of the text. Logarithms are natural.

    Args:
        model: A name, a folder, or a loaded model.
        texts: A text, several texts, a table with a field of texts, or files (`Path`).
        by: Unit to score: "document" (a text, or a document of a file), "line" or "token".
        context: Context to condition on, before each text: one `str` for all texts, or one for each. Context and text
            are tokenised as one text; a token that spans both belongs to the text. Default: none.
        likeliest: Whether to report for each token if it was the most likely one in its place, and for each text if all
            its tokens were. Requires the logits of the whole vocabulary for each token.
        order: Factorisation order of a permutation model: "forward", "backward", "random", or a list of positions.
        seed: Seed for random orders. Default: 0.
        pseudo: Whether to compute the pseudo-likelihood of a permutation model, which predicts each token from all
            others of its window.
        segment_length: Segment length in tokens. Default: as in training.
        batch_tokens: Number of tokens per batch. Affects speed and memory use, not the results.
        field: Field of the text in tables and records. Default: "text".
        documents: Unit of a document in a file: "block", "line", "file" or "record". Default: blocks in text files,
            records in others.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        One `TextScore` per document or line, or one `TokenScore` per token, in the order of the texts.

    Raises:
        ConfigError: If a setting is not valid for this kind of model.
        DataError: If a text cannot be read.

    Examples:
        >>> good, bad = segue.score("model", ["The room was clean.", "clean was room The."], progress=False)
        >>> good.tokens, math.isclose(good.perplexity, math.exp(-good.log_probability / good.tokens))
        (5, True)
        >>> answer = segue.score("model", " clean.", context="The room was", progress=False)[0]
        >>> answer.tokens, answer.log_probability > good.log_probability
        (2, True)
    """
    stream = score_each(
        model,
        texts,
        by=by,
        context=context,
        likeliest=likeliest,
        order=order,
        seed=seed,
        pseudo=pseudo,
        segment_length=segment_length,
        batch_tokens=batch_tokens,
        field=field,
        documents=documents,
        encoding=encoding,
        progress=progress,
        on_event=on_event,
    )
    return list(stream)  # type: ignore[return-value]  # all rows are of the kind that `by` names


@dataclass(frozen=True, kw_only=True)
class ScoreStream:
    """A single-pass iterator over scores as they are computed, in the order of the texts."""

    rows: Iterator[ScoreRow]
    totals: ScoreTotals
    """Running totals of what has been scored, contexts included."""
    model: TextModel
    """The model in use."""

    def __iter__(self) -> Iterator[ScoreRow]:
        return self.rows


@python_errors
def score_each(
    model: ModelLike,
    texts: Texts,
    *,
    by: By = "document",
    context: str | Sequence[str] | None = None,
    likeliest: bool = True,
    order: Order | Sequence[Index] = "forward",
    seed: Seed = 0,
    pseudo: bool = False,
    segment_length: Positive | None = None,
    batch_tokens: Positive = 4096,
    field: str = "text",
    documents: DocumentRule | None = None,
    encoding: str = "utf-8",
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> ScoreStream:
    """Compute the scores of `score` one at a time in constant memory, for files of any size.

    Args:
        model: A name, a folder, or a loaded model.
        texts: A text, several texts, a table with a field of texts, or files (`Path`).
        by: Unit to score: "document", "line" or "token".
        context: Context to condition on, as for `score`. Default: none.
        likeliest: Whether to report for each token if it was the most likely one in its place.
        order: Factorisation order of a permutation model: "forward", "backward", "random", or a list of positions.
        seed: Seed for random orders. Default: 0.
        pseudo: Whether to compute the pseudo-likelihood of a permutation model.
        segment_length: Segment length in tokens. Default: as in training.
        batch_tokens: Number of tokens per batch. Affects speed and memory use, not the results.
        field: Field of the text in tables and records. Default: "text".
        documents: Unit of a document in a file, as for `score`.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        A single-pass iterator of rows, with running `totals`.

    Raises:
        ConfigError: If a setting is not valid for this kind of model.
        DataError: If a text cannot be read.

    Examples:
        >>> stream = segue.score_each("model", Path("texts.txt"), by="line", progress=False)
        >>> lines = sum(1 for row in stream)
        >>> stream.totals.documents, lines
        (6, 6)
    """
    check_language_model(model)
    source = text_model(model)
    settings = ScoreSettings(
        by=by,
        order=order,
        seed=seed,
        pseudo=pseudo,
        segment_length=source.segment_length if segment_length is None else segment_length,
        batch_tokens=batch_tokens,
        likeliest=likeliest,
    )
    totals = ScoreTotals()
    held = ExitStack()
    count = counted(held.enter_context(progress_callback("score", unit="tokens", progress=progress, on_event=on_event)))
    if context is None:
        parts = documents_of(texts, field=field, documents=documents, encoding=encoding)
        rows: Iterable[ScoreRow] = scores(
            source.model, source.tokenizer, parts, settings, totals=totals, progress=count
        )
    else:
        rows = _given(source, texts_of(texts, field=field), context, settings, totals, count)
    return ScoreStream(rows=streamed(rows, held), totals=totals, model=source)


def _given(
    source: TextModel,
    texts: Sequence[str],
    context: str | Sequence[str],
    settings: ScoreSettings,
    totals: ScoreTotals,
    progress: Callable[[int], None],
) -> Iterator[ScoreRow]:
    """Score the texts after their contexts; only tokens of the texts are scored."""
    if settings.by == "line":
        raise ConfigError('a context requires by="document" or by="token"; got by="line". Use one of them.')
    if settings.order != "forward":
        raise ConfigError(f'a context requires order="forward"; got {settings.order!r}. Leave the order out.')
    contexts = [context] * len(texts) if isinstance(context, str) else list(context)
    if len(contexts) != len(texts):
        raise DataError(
            f"context must be one text, or one for each of the {len(texts)} texts; got {len(contexts)}. Give one per "
            "text."
        )
    whole = (before + text for before, text in zip(contexts, texts, strict=True))
    by_token = replace(settings, by="token")
    rows = scores(source.model, source.tokenizer, text_parts(whole), by_token, totals=totals, progress=progress)
    tokens: dict[int, list[TokenScore]] = {number: [] for number in range(1, len(texts) + 1)}
    for number, own in groupby(rows, key=lambda row: row.document):
        begin = len(contexts[number - 1])
        tokens[number] = [_moved(row, begin) for row in own if isinstance(row, TokenScore) and row.end > begin]
    for number, found in tokens.items():
        if settings.by == "token":
            yield from found
        else:
            text = texts[number - 1]
            yield summed(found, document=number, text=text[:SHOWN], characters=len(text))


def _moved(row: TokenScore, begin: int) -> TokenScore:
    """Return the row with offsets relative to the text without its context."""
    return replace(row, start=max(0, row.start - begin), end=row.end - begin)
