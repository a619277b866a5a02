"""Where long texts are cut, for all lengths up to a few segments."""

from itertools import pairwise

import numpy as np
import pytest

from segue.model.segmenting import (
    Span,
    before_last_window,
    next_segment,
    pad_rows,
    segments,
    segments_from_end,
    window_overlap,
    windows,
)

LENGTHS = range(1, 40)
SIZES = range(1, 12)


@pytest.mark.parametrize("cut", [segments, segments_from_end])
def test_segments_have_every_position_once(cut) -> None:
    for length in LENGTHS:
        for size in SIZES:
            spans = cut(length, size)
            assert [q for span in spans for q in range(span.start, span.stop)] == list(range(length))
            assert all(span.new == span.start and 1 <= len(span) <= size for span in spans)
            short = [number for number, span in enumerate(spans) if len(span) < size]
            assert short in ([], [len(spans) - 1 if cut is segments else 0])


def test_windows_have_every_position_once_as_new_and_are_full_where_they_can_be() -> None:
    for length in LENGTHS:
        for window in SIZES:
            for stride in range(1, window + 1):
                spans = windows(length, window, stride=stride)
                assert [q for span in spans for q in range(span.new, span.stop)] == list(range(length))
                assert all(len(span) == min(window, length) for span in spans)
                assert all(later.stop - one.stop <= stride for one, later in pairwise(spans))


def test_segments_from_the_end_may_overlap() -> None:
    for length in LENGTHS:
        for size in SIZES:
            for overlap in range(size):
                spans = segments_from_end(length, size, overlap=overlap)
                assert [q for span in spans for q in range(span.new, span.stop)] == list(range(length))
                assert all(len(span) == size for span in spans[1:])
                assert 1 <= len(spans[0]) <= size
                assert all(later.start == max(0, one.stop - overlap) for one, later in pairwise(spans))
    assert segments_from_end(5, 4, overlap=2) == [Span(0, 3, 0), Span(1, 5, 3)]
    assert segments_from_end(0, 4, overlap=2) == []


def test_windows_by_hand() -> None:
    assert windows(10, 4, stride=3) == [Span(0, 4, 0), Span(3, 7, 4), Span(6, 10, 7)]
    assert windows(8, 4, stride=3) == [Span(0, 4, 0), Span(3, 7, 4), Span(4, 8, 7)]
    assert windows(3, 4, stride=3) == [Span(0, 3, 0)]


def test_a_full_end_takes_the_remainder_before_it() -> None:
    for size in SIZES:
        for length in LENGTHS:
            left, taken = length, []
            while left:
                taken.append(min(left, next_segment(min(left, 2 * size + 1), size, full_end=True)))
                left -= taken[-1]
            assert taken[-1] == min(size, length)
            assert all(1 <= count <= size for count in taken)
            assert sum(count < size for count in taken) <= 1
    assert next_segment(9, 5, full_end=False) == 5


def test_what_comes_before_the_last_window_of_a_stream() -> None:
    """Against windows that begin one after the other, each with half of the one before it."""
    for window in range(2, 12):
        for used in range(window + 1):
            for count in LENGTHS:
                place, begins = used, 0
                for position in range(count):
                    if place == window:
                        place, begins = window_overlap(window), position
                    place += 1
                assert before_last_window(count, used=used, window=window) == begins


def test_rows_are_padded_on_the_right() -> None:
    ids, real = pad_rows([np.array([3, 4]), np.array([5]), np.zeros(0, np.int64)], width=3)
    assert ids.tolist() == [[3, 4, 0], [5, 0, 0], [0, 0, 0]]
    assert real.tolist() == [[True, True, False], [True, False, False], [False, False, False]]
