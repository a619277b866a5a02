"""Documents of any length through a model, side by side, a segment at a time.

In: a model and documents of tokens. Out: steps, each a segment of every document that is not yet at its end, and rows
made of them in the order of the documents. What is computed from a segment is for `score` and `embed`.

With memory, each segment is read once, after what the model remembers. In a causal model a token then sees itself and
the tokens that memory has room for, however the text is cut: the attention span is set so. A token of another model
sees its segment and what is remembered. Without memory (or with learned positions, which end) the text is read in
windows: half of each repeats what came before, and only the rest counts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

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
"""How many batches are read ahead, to group documents of similar length."""


@dataclass(frozen=True, kw_only=True)
class ReadingPlan:
    """How a model reads documents: with memory, or in windows."""

    model: LanguageModel
    length: int
    """The length of a segment or window, in positions."""
    context: int
    """How many positions of a window repeat the window before it."""
    has_memory: bool


def make_plan(model: LanguageModel, *, segment_length: int, memory: bool = True) -> ReadingPlan:
    """The plan for a model as it is, or without its `memory`."""
    if segment_length < 1:
        raise ConfigError(f"segment_length must be at least 1; got {segment_length}. Try 512.")
    config = model.config
    limit = config.learned_positions
    length = segment_length if limit is None else min(segment_length, limit)
    if config.memory is None or not memory or limit is not None:
        alone = model if config.memory is None else model.adjusted(memory=None)
        # A causal window has to begin with a token that is known, or its first one would have no probability.
        least = 1 if config.objective == "causal" else 0
        context = max(least, window_overlap(length))
        return ReadingPlan(model=alone.eval(), length=length, context=context, has_memory=False)
    settings: dict[str, object] = {"memory": {"reuse_length": None}}  # segments do not overlap here
    if config.objective == "causal":
        reach = config.memory.length + 1
        settings["attention_span"] = reach if config.attention_span is None else min(reach, config.attention_span)
    return ReadingPlan(model=model.adjusted(**settings).eval(), length=length, context=0, has_memory=True)


@dataclass(frozen=True, kw_only=True)
class Step:
    """The next segment of the documents that are not at their end."""

    number: int
    """The number of the step, from 0."""
    rows: list[int]
    """The numbers of the documents that are read."""
    kept: list[int]
    """Their rows in the step before; in the first step, all rows."""
    tokens: list[Tokens]
    """The new tokens of each document."""
    known: int
    """How many positions of each row come before what is new: a special token, or what a window repeats."""
    ids_BQ: NDArray[np.int64]
    """Known tokens, new tokens, then padding."""
    real_BQ: NDArray[np.bool_]
    """True for all but padding."""


def steps(
    documents: Sequence[Document], plan: ReadingPlan, *, first: int | None, predicts_next: bool, full_end: bool = False
) -> Iterator[Step]:
    """Reads every document to its end, step by step.

    `first` is a special token before each. With `predicts_next` the model reads all but the last of a step, to predict
    what follows, and reads that one in the next step. With `full_end` and memory, the last segment but one takes the
    remainder, so that the last is full; the last window has half of one before it in any case."""
    full_end = full_end and plan.has_memory
    # Of each row that goes on, what it reads again. Only rows that filled their step go on: all have the same length.
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
    """The memory of the rows that this step reads."""
    if memory is None:
        return None
    memory = memory.compact()
    return memory if len(step.kept) == memory.rows else memory.select(step.kept)


def batches(documents: Sequence[Document], plan: ReadingPlan, *, batch_tokens: int) -> Iterator[list[int]]:
    """Groups of documents to read side by side: of similar length, so that there is little padding."""
    order = sorted(range(len(documents)), key=lambda number: -documents[number].tokens)
    begin = 0
    while begin < len(order):
        width = max(1, min(plan.length, documents[order[begin]].tokens + 1))
        count = max(1, batch_tokens // width)
        yield order[begin : begin + count]
        begin += count


class RowMaker(Protocol[Chunk, Row]):
    """Makes the result rows of a document from what was computed for its tokens, a chunk at a time."""

    def add(self, tokens: Tokens, chunk: Chunk) -> Iterable[Row]:
        """The rows that this chunk completes."""

    def finish(self) -> Iterable[Row]:
        """The remaining rows."""


def in_order(
    pools: Iterable[list[Document]],
    *,
    plan: ReadingPlan,
    batch_tokens: int,
    read: Callable[[list[Document]], Iterator[tuple[int, Tokens, Value]]],
    begin: Callable[[Document], RowMaker[Value, Result]],
) -> Iterator[Result]:
    """The rows of all documents, in their order. `read` gives what comes of the tokens of some documents. What a
    document that is alone gives is handed on at once."""
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
