"""The attention map of one head as an array, for an image."""

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError
from segue.explain.scores import Stream
from segue.explain.text import TextReading

MOST_PICTURED = 4096
"""Maximum number of tokens in an image."""


def head_map(
    reading: TextReading, *, layer: int, head: int, stream: Stream = "content", shown: str = "probability"
) -> NDArray[np.float32]:
    """Return the attention of each token to each token of the text, [T, T]: probabilities, scores or a term; NaN where
    it is hidden."""
    count = len(reading.ids_T)
    if count > MOST_PICTURED:
        raise DataError(
            f"an image shows at most {MOST_PICTURED:,} tokens; got {count:,}. Write a page instead: page.html."
        )
    found_TT = np.full((count, count), np.nan, dtype=np.float32)
    for segment in reading.attention():
        repeated = segment.span.new - segment.span.start
        there_K = segment.key_tokens >= 0
        scores = segment.reading.scores(layer, heads=head, stream=stream)
        values = {"probability": scores.probability, "score": scores.score} | scores.terms
        if shown not in values:
            raise DataError(f"an image of this model shows one of {', '.join(values)}; got {shown!r}. Use one of them.")
        seen_QK = scores.mask_BQK[0, repeated:].cpu().numpy()[:, there_K]
        values_QK = values[shown][0, 0, repeated:].float().cpu().numpy()[:, there_K]
        keys = segment.key_tokens[there_K]
        found_TT[segment.span.new : segment.span.stop, keys] = np.where(seen_QK, values_QK, np.nan)
    return found_TT
