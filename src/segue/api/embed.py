"""Texts to vectors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segue.api.errors import python_errors
from segue.api.models import ModelLike, text_model
from segue.api.progress import Progress, counted, streamed, told
from segue.api.texts import Texts, documents_of
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
    segment_length: int | None = None,
    batch_tokens: int = 4096,
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
        by: Unit to embed: "document" (a text, or a document of a file) or "line". A line is read after what comes
            before it in its document.
        layer: Layer whose states are pooled: 0 for the embeddings, negative numbers count from the end. Default: the
            last.
        pool: Pooling over the tokens: "mean", "last", "first", "max" or "cls".
        normalise: Whether vectors have length 1, so that their products are cosines.
        memory: Whether a long text is read with the model's memory; otherwise in windows.
        segment_length: Tokens that are read at a time. Default: as in training.
        batch_tokens: Tokens that are read side by side. It changes the speed and the memory, not the numbers.
        field: Field of the text in tables and records. Default: "text".
        documents: What a document of a file is: "block", "line", "file" or "record". Default: blocks of text files,
            records of others.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        progress: Whether progress is shown on standard error.
        on_event: Called with a `Progress` as the work goes on.

    Returns:
        An array of float32, [texts, width]. A text without a token has a row of zeros.

    Raises:
        ConfigError: If a setting is not possible for this model.
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
    """Vectors as they are computed, in the order of the texts; to be iterated once."""

    rows: Iterator[Embedding]
    totals: EmbedTotals
    """Counts of all that was embedded so far."""
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
    segment_length: int | None = None,
    batch_tokens: int = 4096,
    field: str = "text",
    documents: DocumentRule | None = None,
    encoding: str = "utf-8",
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> EmbeddingStream:
    """Compute the same vectors as `embed`, one after the other in constant memory, with the place of each text.

    Args:
        model: A name, a folder, or a loaded model.
        texts: A text, several texts, a table with a field of texts, or files (`Path`).
        by: Unit to embed: "document" or "line".
        layer: Layer whose states are pooled, as for `embed`. Default: the last.
        pool: Pooling over the tokens: "mean", "last", "first", "max" or "cls".
        normalise: Whether vectors have length 1.
        memory: Whether a long text is read with the model's memory; otherwise in windows.
        segment_length: Tokens that are read at a time. Default: as in training.
        batch_tokens: Tokens that are read side by side. It changes the speed and the memory, not the numbers.
        field: Field of the text in tables and records. Default: "text".
        documents: What a document of a file is, as for `embed`.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        progress: Whether progress is shown on standard error.
        on_event: Called with a `Progress` as the work goes on.

    Returns:
        The rows, to be iterated once, each with its `vector`, `document`, `source`, `line` and the beginning of its
        text.

    Raises:
        ConfigError: If a setting is not possible for this model.
        DataError: If a text cannot be read.

    Examples:
        >>> stream = segue.embed_each("model", Path("texts.txt"), progress=False)
        >>> [row.document for row in stream], stream.totals.vectors
        ([1, 2, 3, 4, 5, 6], 6)
    """
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
    count = counted(held.enter_context(told("embed", unit="tokens", progress=progress, on_event=on_event)))
    parts = documents_of(texts, field=field, documents=documents, encoding=encoding)
    rows = embeddings(source.model, source.tokenizer, parts, settings, totals=totals, progress=count)
    return EmbeddingStream(rows=streamed(rows, held), totals=totals, width=source.model.config.hidden_width)
