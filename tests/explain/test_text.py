"""Texts in segments with memory, what counts in their scores, and what is lost without it."""

import numpy as np
import pytest
import torch

from segue.errors import ConfigError, DataError
from segue.explain.ablate import Ablation, ablations, changes, mean_loss
from segue.explain.terms import distance_edges, term_statistics
from segue.explain.text import read_text
from segue.infer.score import ScoreSettings, score_texts
from segue.infer.text_model import TextModel, load_text_model
from segue.model import LanguageModel
from tests.tasks.models import ENGLISH, write_model

TEXT = ENGLISH.replace("\n", " ").strip()[:180]
LENGTH = 16


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextModel]:
    folder = tmp_path_factory.mktemp("models")
    found = {}
    for objective in ("causal", "permutation", "masked"):
        source = load_text_model(write_model(folder / objective, objective=objective))
        torch.manual_seed(0)
        with torch.no_grad():  # new weights are so small that nothing matters
            for parameter in source.model.parameters():
                if parameter.dim() > 1:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        found[objective] = TextModel(model=source.model, tokenizer=source.tokenizer, segment_length=LENGTH)
        if objective != "masked":
            alone = source.model.adjusted(memory=None)
            found[f"{objective} alone"] = TextModel(model=alone, tokenizer=source.tokenizer, segment_length=LENGTH)
    return found


NAMES = ["causal", "permutation", "masked", "causal alone", "permutation alone"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", ["forward", "random"])
def test_the_losses_are_those_of_score(name: str, order: str, sources: dict[str, TextModel]) -> None:
    source = sources[name]
    if order != "forward" and not name.startswith("permutation"):
        with pytest.raises(ConfigError, match="a factorisation order needs"):
            read_text(source, TEXT, order=order)  # type: ignore[arg-type]
        return
    reading = read_text(source, TEXT, order=order, seed=3)  # type: ignore[arg-type]
    assert len(reading.segments) > 3
    settings = ScoreSettings(by="token", order=order, seed=3, segment_length=LENGTH)  # type: ignore[arg-type]
    rows = list(score_texts(source.model, source.tokenizer, [TEXT], settings))
    expected = [-row.log_probability for row in rows if row.log_probability is not None]
    losses = reading.losses()
    np.testing.assert_allclose(losses[~np.isnan(losses)], expected, atol=2e-5)
    shown = [TEXT[start:end] for start, end in zip(reading.starts_T, reading.ends_T, strict=True)]
    assert "".join(shown).replace(" ", "") == TEXT.replace(" ", "")


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_named_by_their_tokens(name: str, sources: dict[str, TextModel]) -> None:
    reading = read_text(sources[name], TEXT)
    last = 0
    for segment in reading.attention():
        assert segment.span.new == last
        last = segment.span.stop
        assert segment.key_tokens[-1] == segment.span.stop - 1
        assert len(segment.key_tokens) == segment.reading.content[0].key_BKHE.shape[1]
        valid = segment.key_tokens[segment.key_tokens >= 0]
        assert (np.diff(valid) == 1).all()
        mask_K = segment.reading.content[0].view.mask_BQK[0].any(dim=0).numpy()
        assert not mask_K[segment.key_tokens < 0].any()
    assert last == len(reading.ids_T) == len(reading.tokens)


def test_texts_that_cannot_be_explained(sources: dict[str, TextModel]) -> None:
    with pytest.raises(DataError, match="1 to 16,384 tokens; got 0"):
        read_text(sources["causal"], "")
    with pytest.raises(DataError, match="Give a part of it"):
        read_text(sources["causal"], "a b c d " * 20_000)
    with pytest.raises(DataError, match="an order of its own"):
        read_text(sources["permutation"], TEXT, order=[1, 0])
    with pytest.raises(ConfigError, match="every position once"):
        read_text(sources["permutation"], TEXT, order=[1, 1])


# --------------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("name", NAMES)
def test_shares_and_probabilities_add_up(name: str, sources: dict[str, TextModel]) -> None:
    reading = read_text(sources[name], TEXT)
    found = term_statistics(reading.attention(), farthest=len(reading.ids_T))
    np.testing.assert_allclose(found.share_LHC.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(found.probability_LHN.sum(axis=-1) + found.right_LH, 1, atol=1e-5)
    np.testing.assert_allclose(found.age_LHN.sum(axis=-1), found.memory_LH)
    assert (found.memory_LH > 0).all() == (reading.model.config.memory is not None)
    assert (found.right_LH < 1e-6).all() == (name != "masked")
    assert (np.diff(found.edges) > 0).all()


def test_statistics_are_those_of_plain_loops(sources: dict[str, TextModel]) -> None:
    """One layer and head, pair by pair."""
    reading = read_text(sources["causal"], TEXT)
    found = term_statistics(reading.attention(), farthest=len(reading.ids_T))
    sums: dict[str, dict[int, list[float]]] = {name: {} for name in found.terms}
    covariance, variance, memory = dict.fromkeys(found.terms, 0.0), 0.0, 0.0
    for segment in reading.attention():
        scores = segment.reading.scores(1, heads=0)
        past = segment.reading.memory_length
        for q in range(len(segment.span)):
            keys = [k for k in range(past + len(segment.span)) if scores.mask_BQK[0, q, k]]
            total = [float(scores.score[0, 0, q, k]) for k in keys]
            middle = sum(total) / len(total)
            variance += sum((one - middle) ** 2 for one in total)
            memory += sum(float(scores.probability[0, 0, q, k]) for k in keys if k < past)
            for name in found.terms:
                values = [float(scores.terms[name][0, 0, q, k]) for k in keys]
                mean = sum(values) / len(values)
                covariance[name] += sum((v - mean) * (s - middle) for v, s in zip(values, total, strict=True))
                for k, value in zip(keys, values, strict=True):
                    distance = past + q - k
                    place = max(n for n in range(len(found.edges) - 1) if found.edges[n] <= distance)
                    sums[name].setdefault(place, []).append(value)
    for number, name in enumerate(found.terms):
        assert found.share_LHC[1, 0, number] == pytest.approx(covariance[name] / variance, rel=1e-4)
        for place, values in sums[name].items():
            assert found.profile_LHCN[1, 0, number, place] == pytest.approx(np.mean(values), rel=1e-3, abs=1e-5)
    assert found.memory_LH[1, 0] == pytest.approx(memory / len(reading.ids_T), rel=1e-4)


def test_statistics_in_bands_are_those_of_the_whole(
    sources: dict[str, TextModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("masked", "causal"):
        reading = read_text(sources[name], TEXT)
        whole = term_statistics(reading.attention(), farthest=len(reading.ids_T))
        monkeypatch.setattr("segue.explain.scores.BAND", 100)
        parts = term_statistics(reading.attention(), farthest=len(reading.ids_T))
        monkeypatch.undo()
        for field in ("share_LHC", "profile_LHCN", "probability_LHN", "right_LH", "memory_LH", "age_LHN"):
            np.testing.assert_allclose(getattr(parts, field), getattr(whole, field), atol=1e-5, err_msg=field)


def test_ranges_of_distances() -> None:
    assert distance_edges(3).tolist() == [0, 1, 2, 3, 4]
    edges = distance_edges(8192)
    assert edges[:9].tolist() == list(range(9))
    assert edges[-1] == 8193
    assert len(edges) < 100


# ---------------------------------------------------------------------------------------------------------- ablations


@pytest.mark.parametrize("name", NAMES)
def test_ablating_nothing_changes_nothing(name: str, sources: dict[str, TextModel]) -> None:
    reading = read_text(sources[name], TEXT)
    whole = mean_loss(reading)
    assert mean_loss(reading, Ablation()) == whole
    assert mean_loss(reading, Ablation(term="content", layer=99)) == whole
    absent = mean_loss(reading, Ablation(term="distance_bias"))  # computed term by term, and none is left out
    assert absent == pytest.approx(whole, abs=1e-5)
    if reading.model.config.memory is None:
        assert mean_loss(reading, Ablation(memory=True)) == whole


@pytest.mark.parametrize("name", ["causal", "permutation"])
def test_ablations_are_what_weights_of_zero_give(name: str, sources: dict[str, TextModel]) -> None:
    source = sources[name]
    reading = read_text(source, TEXT)

    def loss_with(change: dict[str, torch.Tensor]) -> float:
        other = LanguageModel(source.model.config).eval()
        other.load_state_dict(source.model.state_dict() | change)
        return mean_loss(read_text(TextModel(model=other, tokenizer=source.tokenizer, segment_length=LENGTH), TEXT))

    weights = source.model.state_dict()
    for term, ending in (("content_bias", "content_HE"), ("position_bias", "position_HE")):
        zeros = {key: torch.zeros_like(value) for key, value in weights.items() if key.endswith(ending)}
        assert zeros
        assert mean_loss(reading, Ablation(term=term)) == pytest.approx(loss_with(zeros), abs=1e-5)
    out = "trunk.reader.layers.1.attention.out.weight"
    without = weights[out].clone()
    without[:, :16] = 0
    assert mean_loss(reading, Ablation(layer=1, head=0)) == pytest.approx(loss_with({out: without}), abs=1e-5)


def test_without_memory_no_token_sees_the_segment_before(sources: dict[str, TextModel]) -> None:
    source = sources["causal"]
    reading = read_text(source, TEXT)
    alone = source.model.adjusted(memory=None)
    losses = []
    for segment in reading.segments:
        with torch.no_grad():
            output = alone(segment.batch)
        losses += output.nll[0][segment.batch.target_mask[0]].tolist()  # type: ignore[index]
    found = mean_loss(reading, Ablation(memory=True))
    assert found == pytest.approx(np.mean(losses), abs=1e-5)
    assert found != pytest.approx(mean_loss(reading), abs=1e-5)


def test_a_term_of_one_head_alone(sources: dict[str, TextModel]) -> None:
    reading = read_text(sources["causal"], TEXT)
    one, other, both = (mean_loss(reading, Ablation(term="position", layer=0, head=head)) for head in (0, 1, None))
    assert len({one, other, both, mean_loss(reading)}) == 4


def test_changes_cover_every_term_head_and_the_memory(sources: dict[str, TextModel]) -> None:
    reading = read_text(sources["permutation"], TEXT)
    found = list(changes(reading, ablations(reading, ["content", "content_bias"])))
    assert len(found) == 2 + 1 + 4
    assert all(one.change == pytest.approx(one.loss - mean_loss(reading)) for one in found)
    with pytest.raises(ConfigError, match="a term must be one of"):
        Ablation(term="u")
