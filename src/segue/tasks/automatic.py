"""Automatic settings: those left open are chosen from the training documents, for reading and for training.

In: settings with gaps, the lengths of the training documents and facts about the model. Out: complete settings, and a
line with the reason of each choice.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from segue.config import FinetuneConfig, ModelConfig, ReadConfig
from segue.model.segmenting import segments_from_end

COVERED = 95
"""Percentage of documents whose first token is in the memory of the last segment."""
LONGEST_MEMORY = 512
"""Maximum memory length in tokens that is chosen automatically, because every token attends to it."""
GRADIENT_TOKENS = 16_384
"""Maximum number of tokens with a gradient at the same time: those of sixteen documents of two segments."""
FEWEST_UPDATES = 600
"""Minimum number of updates: small tables are read more often to reach it, but at most `MOST_EPOCHS` times."""
FEWEST_EPOCHS, MOST_EPOCHS = 3, 10
SMALL_WIDTH = 384
"""Maximum width of a small model, whose CLS has learned too little in pretraining to summarise a text."""
NEW_DROPOUT = 0.1
"""Smallest dropout for new weights."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The facts that automatic choices depend on."""

    lengths: tuple[int, ...]
    """Lengths of the training documents in tokens."""
    segment_length: int
    config: ModelConfig
    """Config of the model as it was trained."""
    new_weights: bool

    @property
    def long(self) -> int:
        """Number of documents of more than one segment."""
        return sum(length > self.segment_length for length in self.lengths)


def may_remember(config: ModelConfig, read: ReadConfig) -> bool:
    """Return True if segments can have a memory: positions must mean the same in every segment."""
    return (
        read.carry and config.learned_positions is None and getattr(config.positions, "count_from", "start") == "start"
    )


def choose_reading(read: ReadConfig, found: Situation, *, summarised: bool) -> tuple[ReadConfig, list[str]]:
    """Choose the reading settings. `summarised` is True if the task has one prediction per document."""
    values: dict[str, Any] = {}
    notes: list[str] = []
    small = found.config.width <= SMALL_WIDTH
    why_all = (
        f"{found.long:,} documents have several segments"
        if found.long
        else "the weights are new"
        if found.new_weights
        else f"the model is small, with a width of {found.config.width}"
    )
    if read.memory_length is None and found.long and may_remember(found.config, read):
        values["memory_length"] = _memory_length(found)
        notes.append(f"read.memory_length={values['memory_length']}: {_why_memory(found)}")
    if read.gradient_segments is None:
        overlap = read.overlap or 0
        needed = len(segments_from_end(max(found.lengths), found.segment_length, overlap=overlap))
        values["gradient_segments"] = max(2, min(needed, GRADIENT_TOKENS // found.segment_length))
        if found.long:
            notes.append(f"read.gradient_segments={values['gradient_segments']}: the longest document has {needed}")
    if read.summary is None and summarised and (found.long or found.new_weights or small):
        values["summary"] = "mean"
        notes.append(f"read.summary=mean, the mean of all tokens of a segment: {why_all}")
    if read.pool is None:
        values["pool"] = "mean" if found.long and summarised else "last"
        if found.long and summarised:
            notes.append(f"read.pool=mean, the mean of all segments: {why_all}")
    return read.model_copy(update=values), notes


def choose_training(
    train: FinetuneConfig, *, items: int, config: ModelConfig, new_weights: bool
) -> tuple[FinetuneConfig, list[str]]:
    """Choose epochs, learning rate, layer-wise decay and dropout."""
    values: dict[str, Any] = {}
    notes: list[str] = []
    if train.epochs is None:
        updates = math.ceil(items / train.batch_size)
        values["epochs"] = min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(FEWEST_UPDATES / updates)))
        notes.append(f"train.epochs={values['epochs']}: {updates:,} updates each")
    if train.learning_rate is None:
        values["learning_rate"] = usual_rate(config.width, new_weights=new_weights)
        notes.append(f"train.learning_rate={values['learning_rate']:.2g}: the model has a width of {config.width}")
    if train.layer_decay is None:
        values["layer_decay"] = usual_layer_decay(new_weights=new_weights)
        if new_weights:
            notes.append("train.layer_decay=1: new weights have nothing to keep in their lower layers")
    if train.dropout is None and new_weights and config.dropout < NEW_DROPOUT:
        values["dropout"] = NEW_DROPOUT
        notes.append(
            f"train.dropout={NEW_DROPOUT}: the weights are new, and the model has a dropout of {config.dropout:g}"
        )
    return train.model_copy(update=values), notes


def usual_rate(width: int, *, new_weights: bool) -> float:
    """Return the default learning rate. Pretrained: 0.001 for small models, 7e-4 for the packaged ones, about 3e-5 for
    base models."""
    return min(1e-3, 0.2 / width if new_weights else 12288 / width**3)


def usual_layer_decay(*, new_weights: bool) -> float:
    """Return the default layer-wise decay: lower pretrained layers change less; new layers all change equally."""
    return 1.0 if new_weights else 0.9


def _reach(found: Situation) -> int:
    """Return the length that `COVERED` percent of the documents do not exceed."""
    return math.ceil(np.percentile(found.lengths, COVERED, method="inverted_cdf"))


def _memory_length(found: Situation) -> int:
    old = found.config.memory.length if found.config.memory is not None else 1
    missing = max(_reach(found), found.segment_length + 1) - found.segment_length
    return max(old, min(LONGEST_MEMORY, math.ceil(missing / 32) * 32))


def _why_memory(found: Situation) -> str:
    length = _memory_length(found)
    span = found.segment_length + length
    share = sum(length <= span for length in found.lengths) / len(found.lengths)
    if share >= COVERED / 100:
        return f"enough for the last segment to remember the first token of {share:.0%} of the documents"
    return f"the largest that is chosen; {1 - share:.0%} of the documents are longer than a segment and this memory"
