"""Documents of any length through a model, in batches, a segment at a time.

In: a model and documents of tokens. Out: steps, each a segment of every document that has not ended, and result rows in
the order of the documents. The computation for a segment is left to `score` and `embed`.

With memory, each segment is read once, after the memory. In a causal model a token then sees itself and as many tokens
as memory has room for, however the text is split: the attention span is set to that. A token of another model sees its
segment and the memory. Without memory (or with learned positions, which are limited) the text is read in windows: half
of each repeats the window before, and only the rest counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from segue.errors import ConfigError
from segue.infer.documents import Document, Tokens
from segue.model import LanguageModel, Memory
from segue.model.segmenting import next_segment, pad_rows, window_overlap

Row = TypeVar("Row", covariant=True)
Chunk = TypeVar("Chunk", contravariant=True)
Result = TypeVar("Result")
Value = TypeVar("Value")
POOL = 8
"""Number of batches read ahead, to group documents of similar length."""


@dataclass(frozen=True, kw_only=True)
class ReadingPlan:
    """The way a model reads documents: with memory, or in windows."""

    model: LanguageModel
    length: int
    """Length of a segment or window in positions."""
    context: int
    """Number of positions of a window that repeat the window before it."""
    has_memory: bool


def make_plan(
    model: LanguageModel, *, segment_length: int, memory: bool = True, layers: int | None = None
) -> ReadingPlan:
    """Return the plan for a model, with or without its `memory`. `layers`: read with the first layers only."""
    if segment_length < 1:
        raise ConfigError(f"segment_length must be at least 1; got {segment_length}. Try 512.")
    config = model.config
    limit = config.learned_positions
    length = segment_length if limit is None else min(segment_length, limit)
    settings: dict[str, Any] = {} if layers in (None, config.num_layers) else {"num_layers": layers}
    if config.memory is None or not memory or limit is not None:
        alone = _adjusted(model, {**settings, "memory": None} if config.memory is not None else settings)
        # A causal window has to begin with a known token, or its first one would have no probability.
        least = 1 if config.objective == "causal" else 0
        context = max(least, window_overlap(length))
        return ReadingPlan(model=alone.eval(), length=length, context=context, has_memory=False)
    settings["memory"] = {"reuse_length": None}  # segments do not overlap here
    if config.objective == "causal":
        reach = config.memory.length + 1
        settings["attention_span"] = reach if config.attention_span is None else min(reach, config.attention_span)
    return ReadingPlan(model=_adjusted(model, settings).eval(), length=length, context=0, has_memory=True)


_kept: WeakKeyDictionary[LanguageModel, dict[str, tuple[list[int], LanguageModel]]] = WeakKeyDictionary()
"""Models under other settings, with the addresses of their weights."""


def _adjusted(model: LanguageModel, settings: Mapping[str, Any]) -> LanguageModel:
    """Return `model.adjusted(**settings)`. It is built once for as long as the model has the same weights in memory:
    building it takes longer than reading a short text."""
    if not settings:
        return model
    addresses = [weight.data_ptr() for weight in model.parameters()]
    kept = _kept.setdefault(model, {})
    key = repr(sorted(settings.items()))
    if key not in kept or kept[key][0] != addresses:
        kept[key] = addresses, model.adjusted(**settings)
    return kept[key][1]


@dataclass(frozen=True, kw_only=True)
class Step:
    """The next segment of the documents that have not ended."""

    number: int
    """Index of the step, from 0."""
    rows: list[int]
    """Indices of the documents that are read."""
    kept: list[int]
    """Their rows in the step before; in the first step, all rows."""
    tokens: list[Tokens]
    """The new tokens of each document."""
    known: int
    """Number of positions of each row before the new tokens: a special token, or the repeated part of a window."""
    ids_BQ: NDArray[np.int64]
    """Known tokens, new tokens, then padding."""
    real_BQ: NDArray[np.bool_]
    """False for padding."""


def steps(
    documents: Sequence[Document], plan: ReadingPlan, *, first: int | None, predicts_next: bool, full_end: bool = False
) -> Iterator[Step]:
    """Read every document to its end, step by step.

    `first` is a special token before each. With `predicts_next` the model reads all but the last token of a step, to
    predict the next ones, and reads that one in the next step. With `full_end` and memory, the last segment but one
    takes the remainder, so that the last is full; the last window has half a window before it in any case.
    """
    full_end = full_end and plan.has_memory
    # The ids that each continuing row reads again. Only rows that filled their step continue: all have the same length.
    carried = np.full((len(documents), 0 if first is None else 1), first or 0, dtype=np.int64)
    rows = kept = [row for row, document in enumerate(documents) if document.fill(1)]
    carried = carried[rows]
    number = 0
    while rows:
        known = carried.shape[1]
        room = max(1, plan.length - known + predicts_next)
        tokens = [documents[row].take(_next_share(documents[row], room, full_end=full_end)) for row in rows]
        whole = [np.concatenate([before, one.ids]) for before, one in zip(carried, tokens, strict=True)]
        ids_BQ, real_BQ = pad_rows(whole, width=max(map(len, whole)))
        yield Step(number=number, rows=rows, kept=kept, tokens=tokens, known=known, ids_BQ=ids_BQ, real_BQ=real_BQ)
        keep = int(predicts_next) if plan.has_memory else plan.context
        kept = [place for place, row in enumerate(rows) if documents[row].fill(1)]
        rows = [rows[place] for place in kept]
        if rows:
            carried = np.stack([whole[n][max(0, len(whole[n]) - keep) :] for n in kept])
        number += 1


def _next_share(document: Document, room: int, *, full_end: bool) -> int:
    return next_segment(document.fill(2 * room + 1), room, full_end=True) if full_end else room


def recalled(memory: Memory | None, step: Step) -> Memory | None:
    """Return the memory of the rows that this step reads."""
    if memory is None:
        return None
    memory = memory.compact()
    return memory if len(step.kept) == memory.rows else memory.select(step.kept)


def batches(documents: Sequence[Document], plan: ReadingPlan, *, batch_tokens: int) -> Iterator[list[int]]:
    """Yield groups of documents to read together, of similar length, so that there is little padding."""
    order = sorted(range(len(documents)), key=lambda number: -documents[number].tokens)
    begin = 0
    while begin < len(order):
        width = max(1, min(plan.length, documents[order[begin]].tokens + 1))
        count = max(1, batch_tokens // width)
        yield order[begin : begin + count]
        begin += count


class RowMaker(Protocol[Chunk, Row]):
    """Maker of the result rows of a document from the values computed for its tokens, a chunk at a time."""

    def add(self, tokens: Tokens, chunk: Chunk) -> Iterable[Row]:
        """Return the rows that this chunk completes."""

    def finish(self) -> Iterable[Row]:
        """Return the remaining rows."""


def in_order(
    pools: Iterable[list[Document]],
    *,
    plan: ReadingPlan,
    batch_tokens: int,
    read: Callable[[list[Document]], Iterator[tuple[int, Tokens, Value]]],
    begin: Callable[[Document], RowMaker[Value, Result]],
) -> Iterator[Result]:
    """Yield the rows of all documents, in order. `read` yields the values for the tokens of some documents. Rows of a
    document that is alone in its pool are yielded at once."""
    for pool in pools:
        makers = [begin(document) for document in pool]
        if len(pool) == 1:
            for _, tokens, value in read(pool):
                yield from makers[0].add(tokens, value)
            yield from makers[0].finish()
            continue
        made: list[list[Result]] = [[] for _ in pool]
        for batch in batches(pool, plan, batch_tokens=batch_tokens):
            for row, tokens, value in read([pool[number] for number in batch]):
                made[batch[row]] += makers[batch[row]].add(tokens, value)
        for maker, rows in zip(makers, made, strict=True):
            yield from rows
            yield from maker.finish()
