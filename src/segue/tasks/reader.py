"""Reads the documents of items with a trunk, with little padding, and counts tokens and padding."""

from collections.abc import Sequence

import numpy as np

from segue.config import ReadConfig
from segue.model.reading import DocumentStates, GroupedStates, TokenDocument, read_documents
from segue.model.trunk import Trunk

TOGETHER = 32
"""Maximum number of documents in a batch."""
PADDING, FREE = 0.05, 32
"""Maximum share of padding in a batch, or the number of padded positions below which another batch would cost more."""


class Reader:
    """Reads documents, in the same way for training and prediction."""

    def __init__(self, settings: ReadConfig, *, segment_length: int) -> None:
        self.settings = settings
        self.segment_length = segment_length
        self.gradient_segments = settings.gradient_segments or 2
        self.tokens = 0
        self.positions = 0

    def whole(self, trunk: Trunk, documents: Sequence[TokenDocument]) -> DocumentStates | GroupedStates:
        """Read documents for one prediction each: gradients reach their last segments."""
        return self._read(trunk, documents, gradient_segments=self.gradient_segments)

    def every_token(self, trunk: Trunk, documents: Sequence[TokenDocument]) -> DocumentStates | GroupedStates:
        """Read documents for a prediction at every token: all segments have a gradient."""
        return self._read(trunk, documents, gradient_segments=None)

    def _read(
        self, trunk: Trunk, documents: Sequence[TokenDocument], *, gradient_segments: int | None
    ) -> DocumentStates | GroupedStates:
        groups = length_groups([len(document) for document in documents])
        parts = []
        for group in groups:
            reading = read_documents(
                trunk,
                [documents[n] for n in group],
                segment_length=self.segment_length,
                overlap=self.settings.overlap or 0,
                gradient_segments=gradient_segments,
            )
            self.tokens += reading.tokens_read
            self.positions += reading.positions_computed
            parts.append(reading)
        if len(parts) == 1:
            return parts[0]
        return GroupedStates(parts=tuple(parts), order=np.argsort(np.concatenate(groups), kind="stable"))


def length_groups(lengths: Sequence[int]) -> list[list[int]]:
    """Return groups of document indices to batch: documents of similar length, as many as `PADDING` allows."""
    groups: list[list[int]] = []
    tokens = 0
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        if groups and len(groups[-1]) < TOGETHER:
            positions = lengths[groups[-1][0]] * (len(groups[-1]) + 1)
            padding = positions - tokens - lengths[n]
            if padding < PADDING * positions or padding <= FREE:
                groups[-1].append(n)
                tokens += lengths[n]
                continue
        groups.append([n])
        tokens = lengths[n]
    return [sorted(group) for group in groups]
