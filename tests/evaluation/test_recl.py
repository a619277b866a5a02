"""The effective context length against its definition in loops, on made losses, and on small models."""

import math

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.errors import DataError
from segue.evaluation.perplexity import causal_losses, evaluate_causal, window_losses
from segue.evaluation.recl import context_losses, effective_lengths
from segue.model import Batch
from tests.evaluation.test_perplexity import TEXT
from tests.tiny import CAUSAL, MODELS, noisy

XL = CAUSAL["transformer-xl-enwik8-base"]
CONTEXTS = (100, 200, 300, 400, 500)


def recl_in_loops(losses, contexts: list[int], model: int, share: float) -> tuple[int, bool]:
    """Dai et al. 2019, appendix C, as it is written."""
    group, tokens = range(len(losses)), range(len(losses[0][0]))
    c = 0
    while c + 1 < len(contexts):
        baseline = [min(losses[i][c][t] for i in group) for t in tokens]
        hardest = sorted(tokens, key=lambda t: -baseline[t])[: round(share * len(tokens))]
        f = {}
        for longer in (c, c + 1):
            f[longer] = sum(min(baseline[t], losses[model][longer][t]) for t in hardest) / len(hardest)
        if (math.exp(f[c]) - math.exp(f[c + 1])) / math.exp(f[c]) < 0.01:
            return contexts[c], False
        c += 1
    return contexts[c], True


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_as_defined(share: float) -> None:
    seen = set()
    for seed in range(20):
        generator = np.random.default_rng(seed)
        falling = np.array([1.0, 0.9, 0.87, 0.865, 0.864])[None, :, None]
        losses = generator.gamma(2.0, size=(3, 1, 40)) * falling + generator.normal(0, 0.003, size=(3, 5, 40))
        found = effective_lengths(losses, CONTEXTS, share=share)
        for model in range(3):
            expected = recl_in_loops(losses.tolist(), list(CONTEXTS), model, share)
            assert (found[model].context, found[model].open_end) == expected
            seen.add(expected[0])
    assert len(seen) > 1


def test_a_model_that_stops_improving_at_300_has_300() -> None:
    token = np.linspace(1.0, 5.0, 50)
    stops = np.stack([token * factor for factor in (1.0, 0.9, 0.8, 0.8, 0.8)])
    goes_on = np.stack([token * factor for factor in (1.0, 0.9, 0.8, 0.7, 0.6)])
    never = np.stack([token] * 5)
    alone = [effective_lengths(model[None], CONTEXTS, share=1.0)[0] for model in (stops, goes_on, never)]
    assert [length.context for length in alone] == [300, 500, 100]
    assert [length.open_end for length in alone] == [False, True, False]
    assert alone[0].gains == pytest.approx(
        [1 - math.exp(-0.3), 1 - math.exp(-0.3), 0.0, 0.0], abs=1e-12
    )  # the mean of `token` is 3, and a tenth of it goes
    # Beside a model that is better from the start, one must improve on that model.
    worse = stops + 2.0
    group = effective_lengths(np.stack([stops, worse]), CONTEXTS, share=1.0)
    assert [length.context for length in group] == [300, 100]


def test_only_the_hardest_tokens_count() -> None:
    """Context helps one token in ten, the hardest: the whole mean gains less than one per cent, the tenth more."""
    losses = np.ones((1, 2, 10))
    losses[0, :, 4] = (5.0, 4.95)
    assert effective_lengths(losses, (10, 20), share=0.1)[0].open_end
    assert not effective_lengths(losses, (10, 20), share=1.0)[0].open_end
    assert effective_lengths(losses, (10, 20), share=0.1)[0].gains[0] == pytest.approx(1 - math.exp(-0.05))


def test_losses_token_by_token_sum_to_the_score() -> None:
    model = noisy(XL)
    for lanes in (1, 3):
        losses = causal_losses(model, TEXT, segment_length=4, lanes=lanes, limit=50)
        assert losses.shape == (49,)
        assert losses.sum() == pytest.approx(evaluate_causal(model, TEXT, segment_length=4, limit=50).nll, abs=1e-9)


def test_a_window_is_read_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.evaluation.perplexity.WINDOW_TOKENS", 21)  # three rows at a time
    model = noisy(XL)
    losses = window_losses(model, TEXT, window=7, first=9, stop=20)
    alone = model.adjusted(memory=None)
    for target in range(9, 20):
        ids = torch.from_numpy(TEXT.ids[target - 7 : target])[None]
        with torch.no_grad():
            log_p = alone.logits(alone(Batch(ids_BQ=ids)).output.hidden_BQD[0, -1]).log_softmax(0)
        assert losses[target - 9] == pytest.approx(-float(log_p[TEXT.ids[target]]), abs=1e-9)


@pytest.mark.parametrize("exact", [False, True])
def test_contexts_of_one_layer_are_exact(exact: bool) -> None:
    """With one layer, memory cuts the context as the definition does, so both ways are the same."""
    model = noisy(changed(XL, num_layers=1))
    losses = context_losses(model, TEXT, contexts=(1, 4, 11), limit=50, exact=exact)
    assert losses.shape == (3, 39)
    for row, context in enumerate((1, 4, 11)):
        expected = window_losses(model, TEXT, window=context, first=11, stop=50)
        assert losses[row] == pytest.approx(expected, abs=1e-9)


def test_memory_reaches_further_through_layers() -> None:
    model = noisy(XL)
    ways = [context_losses(model, TEXT, contexts=(4, 11), limit=50, exact=exact) for exact in (False, True)]
    assert np.abs(ways[0] - ways[1]).max() > 1e-6
    # with memory, each token sees `context` keys, however the text is cut
    reader = model.adjusted(memory={"length": 30}, attention_span=11)
    assert ways[0][1] == pytest.approx(causal_losses(reader, TEXT, segment_length=5, lanes=1, limit=50)[10:], abs=1e-9)


def test_learned_positions_are_all_the_context_there_is() -> None:
    model = noisy(changed(MODELS["gpt"], positions={"max_length": 5}))
    losses = context_losses(model, TEXT, contexts=(3, 5, 9), limit=40)
    assert losses[1].tolist() == losses[2].tolist()
    assert losses[0].tolist() != losses[1].tolist()
    assert effective_lengths(losses[None], (3, 5, 9), share=1.0)[0].context <= 5


def test_a_group_of_models_and_its_progress() -> None:
    heard: list[tuple[int, int]] = []
    losses = [
        context_losses(noisy(CAUSAL[name], seed), TEXT, contexts=(2, 4, 8), progress=lambda *part: heard.append(part))
        for seed, name in enumerate(("transformer-xl-enwik8-base", "gpt", "shaw"))
    ]
    assert heard[-1][0] == heard[-1][1]
    shares = {share: effective_lengths(np.stack(losses), (2, 4, 8), share=share) for share in (0.1, 1.0)}
    for lengths in shares.values():
        assert len(lengths) == 3
        assert all(length.context in (2, 4, 8) and len(length.gains) == 2 for length in lengths)


def test_what_does_not_fit_is_refused() -> None:
    fine = np.ones((2, 2, 5))
    for contexts in ((100,), (200, 100), (100, 100), (0, 100)):
        with pytest.raises(DataError, match="two or more that ascend"):
            effective_lengths(fine, contexts, share=1.0)
    with pytest.raises(DataError, match="same tokens"):
        effective_lengths(fine, (1, 2, 3), share=1.0)
    with pytest.raises(DataError, match="finite"):
        effective_lengths(fine * np.nan, (1, 2), share=1.0)
    for share in (0.0, 1.5):
        with pytest.raises(DataError, match="share of tokens"):
            effective_lengths(fine, (1, 2), share=share)
    for name in ("bert-base", "xlnet-base"):
        with pytest.raises(DataError, match='objective "causal"'):
            context_losses(noisy(MODELS[name]), TEXT, contexts=(2, 4))
    with pytest.raises(DataError, match="100 and 61 tokens"):
        context_losses(noisy(XL), TEXT, contexts=(2, 100))
    with pytest.raises(DataError, match="got 99, 4 and 61"):
        context_losses(noisy(XL), TEXT, contexts=(2, 4), limit=99)
    with pytest.raises(DataError, match="whole window"):
        window_losses(noisy(XL), TEXT, window=9, first=5, stop=20)
