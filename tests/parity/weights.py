"""transformers' configs and weights in segue's names, and what the comparisons share. Imports no transformers.

Each map takes tensors under transformers' names and returns them under segue's; a name it does not know is an
error. Maps only rename, split, reshape and transpose, so gradients go through them as weights do.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from segue.config import ModelConfig, model_config
from tests.originals import TOLERANCE, pytorch_state

Model = TypeVar("Model", bound=nn.Module)
StateMap = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
SCALE = 0.2
"""Of the noise in the weights. At 0.3 some log-probabilities reach 100, and float32 results on either side are up to
3e-5 from the float64 ones; at 0.2 both are well within the tolerance, and what a map forgets still shows."""
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
    """Of the sinusoids, in float64: transformers makes them in float32 whatever the dtype of the model."""
    return 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def _renamed(name: str, table: Mapping[str, str]) -> str | None:
    """The name with its beginning exchanged, whole parts only; None if the table does not know it."""
    for old, new in table.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return None


# ------------------------------------------------------------------------------------------------- XLNet

_XLNET_LAYER = {
    "rel_attn.q": "attention.query.weight",
    "rel_attn.k": "attention.key.weight",
    "rel_attn.v": "attention.value.weight",
    "rel_attn.o": "attention.out.weight",
    "rel_attn.r": "attention.relative.projection.weight",
    "rel_attn.seg_embed": "attention.segment_2HE",
    "rel_attn.layer_norm": "attention_norm",
    "ff.layer_1": "feed_forward.widen",
    "ff.layer_2": "feed_forward.narrow",
    "ff.layer_norm": "feed_forward_norm",
}
_XLNET_BIASES = {"r_w_bias": "content_HE", "r_r_bias": "position_HE", "r_s_bias": "segment_HE"}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}


def xlnet_config(settings: Settings, *, memory: bool = False) -> ModelConfig:
    """`memory`: what transformers does if the caller passes its `mems` on."""
    clamp = {"clamp_distance": settings.clamp_len} if settings.clamp_len > 0 else {}
    reuse = {"reuse_length": settings.reuse_len} if settings.reuse_len else {}
    return model_config(
        objective={"bi": "permutation", "uni": "causal"}[settings.attn_type],
        vocabulary={"size": settings.vocab_size},
        positions={"kind": "xl", "shared_biases": False} | clamp,
        segments="relative",
        num_layers=settings.n_layer,
        width=settings.d_model,
        num_heads=settings.n_head,
        head_width=settings.d_head,
        inner_width=settings.d_inner,
        activation=_ACTIVATIONS[settings.ff_activation],
        norm_epsilon=settings.layer_norm_eps,
        **({"memory": {"length": settings.mem_len} | reuse} if memory else {}),
    )


def xlnet_state(state: Mapping[str, Tensor], head: Mapping[str, str] | None = None) -> dict[str, Tensor]:
    """`head`: the parts of a head, transformers' name to ours."""
    result: dict[str, Tensor] = {}
    for name, value in state.items():
        match name.removeprefix("transformer.").split("."):
            case ["word_embedding", "weight"]:
                result["trunk.vocabulary.tables.0"] = value
            case ["mask_emb"]:
                result["trunk.reader.mask_embedding_D"] = value.flatten()
            case ["lm_loss", "bias"]:
                result["softmax.token_biases.0"] = value
            case ["lm_loss", "weight"]:
                assert torch.equal(value, state["transformer.word_embedding.weight"])  # tied
            case ["layer", i, "rel_attn", "r_w_bias" | "r_r_bias" | "r_s_bias" as which]:
                result[f"trunk.reader.biases.{i}.{_XLNET_BIASES[which]}"] = value
            case ["layer", i, *rest]:
                ours = _renamed(".".join(rest), _XLNET_LAYER)
                assert ours, f"unmapped: {name}"
                if rest[-1] in ("q", "k", "v", "r"):  # [D, H, E]; o is [D, H, E] too, but is the way back
                    value = value.flatten(1).T
                elif rest[-1] == "o":
                    value = value.flatten(1)
                result[f"trunk.reader.layers.{i}.{ours}"] = value
            case _:
                ours = _renamed(name, head or {})
                assert ours, f"unmapped: {name}"
                result[ours] = value
    return result


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
    """transformers copied TensorFlow's initial memory and cluster order, but PyTorch's `same_length`, whose span is
    the memory length, the token itself included (TensorFlow's is one longer)."""
    clamp = {"clamp_distance": settings.clamp_len} if settings.clamp_len > 0 else {}
    return model_config(
        vocabulary={
            "size": settings.vocab_size,
            "width": settings.d_embed,
            "scale": True,
            "cutoffs": settings.cutoffs,
            "shrink": settings.div_val,
            "tie_weights": settings.tie_word_embeddings,
            "tie_projections": "all_but_first" if any(settings.tie_projs) else "none",
            "cluster_order": "forward",
        },
        positions={"kind": "xl", "shared_biases": not settings.untie_r} | clamp,
        memory={"length": settings.mem_len, "initial": "zeros"},
        num_layers=settings.n_layer,
        width=settings.d_model,
        num_heads=settings.n_head,
        head_width=settings.d_head,
        inner_width=settings.d_inner,
        norm_first=settings.pre_lnorm,
        norm_epsilon=settings.layer_norm_epsilon,
        **({"attention_span": settings.mem_len} if settings.same_length else {}),
    )


def transfo_xl_state(state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    """Mostly the names of the original PyTorch code, so its map does most."""
    result: dict[str, Tensor] = {}
    original: dict[str, Tensor] = {}
    for name, value in state.items():
        match name.removeprefix("transformer.").split("."):
            case ["layers", i, "dec_attn", "r_w_bias" | "r_r_bias" as which]:
                if settings.untie_r:
                    result[f"trunk.reader.biases.{i}.{_XLNET_BIASES[which]}"] = value
                else:
                    assert torch.equal(value, state[f"transformer.{which}"])
            case ["crit", "out_layers", i, "weight"]:
                if settings.tie_word_embeddings:
                    assert torch.equal(value, state[f"transformer.word_emb.emb_layers.{i}.weight"])
                else:
                    result[f"softmax.tables.{i}"] = value
            case ["crit", "out_projs", i] if settings.tie_projs[int(i)]:
                source = i if settings.div_val > 1 else "0"
                assert torch.equal(value, state[f"transformer.word_emb.emb_projs.{source}"])
            case ["score", "weight"]:
                result["classifier.weight"] = value
            case parts:
                original[".".join(parts)] = value
    return result | pytorch_state({name: value.numpy() for name, value in original.items()})
