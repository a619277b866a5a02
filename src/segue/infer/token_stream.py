"""A stream of ids: the state of a reader, and its prediction of the next id. Text is left to `session`.

In: ids. Out: logits of the next id, or log-probabilities of ids as they are read. A model with memory reads without
limit. A model without memory reads windows: when a window is full, the latter half of it is read again as the beginning
of the next one. The window borders depend only on the number of ids, not on how they were passed.

Of many ids passed at once, those that can no longer affect the prediction are skipped: with memory all but the
receptive field of the model, without memory all but the last window. Positions still count them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.errors import DataError
from segue.model.cache import Cache
from segue.model.segmenting import before_last_window, window_overlap
from segue.model.streaming import Streamer

RECENT = 1024
"""Number of latest ids stored, for repetition penalties and for decoding."""
_MANY = 4096
"""Number of unread ids beyond the relevant ones that are tolerated, so that they are not skipped one by one."""
_MOST_NUMBERS = 1 << 22
"""Maximum number of logits at a time."""


class TokenStream:
    """A streamer, its cache, and the state that predicts the next id."""

    def __init__(self, streamer: Streamer, *, window: int | None) -> None:
        """`window`: for models without memory, the number of ids read before a new window begins."""
        self.streamer = streamer
        self.window = window
        self.cache = streamer.new_cache()
        self.hidden_1D: Tensor | None = None
        """The state that predicts the next id; None: nothing has been read."""
        self.recent: deque[int] = deque(maxlen=max(RECENT, window or 0))
        self.count = 0
        """Number of ids read."""
        self.place = 0
        """Number of ids of the current window that have been read."""
        self.unread: list[int] = []
        """Ids of the stream that have not been through the model, because they were not needed yet."""

    def copy(self) -> "TokenStream":
        """Return an independent copy of the stream."""
        other = TokenStream(self.streamer, window=self.window)
        other.cache = self.cache.select([0])
        other.hidden_1D = self.hidden_1D
        other.recent, other.count, other.place = self.recent.copy(), self.count, self.place
        other.unread = list(self.unread)
        return other

    @property
    def reach(self) -> int:
        """Number of latest ids that can affect the prediction."""
        return self.streamer.receptive_field if self.window is None else self.window

    def put(self, ids: Sequence[int] | NDArray[np.int64]) -> int:
        """Append ids to the stream, to be read when the next prediction needs them. Returns the number of ids skipped
        because they can no longer affect it."""
        self.unread.extend(np.asarray(ids, dtype=np.int64).tolist())
        return self.skip() if len(self.unread) >= 2 * self.reach + _MANY else 0

    def read(
        self, ids: Sequence[int] | NDArray[np.int64] = (), *, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Read the unread ids, then these, except for those that can no longer affect the prediction; return the number
        of ids skipped. `progress` is called with the number read and the total. After an interruption, the rest stays
        unread."""
        skipped = self.put(ids)
        skipped += self.skip()
        total = len(self.unread)
        for _ in self.reading():
            if progress is not None:
                progress(total - len(self.unread), total)
        return skipped

    def reading(self) -> Iterator[int]:
        """Read all unread ids in chunks; yield the size of each. The rest stays unread if iteration stops."""
        before = self.count
        for _ in self._read(list(self.unread), every=False):
            yield self.count - before
            before = self.count

    def skip(self) -> int:
        """Drop the first of the unread ids, those that can no longer affect the prediction; return their number."""
        count = len(self.unread)
        if self.window is None:
            skipped = count - self.reach
            if skipped <= 0:
                return 0
            cache = self.streamer.new_cache()
            cache.position_B.copy_(self.cache.position_B + skipped)
            self.note(self.unread[:skipped])
            self.cache = cache
            return skipped
        skipped = before_last_window(count, used=self.place, window=self.window)
        if skipped <= 0:
            return 0
        self.note(self.unread[:skipped])
        self.place = self.window  # full, so that the next window begins with the ids noted last
        return skipped

    def score(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        """Read ids; return the log-probability of each, given all before it. NaN if there is nothing before it."""
        self.read()
        wanted = np.asarray(ids, dtype=np.int64).tolist()
        found = np.full(len(wanted), np.nan)
        for start, predicting_PD in self.predicting_each(wanted):
            here = slice(start, start + len(predicting_PD))
            found[here] = self._log_probabilities(predicting_PD, wanted[here])
        return found

    def predicting_each(self, ids: list[int]) -> Iterator[tuple[int, Tensor]]:
        """Read ids in chunks; nothing may be unread. Yields for each chunk the index of an id, and the states that
        predict it and those after it. The very first id has none if nothing was read before it."""
        assert not self.unread
        done = 0
        before_1D = self.hidden_1D
        for states_PD in self._read(ids, every=True):
            if before_1D is None:
                yield 1, states_PD[:-1]
            else:
                yield done, torch.cat([before_1D, states_PD[:-1]])
            before_1D = states_PD[-1:]
            done += len(states_PD)

    def predicting(self) -> Tensor:
        """Return the state that predicts the next id: hidden_1D."""
        self.read()
        if self.hidden_1D is None:
            raise DataError(
                "generation needs a prompt with this tokeniser, which has no mark for the beginning of a document; "
                "got none. Give a prompt."
            )
        return self.hidden_1D

    def logits(self) -> Tensor:
        """Return the logits of the next id: logits_V."""
        return self.streamer.logits(self.predicting())[0]

    def make_room(self, count: int) -> None:
        """Begin a new window now if this one has no room for `count` ids. Does nothing for a model with memory."""
        if self.window is None:
            return
        room = self.window // 2  # a new window has at least this much room
        if count > room:
            raise DataError(
                f"a model without memory can generate at most {room} further tokens here; got {count}. Ask for fewer, "
                "or use a model with memory."
            )
        self.read()
        if self.place + count > self.window:
            self.begin_window()

    @property
    def window_is_full(self) -> bool:
        """True if a new window must begin before anything else is read."""
        return self.window is not None and self.place >= self.window

    def begin_window(self) -> None:
        """Read the latter half of the window again, as the beginning of the next one."""
        assert self.window is not None
        again = list(self.recent)[-min(len(self.recent), window_overlap(self.window)) :]
        cache = self.streamer.new_cache()
        for start in range(0, len(again), self.streamer.most_at_once):
            states_PD = self._advance(cache, again[start : start + self.streamer.most_at_once], places=1)
            self.hidden_1D = states_PD
        self.cache, self.place = cache, len(again)

    def note(self, ids: Sequence[int]) -> None:
        """Record that these ids have been read."""
        self.recent.extend(ids)
        self.count += len(ids)
        self.place += len(ids)
        self.unread = self.unread[len(ids) :]

    # --------------------------------------------------------------------------------------------------- internals

    def _read(self, ids: list[int], *, every: bool) -> Iterator[Tensor]:
        """Read ids in chunks; yield the states that predict the next id after each, or only after the last one."""
        done = 0
        while done < len(ids):
            if self.window_is_full:
                self.begin_window()
            room = self.streamer.most_at_once
            if self.window is not None:
                room = min(room, self.window - self.place)
            part = ids[done : done + room]
            states_PD = self._advance(self.cache, part, places=len(part) if every else 1)
            self.hidden_1D = states_PD[-1:]
            self.note(part)
            done += len(part)
            yield states_PD

    def _advance(self, cache: Cache, ids: Sequence[int], *, places: int) -> Tensor:
        ids_1Q = torch.tensor([ids], dtype=torch.long, device=cache.position_B.device)
        return self.streamer.read(ids_1Q, cache, places=places)[0]

    def _log_probabilities(self, states_PD: Tensor, targets: Sequence[int]) -> NDArray[np.float64]:
        rows = max(1, _MOST_NUMBERS // self.streamer.model.config.vocabulary.size)
        found = np.zeros(len(targets))
        for start in range(0, len(targets), rows):
            logits_PV = self.streamer.logits(states_PD[start : start + rows]).double()
            index = torch.tensor(targets[start : start + rows], device=logits_PV.device)[:, None]
            found[start : start + rows] = logits_PV.log_softmax(dim=-1).gather(1, index)[:, 0].cpu().numpy()
        if np.isnan(found).any():
            raise DataError(
                f"the model must give a probability to every token; got NaN for token {int(np.isnan(found).argmax())} "
                "of a stretch. Its weights are broken: try an earlier checkpoint."
            )
        return found
