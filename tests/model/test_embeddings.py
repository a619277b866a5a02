"""The adaptive softmax against its definition, and against itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.config import changed
from segue.errors import DataError
from segue.model import Batch
from tests import oracles
from tests.tiny import MODELS, VOCABULARY, noisy, random_ids

BASE = MODELS["transformer-xl-lm1b"]
variants = {
    "shrink": st.sampled_from([1, 2]),
    "table_width": st.sampled_from([12, 8]),
    "project_first_bin": st.booleans(),
    "tie_projections": st.sampled_from(["none", "all_but_first", "all"]),
    "cluster_order": st.sampled_from(["forward", "reversed"]),
    "tie_weights": st.booleans(),
}


def build(*, table_width: int, **words: object):
    return noisy(changed(BASE, vocabulary={"width": table_width, **words}))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(**variants, seed=st.integers(0, 99))
@torch.no_grad()
def test_adaptive_softmax_equals_its_definition(seed: int, **words) -> None:
    model = build(**words)
    softmax, vocabulary = model.softmax, model.trunk.vocabulary
    hidden = torch.randn(VOCABULARY, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    tokens = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    nll = model.nll(hidden, tokens)
    logits = model.logits(hidden)
    torch.testing.assert_close(logits.exp().sum(dim=-1), torch.ones(VOCABULARY, dtype=torch.float64))
    torch.testing.assert_close(-logits.gather(1, tokens[:, None]).squeeze(1), nll)

    bounds = vocabulary.bounds
    weights = softmax.bins(vocabulary)
    weights[0] = (weights[0][0][: bounds[1]], weights[0][1][: bounds[1]])
    projections = []
    for i in range(3):
        own = softmax.projections.get(str(i))
        tied = None
        if vocabulary.projected[i] and own is None:
            tied = vocabulary.projections["0" if words["shrink"] == 1 else str(i)]
        projections.append(own if own is not None else tied)
    for n, token in enumerate(tokens.tolist()):
        expected = oracles.adaptive_log_probability(
            hidden[n],
            token,
            bounds=bounds,
            tables=[w for w, _ in weights],
            biases=[b for _, b in weights],
            projections=projections,
            cluster_weight=softmax.cluster_weight,
            cluster_bias=softmax.cluster_bias,
            reversed_clusters=words["cluster_order"] == "reversed",
        )
        torch.testing.assert_close(-nll[n], expected, rtol=0, atol=1e-11)


@torch.no_grad()
def test_every_id_finds_its_row_and_projection() -> None:
    model = build(table_width=12, shrink=2, project_first_bin=True)
    vocabulary = model.trunk.vocabulary
    embedded = vocabulary(torch.arange(VOCABULARY)[None])[0]
    for token in range(VOCABULARY):
        number = sum(token >= bound for bound in vocabulary.bounds[1:-1])
        row = vocabulary.tables[number][token - vocabulary.bounds[number]]
        expected = vocabulary.projections[str(number)] @ row * 12**0.5
        torch.testing.assert_close(embedded[token], expected)


@torch.no_grad()
def test_losses_come_in_the_order_of_the_tokens() -> None:
    """Also when a bin has one target or none."""
    model = build(table_width=12, shrink=2)
    hidden = torch.randn(2, 3, 12, dtype=torch.float64)
    for tokens in ([[0, 20, 1], [8, 2, 21]], [[0, 1, 2], [3, 4, 5]], [[20, 20, 20], [8, 8, 8]]):
        targets = torch.tensor(tokens)
        nll = model.nll(hidden, targets)
        assert nll.shape == (2, 3)
        for b in range(2):
            for q in range(3):
                torch.testing.assert_close(nll[b, q], model.nll(hidden[b, q][None], targets[b, q][None])[0])


def test_tying_is_by_use_not_by_alias() -> None:
    """Input and output share one parameter, which gets the gradient of both; no tensor has two names."""
    model = noisy(MODELS["transformer-xl-enwik8-base"])
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) == len(set(names)) == len({id(p) for p in model.parameters()})
    ids = random_ids(1, 5)
    model(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])).loss.backward()
    absent = [token for token in range(VOCABULARY) if token not in ids]
    assert model.trunk.vocabulary.tables[0].grad[absent].abs().min() > 0  # through the softmax
    untied = noisy(changed(model.config, vocabulary={"tie_weights": False}))
    untied(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])).loss.backward()
    assert untied.trunk.vocabulary.tables[0].grad[absent].abs().max() == 0


@pytest.mark.parametrize("wrong", [-1, VOCABULARY, 10**9])
def test_ids_outside_the_vocabulary_are_refused(wrong: int) -> None:
    model = noisy(MODELS["gpt"])
    with pytest.raises(DataError, match=f"0 to {VOCABULARY - 1}.*got {wrong}"):
        model(Batch(ids_BQ=torch.tensor([[1, wrong]])))
