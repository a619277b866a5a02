"""Rules between settings: each broken one is reported with its values and its remedy."""

import math
from collections.abc import Iterator
from typing import TypeAlias

from segue.config.schema import (
    AbsolutePositions,
    Config,
    DataConfig,
    LearnedRelativePositions,
    ModelConfig,
    NoPositions,
    TrainConfig,
    XLPositions,
)

Problem: TypeAlias = tuple[tuple[str, ...], str]


def broken_rules(config: Config) -> Iterator[Problem]:
    """Yield (settings of the rule, message) for every broken rule."""
    for names, message in _model_rules(config.model):
        yield tuple(f"model.{name}" for name in names), message
    if config.data is not None:
        yield from broken_data_rules(config.data, config.model)
    if config.train is not None:
        yield from _training_rules(config.train)


def broken_data_rules(data: DataConfig, model: ModelConfig) -> Iterator[Problem]:
    """Yield the broken rules of the data settings, alone and with the model that reads the data."""
    yield from _lane_rules(data, model)
    yield from _masking_rules(data, model)
    if model.objective == "permutation":
        yield from _permutation_rules(data, model)


def _model_rules(model: ModelConfig) -> Iterator[Problem]:
    yield from _shape_rules(model)
    yield from _vocabulary_rules(model)
    yield from _choice_rules(model)


def _shape_rules(model: ModelConfig) -> Iterator[Problem]:
    width, heads = model.width, model.num_heads
    if model.head_width is None and width % heads:
        yield (
            ("num_heads", "width", "head_width"),
            f"model.num_heads must divide model.width; got {heads} and {width}. "
            f"Use {' or '.join(map(str, _nearest_divisors(width, heads)))} heads, or set model.head_width.",
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


def _nearest_divisors(width: int, heads: int) -> list[int]:
    """Return the next divisor below and the next above; divisors up to the square root give both the small and the
    large ones."""
    small = [n for n in range(1, math.isqrt(width) + 1) if width % n == 0]
    divisors = sorted({*small, *(width // n for n in small)})
    return [n for n in divisors if n < heads][-1:] + [n for n in divisors if n > heads][:1]


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
    if isinstance(positions, NoPositions) and model.objective == "permutation":
        yield (
            ("positions", "objective"),
            'model.positions.kind "none" does not say which token a query is to predict; got objective "permutation". '
            'Use kind "xl", or objective "causal" or "masked".',
        )
    if isinstance(positions, XLPositions) and positions.biases == "buckets" and positions.shared_biases:
        yield (
            ("positions",),
            'model.positions.biases "buckets" is learned in each layer; got shared_biases = true. Set '
            "model.positions.shared_biases to false.",
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


def _training_rules(train: TrainConfig) -> Iterator[Problem]:
    decays = train.schedule == "warmup_stable_decay"
    if train.decay_steps is not None and not decays:
        yield (
            ("train.decay_steps", "train.schedule"),
            f'train.decay_steps is for schedule "warmup_stable_decay"; got {train.decay_steps} with '
            f'"{train.schedule}". Leave it out, or change the schedule.',
        )
    if decays and train.warmup_steps + train.resolved_decay_steps > train.steps:
        yield (
            ("train.decay_steps", "train.warmup_steps", "train.steps", "train.schedule"),
            "train.warmup_steps and train.decay_steps must be at most train.steps together; got "
            f"{train.warmup_steps}, {train.resolved_decay_steps} and {train.steps}. Use fewer of them, or more steps.",
        )
    if train.optimizer == "muon" and train.sharded:
        yield (
            ("train.optimizer", "train.sharded"),
            'train.optimizer "muon" needs whole matrices in each process; got train.sharded = true. Set it to false, '
            'or use "adamw".',
        )


def _lane_rules(data: DataConfig, model: ModelConfig) -> Iterator[Problem]:
    if data.targets == "second_half" and (model.objective != "causal" or model.directions == "both"):
        yield (
            ("data.targets", "model.objective", "model.directions"),
            f'data.targets "second_half" is for objective "causal" and directions "forward"; got "{model.objective}" '
            f'and "{model.directions}". Use "all".',
        )
    if data.backward_lanes and data.lanes % 2:
        yield (
            ("data.lanes", "data.backward_lanes"),
            f"data.lanes must be even with data.backward_lanes; got {data.lanes}. Use {data.lanes + 1}.",
        )
    if data.backward_lanes and model.positions.kind not in ("xl", "shaw"):
        yield (
            ("data.backward_lanes", "model.positions"),
            'data.backward_lanes needs signed distances, model.positions.kind "xl" or "shaw"; got '
            f'"{model.positions.kind}". Set it to false.',
        )
    longest = getattr(model.positions, "max_length", None)
    learned = not isinstance(model.positions, AbsolutePositions) or model.positions.encoding == "learned"
    if longest is not None and learned and data.segment_length > longest:
        yield (
            ("data.segment_length", "model.positions"),
            f"data.segment_length must be at most model.positions.max_length; got {data.segment_length} and "
            f"{longest}. Use {longest}.",
        )


def _masking_rules(data: DataConfig, model: ModelConfig) -> Iterator[Problem]:
    masking, memory = data.masking, model.memory
    if masking.masked + masking.random > 1 + 1e-9:
        yield (
            ("data.masking.masked", "data.masking.random"),
            "data.masking.masked and data.masking.random must be at most 1 together; got "
            f"{masking.masked:g} and {masking.random:g}. Lower one of them.",
        )
    reuse = memory.reuse_length if memory else None
    if model.objective == "masked" and reuse is not None and reuse < data.segment_length:
        yield (
            ("model.memory", "model.objective", "data.segment_length"),
            'model.memory.reuse_length must not be below data.segment_length with objective "masked", where what is '
            f"remembered has seen the whole segment, and so the next one's targets; got {reuse} and "
            f"{data.segment_length}. Leave it out.",
        )


def _permutation_rules(data: DataConfig, model: ModelConfig) -> Iterator[Problem]:
    settings, length, memory = data.permutation, data.segment_length, model.memory
    reuse = memory.reuse_length if memory else None
    halves = settings.pairs or (reuse is not None and reuse < length)
    reads = ("model.objective", "data.segment_length", "data.permutation", "model.memory")
    if length < settings.one_in:
        yield (
            reads,
            f"data.segment_length must be at least data.permutation.one_in; got {length} and {settings.one_in}. "
            f"Use {settings.one_in}.",
        )
    if halves and length % 2:
        yield (
            reads,
            f"data.segment_length must be even where its halves are permuted apart; got {length}. Use {length + 1}.",
        )
        return
    if settings.pairs and length < 10:
        yield reads, f"data.segment_length must be at least 10 for A SEP B SEP CLS; got {length}. Use 10."
    if memory and halves and reuse != length // 2:
        yield (
            reads,
            "model.memory.reuse_length must be half of data.segment_length for permutations, or targets are read from "
            f"memory; got {'none' if reuse is None else reuse} and {length}. Use {length // 2}.",
        )
    part = length // 2 if halves else length
    size = settings.permutation_size or length // 2
    if part % max(size, 1):
        yield (
            reads,
            f"data.permutation.permutation_size must divide {'half of ' if halves else ''}data.segment_length; got "
            f"{size} and {part}. Use {part}.",
        )
    if settings.pairs and data.reset_at_documents:
        yield (
            (*reads, "data.reset_at_documents"),
            "data.permutation.pairs draws text from other documents; got data.reset_at_documents too. "
            "Set one of them to false.",
        )
    if settings.pairs and model.segments == "absolute" and model.num_segments < 3:
        yield (
            (*reads, "model.segments", "model.num_segments"),
            f"model.num_segments must be at least 3 for pairs: A, B and CLS; got {model.num_segments}. Use 3.",
        )
