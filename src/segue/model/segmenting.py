"""Segmentation of long texts: the one place that decides where segments and windows begin and end, and how they are
padded.

In: lengths and arrays of ids. Out: spans of positions, and rows of equal length with a mask of real positions.

- `segments` splits from the start: all segments are full except the last. For reading with memory.
- `segments_from_end` splits from the end: all are full except the first. For documents whose last tokens decide. They
  may overlap, for documents that are read without memory.
- `windows` overlap: each repeats part of the one before it, and only the rest is new. For models without memory.
- `next_segment`, `window_overlap` and `before_last_window` split texts whose length is not yet known.
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
    """The first position that is in no earlier span."""

    def __len__(self) -> int:
        return self.stop - self.start


def segments(length: int, size: int) -> list[Span]:
    """Return segments of `size` positions from the start of a text; the last takes the remainder."""
    return [Span(start, min(length, start + size), start) for start in range(0, length, size)]


def segments_from_end(length: int, size: int, *, overlap: int = 0) -> list[Span]:
    """Return segments of `size` positions that end with the text, each repeating `overlap` positions of the one before;
    the first takes the remainder."""
    step, rest = size - overlap, length - overlap
    starts = [] if length <= size else range(rest % step or step, rest, step)
    news = [0, *(start + overlap for start in starts)] if length else []
    stops = [*news[1:], length]
    return [Span(*span) for span in zip([0, *starts], stops, news, strict=bool(length))]


def windows(length: int, window: int, *, stride: int) -> list[Span]:
    """Return windows of `window` positions that advance by `stride`; the last ends with the text."""
    stops = [*range(min(window, length), length, stride), length]
    return [
        Span(max(0, stop - window), stop, 0 if number == 0 else stops[number - 1]) for number, stop in enumerate(stops)
    ]


# ---------------------------------------------------------------------------------------- texts of unknown length


def next_segment(available: int, size: int, *, full_end: bool) -> int:
    """Return the number of positions of the next segment. With `full_end` the last segment but one takes the remainder,
    so that the last is full; `available` must then be all that is left, or more than twice `size`."""
    return available - size if full_end and size < available <= 2 * size else size


def window_overlap(window: int) -> int:
    """Return the number of positions that a window of a stream repeats of the one before it: half of them."""
    return window // 2


def before_last_window(count: int, *, used: int, window: int) -> int:
    """Return how many of the next `count` positions come before the new part of the last window, if the current window
    has `used` positions. They matter only as far as that window repeats them."""
    later = count - (window - used)
    if later <= 0:
        return 0
    return count - ((later - 1) % (window - window_overlap(window)) + 1)


# -------------------------------------------------------------------------------------------------------- padding


def pad_rows(rows: Sequence[Ids], *, width: int) -> tuple[Ids, NDArray[np.bool_]]:
    """Return rows of ids padded with zeros on the right, [B, Q], and the mask of real positions."""
    padded = np.zeros((len(rows), width), dtype=np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return padded, np.arange(width) < lengths[:, None]
