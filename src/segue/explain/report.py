"""The full explanation of a text and a model, computed in one pass, and written as one page.

In: a language model or a fine-tuned one, and a text. Out: Explanation: one side of the page; `page.explanation_page`
takes one or two of them.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import ConfigError
from segue.explain.ablate import Change, ablations, changes
from segue.explain.faithful import WordReport
from segue.explain.orders import WatchedOrder, watch_order
from segue.explain.pack import PackedAttention, Packer, packed_size
from segue.explain.scores import Stream
from segue.explain.terms import TermCounter, TermStatistics
from segue.explain.text import TextReading, read_text
from segue.infer.score import Order
from segue.infer.text_model import TextModel

LARGEST_MAPS = 256 * 2**20
"""Maximum size of the maps on a page in bytes."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Explanation of a model on a text."""

    name: str
    text: str
    reading: TextReading | None = None
    """None for a fine-tuned model, which only has `words`."""
    losses_T: NDArray[np.float64] | None = None
    loss: float | None = None
    statistics: tuple[tuple[Stream, TermStatistics], ...] = ()
    maps: PackedAttention | None = None
    changes: tuple[Change, ...] = ()
    order: WatchedOrder | None = None
    words: WordReport | None = None

    def __repr__(self) -> str:
        parts = [f"name={self.name!r}", f"text={self.text[:30] + ('...' if len(self.text) > 30 else '')!r}"]
        parts += [] if self.reading is None else [f"tokens={len(self.reading.ids_T)}"]
        parts += [] if self.loss is None else [f"loss={self.loss:.4f}"]
        parts += [] if self.words is None else [f"words={self.words!r}"]
        return f"<Explanation: {', '.join(parts)}>"


def explain_text(
    source: TextModel,
    text: str,
    *,
    name: str,
    order: Order | Sequence[int] = "forward",
    seed: int = 0,
    layers: Sequence[int] | None = None,
    ablate: bool = True,
    segment_length: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Explanation:
    """Return attention, terms, losses, ablations and, for a permutation model, an order. `progress` is called with the
    name of each finished step."""
    work = explaining_text(
        source, text, name=name, order=order, seed=seed, layers=layers, ablate=ablate, segment_length=segment_length
    )
    while True:
        try:
            done = next(work)
        except StopIteration as end:
            found: Explanation = end.value
            return found
        if progress is not None:
            progress(done)


def explaining_text(
    source: TextModel,
    text: str,
    *,
    name: str,
    order: Order | Sequence[int] = "forward",
    seed: int = 0,
    layers: Sequence[int] | None = None,
    ablate: bool = True,
    segment_length: int | None = None,
) -> Generator[str, None, Explanation]:
    """Run `explain_text` step by step: yield the name of each finished step, with the model unchanged in between, so
    that others can use it."""
    config = source.model.config
    permutes = config.objective == "permutation"
    reading = read_text(source, text, order=order, seed=seed, segment_length=segment_length)
    chosen = _layers(layers, reading)
    streams: list[Stream] = ["content", "query"] if permutes else ["content"]
    rotary_memory = config.positions.kind == "rotary" and reading.model.config.memory is not None
    packer = Packer(layers=chosen, streams=streams, with_memory=rotary_memory)
    counters = [TermCounter(stream=stream, farthest=len(reading.ids_T)) for stream in streams]
    for number, segment in enumerate(reading.attention(), start=1):
        packer.add(segment)
        for counter in counters:
            counter.add(segment)
        yield f"attention, segment {number} of {len(reading.segments)}"
    statistics = [counter.statistics() for counter in counters]
    losses_T = reading.losses()
    yield "losses"
    found: list[Change] = []
    if ablate:
        wanted = ablations(reading, statistics[0].terms)
        for number, change in enumerate(changes(reading, wanted), start=1):
            found.append(change)
            yield f"ablation {number} of {len(wanted)}"
    return Explanation(
        name=name,
        text=text,
        reading=reading,
        losses_T=losses_T,
        loss=float(np.nanmean(losses_T)) if np.isfinite(losses_T).any() else None,
        statistics=tuple(zip(streams, statistics, strict=True)),
        maps=packer.packed(statistics[0].terms),
        changes=tuple(found),
        order=watch_order(source, text, order="random" if order == "forward" else order, seed=seed)
        if permutes and isinstance(order, str)
        else None,
    )


def _layers(layers: Sequence[int] | None, reading: TextReading) -> list[int]:
    """Return the layers whose maps are included in the page."""
    config = reading.model.config
    chosen = list(range(config.num_layers)) if layers is None else sorted(set(layers))
    if not chosen or not all(0 <= layer < config.num_layers for layer in chosen):
        raise ConfigError(
            f"layers must be among the {config.num_layers} of the model, from 0; got {chosen}. Use 0, for example."
        )
    size = packed_size(
        tokens=len(reading.ids_T),
        layers=len(chosen),
        heads=config.num_heads,
        width=config.resolved_head_width,
        streams=2 if config.objective == "permutation" else 1,
    )
    if size > LARGEST_MAPS:
        fitting = max(1, len(chosen) * LARGEST_MAPS // size)
        raise ConfigError(
            f"the maps of a page must have at most {LARGEST_MAPS // 2**20} MB; got {size // 2**20} MB for "
            f"{len(chosen)} layers. Choose {fitting} of them with --layers, or a shorter text."
        )
    return chosen


# ---------------------------------------------------------------------------------------------------- for the page


def page_values(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as plain values, without maps."""
    values: dict[str, Any] = {"name": explanation.name, "text": explanation.text}
    if explanation.reading is not None:
        reading = explanation.reading
        values |= {
            "tokens": reading.tokens,
            "objective": reading.model.config.objective,
            "positions": reading.model.config.positions.kind,
            "losses": _numbers(explanation.losses_T),
            "loss": explanation.loss,
            "statistics": {stream: _statistics(one) for stream, one in explanation.statistics},
            "changes": [asdict(change.ablation) | {"change": change.change} for change in explanation.changes],
        }
    if explanation.maps is not None:
        values["maps"] = explanation.maps.description
    if explanation.order is not None:
        values["order"] = _order(explanation.order)
    if explanation.words is not None:
        values["words"] = _words(explanation.words)
    return values


def _statistics(one: TermStatistics) -> dict[str, Any]:
    return {
        "terms": list(one.terms),
        "edges": one.edges.tolist(),
        "share": _numbers(one.share_LHC),
        "profile": _numbers(one.profile_LHCN),
        "probability": _numbers(one.probability_LHN),
        "right": _numbers(one.right_LH),
        "memory": _numbers(one.memory_LH),
        "age": _numbers(one.age_LHN),
    }


def _order(one: WatchedOrder) -> dict[str, Any]:
    return {
        "tokens": list(one.tokens),
        "before": one.before,
        "order": one.order_T.tolist(),
        "content": one.content_TT.astype(int).tolist(),
        "query": one.query_TT.astype(int).tolist(),
        "steps": _numbers(one.log_probability_XT),
        "likeliest": [list(row) for row in one.likeliest_XT],
        "one": _numbers(one.one_T),
        "mean": _numbers(one.mean),
        "spread": _numbers(one.orders_XT.std(axis=0)),
        "orders": len(one.orders_XT),
    }


def _words(one: WordReport) -> dict[str, Any]:
    return {
        "task": one.task,
        "answer": one.answer,
        "whole": one.whole,
        "value": one.value,
        "probability": one.probability,
        "baseline": one.baseline,
        "units": [{"text": unit.text, "document": unit.document} for unit in one.units],
        "methods": [
            {"method": found.method, "values": _numbers(found.values_N), "gap": found.gap} for found in one.attributions
        ],
        "faithfulness": [asdict(found) for found in one.faithfulness],
    }


def _numbers(values: Any) -> Any:
    """Return nested lists with five digits; None for numbers that are not finite."""
    if isinstance(values, np.ndarray):
        return _numbers(values.tolist())
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return float(f"{values:.5g}") if np.isfinite(values) else None
