"""Language model batches and the task heads. Numbers of the originals are in test_original_xlnet."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from segue.config import changed
from segue.errors import DataError
from segue.model import Batch, LanguageModel
from segue.model.answers import BeamAnswerer, SimpleAnswerer, Spans
from segue.model.heads import SequenceClassifier, SequenceScorer, Summary, TokenTagger
from segue.model.language_model import conditional_batch, masked_mean, order_batch
from tests.tiny import MODELS, VOCABULARY, noisy, random_ids

XLNET, GPT = MODELS["xlnet-base"], MODELS["gpt"]


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------- orders of factorisation


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].objective == "permutation"])
@torch.no_grad()
def test_probabilities_sum_to_one_under_every_order(name: str) -> None:
    """The chain rule holds in any order only if nothing leaks: sum over all rows of 3 tokens from 4 words."""
    model = noisy(changed(MODELS[name], vocabulary={"size": 4}))
    rows = torch.tensor(list(itertools.product(range(4), repeat=3)))
    for order in itertools.permutations(range(3)):
        result = model(order_batch(rows, torch.tensor(order).expand_as(rows)))
        close((-result.nll.sum(dim=1)).exp().sum(), torch.tensor(1.0, dtype=torch.float64))


@torch.no_grad()
def test_one_pass_equals_a_token_at_a_time() -> None:
    """Scoring under an order: the n-th prediction needs only what the order puts before it."""
    model = noisy(XLNET)
    ids_BQ, order = random_ids(1, 5), [3, 0, 4, 1, 2]
    whole = model(order_batch(ids_BQ, torch.tensor([order]))).nll[0]
    for n, position in enumerate(order):
        hidden_ids = ids_BQ.clone()
        hidden_ids[0, order[n:]] = 0  # what has not been predicted yet may be anything
        again = model(order_batch(hidden_ids, torch.tensor([order]))).output.predicted_BPD[0, position]
        close(model.nll(again[None], ids_BQ[0, position][None])[0], whole[position])


@pytest.mark.parametrize("order", [[[0, 0, 1]], [[0, 1]], [[1, 2, 3]], [0, 1, 2]])
def test_an_order_that_is_no_permutation_is_refused(order: list) -> None:
    with pytest.raises(DataError, match="every position of the row once"):
        order_batch(random_ids(1, 3), torch.tensor(order))


# ------------------------------------------------------------------------------------- conditional generation


@pytest.mark.parametrize("name", ["gpt", "transformer-xl-enwik8-base", "xlnet-base"])
@torch.no_grad()
def test_conditional_batch_costs_the_target_alone_and_ignores_padding(name: str) -> None:
    model = noisy(MODELS[name])
    source, target = random_ids(2, 4, seed=1), random_ids(2, 3, seed=2)
    source_real = torch.tensor([[True] * 4, [True, True, False, False]])
    target_real = torch.tensor([[True, True, False], [True] * 3])
    batch = conditional_batch(model.config, source, target, source_real_BX=source_real, target_real_BT=target_real)
    result = model(batch)
    assert batch.target_mask.sum(dim=1).tolist() == [2, 3]
    for b in range(2):
        alone = conditional_batch(model.config, source[b][source_real[b]][None], target[b][target_real[b]][None])
        expected = model(alone)
        got = result.nll[b][batch.target_mask[b]]
        close(got, expected.nll[alone.target_mask])
        assert batch.targets[b][batch.target_mask[b]].tolist() == target[b][target_real[b]].tolist()


@torch.no_grad()
def test_a_permutation_model_reads_the_source_both_ways() -> None:
    """Changing the last source token changes the state of the first one; a target changes no earlier one."""
    model = noisy(XLNET)
    source, target = random_ids(1, 3, seed=1), random_ids(1, 3, seed=2)

    def states(source: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(conditional_batch(model.config, source, target)).output
        return output.hidden_BQD[0], output.predicted_BPD[0]

    hidden, predicted = states(source, target)
    other = source.clone()
    other[0, 2] = (other[0, 2] + 1) % VOCABULARY
    assert (states(other, target)[0][0] - hidden[0]).abs().max() > 1e-6
    later = target.clone()
    later[0, 1] = (later[0, 1] + 1) % VOCABULARY
    after_hidden, after_predicted = states(source, later)
    assert torch.equal(after_hidden[:4], hidden[:4])
    assert torch.equal(after_predicted[:2], predicted[:2])
    assert (after_predicted[2] - predicted[2]).abs().max() > 1e-6


def test_a_masked_model_does_not_generate() -> None:
    with pytest.raises(DataError, match="masked"):
        conditional_batch(MODELS["bert-base"], random_ids(1, 2), random_ids(1, 2))


# ---------------------------------------------------------------------------------------------- language model


def test_a_batch_without_counting_targets_costs_zero() -> None:
    model = noisy(XLNET)
    ids_BQ, at_BP = random_ids(1, 4), torch.tensor([[0, 1]])
    nothing, visible = torch.zeros(1, 2, dtype=torch.bool), torch.eye(4, dtype=torch.bool)[None]
    result = model(
        Batch(ids_BQ=ids_BQ, predicted_BP=at_BP, targets=ids_BQ[:, :2], target_mask=nothing, visible_BQQ=visible)
    )
    assert result.loss == 0
    result.loss.backward()


def test_auxiliary_losses_of_al_rfou() -> None:
    """Layer l of n counts until l / 2n of the training; the second target weighs one half."""
    model = noisy(changed(MODELS["vanilla-12"], num_layers=3))
    ids = random_ids(2, 6)
    batch = Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])
    plain = model(batch)
    layers, targets = plain.output.layers, batch.targets

    def cost(layer: int, ahead: int) -> torch.Tensor:
        last = layer == 3
        classifier = model.auxiliary.classifiers[layer - 1][ahead - 1 if last else ahead]
        length = 5 - ahead
        logits = classifier(layers[layer][:, :length]).flatten(0, 1)
        return F.cross_entropy(logits, targets[:, ahead:].flatten()) * (0.5 if ahead else 1.0)

    final = cost(3, 1)
    first, second = cost(1, 0) + cost(1, 1), cost(2, 0) + cost(2, 1)
    for progress, extra in ((0.0, first + second + final), (0.2, second + final), (0.34, final), (1.0, final)):
        close(model(batch, progress=progress).loss, plain.loss + extra)
    assert len(list(model.auxiliary.parameters())) == 2 * (2 + 2 + 1)


@torch.no_grad()
def test_two_directions_join_their_states() -> None:
    """Each half is what a model of one direction gives; the loss is the sum of both directions."""
    model = noisy(MODELS["two-direction"])
    ids = random_ids(2, 6)
    result = model(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:]))
    width = model.config.width
    ahead = LanguageModel(changed(model.config, directions="forward")).double().eval()
    back = LanguageModel(changed(model.config, directions="forward")).double().eval()
    state = model.state_dict()
    ahead.load_state_dict({n: v for n, v in state.items() if "backward_reader" not in n})
    back.load_state_dict({n.replace("backward_reader", "reader"): v for n, v in state.items() if ".reader" not in n})
    one = ahead(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:]))
    flipped = ids[:, :-1].flip(1)
    other = back(Batch(ids_BQ=flipped[:, :-1], targets=flipped[:, 1:]))
    close(result.output.hidden_BQD[..., :width], one.output.hidden_BQD)
    close(result.output.hidden_BQD[:, 1:, width:].flip(1), other.output.hidden_BQD)
    close(result.loss, one.loss + other.loss)


@torch.no_grad()
def test_adjusted_models_share_their_weights() -> None:
    model = noisy(MODELS["transformer-xl-enwik8-base"])
    longer = model.adjusted(memory={"length": 99}, positions={"clamp_distance": 2})
    assert longer.config.memory.length == 99
    for (name, mine), theirs in zip(model.named_parameters(), longer.parameters(), strict=True):
        assert mine.data_ptr() == theirs.data_ptr(), name
    assert longer.training == model.training


@pytest.mark.parametrize("name", [name for name, config in MODELS.items() if config.auxiliary is None])
@torch.no_grad()
def test_a_model_of_the_first_layers_has_the_states_of_the_whole(name: str) -> None:
    model = noisy(MODELS[name]).eval()
    batch = Batch(ids_BQ=random_ids(2, 7))
    first = model.adjusted(num_layers=1)
    assert len(first.trunk.reader.layers) == 1
    assert torch.equal(first.trunk(batch).layers[1], model.trunk(batch).layers[1])


# ------------------------------------------------------------------------------------------------- task heads


def double(module: torch.nn.Module) -> torch.nn.Module:
    return module.double().eval()


@pytest.mark.parametrize("kind", ["first", "last", "mean", "attention"])
@pytest.mark.parametrize("left", [True, False])
@torch.no_grad()
def test_summaries_ignore_padding(kind: str, left: bool) -> None:
    torch.manual_seed(0)
    summary = double(Summary(XLNET, kind=kind, projected=True))
    hidden = torch.randn(1, 3, 12, dtype=torch.float64)
    padding = torch.randn(1, 2, 12, dtype=torch.float64)
    real = torch.tensor([[False, False, True, True, True]] if left else [[True, True, True, False, False]])
    padded = torch.cat([padding, hidden] if left else [hidden, padding], dim=1)
    close(summary(padded, real), summary(hidden))


@pytest.mark.parametrize(("task", "labels"), [("single", [0, 2]), ("multiple", [[0, 1, 1], [1, 0, 0]])])
def test_sequence_classification(task: str, labels: list) -> None:
    torch.manual_seed(0)
    head = double(SequenceClassifier(XLNET, num_labels=3, task=task))
    result = head(Batch(ids_BQ=random_ids(2, 5)), labels=torch.tensor(labels))
    expected = (
        F.cross_entropy(result.logits, torch.tensor(labels))
        if task == "single"
        else F.binary_cross_entropy(result.logits.sigmoid(), torch.tensor(labels).double())
    )
    close(result.loss, expected)
    result.loss.backward()
    assert result.logits.shape == (2, 3)


def test_regression_has_one_label() -> None:
    with pytest.raises(DataError, match="num_labels 3"):
        SequenceClassifier(XLNET, num_labels=3, task="regression")


def test_tagging_counts_real_tokens_or_those_it_is_told() -> None:
    torch.manual_seed(0)
    head = double(TokenTagger(MODELS["bert-base"], num_tags=4))
    ids, tags = random_ids(2, 3), torch.tensor([[0, 1, 2], [3, 0, 1]])
    real = torch.tensor([[True, True, True], [True, False, False]])
    result = head(Batch(ids_BQ=ids, real_BQ=real), tags_BQ=tags)
    close(result.loss, F.cross_entropy(result.logits[real], tags[real]))
    first = torch.tensor([[True, False, False], [True, False, False]])
    close(
        head(Batch(ids_BQ=ids, real_BQ=real), tags_BQ=tags, tagged_BQ=first).loss,
        F.cross_entropy(result.logits[first], tags[first]),
    )


def test_ranking_losses() -> None:
    """Pairwise: log(1 + exp(worse - better)) over the pairs of a question that differ in relevance."""
    torch.manual_seed(0)
    batch, grades = Batch(ids_BQ=random_ids(6, 4)), torch.tensor([[2, 0, 1], [0, 0, 0]])
    head = double(SequenceScorer(XLNET, loss="pairwise"))
    result = head(batch, group=3, labels=grades)
    s = result.logits[0]
    pairs = [(0, 1), (0, 2), (2, 1)]
    close(result.loss, sum(F.softplus(s[worse] - s[better]) for better, worse in pairs) / 3)
    pointwise = double(SequenceScorer(XLNET, loss="pointwise"))
    result = pointwise(batch, group=3, labels=grades)
    close(result.loss, F.binary_cross_entropy(result.logits.sigmoid(), (grades > 0).double()))
    with pytest.raises(DataError, match="groups of 4; got 6"):
        head(batch, group=4)


@torch.no_grad()
def test_answers_stay_where_they_are_allowed() -> None:
    torch.manual_seed(0)
    batch, allowed = Batch(ids_BQ=random_ids(2, 6)), torch.tensor([[True, True, False, True, True, False]] * 2)
    simple = double(SimpleAnswerer(XLNET))
    result = simple(batch, allowed_BQ=allowed, spans=Spans(start_B=torch.tensor([0, 1]), end_B=torch.tensor([1, 3])))
    for logits_BQ in (result.start_logits_BQ, result.end_logits_BQ):
        assert logits_BQ.softmax(dim=1)[~allowed].max() == 0
    assert result.loss.isfinite()
    beams = double(BeamAnswerer(XLNET, num_starts=3, num_ends=2))
    found = beams(batch, cls_B=torch.tensor([5, 5]), allowed_BQ=allowed)
    assert found.start_index_BA.shape == (2, 3)
    assert found.end_index_BAZ.shape == (2, 3, 2)
    for index in (*found.start_index_BA.flatten().tolist(), *found.end_index_BAZ.flatten().tolist()):
        assert index in {0, 1, 3, 4}


def test_heads_work_on_joined_states_and_carry_memory() -> None:
    head = double(SequenceClassifier(MODELS["two-direction"], num_labels=2, summary="mean"))
    first = head(Batch(ids_BQ=random_ids(2, 5)))
    second = head(Batch(ids_BQ=random_ids(2, 5)), first.memory)
    alone = head(Batch(ids_BQ=random_ids(2, 5)))
    assert (second.logits - alone.logits).abs().max() > 0
    close(masked_mean(torch.tensor([1.0, 5.0]), torch.tensor([True, False])), torch.tensor(1.0))


# ------------------------------------------------------------------------------------------------------ batches


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ids_BQ": torch.zeros(3, dtype=torch.long)}, "shape"),
        ({"ids_BQ": torch.zeros(2, 0, dtype=torch.long)}, "neither zero"),
        ({"ids_BQ": torch.zeros(2, 3)}, "int64"),
        ({"targets": torch.zeros(2, 2, dtype=torch.long)}, r"batch\.targets must have shape \[2, 3\]"),
        ({"real_BQ": torch.ones(2, 3)}, r"batch\.real_BQ must be boolean"),
        ({"visible_BQQ": torch.ones(2, 3, 4, dtype=torch.bool)}, "visible_BQQ"),
        ({"starts_B": torch.ones(3, dtype=torch.bool)}, "starts_B"),
    ],
)
def test_a_batch_says_what_does_not_fit(fields: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Batch(**({"ids_BQ": random_ids(2, 3)} | fields))


def test_inputs_that_a_model_cannot_use_are_refused() -> None:
    ids_BQ = random_ids(1, 3)
    with pytest.raises(DataError, match='objective "permutation"'):
        noisy(GPT)(Batch(ids_BQ=ids_BQ, visible_BQQ=torch.ones(1, 3, 3, dtype=torch.bool)))
    with pytest.raises(DataError, match=r"predictions need batch\.visible_BQQ"):
        noisy(XLNET)(Batch(ids_BQ=ids_BQ, predicted_BP=torch.tensor([[1]])))
    with pytest.raises(DataError, match="reversed_B"):
        noisy(GPT)(Batch(ids_BQ=ids_BQ, reversed_B=torch.tensor([True])))


def test_a_batch_moves_with_all_its_tensors() -> None:
    batch = Batch(ids_BQ=random_ids(2, 3), starts_B=torch.ones(2, dtype=torch.bool)).to("meta")
    assert batch.ids_BQ.device.type == batch.starts_B.device.type == "meta"
    assert batch.targets is None
