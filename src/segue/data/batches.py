"""Batches for a model, step by step, from a source of tokens: causal, masked and permutation objectives.

In: a source (a store), the settings of data and model, a seed, and the rank of this process. Out: an endless iterator
of `model.Batch` on the CPU, and its exact position.

All random numbers depend on (seed, epoch, step, lane) alone. So the rows of all processes together are the same for any
number of processes, and a batch is the same whether its position was reached by reading or by `seek`.

A step begins `memory.reuse_length` tokens after the one before it, half a segment with pairs, else a whole segment.
If causal segments overlap, the loss covers only tokens that were not predicted before.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.config import DataConfig, ModelConfig
from segue.config.rules import broken_data_rules
from segue.data.corrupt import Replacements, corrupt
from segue.data.lanes import (
    ContiguousLanes,
    Cutting,
    DocumentLanes,
    Lanes,
    LaneWindow,
    TokenSource,
    lanes_of_process,
    random_numbers,
)
from segue.data.permute import SeededDraws, Sentences, leak_free_pair, order_segment
from segue.errors import ConfigError, DataError
from segue.model import Batch
from segue.model.masks import permutation_mask

SEGMENT_A, SEGMENT_B, SEGMENT_CLS = 0, 1, 2


class Batches:
    """An iterator of batches; `position` is that of the next batch, a few integers that can be saved."""

    def __init__(
        self, source: TokenSource, data: DataConfig, model: ModelConfig, *, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        problems = [message for _, message in broken_data_rules(data, model)]
        if problems:
            raise ConfigError("\n".join(problems))
        if source.vocabulary_size > model.vocabulary.size:
            raise DataError(
                "model.vocabulary.size must be at least the store's; got "
                f"{model.vocabulary.size} and {source.vocabulary_size}. Use {source.vocabulary_size}."
            )
        self._own = lanes_of_process(lanes=data.lanes, rank=rank, world=world)
        self._data = data
        self._seed = seed
        self._forward = data.lanes // 2 if data.backward_lanes else data.lanes
        length = data.segment_length
        reuse = model.memory.reuse_length if model.memory else None
        pairs = model.objective == "permutation" and data.permutation.pairs
        advance = length // 2 if pairs else min(reuse or length, length)
        cutting = Cutting(
            lanes=data.lanes,
            segment_length=length,
            advance=advance,
            ahead=1 if model.objective == "causal" else 0,
            backward_lanes=data.backward_lanes,
            seed=seed,
        )
        self._lanes: Lanes = (DocumentLanes if data.reset_at_documents else ContiguousLanes)(source, cutting)
        self._maker: _Causal | _Masked | _Permutation
        match model.objective:
            case "causal":
                self._maker = _Causal(source, data, advance=advance)
            case "masked":
                self._maker = _Masked(source, data)
            case "permutation":
                reach = model.num_layers * model.memory.length if model.memory else 0
                self._maker = _Permutation(source, data, halves=advance < length, reach=reach)
        self._epoch = self._step = 0

    @property
    def position(self) -> dict[str, int]:
        """Epoch and step of the next batch, the same in all processes."""
        return {"epoch": self._epoch, "step": self._step}

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of the current epoch; with documents, another may have a few more or less."""
        return self._lanes.steps(self._epoch)

    def seek(self, position: Mapping[str, int]) -> None:
        """Move to this position: the batch there becomes the next one."""
        if position.keys() != {"epoch", "step"} or min(position.values()) < 0:
            raise DataError(
                f"a data position must have an epoch and a step, both from 0; got {dict(position)}. Use one that "
                "`position` gave."
            )
        steps = self._lanes.steps(position["epoch"])
        if position["step"] >= steps:
            raise DataError(
                f"a position in the data must be one of the {steps} steps of its epoch; got {dict(position)}. "
                "Resume with the store and the data settings with which it was saved."
            )
        self._epoch, self._step = position["epoch"], position["step"]

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Batch:
        epoch, step = self._epoch, self._step
        rows = [
            _Row(
                window=self._lanes.window(epoch=epoch, step=step, lane=lane),
                generator=random_numbers(seed=self._seed, epoch=epoch, step=step, lane=lane),
                backward=lane >= self._forward,
            )
            for lane in self._own
        ]
        fields = self._maker.make(rows)
        if not self._data.reset_at_documents:
            del fields["real_BQ"]  # nothing is padded
        fields["starts_B"] = np.array([row.window is not None and row.window.starts for row in rows])
        if self._data.backward_lanes:
            fields["reversed_B"] = np.array([row.backward for row in rows])
        tensors = {name: torch.from_numpy(value) for name, value in fields.items()}
        if "rank_BQ" in tensors:
            tensors["visible_BQQ"] = permutation_mask(tensors.pop("rank_BQ"), tensors.pop("target_BQ"))
        if step + 1 < self._lanes.steps(epoch):
            self._step += 1
        else:
            self._epoch, self._step = epoch + 1, 0
        return _batch(tensors)


def _batch(tensors: Mapping[str, Tensor]) -> Batch:
    return Batch(
        ids_BQ=tensors["ids_BQ"],
        targets=tensors["targets"],
        target_mask=tensors.get("target_mask"),
        real_BQ=tensors.get("real_BQ"),
        starts_B=tensors["starts_B"],
        segments_BQ=tensors.get("segments_BQ"),
        visible_BQQ=tensors.get("visible_BQQ"),
        predicted_BP=tensors.get("predicted_BP"),
        reversed_B=tensors.get("reversed_B"),
    )


@dataclass(frozen=True, kw_only=True)
class _Row:
    """The inputs of one row of a batch."""

    window: LaneWindow | None
    generator: np.random.Generator
    backward: bool

    def read(self, source: TokenSource, length: int) -> NDArray[np.int64]:
        """Return the next tokens of the lane, at most `length`."""
        if self.window is None:
            return np.zeros(0, dtype=np.int64)
        begin, region = self.window.begin, self.window.region
        return region.read(source, begin, min(begin + length, region.length))


class _Ids:
    """Properties of the ids of a source."""

    def __init__(self, source: TokenSource) -> None:
        self.special_V = np.zeros(source.vocabulary_size, dtype=np.bool_)
        self.special_V[list(source.specials.values())] = True
        self.starts_V = source.word_starts() | self.special_V  # a special token is in no word
        self.pad = source.specials.get("pad", 0)
        self._specials = source.specials

    def special(self, name: str, why: str) -> int:
        if name not in self._specials:
            have = ", ".join(self._specials) or "none"
            raise DataError(f"{why} needs the special token {name!r}; got {have}. Use a tokeniser that has it.")
        return self._specials[name]


Arrays = dict[str, NDArray[np.int64] | NDArray[np.bool_]]


class _Causal:
    """Causal objective: every token predicts the next one, the last the token after the segment."""

    def __init__(self, source: TokenSource, data: DataConfig, *, advance: int) -> None:
        self._source, self._length, self._advance = source, data.segment_length, advance
        self._first = data.segment_length // 2 if data.targets == "second_half" else 0
        self._masks = data.reset_at_documents or advance < data.segment_length or self._first > 0
        self._pad = _Ids(source).pad

    def make(self, rows: list[_Row]) -> Arrays:
        length = self._length
        tokens = np.full((len(rows), length + 1), self._pad, dtype=np.int64)
        real_BQ = np.zeros((len(rows), length), dtype=np.bool_)
        counts_BQ = np.zeros((len(rows), length), dtype=np.bool_)
        for b, row in enumerate(rows):
            read = row.read(self._source, length + 1)
            tokens[b, : len(read)] = read
            real_BQ[b, : max(len(read) - 1, 0)] = True
            fresh = row.window is not None and row.window.starts
            counts_BQ[b, max(self._first, 0 if fresh else length - self._advance) :] = True
        # The token after a document's last segment is only a target, not an input.
        ids_BQ = np.where(real_BQ, tokens[:, :-1], self._pad)
        fields: Arrays = {"ids_BQ": ids_BQ, "targets": tokens[:, 1:].copy(), "real_BQ": real_BQ}
        if self._masks:
            fields["target_mask"] = real_BQ & counts_BQ
        return fields


class _Masked:
    """Masked objective: some tokens are corrupted and predicted; every row has the same number of slots."""

    def __init__(self, source: TokenSource, data: DataConfig) -> None:
        self._source, self._length, self._settings = source, data.segment_length, data.masking
        self._ids = _Ids(source)
        self._replacements = Replacements(
            mask=self._ids.special("mask", 'objective "masked"'), ordinary=np.flatnonzero(~self._ids.special_V)
        )

    def _goal(self, tokens: int) -> int:
        return max(1, round(tokens * self._settings.rate))

    def make(self, rows: list[_Row]) -> Arrays:
        shape, slots = (len(rows), self._length), (len(rows), self._goal(self._length))
        ids_BQ = np.full(shape, self._ids.pad, dtype=np.int64)
        real_BQ = np.zeros(shape, dtype=np.bool_)
        predicted_BP, targets = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
        target_mask = np.zeros(slots, dtype=np.bool_)
        for b, row in enumerate(rows):
            read = row.read(self._source, self._length)
            seen, chosen = corrupt(
                read,
                allowed_Q=~self._ids.special_V[read],
                starts_Q=self._ids.starts_V[read],
                goal=self._goal(len(read)),
                reverse=row.backward,
                settings=self._settings,
                replacements=self._replacements,
                generator=row.generator,
            )
            ids_BQ[b, : len(read)], real_BQ[b, : len(read)] = seen, True
            predicted_BP[b, : len(chosen)], targets[b, : len(chosen)] = chosen, read[chosen]
            target_mask[b, : len(chosen)] = True
        return {
            "ids_BQ": ids_BQ,
            "targets": targets,
            "target_mask": target_mask,
            "real_BQ": real_BQ,
            "predicted_BP": predicted_BP,
        }


class _Permutation:
    """Permutation objective: targets in a random order; ranks and targets become the visibility mask."""

    def __init__(self, source: TokenSource, data: DataConfig, *, halves: bool, reach: int) -> None:
        self._source, self._length, self._settings = source, data.segment_length, data.permutation
        self._halves, self._reach = halves, reach
        self._ids = _Ids(source)
        if self._settings.pairs:
            names = ("sep", "cls")
            self._sep, self._cls = (self._ids.special(name, "data.permutation.pairs") for name in names)

    def make(self, rows: list[_Row]) -> Arrays:
        shape, slots = (len(rows), self._length), (len(rows), self._length // self._settings.one_in)
        ids_BQ = np.full(shape, self._ids.pad, dtype=np.int64)
        real_BQ, target_BQ = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
        segments_BQ, rank_BQ = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        predicted_BP = np.zeros(slots, dtype=np.int64)
        target_mask = np.zeros(slots, dtype=np.bool_)
        for b, row in enumerate(rows):
            draws = SeededDraws(row.generator, longest_span=self._settings.longest_span)
            if self._settings.pairs:
                assert row.window is not None
                ids_Q, segments_BQ[b] = self._pair(row.window, draws)
            else:
                ids_Q = row.read(self._source, self._length)
            tokens = len(ids_Q)
            ids_BQ[b, :tokens], real_BQ[b, :tokens] = ids_Q, True
            rank_BQ[b], target_BQ[b] = order_segment(
                self._ids.starts_V[ids_BQ[b]],
                self._functional(ids_BQ[b]),
                real=tokens,
                halves=self._halves,
                goal=slots[1],
                settings=self._settings,
                reverse=row.backward,
                draws=draws,
            )
            chosen = np.flatnonzero(target_BQ[b])
            predicted_BP[b, : len(chosen)], target_mask[b, : len(chosen)] = chosen, True
        fields: Arrays = {
            "ids_BQ": ids_BQ,
            "targets": np.where(target_mask, np.take_along_axis(ids_BQ, predicted_BP, axis=1), 0),
            "target_mask": target_mask,
            "real_BQ": real_BQ,
            "rank_BQ": rank_BQ,
            "target_BQ": target_BQ,
            "predicted_BP": predicted_BP,
        }
        return fields | {"segments_BQ": segments_BQ} if self._settings.pairs else fields

    def _functional(self, ids_Q: NDArray[np.int64]) -> NDArray[np.bool_]:
        if not self._settings.pairs:
            return np.zeros(len(ids_Q), dtype=np.bool_)
        functional_Q: NDArray[np.bool_] = (ids_Q == self._sep) | (ids_Q == self._cls)
        return functional_Q

    def _pair(self, window: LaneWindow, draws: SeededDraws) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `first half | A SEP B SEP CLS`, and the segments of these tokens."""
        region, begin, half = window.region, window.begin, self._length // 2
        middle = begin + half
        pair = leak_free_pair(
            Sentences(region, self._source.line_starts),
            length=region.length,
            begin=middle,
            total=self._length - half - 3,
            known=(begin - self._reach, middle),
            draws=draws,
        )
        first_and_a = region.read(self._source, begin, pair.a_end)
        b = region.read(self._source, pair.b_begin, pair.b_end)
        ids_Q = np.concatenate([first_and_a, [self._sep], b, [self._sep, self._cls]])
        segments_Q = np.full(len(ids_Q), SEGMENT_A)
        segments_Q[len(first_and_a) + 1 :] = SEGMENT_B
        segments_Q[-1] = SEGMENT_CLS
        return ids_Q, segments_Q
