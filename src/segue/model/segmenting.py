"""Segmentation of long texts: the one place that decides where segments and windows begin and end, and how they are
padded.

In: lengths and arrays of ids. Out: spans of positions, and rows of equal length with a mask of what is real.

- `segments` cuts from the start: all segments are full but the last. For reading with memory.
- `segments_from_end` cuts from the end: all are full but the first. For documents whose last tokens decide. They may
  overlap, for documents that are read without memory.
- `windows` overlap: each repeats part of the one before it, and only the rest is new. For models without memory.
- `next_segment`, `window_overlap` and `before_last_window` cut texts whose length is not yet known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """The positions of a text from `start` up to `stop`."""

    start: int
    stop: int
    new: int
    """The first position that no earlier span has."""

    def __len__(self) -> int:
        return self.stop - self.start


def segments(length: int, size: int) -> list[Span]:
    """Segments of `size` positions from the start of a text; the last takes the remainder."""
    return [Span(start, min(length, start + size), start) for start in range(0, length, size)]


def segments_from_end(length: int, size: int, *, overlap: int = 0) -> list[Span]:
    """Segments of `size` positions that end with the text, of which `overlap` are those of the segment before; the
    first takes the remainder."""
    step, rest = size - overlap, length - overlap
    starts = [] if length <= size else range(rest % step or step, rest, step)
    news = [0, *(start + overlap for start in starts)] if length else []
    stops = [*news[1:], length]
    return [Span(*span) for span in zip([0, *starts], stops, news, strict=bool(length))]


def windows(length: int, window: int, *, stride: int) -> list[Span]:
    """Windows of `window` positions that advance by `stride`; the last ends with the text, whatever its stride."""
    stops = [*range(min(window, length), length, stride), length]
    return [
        Span(max(0, stop - window), stop, 0 if number == 0 else stops[number - 1]) for number, stop in enumerate(stops)
    ]


# ---------------------------------------------------------------------------------------- texts of unknown length


def next_segment(available: int, size: int, *, full_end: bool) -> int:
    """How many positions the next segment takes. With `full_end` the last segment but one takes the remainder, so that
    the last is full; `available` must then be all that is left, or more than twice `size`."""
    return available - size if full_end and size < available <= 2 * size else size


def window_overlap(window: int) -> int:
    """How many positions a window repeats of the one before it, where windows follow a stream: half of them."""
    return window // 2


def before_last_window(count: int, *, used: int, window: int) -> int:
    """How many of the next `count` positions come before the part that the last window adds, if the current window has
    `used` positions. They matter only as far as that window repeats them."""
    later = count - (window - used)
    if later <= 0:
        return 0
    return count - ((later - 1) % (window - window_overlap(window)) + 1)


# -------------------------------------------------------------------------------------------------------- padding


def pad_rows(rows: Sequence[Ids], *, width: int) -> tuple[Ids, NDArray[np.bool_]]:
    """Rows of ids, padded with zeros on the right: [B, Q], and which positions are real."""
    padded = np.zeros((len(rows), width), dtype=np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return padded, np.arange(width) < lengths[:, None]
