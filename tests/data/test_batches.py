"""Batches: the same for any number of processes and after any stop, and no target is visible to what predicts it."""

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.config import DataConfig, ModelConfig, changed
from segue.data.batches import Batches
from segue.errors import ConfigError, DataError
from segue.model import Batch, LanguageModel
from tests.data.test_lanes import MemorySource
from tests.tiny import MODELS, noisy

SPECIALS = {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6, "eod": 7}
FIRST, SIZE, LENGTH = 9, 60, 480
STARTS_V = (np.arange(SIZE) < FIRST) | (np.random.default_rng(4).random(SIZE) < 0.5)
LINES = [0, *sorted(np.random.default_rng(5).choice(np.arange(1, LENGTH), size=60, replace=False).tolist())]
DOCUMENTS = [LINES[n] for n in range(0, 61, 3)]


def source(ids: np.ndarray | None = None) -> MemorySource:
    tokens = np.random.default_rng(6).integers(FIRST, SIZE, size=LENGTH) if ids is None else ids
    return MemorySource(tokens, starts=STARTS_V, specials=SPECIALS, documents=DOCUMENTS, lines=LINES)


def offsets() -> MemorySource:
    """The same text, but each token is its own offset: batches of it say where each token comes from."""
    starts = np.append(STARTS_V[:FIRST], STARTS_V[source().ids])
    ids = np.arange(FIRST, FIRST + LENGTH)
    return MemorySource(ids, starts=starts, specials=SPECIALS, documents=DOCUMENTS, lines=LINES)


def model_for(objective: str, **memory: int) -> ModelConfig:
    name = {"causal": "transformer-xl-enwik8-base", "masked": "bert-memory", "permutation": "xlnet-base"}[objective]
    remembered = {"length": 10, "reuse_length": None, "initial": "empty"} | memory
    return changed(MODELS[name], vocabulary={"size": FIRST + LENGTH}, memory=remembered)


def data_for(**other: object) -> DataConfig:
    plain: dict[str, object] = {"store": "", "lanes": 4, "segment_length": 16, "backward_lanes": True}
    return DataConfig.model_validate(plain | other)


PLAIN = {"one_in": 3, "pairs": False}
CASES: dict[str, tuple[ModelConfig, DataConfig]] = {
    "causal": (model_for("causal"), data_for()),
    "causal-forward": (model_for("causal"), data_for(backward_lanes=False)),
    "causal-overlap": (model_for("causal", reuse_length=12), data_for()),
    "causal-half": (model_for("causal"), data_for(targets="second_half")),
    "causal-documents": (model_for("causal"), data_for(reset_at_documents=True)),
    "masked": (model_for("masked"), data_for()),
    "masked-words": (model_for("masked"), data_for(masking={"whole_words": True})),
    "masked-documents": (model_for("masked"), data_for(reset_at_documents=True)),
    "pieces": (model_for("permutation", reuse_length=8), data_for(permutation={"one_in": 3})),
    "words": (model_for("permutation", reuse_length=8), data_for(permutation={"one_in": 3, "spans": "words"})),
    "characters": (
        model_for("permutation", reuse_length=8),
        data_for(permutation={"one_in": 3, "spans": "characters"}),
    ),
    "chunks": (model_for("permutation", reuse_length=8), data_for(permutation={"one_in": 3, "permutation_size": 4})),
    "plain": (model_for("permutation"), data_for(permutation=PLAIN | {"permutation_size": 16})),
    "plain-halves": (model_for("permutation", reuse_length=8), data_for(permutation=PLAIN)),
    "plain-documents": (
        model_for("permutation", reuse_length=8),
        data_for(permutation=PLAIN, reset_at_documents=True),
    ),
}
every_case = pytest.mark.parametrize("name", CASES)


def batches(name: str, text: MemorySource | None = None, *, seed: int = 1, rank: int = 0, world: int = 1) -> Batches:
    model, data = CASES[name]
    return Batches(text or source(), data, model, seed=seed, rank=rank, world=world)


def epoch(reader: Batches) -> Iterator[Batch]:
    """The batches from here to the end of the epoch."""
    current = reader.position["epoch"]
    while reader.position["epoch"] == current:
        yield next(reader)


def tensors(batch: Batch) -> dict[str, Tensor]:
    return {f.name: getattr(batch, f.name) for f in fields(batch) if getattr(batch, f.name) is not None}


def same(one: Batch, other: Batch) -> bool:
    a, b = tensors(one), tensors(other)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


# --------------------------------------------------------------------------------------- positions and processes


@pytest.mark.one_in(3)
@every_case
def test_processes_together_have_the_same_batch(name: str) -> None:
    for world in (2, 4):
        processes = [batches(name, rank=rank, world=world) for rank in range(world)]
        for whole, *parts in islice(zip(batches(name), *processes, strict=True), batches(name).steps_per_epoch + 2):
            shared = [tensors(part) for part in parts]
            joined = {key: torch.cat([part[key] for part in shared]) for key in shared[0]}
            assert same(Batch(**joined), whole)


@every_case
def test_seeking_equals_reading(name: str) -> None:
    reader = batches(name)
    steps = 2 * reader.steps_per_epoch + 3
    read = []
    for _ in range(steps):
        read.append((json.dumps(reader.position), next(reader)))
    assert json.loads(read[0][0]) == {"epoch": 0, "step": 0}
    assert json.loads(read[-1][0])["epoch"] == 2
    other = batches(name)
    for position, batch in read[::-3]:
        other.seek(json.loads(position))
        assert other.position == json.loads(position)
        assert same(next(other), batch)
    assert not same(next(batches(name, seed=2)), read[0][1]) or name in (
        "causal",
        "causal-forward",
        "causal-half",
        "causal-overlap",
    )


@every_case
def test_rows_start_and_run_backwards_where_they_should(name: str) -> None:
    _, data = CASES[name]
    reader = batches(name)
    count = 0
    for step, batch in enumerate(epoch(reader)):
        count += 1
        if step == 0:
            assert batch.starts_B.all()
        elif not data.reset_at_documents:
            assert not batch.starts_B.any()
        if data.backward_lanes:
            assert batch.reversed_B.tolist() == [False, False, True, True]
        else:
            assert batch.reversed_B is None
        assert (batch.real_BQ is not None) == data.reset_at_documents
    assert count == batches(name).steps_per_epoch
    assert reader.position == {"epoch": 1, "step": 0}
    assert next(reader).starts_B.all()


@pytest.mark.one_in(3)
@every_case
def test_every_batch_of_an_epoch_trains_a_model(name: str) -> None:
    """With its memory, from documents that end in between to lanes that end early."""
    config, _ = CASES[name]
    model, memory = LanguageModel(config), None
    for batch in epoch(batches(name)):
        result = model(batch, memory)
        memory = result.memory
        assert result.loss.isfinite()
        if batch.predicted_BP is not None:
            assert batch.target_mask.any()
            taken = batch.ids_BQ.gather(1, batch.predicted_BP)
            assert config.objective == "masked" or torch.equal(
                taken[batch.target_mask], batch.targets[batch.target_mask]
            )
    result.loss.backward()


def test_positions_that_are_none() -> None:
    reader = batches("causal")
    for position in ({}, {"epoch": 0}, {"epoch": 0, "step": -1}, {"epoch": 0, "step": 1, "lane": 2}):
        with pytest.raises(DataError, match="must have an epoch and a step"):
            reader.seek(position)
    with pytest.raises(DataError, match=r"one of the \d+ steps of its epoch; got .*9999.*Resume with the store"):
        reader.seek({"epoch": 0, "step": 9999})


def test_sources_that_do_not_fit() -> None:
    model, data = CASES["pieces"]
    with pytest.raises(DataError, match=r"model\.vocabulary\.size must be at least the store's; got 20 and 60"):
        Batches(source(), data, changed(model, vocabulary={"size": 20}), seed=0)
    bare = MemorySource(source().ids, starts=STARTS_V, specials={"pad": 5})
    with pytest.raises(DataError, match=r"data\.permutation\.pairs needs the special token 'sep'; got pad"):
        Batches(bare, data, model, seed=0)
    masked, plain = CASES["masked"]
    with pytest.raises(DataError, match="needs the special token 'mask'"):
        Batches(bare, plain, masked, seed=0)
    with pytest.raises(ConfigError, match=r"data\.lanes must be even"):
        Batches(source(), data_for(lanes=3), model_for("causal"), seed=0)


# ------------------------------------------------------------------------------------------------ what is in them


@pytest.mark.parametrize("name", ["causal", "causal-overlap", "causal-documents"])
def test_each_token_is_a_causal_target_once(name: str) -> None:
    counted = {False: [], True: []}
    for batch in epoch(batches(name, offsets())):
        real = torch.ones_like(batch.ids_BQ, dtype=torch.bool) if batch.real_BQ is None else batch.real_BQ
        mask = real if batch.target_mask is None else batch.target_mask
        sign = torch.where(batch.reversed_B, -1, 1)[:, None]
        assert torch.equal((batch.ids_BQ + sign)[real], batch.targets[real])
        for backward in (False, True):
            chosen = mask & (batch.reversed_B == backward)[:, None]
            counted[backward] += (batch.targets[chosen] - FIRST).tolist()
    for backward, found in counted.items():
        assert len(found) == len(set(found))
        if name == "causal-documents":
            ends = {d + n - 1 for d, n in zip(DOCUMENTS, np.diff([*DOCUMENTS, LENGTH]).tolist(), strict=True)}
            unpredicted = ends if backward else set(DOCUMENTS)
            assert set(found) == set(range(LENGTH)) - unpredicted
        else:
            assert len(found) > LENGTH - 2 * 17


def test_only_the_second_half_of_a_segment_may_be_trained_on() -> None:
    for half, whole in zip(epoch(batches("causal-half")), epoch(batches("causal")), strict=True):
        assert torch.equal(half.ids_BQ, whole.ids_BQ)
        assert torch.equal(half.targets, whole.targets)
        assert half.target_mask is not None
        assert half.target_mask.tolist() == [[False] * 8 + [True] * 8] * 4


def test_a_pair_is_built_as_the_original_builds_it() -> None:
    for batch, where in zip(islice(batches("pieces"), 20), batches("pieces", offsets()), strict=False):
        for ids, at, kinds, target in zip(
            batch.ids_BQ, where.ids_BQ - FIRST, batch.segments_BQ, where.targets, strict=True
        ):
            first, second = [int(q) for q in (ids == SPECIALS["sep"]).nonzero()]
            assert second == 14
            assert ids[15] == SPECIALS["cls"]
            assert kinds.tolist() == [0] * (first + 1) + [1] * (14 - first) + [2]
            step = at[1] - at[0]
            assert (at[:first].diff() == step).all()
            assert (at[first + 1 : 14].diff() == step).all()
            assert not set(at[:first].tolist()) & set(at[first + 1 : 14].tolist())
            assert not set((target + FIRST).tolist()) & {SPECIALS["sep"], SPECIALS["cls"]}
        assert batch.predicted_BP.shape == (4, 5)
        assert not batch.visible_BQQ[:, :8, 8:].any()
        assert batch.visible_BQQ[:, 8:, :8].all()


# -------------------------------------------------------------------------------------------------------- no leak


@torch.no_grad()
def states(model: LanguageModel, made: list[Batch]) -> list[Tensor]:
    """What predicts, step by step with memory: [B, P, D], or [B, Q, D] where every position does."""
    memory, found = None, []
    for batch in made:
        output = model(batch, memory).output
        memory = output.memory
        found.append(output.hidden_BQD if output.predicted_BPD is None else output.predicted_BPD)
    return found


@cache
def unchanged(name: str) -> tuple[LanguageModel, list[Batch], list[Batch], list[Tensor]]:
    """A model, three batches, where their tokens come from, and the states."""
    model, made = noisy(CASES[name][0]), list(islice(batches(name), 3))
    return model, made, list(islice(batches(name, offsets()), 3)), states(model, made)


def changes(name: str, offset: int) -> Iterator[tuple[Batch, Batch, Tensor]]:
    """For three steps: the batch, where its tokens come from, and which predictions change with the token there."""
    model, made, where, before = unchanged(name)
    ids = source().ids.copy()
    alike = np.flatnonzero(STARTS_V[ids[offset]] == STARTS_V)
    ids[offset] = next(int(other) for other in alike if other >= FIRST and other != ids[offset])
    other = list(islice(batches(name, source(ids)), 3))
    for batch, places, was, now in zip(made, where, before, states(model, other), strict=True):
        yield batch, places, (was - now).abs().amax(dim=2) > 1e-12


def read_before(places: Batch, offset: int) -> Tensor:
    """Rows that read this token in an earlier step, so that it may be in their memory."""
    first_B = places.ids_BQ[:, 0] - FIRST
    half = LENGTH // 2
    own_B = torch.arange(4) % 2 == offset // half
    return own_B & torch.where(places.reversed_B, offset > first_B, offset < first_B)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["pieces", "words", "characters", "chunks", "plain", "plain-halves"])
def test_no_permutation_target_is_visible_to_what_predicts_it(name: str) -> None:
    """Through three steps and their memory, in forward and backward lanes: a prediction changes with a token only if
    the token stands before the segment or is visible to it, and the prediction of the token itself never does."""
    where = list(islice(batches(name, offsets()), 3))
    read = {int(place) for places in where for place in (places.targets - FIRST)[places.target_mask]}
    seen = remembered = 0
    for offset in sorted(read):
        for batch, places, changed_BP in changes(name, offset):
            at_BP, counts_BP = batch.predicted_BP, batch.target_mask
            own_BP = (places.targets - FIRST == offset) & counts_BP
            assert not (changed_BP & own_BP).any(), "a target is visible to what predicts it"
            here_BQ = places.ids_BQ - FIRST == offset
            visible_BP = (batch.visible_BQQ & here_BQ[:, None]).any(dim=2).gather(1, at_BP)
            before_B = read_before(places, offset)
            assert not (changed_BP & counts_BP & ~visible_BP & ~before_B[:, None]).any(), "a leak"
            assert (changed_BP | ~visible_BP | ~counts_BP).all(), "a visible token has no influence"
            seen += int((visible_BP & counts_BP).sum())
            remembered += int((changed_BP & counts_BP & before_B[:, None]).sum())
    assert seen > 50
    assert remembered > 50


@pytest.mark.parametrize("name", ["masked", "masked-words"])
def test_no_masked_token_is_visible(name: str) -> None:
    """A token that was replaced is nowhere; in later steps it may be remembered, but then it is no target."""
    where = list(islice(batches(name, offsets()), 3))
    read = {int(place) for places in where for place in (places.targets - FIRST)[places.target_mask]}
    hidden = 0
    for offset in sorted(read):
        for batch, places, changed_BP in changes(name, offset):
            own_BP = (places.targets - FIRST == offset) & places.target_mask
            replaced_BP = batch.ids_BQ.gather(1, batch.predicted_BP) != batch.targets
            assert not (changed_BP & own_BP & replaced_BP).any()
            hidden += int((own_BP & replaced_BP).sum())
    assert hidden > 10


@pytest.mark.parametrize("name", ["causal", "causal-overlap"])
def test_no_causal_target_is_visible(name: str) -> None:
    where = list(islice(batches(name, offsets()), 3))
    read = sorted({int(place) for places in where for place in (places.targets - FIRST).flatten()})
    influenced = 0
    for offset in read[::3]:
        for _, places, changed_BQ in changes(name, offset):
            known_BQ = (places.ids_BQ - FIRST == offset).cumsum(dim=1).bool() | read_before(places, offset)[:, None]
            assert not (changed_BQ & ~known_BQ).any()
            influenced += int(changed_BQ.sum())
    assert influenced > 50
