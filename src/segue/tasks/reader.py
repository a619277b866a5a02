"""Reads the documents of items with a trunk, and counts what is read and what is padding."""

from collections.abc import Sequence

from segue.config import ReadConfig
from segue.model.reading import Document, Reading, read
from segue.model.trunk import Trunk


class Reader:
    """One way of reading for training and prediction alike."""

    def __init__(self, settings: ReadConfig, *, segment_length: int) -> None:
        self.settings = settings
        self.segment_length = segment_length
        self.tokens = 0
        self.positions = 0

    def whole(self, trunk: Trunk, documents: Sequence[Document]) -> Reading:
        """For one answer a document: gradients reach its last segments."""
        return self._read(trunk, documents, gradient_segments=self.settings.gradient_segments)

    def every_token(self, trunk: Trunk, documents: Sequence[Document]) -> Reading:
        """For answers at every token: all segments have a gradient."""
        return self._read(trunk, documents, gradient_segments=None)

    def _read(self, trunk: Trunk, documents: Sequence[Document], *, gradient_segments: int | None) -> Reading:
        reading = read(trunk, documents, segment_length=self.segment_length, gradient_segments=gradient_segments)
        self.tokens += reading.tokens_read
        self.positions += reading.positions_computed
        return reading

    @property
    def padding_share(self) -> float:
        """Padding among all positions computed so far."""
        return 1 - self.tokens / self.positions if self.positions else 0.0
