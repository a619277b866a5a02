"""transformers' configs and weights in segue's names, and what the comparisons share. Imports no transformers.

XLNet and Transformer-XL go through segue's own name tables; BERT and GPT, which segue does not convert, have maps here.
Each takes tensors under transformers' names and returns them under segue's; a name it does not know is an error. Maps
only rename, split, reshape and transpose, so gradients go through them as weights do.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from segue.checkpoint.families import transformer_xl_transformers, xlnet_transformers
from segue.checkpoint.heads import HeadConfig
from segue.config import ModelConfig, model_config
from tests.originals import TOLERANCE, mapped

Model = TypeVar("Model", bound=nn.Module)
StateMap = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
SCALE = 0.2
"""Scale of the noise in the weights. At 0.3 some log-probabilities reach 100, and float32 results on either side are up
to 3e-5 from the float64 ones; at 0.2 both are well within the tolerance, and what a map forgets still shows."""
Settings = Any
"""A config of transformers, which not every environment has."""


def close(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    """Equal to 1e-5 in float32 and to 1e-9 in float64, absolute, and really computed in that dtype."""
    assert got.dtype == want.dtype == dtype
    torch.testing.assert_close(got, want, rtol=0, atol=TOLERANCE[dtype])


def noisy(model: Model, dtype: torch.dtype, seed: int = 0) -> Model:
    """Every parameter filled with noise, biases and norms too, so that one that a map forgets would show."""
    generator = torch.Generator().manual_seed(seed)
    norms = {id(module.weight) for module in model.modules() if isinstance(module, nn.LayerNorm)}
    model = model.to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((1.0 if id(parameter) in norms else 0.0) + SCALE * noise)
    return model


def filled(model: Model, state: Mapping[str, Tensor]) -> Model:
    """The model with exactly these weights, in their dtype: none missing, none left over."""
    dtype = next(iter(state.values())).dtype
    model = model.to(dtype).eval()  # before loading, or float64 weights would be rounded
    model.load_state_dict(state, strict=True)
    return model


def only(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of one part, under the part's own names."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def close_gradients(ours: nn.Module, theirs: nn.Module, to_ours: StateMap, dtype: torch.dtype) -> None:
    """The gradient of every parameter of theirs, after a backward pass through both."""
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    for name, gradient in to_ours(gradients).items():
        close(ours.get_parameter(name).grad, gradient, dtype)


def inverse_frequencies(width: int) -> Tensor:
    """Frequencies of the sinusoids, in float64: transformers makes them in float32 whatever the dtype of the model."""
    return 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def _renamed(name: str, table: Mapping[str, str]) -> str | None:
    """The name with its beginning exchanged, whole parts only; None if the table does not know it."""
    for old, new in table.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return None


# ------------------------------------------------------------------------------------------------- XLNet

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}


def xlnet_config(settings: Settings, *, memory: bool = False) -> ModelConfig:
    """`memory`: what transformers does if the caller passes its `mems` on."""
    values = xlnet_transformers.values(settings.to_dict())
    if not memory:
        values.pop("memory", None)
    return model_config(**values)


def xlnet_state(state: Mapping[str, Tensor], head: HeadConfig | None = None) -> dict[str, Tensor]:
    """Weights or gradients of a model, or of one with a head."""
    base = "word_embedding.weight" in state
    prefix = "" if base else "transformer."
    layers = {name.removeprefix(prefix).split(".")[1] for name in state if name.startswith(f"{prefix}layer.")}
    width, heads, head_width = state[f"{prefix}layer.0.rel_attn.q"].shape
    config = model_config(
        objective="permutation",
        vocabulary={"size": len(state[f"{prefix}word_embedding.weight"])},
        positions={"kind": "xl", "shared_biases": False},
        segments="relative",
        num_layers=len(layers),
        width=width,
        num_heads=heads,
        head_width=head_width,
    )
    return mapped(xlnet_transformers.table(config, head, base=base), state)


# -------------------------------------------------------------------------------------------------- BERT

_BERT = {
    "embeddings.word_embeddings.weight": "trunk.vocabulary.tables.0",
    "embeddings.position_embeddings": "trunk.reader.absolute.table",
    "embeddings.token_type_embeddings": "trunk.reader.segment_embedding",
    "embeddings.LayerNorm": "trunk.reader.embedding_norm",
    "cls.predictions.transform.dense": "transform.dense",
    "cls.predictions.transform.LayerNorm": "transform.norm",
    "cls.predictions.bias": "softmax.token_biases.0",
    "pooler.dense": "summary.dense",
    "classifier": "classifier",
}
_BERT_LAYER = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.widen",
    "output.dense": "feed_forward.narrow",
    "output.LayerNorm": "feed_forward_norm",
}


def bert_config(settings: Settings) -> ModelConfig:
    return model_config(
        objective="masked",
        vocabulary={"size": settings.vocab_size, "transform": True},
        positions={"kind": "absolute", "encoding": "learned", "max_length": settings.max_position_embeddings},
        segments="absolute",
        num_segments=settings.type_vocab_size,
        num_layers=settings.num_hidden_layers,
        width=settings.hidden_size,
        num_heads=settings.num_attention_heads,
        inner_width=settings.intermediate_size,
        activation=_ACTIVATIONS[settings.hidden_act],
        attention_bias=True,
        embedding_norm=True,
        norm_epsilon=settings.layer_norm_eps,
    )


def bert_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tied = {"decoder.weight": "bert.embeddings.word_embeddings.weight", "decoder.bias": "cls.predictions.bias"}
    result: dict[str, Tensor] = {}
    for name, value in state.items():
        match name.removeprefix("bert.").split("."):
            case ["encoder", "layer", i, *rest]:
                ours = _renamed(".".join(rest), _BERT_LAYER)
                assert ours, f"unmapped: {name}"
                result[f"trunk.reader.layers.{i}.{ours}"] = value
            case ["cls", "predictions", "decoder", which]:
                assert torch.equal(value, state[tied[f"decoder.{which}"]])
            case _:
                ours = _renamed(name.removeprefix("bert."), _BERT)
                assert ours, f"unmapped: {name}"
                result[ours] = value
    return result


# --------------------------------------------------------------------------------------------------- GPT

_GPT = {
    "tokens_embed.weight": "trunk.vocabulary.tables.0",
    "wte.weight": "trunk.vocabulary.tables.0",
    "positions_embed": "trunk.reader.absolute.table",
    "wpe": "trunk.reader.absolute.table",
    "ln_f": "trunk.reader.final_norm",
}
_GPT_LAYER = {
    "attn.c_proj": "attention.out",
    "ln_1": "attention_norm",
    "mlp.c_fc": "feed_forward.widen",
    "mlp.c_proj": "feed_forward.narrow",
    "ln_2": "feed_forward_norm",
}


def gpt_config(settings: Settings) -> ModelConfig:
    """GPT, or GPT-2, which differs in where its norms stand. Both mean the tanh approximation by gelu."""
    second = settings.model_type == "gpt2"
    return model_config(
        objective="causal",
        vocabulary={"size": settings.vocab_size},
        positions={"kind": "absolute", "encoding": "learned", "max_length": settings.n_positions},
        num_layers=settings.n_layer,
        width=settings.n_embd,
        num_heads=settings.n_head,
        inner_width=(settings.n_inner if second else None) or 4 * settings.n_embd,
        activation="gelu_tanh",
        attention_bias=True,
        norm_first=second,
        final_norm=second,
        norm_epsilon=settings.layer_norm_epsilon,
    )


def gpt_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the token biases of the softmax, which GPT does not have (`filled` wants zeros there)."""
    result: dict[str, Tensor] = {}
    for name, value in state.items():
        match name.removeprefix("transformer.").split("."):
            case [
                "h",
                i,
                "attn",
                "c_attn",
                which,
            ]:  # Conv1D: a kernel [in, out], query, key and value beside each other
                for part, piece in zip(("query", "key", "value"), value.chunk(3, dim=-1), strict=True):
                    result[f"trunk.reader.layers.{i}.attention.{part}.{which}"] = (
                        piece.T if which == "weight" else piece
                    )
            case ["h", i, *rest]:
                ours = _renamed(".".join(rest), _GPT_LAYER)
                assert ours, f"unmapped: {name}"
                result[f"trunk.reader.layers.{i}.{ours}"] = value.T if value.dim() == 2 else value
            case ["lm_head", "weight"]:
                tied = next(
                    state[n] for n in ("transformer.tokens_embed.weight", "transformer.wte.weight") if n in state
                )
                assert torch.equal(value, tied)
            case _:
                ours = _renamed(name.removeprefix("transformer."), _GPT)
                assert ours, f"unmapped: {name}"
                result[ours] = value
    return result


# ----------------------------------------------------------------------------------------- Transformer-XL


def transfo_xl_config(settings: Settings) -> ModelConfig:
    return model_config(**transformer_xl_transformers.values(settings.to_dict()))


def transfo_xl_state(state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    """Weights or gradients of a model, or of one with classes, whose missing bias is zero."""
    head = transformer_xl_transformers.head(settings.to_dict(), state)
    table = transformer_xl_transformers.table(transfo_xl_config(settings), head)
    zeros = {zero.ours: state["score.weight"].new_zeros(settings.num_labels) for zero in table.zeros}
    return mapped(table, state) | zeros


def sinusoids_in_double(position_R: Tensor, frequencies: Tensor, rows: int) -> Tensor:
    """In place of transformers' own, which is float32 in every model and does not fit a float64 one. Which
    positions there are, clamped and signed how, is still for transformers to say."""
    angle = position_R.double()[:, None] * inverse_frequencies(2 * len(frequencies))
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, None].expand(-1, rows, -1)
