"""Number of parameters of a model, by formula, without building it and without torch."""

from itertools import pairwise

from segue.config.schema import (
    AbsolutePositions,
    LearnedRelativePositions,
    ModelConfig,
    PerLayerPositions,
    ShawPositions,
    XLPositions,
)

BUCKETS = 33
"""Number of distance buckets with a u and v of their own (`model.positions.NUM_BUCKETS`)."""


def parameter_count(config: ModelConfig) -> int:
    """Return the number of parameters of the language model."""
    width, size = config.width, config.vocabulary.size
    count = trunk_parameter_count(config) + _softmax(config)
    if config.vocabulary.transform:
        count += width * width + width + 2 * width
    if config.auxiliary is not None:
        count += (config.num_layers * config.auxiliary.targets - 1) * (width + 1) * size
    return count


def trunk_parameter_count(config: ModelConfig) -> int:
    """Return the number of parameters below every head: token tables and readers."""
    widths, projected = _bins(config)
    tables = _tables(config, widths)
    used = [0] if config.vocabulary.shrink == 1 else range(len(widths))
    tables += sum(config.width * widths[i] for i in used if projected[i])
    return tables + _reader(config) * (2 if config.directions == "both" else 1)


def _bins(config: ModelConfig) -> tuple[list[int], list[bool]]:
    """Return the width of each bin of the vocabulary, and True for each bin with a projection to the width of the
    model."""
    words = config.vocabulary
    widths = [(words.width or config.width) // words.shrink**i for i in range(len(words.cutoffs) + 1)]
    return widths, [w != config.width or (words.shrink > 1 and words.project_first_bin) for w in widths]


def _tables(config: ModelConfig, widths: list[int]) -> int:
    words = config.vocabulary
    if words.shrink == 1:
        return words.size * widths[0]
    sizes = [stop - start for start, stop in pairwise([0, *words.cutoffs, words.size])]
    return sum(size * width for size, width in zip(sizes, widths, strict=True))


def _softmax(config: ModelConfig) -> int:
    words = config.vocabulary
    widths, projected = _bins(config)
    count = words.size + len(words.cutoffs) * (widths[0] + 1)
    if not words.tie_weights:
        count += _tables(config, widths)
    untied = {"none": len(widths), "all_but_first": 1, "all": 0}[words.tie_projections]
    return count + sum(config.width * widths[i] for i in range(untied) if projected[i])


def _reader(config: ModelConfig) -> int:
    width, layers, positions = config.width, config.num_layers, config.positions
    inner = config.num_heads * config.resolved_head_width
    norm = 2 * width
    count = layers * _layer(config)
    count += config.num_segments * width if config.segments == "absolute" else 0
    count += norm * (config.embedding_norm + config.final_norm)
    count += width if config.objective == "permutation" else 0
    if isinstance(positions, AbsolutePositions) and positions.encoding == "learned":
        count += positions.max_length * width
    if isinstance(positions, PerLayerPositions):
        count += layers * positions.max_length * width
    kinds = int(config.segments == "relative") + isinstance(positions, LearnedRelativePositions)
    if isinstance(positions, XLPositions):
        kinds += {"vectors": 2, "tied": 1, "buckets": 0, "none": 0}[positions.biases]
    shared = isinstance(positions, XLPositions) and positions.shared_biases
    return count + kinds * inner * (1 if shared else layers)


def _layer(config: ModelConfig) -> int:
    width, heads, head_width = config.width, config.num_heads, config.resolved_head_width
    inner = heads * head_width
    count = 4 * width * inner + (3 * inner + width if config.attention_bias else 0)
    count += 2 * inner if config.segments == "relative" else 0
    match config.positions:
        case XLPositions(biases=biases):
            count += width * inner + (2 * BUCKETS * inner if biases == "buckets" else 0)
        case ShawPositions(clip_distance=clip, on_values=on_values):
            count += (2 if on_values else 1) * (2 * clip + 1) * head_width
        case LearnedRelativePositions(max_distance=longest):
            count += (longest + 1) * (inner + heads)
        case _:
            pass
    feed_forward = 2 * width * config.inner_width + config.inner_width + width
    return count + feed_forward + 4 * width
