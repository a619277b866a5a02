"""The weights that a model starts with, by the roles that its modules declare."""

import pytest
import torch

from segue.config import changed
from segue.model import Batch, LanguageModel, Memory
from segue.model.positions import NUM_BUCKETS
from tests.tiny import MODELS, noisy, random_ids

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


@pytest.mark.parametrize("biases", ["vectors", "tied", "buckets"])
def test_the_biases_of_attention_scores_may_be_zero(biases: str) -> None:
    positions = {"biases": biases, "bias_init": "zeros", "shared_biases": False}
    names = ("content_HE", "position_HE", "content_XHE", "position_XHE")
    for init, zero in (("zeros", True), ("normal", False)):
        model = made("xlnet-base", positions=positions | {"bias_init": init})
        found = [p for name, p in model.named_parameters() if name.rpartition(".")[2] in names]
        assert len(found) == (1 if biases == "tied" else 2) * model.config.num_layers
        assert all(bool(parameter.any()) != zero for parameter in found)
        segment = model.trunk.reader.biases_of(0)
        assert segment is not None
        assert segment.segment_HE.any()


def test_tied_biases_are_equal_vectors() -> None:
    """One vector as u and v gives what two equal vectors give; none gives what zeros give."""
    ids_BQ = random_ids(2, 9)
    whole = noisy(MODELS["transformer-xl-enwik8-base"])
    biases = whole.trunk.reader.biases_of(0)
    assert biases is not None
    for kind in ("tied", "none"):
        with torch.no_grad():
            biases.position_HE.copy_(biases.content_HE)
            if kind == "none":
                biases.position_HE.zero_()
                biases.content_HE.zero_()
        other = LanguageModel(changed(whole.config, positions={"biases": kind})).double().eval()
        other.load_state_dict({name: x for name, x in whole.state_dict().items() if name in other.state_dict()})
        assert len(list(whole.parameters())) - len(list(other.parameters())) == {"tied": 1, "none": 2}[kind]
        expected = whole(Batch(ids_BQ=ids_BQ)).output.hidden_BQD
        torch.testing.assert_close(other(Batch(ids_BQ=ids_BQ)).output.hidden_BQD, expected)


def test_buckets_that_are_equal_are_vectors() -> None:
    ids_BQ = random_ids(2, 9)
    plain = noisy(changed(MODELS["transformer-xl-enwik8-base"], positions={"shared_biases": False}))
    wide = noisy(MODELS["buckets"])
    wide.load_state_dict(
        {name: x for name, x in plain.state_dict().items() if ".biases." not in name}
        | {
            f"trunk.reader.layers.{n}.attention.relative.{name}_XHE": getattr(
                plain.trunk.reader.biases_of(n), f"{name}_HE"
            )[None].expand(NUM_BUCKETS, -1, -1)
            for n in range(plain.config.num_layers)
            for name in ("content", "position")
        }
    )
    memories: list[Memory | None] = [None, None]
    for ids in (ids_BQ, ids_BQ.flip(0)):
        outputs = [model(Batch(ids_BQ=ids), memory) for model, memory in zip((plain, wide), memories, strict=True)]
        memories = [output.memory for output in outputs]
        torch.testing.assert_close(outputs[1].output.hidden_BQD, outputs[0].output.hidden_BQD)


def test_the_biases_of_attention_scores_are_weights() -> None:
    biases = made("xlnet-base").trunk.reader.biases_of(0)
    assert biases is not None
    for parameter in (biases.content_HE, biases.position_HE, biases.segment_HE):
        assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.35)
