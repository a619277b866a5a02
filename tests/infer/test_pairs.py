"""Scores of minimal pairs: those of `segue.infer.score`, and of pseudo-likelihood written with loops."""

import math

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.errors import ConfigError, DataError
from segue.infer.pairs import PairSettings, score_pairs
from segue.infer.score import ScoreSettings, TextScore, score_texts
from segue.model import Batch, LanguageModel
from segue.text.words import WordTokenizer
from tests.infer.texts import CHARACTERS, TOKENIZER, some_texts
from tests.tiny import MODELS, noisy

EOD, MASK = TOKENIZER.specials["eod"], TOKENIZER.specials["mask"]
GOOD = some_texts(9, longest=12, seed=1)
BAD = some_texts(9, longest=12, seed=2)
PAIRS = [*zip(GOOD, BAD, strict=True), ("ab中", "ab中"), (GOOD[0], BAD[3]), ("ab", "abc")]


def values(model: LanguageModel, texts: list[str], **settings: object) -> list[float]:
    rows = score_texts(model, TOKENIZER, texts, ScoreSettings(**settings))  # type: ignore[arg-type]
    return [row.log_probability for row in rows if isinstance(row, TextScore)]


@torch.no_grad()
def pseudo(model: LanguageModel, text: str) -> float:
    """Each token hidden in turn, in a batch of its own."""
    ids = TOKENIZER.encode(text).tolist()
    if model.config.objective == "permutation":
        ids = [EOD, *ids]
        model = model.adjusted(memory=None)
    total = 0.0
    for place in range(len(ids) - len(TOKENIZER.encode(text)), len(ids)):
        ids_BQ = torch.tensor([ids])
        if model.config.objective == "masked":
            ids_BQ[0, place] = MASK
            batch = Batch(ids_BQ=ids_BQ, predicted_BP=torch.tensor([[place]]))
        else:
            visible_BQQ = torch.ones(1, len(ids), len(ids), dtype=torch.bool)
            visible_BQQ[0, :, place] = False
            batch = Batch(ids_BQ=ids_BQ, predicted_BP=torch.tensor([[place]]), visible_BQQ=visible_BQQ)
        hidden_D = model(batch).output.predicted_BPD[0, 0]
        total += float(model.logits(hidden_D).log_softmax(dim=-1)[ids[place]])
    return total


def test_causal_pairs_are_scored_as_documents() -> None:
    model = noisy(MODELS["transformer-xl-enwik8-base"])
    found = score_pairs(model, TOKENIZER, PAIRS, PairSettings(batch_tokens=40))
    assert found.values_N2[:, 0] == pytest.approx(values(model, [good for good, _ in PAIRS]), abs=1e-9)
    assert found.values_N2[:, 1] == pytest.approx(values(model, [bad for _, bad in PAIRS]), abs=1e-9)
    assert found.tokens_N2.tolist() == [[len(good), len(bad)] for good, bad in PAIRS]
    assert found.unknown == 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["xlnet-base", "permutation-shaw", "bert-base"])
def test_pseudo_likelihood_is_its_definition(name: str) -> None:
    model = noisy(MODELS[name])
    found = score_pairs(model, TOKENIZER, PAIRS, PairSettings(batch_tokens=40))
    expected = [[pseudo(model, good), pseudo(model, bad)] for good, bad in PAIRS]
    np.testing.assert_allclose(found.values_N2, expected, atol=1e-8, rtol=0)


def test_a_token_is_predicted_from_all_but_itself() -> None:
    """In the place of one token, the pseudo-probabilities of all characters there are one distribution."""
    model = noisy(MODELS["xlnet-base"])
    total = 0.0
    others = set()
    for character in CHARACTERS:
        rows = list(score_texts(model, TOKENIZER, [f"ab{character}de"], ScoreSettings(by="token", pseudo=True)))
        assert len(rows) == 5
        total += math.exp(rows[2].log_probability or 0.0)
        others.add(rows[3].log_probability)
    assert len(others) == len(CHARACTERS)  # each sees it
    assert 0.1 < total < 1  # special tokens have the rest


def test_random_orders_are_a_mean_and_seeded() -> None:
    model = noisy(MODELS["xlnet-base"])
    found = score_pairs(model, TOKENIZER, PAIRS, PairSettings(orders=2, seed=3))
    goods = [good for good, _ in PAIRS]
    each = [values(model, goods, order="random", seed=seed) for seed in (6, 7)]
    assert found.values_N2[:, 0] == pytest.approx(np.mean(each, axis=0), abs=1e-9)
    again = score_pairs(model, TOKENIZER, PAIRS, PairSettings(orders=2, seed=3, batch_tokens=30))
    np.testing.assert_allclose(again.values_N2, found.values_N2, atol=1e-9, rtol=0)
    other = score_pairs(model, TOKENIZER, PAIRS, PairSettings(orders=2, seed=4))
    assert (other.values_N2[:5] != found.values_N2[:5]).any()
    assert found.values_N2[9, 0] == found.values_N2[9, 1]


def test_sentences_of_the_same_ids_are_ties_to_the_bit() -> None:
    """Here two words that are both unknown."""
    model = noisy(changed(MODELS["transformer-xl-enwik8-base"], vocabulary={"size": 9})).float()
    words = WordTokenizer(["the", "dog"])
    assert words.size <= 9
    pairs = [("the cat", "the cow"), *[("the dog the dog", "dog")] * 20, ("the dog", "the owl")]
    found = score_pairs(model, words, pairs, PairSettings(batch_tokens=4))
    assert found.values_N2[0, 0] == found.values_N2[0, 1] == found.values_N2[-1, 1]
    assert found.unknown == 3


def test_progress_counts_distinct_sentences() -> None:
    told: list[tuple[int, int]] = []
    model = noisy(MODELS["gpt"])
    score_pairs(model, TOKENIZER, [("ab", "abc"), ("ab", "d")], progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match='random orders need objective "permutation"'):
        score_pairs(noisy(MODELS["gpt"]), TOKENIZER, PAIRS, PairSettings(orders=2))
    with pytest.raises(ConfigError, match="at least 1"):
        PairSettings(orders=0)
    with pytest.raises(DataError, match="must have a token; got ''"):
        score_pairs(noisy(MODELS["gpt"]), TOKENIZER, [("ab", "")])
    with pytest.raises(ConfigError, match="pseudo-likelihood needs"):
        values(noisy(MODELS["gpt"]), ["ab"], pseudo=True)
    with pytest.raises(ConfigError, match="has no order"):
        values(noisy(MODELS["xlnet-base"]), ["ab"], pseudo=True, order="backward")
