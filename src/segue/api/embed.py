"""Embedding of texts as vectors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segue.api.errors import python_errors
from segue.api.models import ModelLike, check_language_model, text_model
from segue.api.progress import Progress, counted, progress_callback, streamed
from segue.api.texts import Texts, documents_of
from segue.arguments import Positive
from segue.data.readers import DocumentRule
from segue.infer.embed import Embedding, EmbedSettings, EmbedTotals, Pooling
from segue.infer.embed import embed as embeddings


@python_errors
def embed(
    model: ModelLike,
    texts: Texts,
    *,
    by: Literal["document", "line"] = "document",
    layer: int | None = None,
    pool: Pooling = "mean",
    normalise: bool = True,
    memory: bool = True,
    segment_length: Positive | None = None,
    batch_tokens: Positive = 4096,
    field: str = "text",
    documents: DocumentRule | None = None,
    encoding: str = "utf-8",
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> NDArray[np.float32]:
    """Compute a vector for each text, or for each line of the texts, of any length.

    Args:
        model: A name, a folder, or a loaded model.
        texts: A text, several texts, a table with a field of texts, or files (`Path`).
        by: Unit to embed: "document" (a text, or a document of a file) or "line". A line is read in the context of the
            lines before it in its document.
        layer: Layer whose hidden states to pool: 0 is the embeddings, negative numbers count from the end. Default: the
            last.
        pool: Pooling over the tokens: "mean", "last", "first", "max" or "cls".
        normalise: Whether to normalise vectors to unit length, so that dot products are cosines.
        memory: Whether to read long texts with the model's memory, or else in separate windows.
        segment_length: Segment length in tokens. Default: as in training.
        batch_tokens: Number of tokens per batch. Affects speed and memory use, not the results.
        field: Field of the text in tables and records. Default: "text".
        documents: Unit of a document in a file: "block", "line", "file" or "record". Default: blocks in text files,
            records in others.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        A float32 array of shape [texts, width]. The row of a text without tokens is zero.

    Raises:
        ConfigError: If a setting is not valid for this model.
        DataError: If a text cannot be read.

    Examples:
        >>> vectors = segue.embed("model", ["The room was clean.", "A dull film."], progress=False)
        >>> vectors.shape
        (2, 32)
    """
    stream = embed_each(
        model,
        texts,
        by=by,
        layer=layer,
        pool=pool,
        normalise=normalise,
        memory=memory,
        segment_length=segment_length,
        batch_tokens=batch_tokens,
        field=field,
        documents=documents,
        encoding=encoding,
        progress=progress,
        on_event=on_event,
    )
    found = [row.vector for row in stream]
    return np.stack(found) if found else np.zeros((0, stream.width), dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class EmbeddingStream:
    """A single-pass iterator over vectors as they are computed, in the order of the texts."""

    rows: Iterator[Embedding]
    totals: EmbedTotals
    """Running counts of what has been embedded."""
    width: int
    """Length of a vector."""

    def __iter__(self) -> Iterator[Embedding]:
        return self.rows


@python_errors
def embed_each(
    model: ModelLike,
    texts: Texts,
    *,
    by: Literal["document", "line"] = "document",
    layer: int | None = None,
    pool: Pooling = "mean",
    normalise: bool = True,
    memory: bool = True,
    segment_length: Positive | None = None,
    batch_tokens: Positive = 4096,
    field: str = "text",
    documents: DocumentRule | None = None,
    encoding: str = "utf-8",
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> EmbeddingStream:
    """Compute the vectors of `embed` one at a time in constant memory, with the source of each text.

    Args:
        model: A name, a folder, or a loaded model.
        texts: A text, several texts, a table with a field of texts, or files (`Path`).
        by: Unit to embed: "document" or "line".
        layer: Layer whose hidden states to pool, as for `embed`. Default: the last.
        pool: Pooling over the tokens: "mean", "last", "first", "max" or "cls".
        normalise: Whether to normalise vectors to unit length.
        memory: Whether to read long texts with the model's memory, or else in separate windows.
        segment_length: Segment length in tokens. Default: as in training.
        batch_tokens: Number of tokens per batch. Affects speed and memory use, not the results.
        field: Field of the text in tables and records. Default: "text".
        documents: Unit of a document in a file, as for `embed`.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        A single-pass iterator of rows, each with `vector`, `document`, `source`, `line` and the beginning of the text.

    Raises:
        ConfigError: If a setting is not valid for this model.
        DataError: If a text cannot be read.

    Examples:
        >>> stream = segue.embed_each("model", Path("texts.txt"), progress=False)
        >>> [row.document for row in stream], stream.totals.vectors
        ([1, 2, 3, 4, 5, 6], 6)
    """
    check_language_model(model, embeds=True)
    source = text_model(model)
    settings = EmbedSettings(
        by=by,
        layer=layer,
        pool=pool,
        normalise=normalise,
        memory=memory,
        segment_length=source.segment_length if segment_length is None else segment_length,
        batch_tokens=batch_tokens,
    )
    totals = EmbedTotals()
    held = ExitStack()
    count = counted(held.enter_context(progress_callback("embed", unit="tokens", progress=progress, on_event=on_event)))
    parts = documents_of(texts, field=field, documents=documents, encoding=encoding)
    rows = embeddings(source.model, source.tokenizer, parts, settings, totals=totals, progress=count)
    return EmbeddingStream(rows=streamed(rows, held), totals=totals, width=source.model.config.hidden_width)
