"""Perplexity against the plain definition: token by token, from all that may be seen."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.errors import DataError
from segue.evaluation.perplexity import (
    Score,
    _one_hidden,
    evaluate_causal,
    evaluate_order,
    evaluate_pseudo,
    evaluate_window,
)
from segue.model import Batch
from tests.tiny import CAUSAL, MODELS, noisy, random_ids


@dataclass
class Text:
    ids: np.ndarray

    @property
    def length(self) -> int:
        return len(self.ids)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.ids[start:stop]


TEXT = Text(random_ids(1, 61, seed=5)[0].numpy())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name", ["transformer-xl-enwik8-base", "transformer-xl-wt103", "shaw", "rotary", "gpt", "absolute"]
)
def test_the_number_of_lanes_does_not_matter(name: str) -> None:
    config = changed(CAUSAL[name], positions={"max_length": 99}) if name == "gpt" else CAUSAL[name]
    model = noisy(config)
    one = evaluate_causal(model, TEXT, segment_length=4, lanes=1)
    assert one.targets == 60
    memory = None
    total = 0.0
    for start in range(0, 60, 4):  # the definition: one segment after the other
        ids = torch.from_numpy(TEXT.ids[start : start + 5])[None]
        with torch.no_grad():
            result = model(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:]), memory)
        memory = result.memory
        total += float(result.nll.sum())
    assert one.nll == pytest.approx(total, abs=1e-9)
    for lanes in (2, 3, 5, 99):
        many = evaluate_causal(model, TEXT, segment_length=4, lanes=lanes)
        assert many.targets == 60
        assert many.nll == pytest.approx(one.nll, abs=1e-9)


def test_a_window_sees_what_it_should() -> None:
    model = noisy(MODELS["gpt"])
    for window, stride in ((7, 1), (7, 3), (7, 7), (40, 5)):
        score = evaluate_window(model, TEXT, window=window, stride=stride, rows=3)
        total, first, end = 0.0, 0, min(window, 60)
        while first < 60:
            start = max(0, end - window)
            ids = torch.from_numpy(TEXT.ids[start : end + 1])[None]
            with torch.no_grad():
                nll = model(Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])).nll[0]
            total += float(nll[first - start :].sum())
            first, end = end, min(60, end + stride)
        assert score.targets == 60
        assert score.nll == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_orders_with_memory(order: str) -> None:
    model = noisy(MODELS["xlnet-base"])
    score = evaluate_order(model, TEXT, segment_length=6, order=order)
    assert score.targets == 61
    assert np.isfinite(score.nll)
    again = evaluate_order(model, TEXT, segment_length=6, order=order)
    assert again == score


@pytest.mark.parametrize("name", ["bert-base", "bert-memory", "xlnet-base"])
def test_pseudo_likelihood_hides_the_token(name: str) -> None:
    """The prediction of a token does not depend on it."""
    model = noisy(MODELS[name])
    states = []
    for value in (1, 2):
        ids_Q = torch.from_numpy(TEXT.ids[:5].copy())
        ids_Q[2] = value
        batch = _one_hidden(ids_Q, torch.arange(5), mask=6 if model.config.objective == "masked" else None)
        with torch.no_grad():
            states.append(model(batch).output.predicted_BPD[:, 0])
    moved = ((states[0] - states[1]).abs().amax(dim=1) > 1e-12).tolist()
    assert moved == [True, True, False, True, True]
    whole = evaluate_pseudo(model, Text(TEXT.ids[:9]), segment_length=5, mask=6, rows=2)
    parts = [evaluate_pseudo(model, Text(TEXT.ids[a:b]), segment_length=5, mask=6) for a, b in ((0, 5), (5, 9))]
    assert whole.targets == 9
    assert whole.nll == pytest.approx(sum(part.nll for part in parts), abs=1e-9)


def test_scores() -> None:
    score = Score(nll=8 * np.log(2), targets=4)
    assert score.bits == pytest.approx(2)
    assert score.perplexity == pytest.approx(4)
    assert score.bits_per(16) == pytest.approx(0.5)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match='objective "causal"'):
        evaluate_causal(noisy(MODELS["xlnet-base"]), TEXT, segment_length=4)
    with pytest.raises(DataError, match="at least 2 tokens"):
        evaluate_causal(noisy(MODELS["gpt"]), Text(TEXT.ids[:1]), segment_length=4)
    with pytest.raises(DataError, match="stride"):
        evaluate_window(noisy(MODELS["gpt"]), TEXT, window=4, stride=5)
    with pytest.raises(DataError, match="mask token"):
        evaluate_pseudo(noisy(MODELS["bert-base"]), TEXT, segment_length=4)
