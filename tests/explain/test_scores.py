"""The terms of a score add up to what every kernel computes, in every model, layer, head and stream."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from segue.errors import ConfigError
from segue.explain.scores import TERMS, AttentionReading, KernelInputs, attention
from segue.model import Batch, LanguageModel, Memory
from segue.model.kernels import definition, kernels_for
from segue.model.language_model import order_batch
from tests.tiny import MODELS, noisy, random_ids

LENGTH, ROWS = 7, 2
MASKED = next(name for name, config in MODELS.items() if config.objective == "masked")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def batch_for(model: LanguageModel, seed: int) -> Batch:
    """With segments, and for permutation models with predictions in a random order."""
    ids_BQ = random_ids(ROWS, LENGTH, seed)
    segments_BQ = None if model.config.segments is None else torch.arange(LENGTH).expand(ROWS, -1) // 3 % 2
    if model.config.objective != "permutation":
        return Batch(ids_BQ=ids_BQ, segments_BQ=segments_BQ)
    generator = torch.Generator().manual_seed(seed)
    order_BQ = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(ROWS)])
    return replace(order_batch(ids_BQ, order_BQ), segments_BQ=segments_BQ)


def second_segment(model: LanguageModel) -> tuple[Batch, Memory | None]:
    with torch.no_grad():
        memory = model(batch_for(model, 1)).memory
    return batch_for(model, 2), memory


def read(name: str, dtype: torch.dtype) -> tuple[LanguageModel, AttentionReading]:
    model = noisy(MODELS[name]).to(dtype)
    return model, attention(model, *second_segment(model))


def streams(reading: AttentionReading) -> list[tuple[str, int, KernelInputs]]:
    return [
        (stream, layer, inputs)
        for stream in ("content", "query")
        for layer, inputs in enumerate(getattr(reading, stream))
    ]


def probability_by(kernel: Any, inputs: KernelInputs) -> Tensor:
    """What a kernel weighs each key with, read off values that are 1 at one key."""
    _, K, _, E = inputs.key_BKHE.shape
    found = []
    for start in range(0, K, E):
        value_BKHE = torch.zeros_like(inputs.key_BKHE)
        for place in range(min(E, K - start)):
            value_BKHE[:, start + place, :, place] = 1
        mixed_BQHE = kernel(
            inputs.query_BQHE, inputs.key_BKHE, value_BKHE, terms=inputs.terms, view=inputs.view, dropout=0.0
        )
        found.append(mixed_BQHE[..., : min(E, K - start)])
    return torch.cat(found, dim=-1).permute(0, 2, 1, 3)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_the_terms_add_up_to_the_score(name: str, dtype: torch.dtype) -> None:
    _, reading = read(name, dtype)
    for stream, layer, inputs in streams(reading):
        scores = reading.scores(layer, stream=stream)  # type: ignore[arg-type]
        exact = definition.attention_score(
            inputs.query_BQHE, inputs.key_BKHE, terms=inputs.terms, view=inputs.view
        ).masked_fill(~inputs.view.mask_BQK[:, None], 0.0)
        found = scores.score.masked_fill(~scores.mask_BQK[:, None], 0.0)
        assert (found - exact).abs().max() <= TOLERANCE[dtype] * exact.abs().max().clamp(min=1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_has_these_probabilities(name: str, dtype: torch.dtype) -> None:
    _, reading = read(name, dtype)
    for stream, layer, inputs in streams(reading):
        found = reading.scores(layer, stream=stream).probability  # type: ignore[arg-type]
        free = inputs.terms.relative
        if free is not None and free.value_SRHE is not None:  # Shaw's values are added to those that are weighed
            plain = type(free)(key_SRHE=free.key_SRHE, bias_SRH=free.bias_SRH)
            inputs = replace(inputs, terms=replace(inputs.terms, relative=plain))
        kernels = kernels_for(inputs.query_BQHE, inputs.key_BKHE, inputs.key_BKHE, inputs.terms)
        assert "definition" in kernels
        for kernel in kernels.values():
            assert (probability_by(kernel, inputs) - found).abs().max() <= TOLERANCE[dtype]


def test_each_position_encoding_has_its_terms() -> None:
    expected = {
        "transformer-xl-enwik8-base": {"content", "position", "content_bias", "position_bias"},
        "xlnet-base": {"content", "position", "content_bias", "position_bias", "segment", "segment_bias"},
        "tied": {"content", "position", "content_bias", "position_bias"},
        "no-biases": {"content", "position"},
        "buckets": {"content", "position", "content_bias", "distance_bias"},
        "shaw-keys": {"content", "position"},
        "no-positions": {"content"},
        "permutation-shaw": {"content", "position", "segment", "segment_bias"},
        "learned-relative": {"content", "position", "content_bias", "distance_bias"},
        "alibi": {"content", "distance_bias"},
        "rotary": {"content"},
        "absolute": {"content"},
        "per-layer": {"content"},
    }
    for name, terms in expected.items():
        _, reading = read(name, torch.float64)
        assert set(reading.scores(0).terms) == terms, name
        assert list(reading.scores(0).terms) == [term for term in TERMS if term in terms]


@pytest.mark.parametrize(
    "name", ["transformer-xl-enwik8-base", "xlnet-base", "alibi", "rotary", "permutation-shaw", "permutation-buckets"]
)
def test_some_heads_and_queries_are_a_part_of_all(name: str) -> None:
    _, reading = read(name, torch.float64)
    for stream in ("content", "query") if reading.query else ("content",):
        every = reading.scores(1, stream=stream)
        some = reading.scores(-1, heads=1, queries=slice(2, 5), stream=stream)
        seen = every.mask_BQK[:, None, 2:5].expand(-1, 1, -1, -1)
        for term, term_BHQK in some.terms.items():
            torch.testing.assert_close(term_BHQK[seen], every.terms[term][:, 1:2, 2:5][seen])
        torch.testing.assert_close(some.probability, every.probability[:, 1:2, 2:5])


def test_bands_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.explain.scores.BAND", 60)
    _, reading = read("xlnet-base", torch.float64)
    for stream in ("content", "query"):
        found = list(reading.bands(1, 0, stream=stream))
        assert len(found) > 1
        whole = torch.cat([scores.probability for _, scores in found], dim=2)
        torch.testing.assert_close(whole, reading.scores(1, heads=0, stream=stream).probability)


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base", MASKED])
def test_a_row_of_a_batch_is_as_alone(name: str) -> None:
    model = noisy(MODELS[name])
    batch, memory = second_segment(model)
    together = attention(model, batch, memory)
    for row in range(ROWS):
        alone = attention(model, batch.rows(row, row + 1), None if memory is None else memory.select([row]))
        for layer in range(alone.num_layers):
            ours, theirs = alone.scores(layer), together.scores(layer)
            torch.testing.assert_close(ours.probability[0], theirs.probability[row])


def test_the_model_is_left_as_it_was() -> None:
    model = noisy(MODELS["xlnet-base"]).train()
    batch, memory = second_segment(model)
    reading = attention(model, batch, memory)
    assert model.training
    assert all(layer.attention.kernel is None for layer in model.trunk.reader.each_layer())
    assert reading.memory_length == 6
    assert (reading.num_layers, reading.num_heads) == (2, 2)
    with torch.no_grad():
        expected = model.eval()(batch, memory).memory
    assert expected is not None
    assert reading.memory is not None
    assert torch.equal(expected.hidden_LBMD, reading.memory.hidden_LBMD)


def test_what_is_not_there_is_said() -> None:
    model, reading = read("transformer-xl-enwik8-base", torch.float64)
    with pytest.raises(ConfigError, match="one of the 2 layers"):
        reading.scores(2)
    with pytest.raises(ConfigError, match="among the 2 heads"):
        reading.scores(0, heads=[0, 2])
    with pytest.raises(ConfigError, match="query stream"):
        reading.scores(0, stream="query")
    with pytest.raises(ConfigError, match="a segue model"):
        attention(torch.nn.Linear(2, 2), batch_for(model, 0))
