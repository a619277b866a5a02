"""The inputs of attention besides queries, keys and values: who sees whom, and the terms of the score."""

from dataclasses import dataclass

from torch import Tensor

from segue.model.positions import RelativeTerms


@dataclass(frozen=True, kw_only=True)
class View:
    """What the queries of one stream see."""

    mask_BQK: Tensor
    """True = may attend."""
    differs_BQK: Tensor | None = None
    """Whether query and key are of different segments, for the relative segment encoding; None: no encoding."""
    at_BQ: Tensor | None = None
    """Positions of the queries in a segment; None: all of them, in order."""
    segment_length: int
    """How many positions the segment has (the queries may be fewer)."""


@dataclass(frozen=True, kw_only=True)
class ScoreTerms:
    """All terms of the score besides query times key."""

    relative: RelativeTerms | None = None
    content_bias_HE: Tensor | None = None
    """u: makes a key likely whatever the query is."""
    position_bias_HE: Tensor | None = None
    """v: makes a distance likely whatever the query is."""
    segment_key_2HE: Tensor | None = None
    """Keys for "same segment" and "another segment"."""
    segment_bias_HE: Tensor | None = None
    """s: the same for the segment keys."""
