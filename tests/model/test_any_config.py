"""Whatever goes together works: random choices of every setting, each tried with all self-checks and on a device
without data, where a tensor made on the wrong device shows."""

from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from segue.config import model_config
from segue.errors import ConfigError
from segue.evaluation.checks import check_model
from segue.model import Batch, LanguageModel
from tests.examples import examples
from tests.tiny import noisy

POSITIONS: list[dict[str, Any]] = [
    {"kind": "xl", "shared_biases": True},
    {"kind": "xl", "shared_biases": False, "clamp_distance": 3},
    {"kind": "xl", "biases": "tied"},
    {"kind": "xl", "biases": "none"},
    {"kind": "xl", "biases": "buckets", "shared_biases": False, "bias_init": "zeros"},
    {"kind": "shaw", "clip_distance": 2},
    {"kind": "shaw", "clip_distance": 2, "on_values": False},
    {"kind": "none"},
    {"kind": "learned_relative", "max_distance": 3},
    {"kind": "absolute"},
    {"kind": "absolute", "encoding": "learned", "max_length": 32},
    {"kind": "per_layer", "max_length": 32},
    {"kind": "rotary"},
    {"kind": "alibi"},
]
configs = st.fixed_dictionaries(
    {
        "objective": st.sampled_from(["causal", "permutation", "masked"]),
        "vocabulary": st.fixed_dictionaries(
            {
                "size": st.just(23),
                "width": st.sampled_from([8, 12]),
                "scale": st.booleans(),
                "cutoffs": st.sampled_from([[], [7], [7, 13]]),
                "shrink": st.sampled_from([1, 2]),
                "project_first_bin": st.booleans(),
                "tie_weights": st.booleans(),
                "tie_projections": st.sampled_from(["none", "all_but_first", "all"]),
                "cluster_order": st.sampled_from(["forward", "reversed"]),
                "transform": st.booleans(),
            }
        ),
        "positions": st.sampled_from(POSITIONS),
        "directions": st.sampled_from(["forward", "forward", "both"]),
        "num_layers": st.integers(2, 3),
        "width": st.just(12),
        "num_heads": st.sampled_from([1, 2, 3]),
        "head_width": st.sampled_from([2, 4, 6]),
        "inner_width": st.just(9),
        "activation": st.sampled_from(["relu", "gelu", "gelu_tanh"]),
        "attention_bias": st.booleans(),
        "norm_first": st.booleans(),
        "final_norm": st.booleans(),
        "embedding_norm": st.booleans(),
    },
    optional={
        "memory": st.fixed_dictionaries(
            {"length": st.integers(1, 9), "initial": st.sampled_from(["empty", "zeros"])},
            optional={"reuse_length": st.integers(1, 9), "backprop_segments": st.integers(1, 2)},
        ),
        "segments": st.sampled_from(["relative", "absolute"]),
        "auxiliary": st.just({"targets": 2}),
    },
)


def build(values: dict[str, Any]) -> LanguageModel:
    try:
        config = model_config(**values)
    except ConfigError:
        assume(False)
    return noisy(config)


@settings(max_examples=examples(120, part=10), deadline=None, derandomize=True)
@given(values=configs)
def test_every_combination_passes_the_self_checks(values: dict[str, Any]) -> None:
    model = build(values)
    failed = [check for check in check_model(model) if check.passed is False]
    assert failed == []


@settings(max_examples=examples(60, part=8), deadline=None, derandomize=True)
@given(values=configs)
def test_no_combination_makes_tensors_on_another_device(values: dict[str, Any]) -> None:
    """Bins and learned positions look at data, which the meta device has not; all the rest must run on it."""
    assume(values["vocabulary"]["shrink"] == 1)
    model = build(values).to("meta")
    memory = None
    for _ in range(2):
        ids_BQ = torch.zeros(2, 5, dtype=torch.long, device="meta")
        output = model(Batch(ids_BQ=ids_BQ), memory).output
        assert output.hidden_BQD.device.type == "meta"
        memory = output.memory
        if "max_length" in model.config.positions.model_fields_set:
            break
    if model.config.objective == "permutation":
        batch = Batch(
            ids_BQ=ids_BQ,
            visible_BQQ=torch.ones(2, 5, 5, dtype=torch.bool, device="meta"),
            predicted_BP=torch.zeros(2, 3, dtype=torch.long, device="meta"),
            segments_BQ=ids_BQ,
        )
        assert model(batch).output.predicted_BPD.device.type == "meta"
