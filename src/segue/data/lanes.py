"""Lanes of a token stream: row b of a step continues row b of the step before, so that memory is valid.

In: a source of tokens, and the number of lanes and the segment length. Out: for each epoch, step and lane the
`LaneWindow` to read there, found without reading the tokens before it. `batches` turns its tokens into batches.

Without documents, lane b is the b-th of equal contiguous pieces of the stream. The remainder at the end of a piece,
less than one advance, is not read; from the second epoch on all lanes begin at a seeded offset within it, so that other
tokens are left over and segments end elsewhere. With documents, a lane is a sequence of whole documents: they are
shuffled by seed and epoch and divided so that the work is most even, and no segment crosses a border.

Backward lanes are the second half of all lanes: lane b of them reads the text of lane b of the first half from its end.
Lanes are numbered over all processes together; process r of n has the r-th of n equal blocks of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError


class TokenSource(Protocol):
    """The source of lanes: a store on disk, or anything with the same interface."""

    @property
    def length(self) -> int:
        """Number of tokens."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, special ones included."""

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens it has: unk, cls, sep, pad, mask, eod, ..."""

    @property
    def document_starts(self) -> NDArray[np.uint64]:
        """Offset of the first token of each document, ascending."""

    @property
    def line_starts(self) -> NDArray[np.uint64]:
        """Offset of the first token of each line, ascending."""

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the tokens from `start` up to `stop`."""

    def word_starts(self) -> NDArray[np.bool_]:
        """Return for each id whether it begins a word."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """A piece of the stream that is read in one direction; positions in it are counted in that direction."""

    start: int
    stop: int
    backward: bool

    @property
    def length(self) -> int:
        return self.stop - self.start

    def read(self, source: TokenSource, begin: int, end: int) -> NDArray[np.int64]:
        """Return the tokens from position `begin` up to `end`."""
        if self.backward:
            return source.read(self.stop - end, self.stop - begin)[::-1]
        return source.read(self.start + begin, self.start + end)


@dataclass(frozen=True, kw_only=True)
class LaneWindow:
    """The input of one lane in one step: its region from position `begin` on."""

    region: Region
    begin: int
    starts: bool
    """Whether the window starts anew, unrelated to anything read before."""


class Lanes(Protocol):
    """The division of a stream into lanes."""

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""

    def window(self, *, epoch: int, step: int, lane: int) -> LaneWindow | None:
        """Return the window of a lane in a step; None if the lane ended before the others."""


def random_numbers(*, seed: int, epoch: int, step: int | None = None, lane: int = 0) -> np.random.Generator:
    """Return a generator that depends on these numbers alone: neither on the process nor on earlier draws.

    With a step it is that of one row; without, that of the epoch. (Zeros at the end of a key would not count.)
    """
    return np.random.default_rng((seed, epoch, 1) if step is None else (seed, epoch, step, lane, 2))


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """Settings for dividing a stream into lanes."""

    lanes: int
    segment_length: int
    advance: int
    """Tokens from the beginning of one step to that of the next; less than the segment length if segments overlap."""
    ahead: int
    """1 if the token after a segment is needed as a target, else 0."""
    backward_lanes: bool
    seed: int

    @property
    def forward(self) -> int:
        """Number of lanes with distinct text."""
        return self.lanes // 2 if self.backward_lanes else self.lanes


class ContiguousLanes:
    """Lanes of equal contiguous pieces of the stream, regardless of documents."""

    def __init__(self, source: TokenSource, cutting: Cutting) -> None:
        self._cutting = cutting
        self._length = source.length // cutting.forward
        needed = cutting.segment_length + cutting.ahead
        self._steps = (self._length - needed) // cutting.advance + 1
        if self._steps < 1:
            raise DataError(
                f"the store must have {needed * cutting.forward} tokens for {cutting.forward} lanes of text and "
                f"segments of {cutting.segment_length}; got {source.length}. Lower data.lanes or data.segment_length, "
                "or prepare more text."
            )
        self._spare = self._length - needed - (self._steps - 1) * cutting.advance

    def steps(self, epoch: int) -> int:
        return self._steps

    def window(self, *, epoch: int, step: int, lane: int) -> LaneWindow | None:
        cutting = self._cutting
        piece = lane % cutting.forward
        region = Region(
            start=piece * self._length,
            stop=(piece + 1) * self._length,
            backward=lane >= cutting.forward,
        )
        return LaneWindow(region=region, begin=self._offset(epoch) + step * cutting.advance, starts=step == 0)

    def _offset(self, epoch: int) -> int:
        if epoch == 0:
            return 0
        return int(random_numbers(seed=self._cutting.seed, epoch=epoch).integers(self._spare + 1))


@dataclass(frozen=True, kw_only=True)
class _Schedule:
    """The documents of an epoch in order; lane b has those from `bounds[b]` up to `bounds[b + 1]`."""

    epoch: int
    order: NDArray[np.int64]
    begins: NDArray[np.int64]
    """The step at which each begins if all are read one after the other."""
    bounds: NDArray[np.int64]
    steps: int


class DocumentLanes:
    """Lanes of whole documents; each document begins at a step boundary."""

    def __init__(self, source: TokenSource, cutting: Cutting) -> None:
        self._cutting = cutting
        starts = np.asarray(source.document_starts).astype(np.int64)
        stops = np.append(starts[1:], source.length)
        readable = stops - starts > cutting.ahead  # without a next token there is nothing to predict
        self._starts, self._stops = starts[readable], stops[readable]
        if len(self._starts) < cutting.forward:
            raise DataError(
                f"data.reset_at_documents needs a document for each of {cutting.forward} lanes of text; got "
                f"{len(self._starts)}, not counting documents that are too short. Lower data.lanes, or leave it out."
            )
        beyond = np.maximum(self._stops - self._starts - cutting.ahead - cutting.segment_length, 0)
        self._steps = -(-beyond // cutting.advance) + 1
        self._schedule = self._plan(0)

    def _plan(self, epoch: int) -> _Schedule:
        lanes = self._cutting.forward
        order = random_numbers(seed=self._cutting.seed, epoch=epoch).permutation(len(self._starts))
        steps = self._steps[order]
        ends = np.cumsum(steps)
        # A document belongs to the lane whose equal share of all steps contains its middle.
        lane = (2 * ends - steps) * lanes // (2 * ends[-1])
        bounds = np.searchsorted(lane, np.arange(lanes + 1))
        borders = np.append(0, ends)[bounds]
        return _Schedule(
            epoch=epoch,
            order=order,
            begins=ends - steps,
            bounds=bounds,
            steps=int(np.diff(borders).max()),
        )

    def _scheduled(self, epoch: int) -> _Schedule:
        if self._schedule.epoch != epoch:
            self._schedule = self._plan(epoch)
        return self._schedule

    def steps(self, epoch: int) -> int:
        return self._scheduled(epoch).steps

    def window(self, *, epoch: int, step: int, lane: int) -> LaneWindow | None:
        schedule = self._scheduled(epoch)
        low, high = schedule.bounds[lane % self._cutting.forward :][:2]
        if low == high:
            return None
        at = schedule.begins[low] + step
        found = low + int(np.searchsorted(schedule.begins[low:high], at, side="right")) - 1
        document = schedule.order[found]
        inside = int(at - schedule.begins[found])
        if inside >= self._steps[document]:
            return None
        region = Region(
            start=int(self._starts[document]),
            stop=int(self._stops[document]),
            backward=lane >= self._cutting.forward,
        )
        return LaneWindow(region=region, begin=inside * self._cutting.advance, starts=inside == 0)


def lanes_of_process(*, lanes: int, rank: int, world: int) -> range:
    """Return the lanes of process `rank` of `world`: one block, so that all blocks form the whole batch in order."""
    if lanes % world:
        raise DataError(
            f"data.lanes must be a multiple of the number of processes; got {lanes} and {world}. "
            f"Use {lanes - lanes % world + world} lanes."
        )
    assert 0 <= rank < world
    count = lanes // world
    return range(rank * count, (rank + 1) * count)
