"""The weights that a model starts with, by the roles that its modules declare."""

import pytest
import torch

from segue.config import changed
from segue.model import LanguageModel
from tests.tiny import MODELS

WIDE = {"width": 200, "inner_width": 300, "num_heads": 4, "head_width": 50}


def made(name: str, **settings: object) -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(changed(MODELS[name], init_std=0.02, projection_init_std=0.5, **WIDE, **settings))


@pytest.mark.parametrize("name", ["transformer-xl-lm1b", "learned-relative", "xlnet-base", "bert-base", "untied"])
def test_biases_are_zero_norms_are_units_and_weights_are_normal(name: str) -> None:
    model = made(name)
    norms = {id(p) for part in model.modules() if isinstance(part, torch.nn.LayerNorm) for p in part.parameters()}
    zero = projected = plain = 0
    for key, parameter in model.named_parameters():
        *_, parent, last = key.split(".")
        if id(parameter) in norms:
            assert torch.equal(parameter, torch.full_like(parameter, float(last == "weight")))
        elif last in ("bias", "cluster_bias") or parent in ("token_biases", "bias"):
            assert not parameter.any(), key
            zero += 1
        else:
            std = 0.5 if parent == "projections" else 0.02
            assert float(parameter.detach().std()) == pytest.approx(std, rel=0.35), key
            projected, plain = projected + (std == 0.5), plain + (std == 0.02)
    assert zero
    assert plain
    assert bool(projected) == (name in ("transformer-xl-lm1b", "untied"))


def test_the_biases_of_attention_scores_are_weights() -> None:
    biases = made("xlnet-base").trunk.reader.biases_of(0)
    assert biases is not None
    for parameter in (biases.content_HE, biases.position_HE, biases.segment_HE):
        assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.35)
