"""Rules that settings must keep together: each broken one with its values and its remedy."""

from collections.abc import Iterator
from typing import TypeAlias

from segue.config.schema import AbsolutePositions, LearnedRelativePositions, ModelConfig

Problem: TypeAlias = tuple[tuple[str, ...], str]


def broken_rules(model: ModelConfig) -> Iterator[Problem]:
    """Yields (the settings a rule reads, what is wrong) for every broken rule."""
    yield from _shape_rules(model)
    yield from _vocabulary_rules(model)
    yield from _choice_rules(model)


def _shape_rules(model: ModelConfig) -> Iterator[Problem]:
    width, heads = model.width, model.num_heads
    if model.head_width is None and width % heads:
        divisors = [n for n in range(1, width + 1) if width % n == 0]
        below, above = [n for n in divisors if n < heads], [n for n in divisors if n > heads]
        nearest = below[-1:] + above[:1]
        yield (
            ("num_heads", "width", "head_width"),
            f"model.num_heads must divide model.width; got {heads} and {width}. "
            f"Use {' or '.join(map(str, nearest))} heads, or set model.head_width.",
        )
    kind = model.positions.kind
    sinusoidal = kind == "xl" or (
        isinstance(model.positions, AbsolutePositions) and model.positions.encoding == "sinusoidal"
    )
    if sinusoidal and width % 2:
        yield (
            ("width", "positions"),
            f"model.width must be even for sinusoidal positions; got {width}. Use {width + 1}.",
        )
    if kind == "rotary" and model.resolved_head_width % 2:
        yield (
            ("head_width", "width", "num_heads", "positions"),
            f"model.head_width must be even for rotary positions; got {model.resolved_head_width}. "
            f"Set it to {model.resolved_head_width + 1}.",
        )


def _vocabulary_rules(model: ModelConfig) -> Iterator[Problem]:
    vocabulary = model.vocabulary
    cutoffs = vocabulary.cutoffs
    if list(cutoffs) != sorted(set(cutoffs)):
        yield (
            ("vocabulary.cutoffs",),
            f"model.vocabulary.cutoffs must ascend; got {list(cutoffs)}. Use {sorted(set(cutoffs))}.",
        )
    if cutoffs and max(cutoffs) >= vocabulary.size:
        yield (
            ("vocabulary.cutoffs", "vocabulary.size"),
            f"model.vocabulary.cutoffs must be below model.vocabulary.size; got {max(cutoffs)} and "
            f"{vocabulary.size}. Leave out the cutoffs that are too large.",
        )
    if vocabulary.shrink > 1 and not cutoffs:
        yield (
            ("vocabulary.shrink", "vocabulary.cutoffs"),
            f"model.vocabulary.shrink needs cutoffs; got shrink {vocabulary.shrink} and none. "
            "Set model.vocabulary.cutoffs, or leave shrink out.",
        )
    table_width = vocabulary.width or model.width
    if table_width // vocabulary.shrink ** len(cutoffs) < 1:
        yield (
            ("vocabulary.shrink", "vocabulary.cutoffs", "vocabulary.width", "width"),
            f"model.vocabulary.shrink leaves no width for bin {len(cutoffs)}; got width {table_width} and "
            f"shrink {vocabulary.shrink}. Use a smaller shrink or fewer cutoffs.",
        )


def _choice_rules(model: ModelConfig) -> Iterator[Problem]:
    positions = model.positions
    if model.attention_span is not None and model.bidirectional:
        yield (
            ("attention_span", "objective"),
            f'model.attention_span is for objective "causal"; got {model.attention_span} with '
            f'"{model.objective}". Leave it out.',
        )
    if isinstance(positions, LearnedRelativePositions) and model.bidirectional:
        yield (
            ("positions", "objective"),
            'model.positions.kind "learned_relative" has no vectors for tokens to the right; got objective '
            f'"{model.objective}". Use kind "xl" or "shaw".',
        )
    if isinstance(positions, AbsolutePositions) and positions.count_from == "end" and model.memory:
        yield (
            ("positions", "memory"),
            'model.positions.count_from "end" has no meaning beyond the segment; got a memory too. '
            'Use "start", or leave out model.memory.',
        )
    if model.directions == "both" and model.objective != "causal":
        yield (
            ("directions", "objective"),
            f'model.directions "both" is for objective "causal"; got "{model.objective}", which sees both '
            'directions already. Use "forward".',
        )
    if model.auxiliary and model.objective != "causal":
        yield (
            ("auxiliary", "objective"),
            f'model.auxiliary is for objective "causal"; got "{model.objective}". Leave it out.',
        )
    if model.auxiliary and model.directions == "both":
        yield (
            ("auxiliary", "directions"),
            'model.auxiliary is for one reader; got directions "both". Leave one of them out.',
        )
