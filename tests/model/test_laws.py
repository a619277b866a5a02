"""The laws that every model obeys (law 6, kernels, is in test_kernels; law 7 is in the fixtures and in parity)."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from segue.checkpoint.folder import load, save
from segue.config import changed
from segue.model import Batch, LanguageModel, Memory
from segue.model.language_model import order_batch
from segue.model.masks import permutation_mask
from tests import oracles
from tests.examples import examples
from tests.tiny import CAUSAL, MODELS, noisy, random_ids

EXACT = 1e-11
every_model = pytest.mark.parametrize("name", MODELS)
every_causal_model = pytest.mark.parametrize("name", CAUSAL)
a_few = settings(max_examples=examples(8, part=2), deadline=None, derandomize=True)


def close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=EXACT)


@functools.lru_cache(maxsize=16)  # a property is tried several times on a model, which stays as it is
def with_memory(name: str, length: int, **other: object) -> LanguageModel:
    """Models whose papers have no memory get one here: the trunk knows how."""
    memory = {"length": length, "initial": "empty", "reuse_length": None}
    return noisy(changed(MODELS[name], memory=memory, **other))


def read(model: LanguageModel, ids_BQ: Tensor, cuts: list[int], memory: Memory | None = None) -> Tensor:
    """The states of all positions, read in segments that end at the cuts."""
    parts = []
    for start, stop in zip([0, *cuts], [*cuts, ids_BQ.shape[1]], strict=True):
        if stop > start:
            output = model(Batch(ids_BQ=ids_BQ[:, start:stop]), memory).output
            memory = output.memory
            parts.append(output.hidden_BQD)
    return torch.cat(parts, dim=1)


# ------------------------------------------------------------------------------------------------------- law 1


@pytest.mark.one_in(3)
@every_causal_model
@a_few
@given(cuts=st.lists(st.integers(1, 12), max_size=4).map(sorted), seed=st.integers(0, 99))
@torch.no_grad()
def test_segments_with_memory_equal_one_segment(name: str, cuts: list[int], seed: int) -> None:
    model, ids_BQ = with_memory(name, 13), random_ids(2, 13, seed)
    close(read(model, ids_BQ, cuts), read(model, ids_BQ, []))


@pytest.mark.one_in(3)
@every_causal_model
@a_few
@given(span=st.integers(1, 8), cuts=st.lists(st.integers(1, 12), min_size=1, max_size=4).map(sorted))
@torch.no_grad()
def test_segments_equal_with_an_attention_span(name: str, span: int, cuts: list[int]) -> None:
    """With a span of s, a memory of s - 1 is enough, whatever the segments."""
    whole = with_memory(name, 13, attention_span=span)
    short = whole.adjusted(memory={"length": max(1, span - 1)})
    ids_BQ = random_ids(2, 13)
    close(read(short, ids_BQ, cuts), read(whole, ids_BQ, []))


# ------------------------------------------------------------------------------------------------------- law 2


States = tuple[list[Tensor], list[Tensor | None]]


def states(model: LanguageModel, batches: list[Batch]) -> States:
    """Those of every segment, in both streams."""
    memory, hidden, predicted = None, [], []
    for batch in batches:
        output = model(batch, memory).output
        memory = output.memory
        hidden.append(output.hidden_BQD)
        predicted.append(output.predicted_BPD if model.config.objective == "permutation" else None)
    return hidden, predicted


def changed_states(model: LanguageModel, batches: list[Batch], was: States, where: tuple[int, int]) -> tuple[set, set]:
    """Changes the token at (segment, position) of row 0 and returns which states are not as they were."""
    segment, position = where
    other = list(batches)
    ids_BQ = batches[segment].ids_BQ.clone()
    ids_BQ[0, position] = (ids_BQ[0, position] + 1) % model.config.vocabulary.size
    other[segment] = Batch(
        ids_BQ=ids_BQ,
        visible_BQQ=batches[segment].visible_BQQ,
        predicted_BP=batches[segment].predicted_BP,
    )

    def differing(before: Tensor | None, after: Tensor | None) -> set[int]:
        """Positions of row 0. Bins of another size multiply in another order: rounding is no leak."""
        if before is None or after is None:
            return set()
        difference_BQ = (before - after).abs().amax(dim=2)
        assert difference_BQ[1].max() < EXACT, "another row changed"
        return set((difference_BQ[0] > EXACT).nonzero().flatten().tolist())

    now = states(model, other)
    content = {(s, q) for s in range(len(batches)) for q in differing(was[0][s], now[0][s])}
    query = {(s, p) for s in range(len(batches)) for p in differing(was[1][s], now[1][s])}
    return content, query


@pytest.mark.one_in(3)
@every_model
@torch.no_grad()
def test_exactly_what_may_change_does(name: str) -> None:
    """Over three segments: changing one token changes the states that may depend on it, and no others."""
    model = noisy(MODELS[name])
    config, lengths = model.config, [4, 4, 4]
    generator = torch.Generator().manual_seed(3)
    batches, orders, predicted, contexts = [], [], [], []
    for s, length in enumerate(lengths):
        ids_BQ = random_ids(2, length, seed=s)
        order = torch.randperm(length, generator=generator).tolist()
        targets = sorted(order[-2:])
        context = {order[0]}
        orders.append(order)
        predicted.append(targets)
        contexts.append(context)
        if config.objective != "permutation":
            batches.append(Batch(ids_BQ=ids_BQ))
            continue
        rank_Q = torch.tensor([-1 if q in context else order.index(q) for q in range(length)])
        is_target_Q = torch.tensor([q in targets for q in range(length)])
        visible_BQQ = permutation_mask(rank_Q.expand(2, -1), is_target_Q.expand(2, -1))
        batches.append(Batch(ids_BQ=ids_BQ, visible_BQQ=visible_BQQ, predicted_BP=torch.tensor([targets, targets])))

    def sees(s: int, q: int, k: int) -> bool:
        match config.objective:
            case "causal":
                return k <= q
            case "masked":
                return True
            case "permutation":
                rule = oracles.permutation_sees(orders[s], contexts[s], set(predicted[s]))
                return k == q or rule(q, k)

    def query_sees(s: int, q: int, k: int) -> bool:
        return oracles.permutation_sees(orders[s], contexts[s], set(predicted[s]))(q, k)

    memory = config.memory
    content, queries = oracles.influences(
        lengths,
        layers=config.num_layers,
        memory_length=memory.length if memory else None,
        reuse_length=memory.reuse_length if memory else None,
        sees=sees,
        predicted=predicted if config.objective == "permutation" else None,
        query_sees=query_sees,
    )
    was = states(model, batches)
    for where in [(s, q) for s, length in enumerate(lengths) for q in range(length)]:
        allowed = {(s, q) for s in range(3) for q in range(lengths[s]) if where in content[s][q]}
        if config.directions == "both":  # the other reader: everything to the left, in the same segment
            allowed |= {(where[0], q) for q in range(where[1] + 1)}
        allowed_queries = {(s, p) for s in range(3) for p in range(len(queries[s])) if where in queries[s][p]}
        assert changed_states(model, batches, was, where) == (allowed, allowed_queries), where
        assert not any((s, predicted[s][p]) == where for s, p in allowed_queries), "a target sees itself"


# ------------------------------------------------------------------------------------------------------- law 3


@pytest.mark.one_in(3)
@every_causal_model
@torch.no_grad()
def test_token_by_token_equals_the_whole(name: str) -> None:
    model, ids_BQ = with_memory(name, 11), random_ids(3, 11)
    close(read(model, ids_BQ, list(range(1, 11))), read(model, ids_BQ, []))


# ------------------------------------------------------------------------------------------------------- law 4


@pytest.mark.one_in(3)
@every_model
@torch.no_grad()
def test_save_and_load_are_bit_equal(name: str, tmp_path) -> None:
    model = noisy(MODELS[name]).float()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.config == model.config
    assert again.state_dict().keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    batch = Batch(ids_BQ=random_ids(2, 7))
    assert torch.equal(model(batch).output.hidden_BQD, again.eval()(batch).output.hidden_BQD)


@pytest.mark.parametrize("name", ["transformer-xl-wt103", "bert-memory", "two-direction"])
def test_stop_and_resume_equal_never_stopping(name: str, tmp_path) -> None:
    """Six steps of Adam with dropout and memory, stopped after three: the same weights, bit for bit."""
    config = changed(MODELS[name], dropout=0.2)

    def steps(model: LanguageModel, optimizer: torch.optim.Optimizer, memory: Memory | None, numbers: range):
        for number in numbers:
            ids = random_ids(2, 6, seed=number)
            result = model(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:]), memory)
            memory = result.memory
            optimizer.zero_grad()
            result.loss.backward()
            optimizer.step()
        return memory

    def start() -> tuple[LanguageModel, torch.optim.Optimizer]:
        model = LanguageModel(config).train()
        return model, torch.optim.Adam(model.parameters(), lr=1e-2)

    torch.manual_seed(1)
    model, optimizer = start()
    steps(model, optimizer, None, range(6))

    torch.manual_seed(1)
    stopped, optimizer = start()
    memory = steps(stopped, optimizer, None, range(3))
    save(stopped, tmp_path / "stopped")
    random_state = torch.get_rng_state()

    torch.manual_seed(99)
    resumed = load(tmp_path / "stopped").train()
    again = torch.optim.Adam(resumed.parameters(), lr=1e-2)
    again.load_state_dict(optimizer.state_dict())
    torch.set_rng_state(random_state)
    steps(resumed, again, memory, range(3, 6))
    for (key, value), other in zip(model.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(value, other), key


# ------------------------------------------------------------------------------------------------------- law 5


@pytest.mark.one_in(3)
@every_model
def test_a_batch_of_eight_equals_eight_accumulated(name: str) -> None:
    model = noisy(MODELS[name])
    ids = random_ids(8, 7)
    at_BP = torch.tensor([[1, 4]] * 8)
    match model.config.objective:
        case "causal":
            batch = Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])
        case "masked":
            batch = Batch(ids_BQ=ids, predicted_BP=at_BP, targets=ids.gather(1, at_BP))
        case "permutation":
            batch = order_batch(ids, torch.rand(8, 7, generator=torch.Generator().manual_seed(0)).argsort(dim=1))

    def row(b: int) -> Batch:
        values = {name: value[b : b + 1] for name, value in vars(batch).items() if value is not None}
        return Batch(**values)

    model(batch, progress=0.0).loss.backward()
    together = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for b in range(8):
        (model(row(b), progress=0.0).loss / 8).backward()
    apart = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert together.keys() == apart.keys()
    for key, gradient in together.items():
        close(apart[key], gradient)


@functools.lru_cache(maxsize=1)
def forgetting_nothing(name: str) -> LanguageModel:
    """With a memory that begins empty and keeps every token."""
    memory = {"initial": "empty", "reuse_length": None}
    return noisy(MODELS[name] if MODELS[name].memory is None else changed(MODELS[name], memory=memory))


@pytest.mark.one_in(3)
@every_model
@a_few
@given(lengths=st.lists(st.integers(1, 5), min_size=3, max_size=3), left=st.booleans(), seed=st.integers(0, 9))
@torch.no_grad()
def test_padding_changes_no_real_token(name: str, lengths: list[int], left: bool, seed: int) -> None:
    """Rows of different length in one batch, over two segments (padding on the left: where nothing precedes)."""
    if getattr(MODELS[name].positions, "count_from", None) == "end":
        pytest.skip("positions counted from the end move with it")
    model, length = forgetting_nothing(name), max(lengths) + 1
    first, second = random_ids(3, length, seed), random_ids(3, length, seed + 100)
    index_Q = torch.arange(length)
    count_B1 = torch.tensor(lengths)[:, None]
    real_first = index_Q >= length - count_B1 if left else index_Q < count_B1
    real_second = (index_Q < count_B1).flip(0)
    output = model(Batch(ids_BQ=first, real_BQ=real_first)).output
    after = model(Batch(ids_BQ=second, real_BQ=real_second), output.memory).output
    for b in range(3):
        alone = model(Batch(ids_BQ=first[b][real_first[b]][None])).output
        close(output.hidden_BQD[b][real_first[b]], alone.hidden_BQD[0])
        then = model(Batch(ids_BQ=second[b][real_second[b]][None]), alone.memory).output
        close(after.hidden_BQD[b][real_second[b]], then.hidden_BQD[0])
        if alone.memory is not None:
            assert after.memory.position_B[b] == then.memory.position_B[0]
            assert torch.equal(after.memory.valid_BM[b], then.memory.valid_BM[0])


@every_model
@torch.no_grad()
def test_a_short_last_batch_works(name: str) -> None:
    """Fewer rows and fewer positions at the end of the data: as if the others had never been there."""
    model = noisy(MODELS[name])
    ids_BQ = random_ids(4, 9)
    whole = model(Batch(ids_BQ=ids_BQ[:, :5])).output
    rows = [2, 0]
    memory = None if whole.memory is None else whole.memory.select(rows)
    short = model(Batch(ids_BQ=ids_BQ[rows, 5:7]), memory).output
    full = model(Batch(ids_BQ=ids_BQ[:, 5:7]), whole.memory).output
    close(short.hidden_BQD, full.hidden_BQD[rows])


@pytest.mark.one_in(3)
@every_model
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
@torch.no_grad()
def test_every_model_runs_in_its_own_dtype(name: str, dtype: torch.dtype) -> None:
    """States stay in the dtype of the weights, and agree with float64 as far as it goes."""
    exact = noisy(MODELS[name])
    rounded = noisy(MODELS[name]).to(dtype)
    batch = Batch(ids_BQ=random_ids(2, 6))
    first, want = rounded(batch), exact(batch)
    second, then = rounded(batch, first.memory).output, exact(batch, want.memory).output
    assert second.hidden_BQD.dtype == dtype
    size = then.hidden_BQD.abs().mean()
    assert (second.hidden_BQD.double() - then.hidden_BQD).abs().mean() < size * (
        1e-4 if dtype == torch.float32 else 0.2
    )


@every_model
def test_every_model_runs_under_autocast(name: str) -> None:
    config = MODELS[name]
    model = LanguageModel(config)
    ids = random_ids(2, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if config.objective == "permutation":
            result = model(order_batch(ids, torch.arange(7).expand_as(ids)))
        else:
            at = None if config.objective == "causal" else torch.arange(7).expand_as(ids)
            result = model(Batch(ids_BQ=ids, targets=ids, predicted_BP=at))
            result = model(Batch(ids_BQ=ids, targets=ids, predicted_BP=at), result.memory)
    result.loss.backward()
    assert result.loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
