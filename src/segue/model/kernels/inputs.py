"""The inputs of attention besides queries, keys and values: visibility, and the terms of the score."""

from dataclasses import dataclass

from torch import Tensor

from segue.model.positions import RelativeTerms


@dataclass(frozen=True, kw_only=True)
class View:
    """Visibility and positions of the queries of one stream."""

    mask_BQK: Tensor
    """True = may attend."""
    differs_BQK: Tensor | None = None
    """True if query and key are of different segments, for the relative segment encoding; None: no encoding."""
    at_BQ: Tensor | None = None
    """Positions of the queries in a segment; None: all of them, in order."""
    segment_length: int
    """Number of positions of the segment (the queries may be fewer)."""


@dataclass(frozen=True, kw_only=True)
class ScoreTerms:
    """All terms of the score besides query times key."""

    relative: RelativeTerms | None = None
    content_bias_HE: Tensor | None = None
    """u: a bias for a key, independent of the query."""
    position_bias_HE: Tensor | None = None
    """v: a bias for a distance, independent of the query."""
    segment_key_2HE: Tensor | None = None
    """Keys for "same segment" and "another segment"."""
    segment_bias_HE: Tensor | None = None
    """s: a bias for the segment keys, independent of the query."""
