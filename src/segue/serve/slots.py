"""Rows of a shared cache, with which the streams of a model are read in one batch.

In: streams that have read all but their last token. Out: their next hidden states. A stream that joins is copied into a
row behind the others; when one leaves, the last row takes its place. Rows are independent: a stream generates the same
tokens as it would alone, and the same numbers up to rounding.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from segue.infer.token_stream import TokenStream
from segue.model.cache import Cache
from segue.model.streaming import Streamer


class Slots:
    """The rows of a model that are in use."""

    def __init__(self, streamer: Streamer) -> None:
        self._streamer = streamer
        self._whole: Cache | None = None
        self._used: Cache | None = None
        """View of the first rows of the cache, one for each stream."""
        self._nothing = streamer.new_cache()
        """Empty cache that replaces a stream's own while the stream is in the batch."""
        self.streams: list[TokenStream] = []

    def join(self, stream: TokenStream, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Add a stream, with its cache or with the tensors that `leave` returned."""
        kept = dict(stream.cache.tensors() if tensors is None else tensors)
        rows, age = len(self.streams), kept["valid"].shape[1]
        whole = self._room(rows + 1)
        whole.end = age if self._used is None else self._used.end
        if age > whole.end:
            whole.first(rows).shift(age - whole.end)
            whole.end = age
        self._used = whole.first(rows + 1)
        self._used.put_row(rows, kept)
        stream.cache = self._nothing
        self.streams.append(stream)

    def leave(self, stream: TokenStream, *, keep: bool = True) -> dict[str, Tensor]:
        """Remove a stream, and return the tensors of its cache; with `keep` False, nothing."""
        row, last = self.streams.index(stream), len(self.streams) - 1
        assert self._used is not None
        assert self._whole is not None
        tensors = self._used.row_tensors(row) if keep else {}
        if row != last:
            self._used.put_row(row, self._used.row_tensors(last))
            self.streams[row] = self.streams[last]
        self.streams.pop()
        end = self._used.end
        self._used = None
        if self.streams:
            self._used = self._whole.first(last)
            self._used.end = end
        return tensors

    def read(self) -> None:
        """Read the only unread token of each stream."""
        assert self._used is not None
        tokens = [stream.unread for stream in self.streams]
        device = self._used.position_B.device
        hidden_BD = self._streamer.read(torch.tensor(tokens, device=device), self._used)[:, 0]
        for row, stream in enumerate(self.streams):
            stream.hidden_1D = hidden_BD[row : row + 1]
            stream.note(stream.unread)

    def logits(self) -> Tensor:
        """Return the logits of the next token of each row: logits_BV."""
        states = [stream.hidden_1D for stream in self.streams if stream.hidden_1D is not None]
        assert len(states) == len(self.streams)
        return self._streamer.logits(torch.cat(states))

    def _room(self, rows: int) -> Cache:
        """Return a cache with at least `rows` rows, those in use among them."""
        if self._whole is None:
            self._whole = self._streamer.new_cache(rows=rows)
        elif self._whole.rows < rows:
            old = self._used
            grown = self._streamer.new_cache(rows=2 * self._whole.rows)
            if old is not None:
                grown.end = old.used
                for row in range(old.rows):
                    grown.put_row(row, old.row_tensors(row))
                part = grown.first(old.rows)
                self._used = part
            self._whole = grown
        return self._whole
