"""Text embeddings: the hidden states of a document, or of each of its lines, pooled into one vector.

In: a model, its tokeniser, documents. Out: an Embedding for each document or line, in order, as they are ready.

A document is read to its end, a segment at a time (`segue.infer.segments`): with memory, or in windows. A causal model
reads from left to right. Permutation and masked models read each segment in both directions, after their memory.
Vectors are pooled over all tokens of the document in running sums, so memory does not grow with it. A line is pooled
over its own tokens, which were read with everything before them in the document; to have lines read separately, make
them documents.

A text of a causal or permutation model begins as after another document, with eod if the tokeniser has it; eod itself
is not pooled. A BERT (a masked model with segment embeddings) was trained to read CLS A SEP, and does so here; `mean`
and `max` also pool CLS and SEP, as sentence encoders based on BERT do. With `cls`, texts are laid out as for the heads
of fine-tuning instead: A SEP CLS, or CLS A SEP in a masked model, and the state of CLS is the vector. A CLS that comes
first only sees the first segment.

A document or line without tokens has a vector of zeros, so that row n of the vectors is always text n.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from segue.config import ModelConfig
from segue.errors import ConfigError, DataError
from segue.infer.documents import Document, TextPart, Tokens, pools, text_parts
from segue.infer.segments import POOL, RowMaker, Step, in_order, make_plan, recalled, steps
from segue.model import Batch, LanguageModel, Memory
from segue.text.coverage import LanguageWatch
from segue.text.tokenizer import Tokenizer

Pooling = Literal["mean", "last", "first", "max", "cls"]
Vectors: TypeAlias = NDArray[np.float64]
_CLS_SEGMENT = 2  # as in XLNet's pretraining and in fine-tuning


@dataclass(frozen=True, kw_only=True)
class EmbedSettings:
    """The settings of `embed`."""

    by: Literal["document", "line"] = "document"
    layer: int | None = None
    """Layer: 0 are the embeddings, 1 the result of the first layer; negative ones count from the end. Default: the
    last, as heads read it, after the model's final normalisation if it has one."""
    pool: Pooling = "mean"
    """Pooling of the states of the tokens into one vector; `cls` is explained above."""
    normalise: bool = True
    """Whether to normalise vectors to unit length, so that dot products are cosines."""
    memory: bool = True
    """Whether a model that has memory uses it; otherwise it reads in windows."""
    segment_length: int = 512
    """Segment length in positions."""
    batch_tokens: int = 4096
    """Tokens read at a time, over all documents of a batch; affects only speed and memory."""

    def __post_init__(self) -> None:
        if self.by not in ("document", "line"):
            raise ConfigError(f"by must be document or line; got {self.by!r}. Use one of them.")
        if self.pool not in ("mean", "last", "first", "max", "cls"):
            raise ConfigError(f"pool must be mean, last, first, max or cls; got {self.pool!r}. Use one of them.")
        if self.pool == "cls" and self.by == "line":
            raise ConfigError("pool cls is for documents, which have one CLS each; got lines. Use mean.")
        for name in ("segment_length", "batch_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}. Use 1 or more.")


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The vector of a line or a document."""

    document: int
    """Number of the document, from 1, over all inputs."""
    source: str
    line: int | None
    """Number of the line in the document, from 1; None for a document."""
    text: str
    """Beginning of the text, at most 1,000 characters."""
    tokens: int
    vector: NDArray[np.float32]


@dataclass
class EmbedTotals:
    """Running counts of embedded texts."""

    documents: int = 0
    tokens: int = 0
    vectors: int = 0
    empty: int = 0
    """Number of vectors that are zero, because their texts have no tokens."""


def embed(
    model: LanguageModel,
    tokenizer: Tokenizer,
    documents: Iterable[TextPart],
    settings: EmbedSettings = EmbedSettings(),  # noqa: B008  (it is frozen)
    *,
    totals: EmbedTotals | None = None,
    progress: Callable[[int], None] | None = None,
    watch: LanguageWatch | None = None,
) -> Iterator[Embedding]:
    """Yield the vectors of all documents (`text_parts` of texts, or `TextFiles`). `totals` are updated; `progress` is
    called with the number of tokens just read; `watch` is shared by calls that should warn of another language once."""
    counts = EmbedTotals() if totals is None else totals
    reader = _Reader(model, tokenizer, settings)

    def read(some: list[Document]) -> Iterator[tuple[int, Tokens, Vectors]]:
        for row, tokens, vectors in reader.read(some):
            if progress is not None:
                progress(len(tokens))
            yield row, tokens, vectors

    def begin(document: Document) -> RowMaker[Vectors, Embedding]:
        return _Vectors(document, counts, settings, width=model.config.hidden_width)

    limit = POOL * settings.batch_tokens
    ahead = pools(
        documents, tokenizer, limit=limit, keep_lines=settings.by == "line", closing=reader.closing, watch=watch
    )
    return in_order(ahead, plan=reader.plan, batch_tokens=settings.batch_tokens, read=read, begin=begin)


def embed_texts(
    model: LanguageModel,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    settings: EmbedSettings = EmbedSettings(),  # noqa: B008  (it is frozen)
    *,
    watch: LanguageWatch | None = None,
) -> NDArray[np.float32]:
    """Return the vectors of texts, each a document: [texts, width]. `watch` is as in `embed`."""
    found = [one.vector for one in embed(model, tokenizer, text_parts(texts), settings, watch=watch)]
    return np.stack(found) if found else np.zeros((0, model.config.hidden_width), dtype=np.float32)


class _Reader:
    """Reads documents in batches and yields the states of their tokens."""

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, settings: EmbedSettings) -> None:
        self.config, self.settings = model.config, settings
        self.device = next(model.parameters()).device
        self.layer = _layer(settings.layer, self.config)
        specials = tokenizer.specials
        masked = self.config.objective == "masked"
        self.cls = specials.get("cls") if settings.pool == "cls" else None
        self.first: int | None = None if masked else specials.get("eod")
        self.closing: list[int] = []
        self.pools_specials = (
            masked
            and self.config.segments == "absolute"
            and settings.by == "document"
            and settings.pool in ("mean", "max")
            and {"cls", "sep"} <= specials.keys()
        )
        if self.pools_specials:
            self.first, self.closing = specials["cls"], [specials["sep"]]
        if settings.pool == "cls":
            if self.cls is None:
                raise DataError(
                    "pool cls needs a tokeniser with the special token cls; got one without. Use mean, or last."
                )
            sep = specials.get("sep", specials.get("eod", specials.get("eop")))
            self.first = self.cls if masked else None
            self.closing = [index for index in (sep, None if masked else self.cls) if index is not None]
        # Auxiliary classifiers belong to certain layers.
        layers = None if self.config.auxiliary else max(1, self.layer)
        self.plan = make_plan(model, segment_length=settings.segment_length, memory=settings.memory, layers=layers)

    def read(self, documents: list[Document]) -> Iterator[tuple[int, Tokens, Vectors]]:
        """Yield the states of the tokens to pool, in steps."""
        memory: Memory | None = None
        for step in steps(documents, self.plan, first=self.first, predicts_next=False, full_end=True):
            batch = self._batch(step).to(self.device)
            with torch.no_grad():
                output = self.plan.model.trunk(batch, recalled(memory, step))
            memory = output.memory
            chosen = output.hidden_BQD if self.layer == self.config.num_layers else output.layers[self.layer]
            for number, (row, tokens) in enumerate(zip(step.rows, step.tokens, strict=True)):
                if self.cls is not None and self.first is not None:  # CLS came before the text
                    own = slice(0, 1 if step.number == 0 else 0)
                elif self.cls is not None:
                    places = step.known + np.flatnonzero(tokens.ids == self.cls)
                    own = slice(int(places[-1]), int(places[-1]) + 1) if len(places) else slice(0, 0)
                else:
                    begin = 0 if self.pools_specials and step.number == 0 else step.known
                    own = slice(begin, step.known + len(tokens))
                vectors: Vectors = chosen[number, own].double().cpu().numpy()
                if not np.isfinite(vectors).all():
                    raise DataError(
                        f"vectors must be finite; got {vectors[~np.isfinite(vectors)][0]} in {documents[row].place}. "
                        "The weights are broken: try segue doctor MODEL."
                    )
                yield row, tokens, vectors

    def _batch(self, step: Step) -> Batch:
        segments = None
        if self.cls is not None and self.config.segments == "relative":
            segments = torch.from_numpy(np.where(step.ids_BQ == self.cls, _CLS_SEGMENT, 0))
        return Batch(
            ids_BQ=torch.from_numpy(step.ids_BQ),
            real_BQ=None if step.real_BQ.all() else torch.from_numpy(step.real_BQ),
            segments_BQ=segments,
        )


class _Vectors:
    """Pooling of the states of a document, or of each of its lines."""

    def __init__(self, document: Document, totals: EmbedTotals, settings: EmbedSettings, *, width: int) -> None:
        self.document, self.totals, self.settings, self.width = document, totals, settings, width
        self.state = _State(settings.pool, width)
        self.tokens = 0

    def add(self, tokens: Tokens, vectors: Vectors) -> list[Embedding]:
        self.tokens += int(np.count_nonzero(tokens.lines))
        if self.settings.by == "document":
            self.state.add(vectors)
            return []
        rows = []
        numbers, begins = np.unique(tokens.lines, return_index=True)
        for number, part in zip(numbers, np.split(vectors, begins[1:]), strict=True):
            while self.document.lines[0].number < number:
                rows.append(self._line())
            self.state.add(part)
        return rows

    def finish(self) -> Iterator[Embedding]:
        self.totals.documents += 1
        self.totals.tokens += self.tokens
        if self.settings.by == "document":
            if not self.tokens:  # special tokens alone are no text
                self.state = _State(self.settings.pool, self.width)
            yield self._row(line=None, text=self.document.text, tokens=self.tokens)
        while self.document.lines:
            yield self._line()

    def _line(self) -> Embedding:
        line = self.document.lines.popleft()
        return self._row(line=line.number, text=line.text, tokens=self.state.count)

    def _row(self, *, line: int | None, text: str, tokens: int) -> Embedding:
        state, self.state = self.state, _State(self.settings.pool, self.width)
        self.totals.vectors += 1
        self.totals.empty += not state.count
        return Embedding(
            document=self.document.number,
            source=self.document.source,
            line=line,
            text=text,
            tokens=tokens,
            vector=state.vector(normalise=self.settings.normalise),
        )


class _State:
    """A running pool, which gives the same result for states at once or in parts."""

    def __init__(self, pool: Pooling, width: int) -> None:
        self.pool = pool
        self.count = 0
        self.value: Vectors = np.zeros(width)

    def add(self, vectors: Vectors) -> None:
        if not len(vectors):
            return
        match self.pool:
            case "mean":
                self.value = self.value + vectors.sum(axis=0)
            case "max":
                highest = vectors.max(axis=0)
                self.value = np.maximum(self.value, highest) if self.count else highest
            case "first":
                self.value = self.value if self.count else vectors[0]
            case "last" | "cls":
                self.value = vectors[-1]
        self.count += len(vectors)

    def vector(self, *, normalise: bool) -> NDArray[np.float32]:
        value = self.value / max(1, self.count) if self.pool == "mean" else self.value
        length = float(np.linalg.norm(value))
        if normalise and length > 0:
            value = value / length
        return value.astype(np.float32)


def _layer(asked: int | None, config: ModelConfig) -> int:
    count = config.num_layers
    layer = count if asked is None else asked if asked >= 0 else count + 1 + asked
    if not 0 <= layer <= count:
        raise ConfigError(
            f"the layer must be from 0, the embeddings, to {count}, or from {-count - 1} to -1, counted from the end; "
            f"got {asked}. Leave it out for the last."
        )
    return layer
