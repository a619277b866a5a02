"""The compared models: segue's, and those of transformers with the same weights.

segue's config is the source of every size. transformers is imported where it is needed: not every environment has it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from tests.parity.weights import filled, only, xlnet_state
from torch import Tensor, nn

from benchmarks.limit import Step
from segue.config import ModelConfig, changed
from segue.model import Batch, LanguageModel, Trunk
from segue.model.masks import permutation_mask
from segue.model.named import xlnet

Peer = Any
"""A model of transformers, or its output."""


def base_xlnet(**settings: Any) -> ModelConfig:
    """Return the base shape with 4 layers, without memory; GELU is exact, as in transformers."""
    shape = {"num_layers": 4, "width": 768, "num_heads": 12, "inner_width": 3072}
    return xlnet(**(shape | {"activation": "gelu", "dropout": 0.1, "memory": None} | settings))


def without_dropout(config: ModelConfig) -> ModelConfig:
    return changed(config, dropout=0.0, attention_dropout=0.0)


def step_of(config: ModelConfig, *, rows: int, length: int, memory: int = 0, predicted: int = 0) -> Step:
    """Return the sizes of a step; with `predicted`, or for a causal model, including a softmax."""
    causal = config.objective == "causal"
    return Step(
        rows=rows,
        length=length,
        layers=config.num_layers,
        width=config.width,
        inner_width=config.inner_width,
        memory=memory,
        predicted=predicted,
        scored=length if causal else predicted,
        vocabulary=config.vocabulary.size,
        causal=causal,
    )


def transformers_xlnet(kind: str, config: ModelConfig) -> Peer:
    """Return a model of this class of transformers in the shape of our config."""
    import transformers

    settings = transformers.XLNetConfig(
        vocab_size=config.vocabulary.size,
        d_model=config.width,
        n_layer=config.num_layers,
        n_head=config.num_heads,
        d_inner=config.inner_width,
        ff_activation="gelu",
        layer_norm_eps=config.norm_epsilon,
        dropout=config.dropout,
    )
    return randomised(getattr(transformers, kind)(settings))


def randomised(model: Peer) -> Peer:
    """Set every parameter to small noise, including biases and norms, so that one that is not carried over would
    show."""
    generator = torch.Generator().manual_seed(0)
    norms = {id(module.weight) for module in model.modules() if isinstance(module, nn.LayerNorm)}
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_((1.0 if id(parameter) in norms else 0.0) + 0.02 * noise)
    return model.eval()


def trunk_like(theirs: Peer, config: ModelConfig) -> Trunk:
    """Return our trunk with the weights of an XLNetModel."""
    return filled(Trunk(config), only(xlnet_state(theirs.state_dict()), "trunk."))


def language_model_like(theirs: Peer, config: ModelConfig) -> LanguageModel:
    """Return our language model with the weights of an XLNetLMHeadModel."""
    return filled(LanguageModel(config), xlnet_state(theirs.state_dict()))


def gradients(theirs: Peer) -> Mapping[str, Tensor]:
    """Return the gradients of an XLNet of transformers, under the names of our language model."""
    return xlnet_state({name: value.grad for name, value in theirs.named_parameters() if value.grad is not None})


def random_ids(config: ModelConfig, *, rows: int, length: int) -> Tensor:
    return torch.randint(config.vocabulary.size, (rows, length), generator=torch.Generator().manual_seed(1))


def probe(config: ModelConfig, *, rows: int, length: int) -> Tensor:
    """Return fixed weights for hidden states: their weighted sum is a loss with a gradient everywhere. (The squares
    would not do: after a LayerNorm they hardly depend on anything.)"""
    return torch.randn(rows, length, config.width, generator=torch.Generator().manual_seed(2))


def permutation_batch(config: ModelConfig, *, rows: int, length: int, predicted: int, mask_id: int = 6) -> Batch:
    """Return a batch like that of transformers' collator, but with the same number of targets in each row: random
    targets in a random order, everything else context, and the mask token in place of targets."""
    generator = torch.Generator().manual_seed(3)
    ids_BQ = random_ids(config, rows=rows, length=length)
    at_BP = torch.rand(rows, length, generator=generator).argsort(dim=1)[:, :predicted].sort(dim=1).values
    target_BQ = torch.zeros(rows, length, dtype=torch.bool).scatter_(1, at_BP, True)
    rank_BQ = torch.rand(rows, length, generator=generator).argsort(dim=1).masked_fill(~target_BQ, -1)
    return Batch(
        ids_BQ=ids_BQ.masked_fill(target_BQ, mask_id),
        targets=ids_BQ.gather(1, at_BP),
        visible_BQQ=permutation_mask(rank_BQ, target_BQ),
        predicted_BP=at_BP,
    )
