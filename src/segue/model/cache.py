"""The key-value cache of a stream: keys and values of the latest tokens in every layer, in buffers of fixed size.

A Memory holds the inputs of the layers, from which keys and values are projected again for every segment. That is right
for training, where weights change and gradients may flow. A stream reads a token at a time with fixed weights, so it
stores the projections. The cache is written in place and never grows.

The latest positions of all rows end at the same index. New ones are written behind them; when the buffer is full, the
latest are copied to its beginning, once in many tokens. The buffer is large enough that source and destination never
overlap, so an interruption loses nothing. Rows of different age differ in which positions are valid.

Besides the letters of `segue.model`: C positions of the buffer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from segue.errors import DataError


class Cache:
    """Keys and values of B rows. At most `length` earlier positions are visible; the buffer has room for more."""

    def __init__(
        self,
        *,
        layers: int,
        rows: int,
        length: int,
        most_at_once: int,
        num_heads: int,
        head_width: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        capacity = 2 * length + most_at_once
        shape = (layers, rows, num_heads, capacity, head_width)
        self.most_at_once = most_at_once
        """Maximum number of positions added at a time."""
        self.length = length
        """Maximum number of earlier positions that a token sees."""
        self.key_LBHCE = torch.zeros(shape, device=device, dtype=dtype)
        self.value_LBHCE = torch.zeros(shape, device=device, dtype=dtype)
        self.valid_BC = torch.zeros(rows, capacity, dtype=torch.bool, device=device)
        self.position_B = torch.zeros(rows, dtype=torch.long, device=device)
        """Number of tokens that each row has read."""
        self.end = 0
        """End index of the latest positions."""

    @property
    def rows(self) -> int:
        return self.valid_BC.shape[0]

    @property
    def capacity(self) -> int:
        """Number of positions in the buffer."""
        return self.valid_BC.shape[1]

    @property
    def used(self) -> int:
        """Number of earlier positions, valid or not."""
        return min(self.end, self.length)

    def make_room(self, count: int) -> None:
        """Move the latest positions to the beginning of the buffer if there is no room behind them."""
        assert count <= self.most_at_once
        if self.end + count > self.capacity:
            used = self.used
            now = slice(self.end - used, self.end)
            assert now.start >= used
            for buffer_LBHCE in (self.key_LBHCE, self.value_LBHCE):
                buffer_LBHCE[:, :, :, :used] = buffer_LBHCE[:, :, :, now]
            self.valid_BC[:, :used] = self.valid_BC[:, now]
            self.end = used
        self.valid_BC[:, self.end :] = False

    def make_way(self, lag_B: Sequence[int]) -> None:
        """Shift the positions of each row to the right by `lag_B[row]`, the amount of padding before its next token."""
        for row, lag in enumerate(lag_B):
            if lag:
                start = self.end - self.used
                for buffer in (self.key_LBHCE[:, row], self.value_LBHCE[:, row]):
                    buffer[:, :, start + lag : self.end + lag] = buffer[:, :, start : self.end].clone()
                self.valid_BC[row, start + lag : self.end + lag] = self.valid_BC[row, start : self.end].clone()
                self.valid_BC[row, start : start + lag] = False

    def put(self, layer: int, key_BQHE: Tensor, value_BQHE: Tensor, *, real_BQ: Tensor | None) -> tuple[Tensor, Tensor]:
        """Write keys and values behind the latest positions, without moving the end; return those of all visible
        positions, the new ones last: [B, K, H, E] each."""
        stop = self.end + key_BQHE.shape[1]
        views = []
        for buffer_LBHCE, new_BQHE in ((self.key_LBHCE, key_BQHE), (self.value_LBHCE, value_BQHE)):
            buffer_BHCE, new_BHQE = buffer_LBHCE[layer], new_BQHE.transpose(1, 2)
            if real_BQ is None:
                buffer_BHCE[:, :, self.end : stop] = new_BHQE
            else:  # a row without a token there may have an earlier position there
                here = buffer_BHCE[:, :, self.end : stop]
                buffer_BHCE[:, :, self.end : stop] = torch.where(real_BQ[:, None, :, None], new_BHQE, here)
            views.append(buffer_BHCE[:, :, self.end - self.used : stop].transpose(1, 2))
        return views[0], views[1]

    def advance(self, count: int, *, real_BQ: Tensor | None) -> None:
        """Move the end behind the new positions, after all layers have written theirs."""
        new = self.valid_BC[:, self.end : self.end + count]
        if real_BQ is None:
            new.fill_(True)
            self.position_B += count
        else:
            new |= real_BQ
            self.position_B += real_BQ.sum(dim=1)
        self.end += count

    def visible(self, count: int, *, real_BQ: Tensor | None) -> Tensor:
        """Return the mask of valid positions, the next `count` included: valid_BK."""
        past_BM = self.valid_BC[:, self.end - self.used : self.end]
        if real_BQ is None:
            return torch.cat([past_BM, past_BM.new_ones(self.rows, count)], dim=1)
        return torch.cat([past_BM, self.valid_BC[:, self.end : self.end + count] | real_BQ], dim=1)

    def select(self, rows: Sequence[int] | Tensor) -> "Cache":
        """Return a copy of these rows, in this order; a row may occur more than once."""
        index = torch.as_tensor(rows, device=self.valid_BC.device)
        start = self.end - self.used
        new = self._like(rows=len(index))
        new.end = self.used
        new.key_LBHCE[:, :, :, : new.end] = self.key_LBHCE[:, index, :, start : self.end]
        new.value_LBHCE[:, :, :, : new.end] = self.value_LBHCE[:, index, :, start : self.end]
        new.valid_BC[:, : new.end] = self.valid_BC[index, start : self.end]
        new.position_B.copy_(self.position_B[index])
        return new

    @staticmethod
    def join(parts: Sequence["Cache"]) -> "Cache":
        """Return a copy with the rows of several caches of one model, of any age, one after the other."""
        first = parts[0]
        shapes = {(*part.key_LBHCE.shape[0:1], *part.key_LBHCE.shape[2:], part.length) for part in parts}
        if len(shapes) != 1:
            raise DataError(
                f"caches that are joined must be of one model and memory length; got {len(shapes)} different shapes. "
                "Open all of them with the same model and memory."
            )
        new = first._like(rows=sum(part.rows for part in parts))
        new.end = max(part.used for part in parts)
        row = 0
        for part in parts:
            to, start = new.end - part.used, part.end - part.used
            here = slice(row, row + part.rows)
            new.key_LBHCE[:, here, :, to : new.end] = part.key_LBHCE[:, :, :, start : part.end]
            new.value_LBHCE[:, here, :, to : new.end] = part.value_LBHCE[:, :, :, start : part.end]
            new.valid_BC[here, to : new.end] = part.valid_BC[:, start : part.end]
            new.position_B[here] = part.position_B
            row += part.rows
        return new

    def first(self, rows: int) -> "Cache":
        """Return the first rows as a view that shares memory. Each cache has a separate end."""
        part = object.__new__(Cache)
        part.most_at_once, part.length, part.end = self.most_at_once, self.length, self.end
        part.key_LBHCE, part.value_LBHCE = self.key_LBHCE[:, :rows], self.value_LBHCE[:, :rows]
        part.valid_BC, part.position_B = self.valid_BC[:rows], self.position_B[:rows]
        return part

    def shift(self, count: int) -> None:
        """Shift all positions to the right by `count`; the positions before them become invalid. There must be room."""
        assert self.end + count <= self.capacity
        for buffer in (self.key_LBHCE, self.value_LBHCE):
            buffer[:, :, :, count : count + self.end] = buffer[:, :, :, : self.end].clone()
        self.valid_BC[:, count : count + self.end] = self.valid_BC[:, : self.end].clone()
        self.valid_BC[:, :count] = False
        self.end += count

    def put_row(self, row: int, tensors: dict[str, Tensor]) -> None:
        """Replace a row by the result of `tensors` or `row_tensors` of another cache of the model, which must not have
        more positions than this one."""
        start = self.end - tensors["valid"].shape[1]
        assert start >= 0
        self.key_LBHCE[:, row, :, start : self.end] = tensors["key"][:, 0]
        self.value_LBHCE[:, row, :, start : self.end] = tensors["value"][:, 0]
        self.valid_BC[row] = False
        self.valid_BC[row, start : self.end] = tensors["valid"][0]
        self.position_B[row] = tensors["position"][0]

    def row_tensors(self, row: int) -> dict[str, Tensor]:
        """Return a copy of one row, from its first valid position on; a separate cache can be restored from it."""
        valid = self.valid_BC[row, self.end - self.used : self.end]
        count = len(valid) - int(valid.int().argmax()) if bool(valid.any()) else 0
        now, here = slice(self.end - count, self.end), slice(row, row + 1)
        return {
            "key": self.key_LBHCE[:, here, :, now].clone(memory_format=torch.contiguous_format),
            "value": self.value_LBHCE[:, here, :, now].clone(memory_format=torch.contiguous_format),
            "valid": self.valid_BC[here, now].clone(),
            "position": self.position_B[here].clone(),
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save: only the latest positions."""
        now = slice(self.end - self.used, self.end)
        return {
            "key": self.key_LBHCE[:, :, :, now],
            "value": self.value_LBHCE[:, :, :, now],
            "valid": self.valid_BC[:, now],
            "position": self.position_B,
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the result of `tensors` in a new cache of the same model."""
        self.end = tensors["valid"].shape[1]
        self.key_LBHCE[:, :, :, : self.end] = tensors["key"]
        self.value_LBHCE[:, :, :, : self.end] = tensors["value"]
        self.valid_BC[:, : self.end] = tensors["valid"]
        self.position_B.copy_(tensors["position"])

    def _like(self, *, rows: int) -> "Cache":
        layers, _, heads, _, head_width = self.key_LBHCE.shape
        return Cache(
            layers=layers,
            rows=rows,
            length=self.length,
            most_at_once=self.most_at_once,
            num_heads=heads,
            head_width=head_width,
            device=self.key_LBHCE.device,
            dtype=self.key_LBHCE.dtype,
        )
