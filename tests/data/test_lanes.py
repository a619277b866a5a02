"""Lanes: each continues itself, all text is read once, and neither processes nor seeking change anything."""

import json
from collections.abc import Mapping
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from segue.data.lanes import ContiguousLanes, Cutting, DocumentLanes, Lanes, lanes_of_process
from segue.errors import DataError
from tests.examples import examples


class MemorySource:
    """Tokens in memory, in the shape of a store."""

    def __init__(
        self,
        ids: NDArray[np.integer],
        *,
        starts: NDArray[np.bool_],
        specials: Mapping[str, int],
        documents: list[int] | None = None,
        lines: list[int] | None = None,
    ) -> None:
        self.ids = np.asarray(ids, dtype=np.int64)
        self.length, self.vocabulary_size, self.specials = len(self.ids), len(starts), specials
        self.document_starts = np.array(documents or [0], dtype=np.uint64)
        self.line_starts = np.array(lines or [0], dtype=np.uint64)
        self._starts = starts

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        assert 0 <= start <= stop <= self.length
        return self.ids[start:stop].copy()

    def word_starts(self) -> NDArray[np.bool_]:
        return self._starts


def numbered(length: int, documents: list[int] | None = None) -> MemorySource:
    """Each token is its own offset."""
    return MemorySource(np.arange(length), starts=np.ones(length, dtype=np.bool_), specials={}, documents=documents)


def cutting(**other: object) -> Cutting:
    plain = {"lanes": 4, "segment_length": 8, "advance": 8, "ahead": 1, "backward_lanes": False, "seed": 0}
    return Cutting(**(plain | other))


def texts(lanes: Lanes, source: MemorySource, cut: Cutting, lane: int, epoch: int = 0) -> list[list[int]]:
    """What a lane reads, step by step, without the token ahead."""
    found = []
    for step in range(lanes.steps(epoch)):
        window = lanes.window(epoch=epoch, step=step, lane=lane)
        if window is not None:
            end = min(window.begin + cut.segment_length, window.region.length - cut.ahead)
            found.append(window.region.read(source, window.begin, end).tolist())
    return found


def test_a_lane_continues_itself() -> None:
    source, cut = numbered(4 * 50 + 3), cutting()
    lanes = ContiguousLanes(source, cut)
    assert lanes.steps(0) == 6  # 6 * 8 inputs and one more target fit into 50
    for lane in range(4):
        read = list(chain.from_iterable(texts(lanes, source, cut, lane)))
        assert read == list(range(lane * 50, lane * 50 + 48))
        assert [lanes.window(epoch=0, step=s, lane=lane).starts for s in range(6)] == [True] + [False] * 5


def test_overlapping_segments_advance_by_less() -> None:
    source, cut = numbered(4 * 50), cutting(advance=4, ahead=0)
    read = texts(ContiguousLanes(source, cut), source, cut, lane=1)
    assert [segment[0] for segment in read] == list(range(50, 93, 4))
    assert all(len(segment) == 8 for segment in read)


def test_later_epochs_begin_elsewhere_and_stay_in_their_piece() -> None:
    source, cut = numbered(4 * 55), cutting()
    lanes, other = ContiguousLanes(source, cut), ContiguousLanes(source, cutting(seed=1))
    begins = [texts(lanes, source, cut, 2, epoch)[0][0] for epoch in range(60)]
    assert begins[0] == 110
    assert set(begins) == set(range(110, 110 + 55 - 48))  # every offset that leaves the steps whole
    assert begins != [texts(other, source, cut, 2, epoch)[0][0] for epoch in range(60)]


def test_backward_lanes_read_the_same_text_from_its_end() -> None:
    source, cut = numbered(100), cutting(backward_lanes=True, ahead=0, segment_length=5, advance=5)
    lanes = ContiguousLanes(source, cut)
    for lane in (0, 1):
        forward = list(chain.from_iterable(texts(lanes, source, cut, lane)))
        backward = list(chain.from_iterable(texts(lanes, source, cut, lane + 2)))
        assert forward == list(range(lane * 50, lane * 50 + 50))
        assert backward == forward[::-1]


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=4, max_size=30),
    ahead=st.integers(0, 1),
    advance=st.sampled_from([8, 4]),
    backward=st.booleans(),
    epoch=st.integers(0, 2),
)
def test_documents_are_read_once_and_never_crossed(
    lengths: list[int], ahead: int, advance: int, backward: bool, epoch: int
) -> None:
    borders = [0, *np.cumsum(lengths).tolist()]
    source = numbered(borders[-1], borders[:-1])
    cut = cutting(ahead=ahead, advance=advance, backward_lanes=backward, lanes=4)
    if sum(length > ahead for length in lengths) < cut.forward:
        return
    lanes = DocumentLanes(source, cut)
    seen: list[int] = []
    for lane in range(4):
        previous = None
        for step in range(lanes.steps(epoch)):
            window = lanes.window(epoch=epoch, step=step, lane=lane)
            if window is None:
                previous = None
                continue
            region = window.region
            assert region.start in borders
            assert region.stop == borders[borders.index(region.start) + 1]
            assert window.starts == (window.begin == 0)
            if not window.starts:
                assert (previous.region, previous.begin + advance) == (region, window.begin)
            assert window.begin < region.length - ahead
            assert region.backward == (backward and lane >= 2)
            end = min(window.begin + 8, region.length - ahead)
            new = window.begin if window.starts else window.begin + 8 - advance
            if not region.backward:
                seen += region.read(source, new, end).tolist()
            previous = window
    last = {border - 1 for border in borders[1:]} if ahead else set()
    assert sorted(seen) == [offset for offset in range(borders[-1]) if offset not in last]


def test_documents_are_balanced_and_shuffled() -> None:
    lengths = np.random.default_rng(0).integers(1, 200, size=2000)
    borders = [0, *np.cumsum(lengths).tolist()]
    source, cut = numbered(borders[-1], borders[:-1]), cutting(lanes=16, ahead=0)
    lanes = DocumentLanes(source, cut)
    total = int((-(-lengths // 8)).sum())
    assert lanes.steps(0) < total / 16 + 2 * 200 / 8
    assert texts(lanes, source, cut, 3, 0) != texts(lanes, source, cut, 3, 1)
    assert texts(lanes, source, cut, 3, 0) == texts(DocumentLanes(source, cut), source, cut, 3, 0)


def test_processes_have_blocks_of_lanes() -> None:
    assert [list(lanes_of_process(lanes=6, rank=r, world=3)) for r in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(DataError, match=r"data\.lanes must be a multiple .* got 6 and 4\. Use 8 lanes"):
        lanes_of_process(lanes=6, rank=0, world=4)


def test_too_little_text() -> None:
    with pytest.raises(DataError, match=r"must have 36 tokens for 4 lanes .* got 35"):
        ContiguousLanes(numbered(35), cutting())
    assert ContiguousLanes(numbered(36), cutting()).steps(0) == 1
    with pytest.raises(DataError, match="a document for each of 4 lanes of text; got 3"):
        DocumentLanes(numbered(40, [0, 10, 20, 39]), cutting())


def test_windows_are_plain_numbers() -> None:
    lanes = DocumentLanes(numbered(400, list(range(0, 400, 7))), cutting())
    window = lanes.window(epoch=1, step=2, lane=3)
    assert json.dumps([window.begin, window.region.start, window.region.stop])
