"""A text as the segments that a language model reads, one after the other, each after the memory of those before it.

In: a model with its tokeniser, and a text. Out: TextReading: the batches, their attention, and the loss on each token.
Texts are split, begun (with eod) and ordered as in `segue.infer.score`, so that the losses are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from segue.errors import ConfigError, DataError
from segue.explain.scores import AttentionReading, attention
from segue.infer.score import Order, ScoreSettings, TokenScore, score_texts
from segue.infer.segments import ReadingPlan, make_plan
from segue.infer.text_model import TextModel
from segue.model import Batch, LanguageModel, Memory
from segue.model.language_model import order_batch
from segue.model.segmenting import Span, segments
from segue.text.tokenizer import BYTE_PIECE, Tokenizer

MOST_TOKENS = 2**14
"""Maximum number of tokens of an explained text."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One segment of a text; in a model without memory, a window, which repeats the tokens before `new`."""

    span: Span
    batch: Batch


@dataclass(frozen=True, kw_only=True)
class SegmentAttention:
    """The attention of a segment."""

    span: Span
    reading: AttentionReading
    key_tokens: NDArray[np.int64]
    """For each key, memory first, the index of its token in the text; -1 for none."""


@dataclass(frozen=True, kw_only=True)
class TextReading:
    """A text, split for a model; everything is computed on request."""

    model: LanguageModel
    """The model, adjusted to read in segments or windows."""
    tokenizer: Tokenizer
    text: str
    ids_T: NDArray[np.int64]
    """The tokens, with eod before the text if the tokeniser has it."""
    starts_T: NDArray[np.int64]
    ends_T: NDArray[np.int64]
    """Character offsets of each token; empty for eod."""
    segments: tuple[Segment, ...]
    known: int
    """Number of tokens before the text: 1 with eod, or 0."""
    segment_length: int

    @property
    def tokens(self) -> list[str]:
        """The tokens in readable form: bytes that are characters as these, others by their numbers."""
        names = {index: f"<{name}>" for name, index in self.tokenizer.specials.items()}
        found = [names.get(int(index), self.tokenizer.token(int(index))) for index in self.ids_T]
        for place, (start, end) in enumerate(zip(self.starts_T, self.ends_T, strict=True)):
            if start < end and BYTE_PIECE.fullmatch(found[place]):
                found[place] = self.text[start:end]
        return found

    def attention(self) -> Iterator[SegmentAttention]:
        """Yield the attention of each segment, with the memory of those before; one segment is in memory at a time."""
        memory: Memory | None = None
        remembered = np.zeros(0, dtype=np.int64)
        for segment in self.segments:
            reading = attention(self.model, segment.batch, memory)
            own = np.arange(segment.span.start, segment.span.stop)
            before = np.full(reading.memory_length, -1, dtype=np.int64)
            if len(remembered):  # the latest positions are the valid ones
                before[-len(remembered) :] = remembered[-len(before) :]
            yield SegmentAttention(
                span=segment.span, reading=reading, key_tokens=np.concatenate([before, own]).astype(np.int64)
            )
            memory = reading.memory
            if memory is not None:
                remembered = np.concatenate([remembered, own])[-memory.length :]

    def losses(self) -> NDArray[np.float64]:
        """Return -log p of each token, with memory carried over; NaN if it has none."""
        if self.model.config.objective == "masked":
            return self._pseudo_losses()
        nll_T = np.full(len(self.ids_T), np.nan)
        memory: Memory | None = None
        ahead = int(self.model.config.objective == "causal")
        for segment in self.segments:
            with torch.no_grad():
                output = self.model(segment.batch, memory)
            memory = output.memory
            counts_Q = segment.batch.target_mask
            assert counts_Q is not None
            at = segment.span.start + ahead + np.flatnonzero(counts_Q[0].cpu().numpy())
            nll_T[at] = output.nll[0].double().cpu().numpy()[counts_Q[0].cpu().numpy()]
        return nll_T

    def _pseudo_losses(self) -> NDArray[np.float64]:
        settings = ScoreSettings(by="token", segment_length=self.segment_length)
        rows = score_texts(self.model, self.tokenizer, [self.text], settings)
        return np.array([-(row.log_probability or 0.0) for row in rows if isinstance(row, TokenScore)])


def read_text(
    source: TextModel,
    text: str,
    *,
    order: Order | Sequence[int] = "forward",
    seed: int = 0,
    segment_length: int | None = None,
) -> TextReading:
    """Split the text into segments. `order` is the factorisation order, for permutation models."""
    objective = source.model.config.objective
    ScoreSettings(order=order, seed=seed)  # checks the order
    if objective != "permutation" and order != "forward":
        raise ConfigError(
            f'a factorisation order needs objective "permutation"; got {order!r} for "{objective}". Leave it out.'
        )
    length = source.segment_length if segment_length is None else segment_length
    plan = make_plan(source.model, segment_length=length, memory=objective != "masked")
    encoding = source.tokenizer.encode_with_offsets(text)
    count = len(encoding.ids)
    if not 0 < count <= MOST_TOKENS:
        raise DataError(
            f"a text to explain must have 1 to {MOST_TOKENS:,} tokens; got {count:,}. Give "
            + ("a text with a letter in it." if not count else "a part of it.")
        )
    eod = None if objective == "masked" else source.tokenizer.specials.get("eod")
    known = 0 if eod is None else 1
    ids_T = encoding.ids if eod is None else np.concatenate([[eod], encoding.ids])
    nothing = np.zeros(known, dtype=np.int64)
    device = next(source.model.parameters()).device
    orders = _Orders(order=order, seed=seed, known=known, count=count)
    return TextReading(
        model=plan.model,
        tokenizer=source.tokenizer,
        text=text,
        ids_T=ids_T.astype(np.int64),
        starts_T=np.concatenate([nothing, encoding.starts]),
        ends_T=np.concatenate([nothing, encoding.ends]),
        segments=tuple(
            Segment(span=span, batch=_batch(objective, ids_T, span, number, orders).to(device))
            for number, span in enumerate(_spans(len(ids_T), plan, ahead=int(objective == "causal")))
        ),
        known=known,
        segment_length=plan.length,
    )


def _spans(length: int, plan: ReadingPlan, *, ahead: int) -> list[Span]:
    """Return segments with memory; otherwise windows, which partly repeat the one before."""
    if plan.has_memory:
        return segments(length, plan.length)
    found = [Span(0, min(length, plan.length), 0)]
    while (stop := found[-1].stop) < length:
        start = max(0, stop + ahead - max(ahead, plan.context))
        found.append(Span(start, min(length, start + plan.length), stop))
    return found


@dataclass(frozen=True, kw_only=True)
class _Orders:
    """The order of each segment: known tokens first, then new ones in the requested order."""

    order: Order | Sequence[int]
    seed: int
    known: int
    count: int

    def of(self, span: Span, number: int) -> NDArray[np.int64]:
        known = max(span.new, self.known) - span.start
        new = len(span) - known
        match self.order:
            case "forward":
                own = np.arange(new)
            case "backward":
                own = np.arange(new)[::-1]
            case "random":
                own = np.random.default_rng([self.seed, 1, number]).permutation(new)
            case given:
                if number or new != len(given) or new != self.count:
                    raise DataError(
                        f"a text with an order of its own must be one segment of {len(given)} tokens; got "
                        f"{self.count}. Give another order, or a longer segment."
                    )
                own = np.array(given, dtype=np.int64)
        return np.concatenate([np.arange(known), known + own])


def _batch(objective: str, ids_T: NDArray[np.int64], span: Span, number: int, orders: _Orders) -> Batch:
    ids_BQ = torch.from_numpy(ids_T[span.start : span.stop].astype(np.int64))[None]
    at_Q = np.arange(span.start, span.stop)
    if objective == "causal":
        next_Q = np.append(ids_T, 0)[span.start + 1 : span.stop + 1]
        counts_Q = (at_Q >= span.new) & (at_Q + 1 < len(ids_T))
        return Batch(
            ids_BQ=ids_BQ,
            targets=torch.from_numpy(next_Q.astype(np.int64))[None],
            target_mask=torch.from_numpy(counts_Q)[None],
        )
    if objective == "masked":
        return Batch(ids_BQ=ids_BQ)
    made = order_batch(ids_BQ, torch.from_numpy(orders.of(span, number))[None])
    return replace(made, target_mask=torch.from_numpy(at_Q >= max(span.new, orders.known))[None])
