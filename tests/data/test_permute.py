"""Permutations equal the original data pipeline where it recorded its draws, and agree with its distributions."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from segue.config import PermutationConfig
from segue.data.lanes import ContiguousLanes, Cutting, Region, random_numbers
from segue.data.permute import (
    SeededDraws,
    Sentences,
    leak_free_pair,
    local_permutation,
    order_segment,
    sample_mask,
    sample_spans,
    split_a_and_b,
)
from segue.model.masks import permutation_mask
from tests.data.test_lanes import MemorySource
from tests.examples import examples

FIXTURES = Path(__file__).parents[1] / "fixtures" / "xlnet_data"
CLS, SEP = 3, 4


@cache
def fixture(name: str) -> tuple[dict, dict[str, NDArray]]:
    with np.load(FIXTURES / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8")), arrays


def starts_of(name: str) -> NDArray[np.bool_]:
    """Which pieces begin a word, by the rule of the original."""
    pieces = json.loads((FIXTURES / name).read_text(encoding="utf-8"))
    return np.array([p.startswith(("▁", "<")) or p in set('!"#$%&()*+,-./:;?@[\\]^_`{|}~') for p in pieces])


class Replay:
    """Plays recorded draws again, and holds that all of them are asked for."""

    def __init__(
        self,
        *,
        masks: Sequence[dict] = (),
        split: Sequence[tuple[str, float]] = (),
        shuffles: Sequence[NDArray[np.int64]] = (),
    ) -> None:
        self.numbers: Iterator[int] = iter([n for mask in masks for draw in mask["draws"] for n in draw])
        self.singles: Iterator[int] = iter([n for mask in masks for n in mask["fill"]])
        self.split = iter(split)
        self.shuffles = iter(shuffles)

    def span(self) -> int:
        return next(self.numbers)

    def context(self, size: int) -> int:
        before = next(self.numbers)
        assert before < size
        return before

    def single(self, length: int) -> int:
        return next(self.singles)

    def _next(self, kind: str) -> float:
        recorded, value = next(self.split)
        assert recorded == kind
        return value

    def continues(self) -> bool:
        return self._next("random") >= 0.5

    def cut(self, points: Sequence[int]) -> int:
        point = int(self._next("choice"))
        assert point in points
        return point

    def place(self, highest: int) -> int:
        place = int(self._next("randint"))
        assert place <= highest
        return place

    def shuffle(self, size: int) -> NDArray[np.int64]:
        return next(self.shuffles).astype(np.int64)

    def assert_used(self) -> None:
        for rest in (self.numbers, self.singles, self.split, self.shuffles):
            assert next(rest, None) is None


def source_of(ids: NDArray, sentence_ids: NDArray, starts: NDArray[np.bool_]) -> MemorySource:
    lines = [0, *(np.flatnonzero(np.diff(sentence_ids.astype(np.int8))) + 1).tolist()]
    return MemorySource(ids, starts=starts, specials={"cls": CLS, "sep": SEP, "eod": 7}, lines=lines)


# -------------------------------------------------------------------------------------------- equal to the original


@pytest.mark.parametrize("i", range(40))
def test_sample_mask_equals_the_original(i: int) -> None:
    calls, arrays = fixture("functions")
    call = calls["sample_mask"][i]
    starts_Q = starts_of("pieces.json")[arrays[f"sample_mask.{i}.seg"]]
    how = {
        "goal": call["goal_num_predict"],
        "context_ratio": call["mask_alpha"] / call["mask_beta"],
        "spans": "pieces",
    }
    draws = Replay(masks=[call])
    mask_Q = sample_mask(starts_Q, reverse=call["reverse"], draws=draws, **how)
    assert np.array_equal(mask_Q, arrays[f"sample_mask.{i}.mask"])
    draws.assert_used()
    ordered_Q = starts_Q[::-1] if call["reverse"] else starts_Q
    assert sample_spans(ordered_Q, draws=Replay(masks=[call]), **how) == [tuple(span) for span in call["spans"]]


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("i", range(40))
def test_split_a_and_b_equals_the_original(i: int, backward: bool) -> None:
    """Backward: the recorded text is stored from its end, and read from there."""
    calls, arrays = fixture("functions")
    call, data = calls["split_a_and_b"][i], arrays[f"split.{i}.data"]
    sentence_ids = arrays[f"split.{i}.sent_ids"]
    if backward:
        data, sentence_ids = data[::-1], sentence_ids[::-1]
    source = source_of(np.append([0] * 3, data), np.append([not sentence_ids[0]] * 3, sentence_ids), np.ones(999, bool))
    region = Region(start=3, stop=source.length, backward=backward)
    draws = Replay(split=call["draws"])
    pair = split_a_and_b(
        Sentences(region, source.line_starts),
        length=region.length,
        begin=call["begin_idx"],
        total=call["tot_len"],
        draws=draws,
    )
    draws.assert_used()
    assert (pair is None) == (call["result"] is None)
    if pair is not None:
        assert np.array_equal(region.read(source, pair.a_begin, pair.a_end), arrays[f"split.{i}.a_data"])
        assert np.array_equal(region.read(source, pair.b_begin, pair.b_end), arrays[f"split.{i}.b_data"])
        assert pair.continues == bool(call["result"]["label"])


@pytest.mark.parametrize("i", range(16))
def test_local_permutation_equals_the_original(i: int) -> None:
    calls, arrays = fixture("functions")
    call = calls["local_perm"][i]
    inputs, masked_Q, shuffle, expected_mask, new_targets, target_mask = (
        arrays[f"local_perm.{i}.{name}"]
        for name in ("inputs", "is_masked", "shuffle", "perm_mask", "new_targets", "target_mask")
    )
    rank_Q, target_Q = local_permutation(
        masked_Q.astype(bool),
        (inputs == SEP) | (inputs == CLS),
        permutation_size=call["perm_size"],
        draws=Replay(shuffles=[shuffle]),
    )
    assert np.array_equal(target_Q, target_mask)
    assert np.array_equal(inputs[target_Q], new_targets[target_Q])
    assert np.array_equal(rank_Q[rank_Q >= 0], arrays[f"local_perm.{i}.index"][rank_Q >= 0])
    visible = permutation_mask(torch.from_numpy(rank_Q)[None], torch.from_numpy(target_Q)[None])[0]
    assert np.array_equal(~visible.numpy(), expected_mask)


@pytest.mark.parametrize("name", ["pipeline_bi", "pipeline_uni", "pipeline_no_num_predict"])
def test_the_whole_pipeline_equals_the_original(name: str) -> None:
    """From the stream, through lanes, pairs, masks and orders, to who sees whom and what is predicted."""
    record, arrays = fixture(name)
    config, starts = record["config"], starts_of("pieces.json")
    length, half, lanes, goal = config["seq_len"], config["reuse_len"], config["bsz_per_host"], config["num_predict"]
    source = source_of(arrays["stream"], arrays["sent_ids"], starts)
    cut = Cutting(lanes=lanes, segment_length=length, advance=half, ahead=0, backward_lanes=config["bi_data"], seed=0)
    cutter = ContiguousLanes(source, cut)
    for e, example in enumerate(record["examples"]):
        window = cutter.window(epoch=0, step=e // lanes, lane=e % lanes)
        region, begin = window.region, window.begin
        assert begin + half == example["begin_idx"]
        draws = Replay(
            masks=example["masks"],
            split=example["split_draws"],
            shuffles=[arrays["parsed.shuffle_0"][e], arrays["parsed.shuffle_1"][e]],
        )
        pair = split_a_and_b(
            Sentences(region, source.line_starts),
            length=region.length,
            begin=begin + half,
            total=example["tot_len"],
            draws=draws,
        )
        a, b = region.read(source, begin, pair.a_end), region.read(source, pair.b_begin, pair.b_end)
        ids_Q = np.concatenate([a, [SEP], b, [SEP, CLS]])
        assert np.array_equal(ids_Q, arrays["record.input"][e])
        functional_Q = (ids_Q == SEP) | (ids_Q == CLS)
        chosen = PermutationConfig(one_in=length // goal if goal else 1, permutation_size=config["perm_size"])
        if goal is None:  # here every half has a goal
            masks = [
                sample_mask(starts[part], reverse=False, goal=None, context_ratio=6.0, spans="pieces", draws=draws)
                for part in (ids_Q[:half], ids_Q[half:])
            ]
            orders = [
                local_permutation(mask, functional, permutation_size=config["perm_size"], draws=draws)
                for mask, functional in zip(masks, (functional_Q[:half], functional_Q[half:]), strict=True)
            ]
            rank_Q = np.concatenate([orders[0][0], orders[1][0] + half + 1])
            target_Q = np.concatenate([orders[0][1], orders[1][1]])
        else:
            rank_Q, target_Q = order_segment(
                starts[ids_Q],
                functional_Q,
                real=length,
                halves=True,
                goal=goal,
                settings=chosen,
                reverse=region.backward,
                draws=draws,
            )
        draws.assert_used()
        assert np.array_equal(target_Q, arrays["parsed.input_q"][e])
        visible = permutation_mask(torch.from_numpy(rank_Q)[None], torch.from_numpy(target_Q)[None])[0]
        assert np.array_equal(~visible.numpy(), arrays["parsed.perm_mask"][e])
        if goal is None:
            assert np.array_equal(ids_Q[target_Q], arrays["parsed.target"][e][target_Q])
        else:
            count = int(target_Q.sum())
            assert arrays["parsed.target_mask"][e].sum() == count
            assert np.array_equal(ids_Q[target_Q], arrays["parsed.target"][e][:count])
            assert np.array_equal(np.flatnonzero(target_Q), arrays["parsed.target_mapping"][e][:count].argmax(axis=1))


# ---------------------------------------------------------------------------------------- distributed like the original


class Counting(SeededDraws):
    """Counts the span lengths that it draws."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator, longest_span=5)
        self.lengths: Counter[int] = Counter()

    def span(self) -> int:
        length = super().span()
        self.lengths[length] += 1
        return length


def near(values: Sequence[float], expected: dict[str, float], errors: float = 4) -> None:
    """Both are samples, so the difference has the errors of both."""
    error = np.hypot(expected["standard_error"], np.std(values) / np.sqrt(len(values)))
    assert abs(np.mean(values) - expected["mean"]) < errors * error, (np.mean(values), expected)


@pytest.mark.parametrize("name", ["words", "few_starts"])
def test_distributions_agree_with_the_original(name: str) -> None:
    statistics = json.loads((FIXTURES / f"statistics_{name}.json").read_text(encoding="utf-8"))["statistics"]
    with np.load(FIXTURES / f"statistics_{name}_stream.npz") as file:
        length = int(file["length"])
        stream, sentence_ids = file["stream"], np.unpackbits(file["sent_ids"])[:length]
    starts = starts_of(f"statistics_{name}_pieces.json")
    source = source_of(stream, sentence_ids, starts)
    cut = Cutting(lanes=16, segment_length=512, advance=256, ahead=0, backward_lanes=True, seed=0)
    cutter = ContiguousLanes(source, cut)
    drawn: Counter[int] = Counter()
    lengths: list[int] = []
    spans: tuple[list[int], list[int]] = ([], [])
    tokens: tuple[list[int], list[int]] = ([], [])
    values: dict[str, list[float]] = {"label": [], "a": [], "targets": [], "target_starts": []}
    seen = np.zeros((2, 32))
    for step, lane in ((s, b) for s in range(125) for b in range(16)):
        window = cutter.window(epoch=0, step=step, lane=lane)
        region, begin = window.region, window.begin
        draws = Counting(random_numbers(seed=7, epoch=0, step=step, lane=lane))
        sentences = Sentences(region, source.line_starts)
        pair = split_a_and_b(sentences, length=region.length, begin=begin + 256, total=253, draws=draws)
        a, b = region.read(source, begin, pair.a_end), region.read(source, pair.b_begin, pair.b_end)
        ids_Q = np.concatenate([a, [SEP], b, [SEP, CLS]])
        masked = []
        for number, (part, goal) in enumerate(((ids_Q[:256], 43), (ids_Q[256:], 42))):
            ordered_Q = starts[part][::-1] if region.backward else starts[part]
            how = {"goal": goal, "context_ratio": 6.0, "spans": "pieces"}
            found = sample_spans(ordered_Q, draws=draws, **how)
            spans[number].append(len(found))
            lengths += [end - begin for begin, end in found]
            tokens[number].append(sum(end - begin for begin, end in found))
            quiet = Counting(random_numbers(seed=8 + number, epoch=0, step=step, lane=lane))
            masked.append(sample_mask(starts[part], reverse=region.backward, draws=quiet, **how))
        drawn += draws.lengths
        mask_Q = np.concatenate(masked)
        assert mask_Q.sum() == 85
        target_Q = mask_Q & (ids_Q != SEP) & (ids_Q != CLS)
        seen[int(region.backward)] += mask_Q.reshape(32, 16).mean(axis=1) / 1000
        values["label"].append(pair.continues)
        values["a"].append(pair.a_end - pair.a_begin)
        values["targets"].append(int(target_Q.sum()))
        values["target_starts"].append(float(starts[ids_Q[target_Q]].mean()))
    near(values["label"], statistics["label_1_rate"])
    near(values["a"], statistics["a_length"])
    near(values["targets"], statistics["targets_per_example"])
    for number in (0, 1):
        expected = statistics[f"half_{number}"]
        near(spans[number], expected["spans_per_half"])
        near(tokens[number], expected["tokens_from_spans"])
    error = np.std(values["target_starts"]) * np.sqrt(2 / 2000)
    assert abs(np.mean(values["target_starts"]) - statistics["start_piece_rate_of_targets"]) < 5 * error
    same_shares(drawn, statistics["n_drawn_histogram"])
    same_shares(Counter(lengths), statistics["span_length_histogram"])
    for row, direction in zip(seen, ("forward", "backward"), strict=True):
        expected_rates = np.array(statistics[f"masked_rate_by_position_32_bins_{direction}_lanes"])
        assert np.abs(row - expected_rates).max() < 5 * np.sqrt(2 * 0.14 / 16000)


def same_shares(got: Counter[int], expected: dict[str, int]) -> None:
    total, other = sum(got.values()), sum(expected.values())
    for key, count in expected.items():
        share = count / other
        error = np.sqrt(share * (1 - share) * (1 / total + 1 / other))
        assert abs(got[int(key)] / total - share) < 4 * error, key


# ------------------------------------------------------------------------------------------------- rules of our own


def draws_of(seed: int) -> SeededDraws:
    return SeededDraws(np.random.default_rng(seed), longest_span=5)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    starts=st.lists(st.booleans(), min_size=1, max_size=120),
    goal=st.integers(0, 40),
    spans=st.sampled_from(["pieces", "words", "characters"]),
    seed=st.integers(0, 999),
)
def test_spans_of_any_text(starts: list[bool], goal: int, spans: str, seed: int) -> None:
    starts_Q = np.array(starts)
    found = sample_spans(starts_Q, goal=goal, context_ratio=2.0, spans=spans, draws=draws_of(seed))
    assert sum(end - begin for begin, end in found) <= goal
    borders = np.flatnonzero(starts_Q).tolist()
    for (begin, end), following in zip(found, [*found[1:], (len(starts), 0)], strict=False):
        assert begin < end <= following[0]
        assert end < len(starts)
        if spans != "characters":
            assert begin in borders
        if spans == "words":
            assert end in borders
    mask_Q = sample_mask(starts_Q, reverse=True, goal=goal, context_ratio=2.0, spans=spans, draws=draws_of(seed))
    assert mask_Q.sum() == min(goal, len(starts))
    for begin, end in sample_spans(starts_Q[::-1], goal=goal, context_ratio=2.0, spans=spans, draws=draws_of(seed)):
        assert mask_Q[::-1][begin:end].all()


def test_characters_fill_text_without_borders() -> None:
    """Where few pieces begin a word, the released code loses most of its spans; `characters` does not."""
    starts_Q = np.random.default_rng(0).random(256) < 0.05
    filled = {}
    for unit in ("pieces", "characters"):
        counts = []
        for seed in range(200):
            found = sample_spans(starts_Q, goal=43, context_ratio=6.0, spans=unit, draws=draws_of(seed))
            counts.append(sum(end - begin for begin, end in found))
        filled[unit] = np.mean(counts)
    assert filled["pieces"] < 20
    assert filled["characters"] > 35


def test_padding_is_never_a_target_and_short_halves_have_few() -> None:
    chosen = PermutationConfig(one_in=4, pairs=False)
    for real in range(1, 33):
        rank_Q, target_Q = order_segment(
            np.ones(32, dtype=bool),
            np.zeros(32, dtype=bool),
            real=real,
            halves=True,
            goal=8,
            settings=chosen,
            reverse=False,
            draws=draws_of(real),
        )
        assert not target_Q[real:].any()
        first, second = int(target_Q[:16].sum()), int(target_Q[16:].sum())
        assert first == (4 if real >= 16 else max(1, real // 4))
        assert second == (0 if real <= 16 else 4 if real == 32 else max(1, (real - 16) // 4))
        assert rank_Q[:16].max() < rank_Q[16:].min()


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    lines=st.lists(st.integers(1, 299), max_size=20),
    begin=st.integers(30, 200),
    backward=st.booleans(),
    seed=st.integers(0, 999),
)
def test_b_is_no_copy_of_what_is_known(lines: list[int], begin: int, backward: bool, seed: int) -> None:
    region = Region(start=0, stop=300, backward=backward)
    sentences = Sentences(region, np.array(sorted({0, *lines}), dtype=np.uint64))
    known = (begin - 30, begin)
    pair = leak_free_pair(sentences, length=300, begin=begin, total=29, known=known, draws=draws_of(seed))
    a, b = set(range(pair.a_begin, pair.a_end)), set(range(pair.b_begin, pair.b_end))
    assert len(a) + len(b) == 29
    assert a
    assert b
    assert not b & (a | set(range(*known)))


def test_sentences_in_both_directions() -> None:
    starts = np.array([0, 4, 10, 13, 25], dtype=np.uint64)
    for backward in (False, True):
        region = Region(start=4, stop=20, backward=backward)
        borders = [7, 10] if backward else [6, 9]
        sentences = Sentences(region, starts)
        assert sentences.between(0, 16) == borders
        for begin in range(17):
            assert sentences.between(begin, 10) == [p for p in borders if begin <= p < 10]
            assert sentences.at_or_before(begin) == max([p for p in borders if p <= begin], default=0)
            assert sentences.at_or_after(begin) == min([p for p in borders if p >= begin], default=16)
