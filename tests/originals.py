"""The original implementations' configs and weights in segue's names, for the fixtures in tests/fixtures.

Each function takes arrays under the original names and returns a ModelConfig and a state dict for LanguageModel.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from segue.config import ModelConfig, changed, model_config
from segue.model import LanguageModel

FIXTURES = Path(__file__).parent / "fixtures"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def expected(folder: Path, name: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Inputs, and the results computed in that dtype; time first, as the originals work."""
    values = arrays(folder / f"{name}.npz")
    if dtype == torch.float64:
        values |= arrays(folder / f"{name}_float64.npz")
    return {name: torch.from_numpy(np.asarray(value)) for name, value in values.items()}


def build(config: ModelConfig, state: dict[str, Tensor], dtype: torch.dtype) -> LanguageModel:
    model = LanguageModel(config)
    model.load_state_dict(state, strict=True)
    return model.to(dtype).eval()


# ------------------------------------------------------------------------------- Transformer-XL, PyTorch


def pytorch_config(settings: dict) -> ModelConfig:
    length, memory = settings["tgt_len"] + settings["ext_len"], settings["mem_len"]
    tie = settings["tie_projs"]
    positions = [
        {"kind": "xl", "shared_biases": True},
        {"kind": "learned_relative", "max_distance": length + memory - 1},
        {"kind": "absolute", "encoding": "sinusoidal", "count_from": "end"},
        {"kind": "per_layer", "max_length": length},
    ][settings["attn_type"]]
    return model_config(
        vocabulary={
            "size": settings["n_token"],
            "width": settings["d_embed"],
            "scale": True,
            "cutoffs": settings["cutoffs"],
            "shrink": settings["div_val"],
            "tie_projections": "all" if tie[0] else ("all_but_first" if any(tie) else "none"),
            "cluster_order": "reversed",
        },
        positions=positions,
        num_layers=settings["n_layer"],
        width=settings["d_model"],
        num_heads=settings["n_head"],
        head_width=settings["d_head"],
        inner_width=settings["d_inner"],
        norm_first=settings["pre_lnorm"],
        norm_epsilon=1e-5,
        **({"memory": {"length": memory}} if memory else {}),
    )


def pytorch_state(state: dict[str, np.ndarray]) -> dict[str, Tensor]:
    weights = {name: torch.from_numpy(value) for name, value in state.items()}
    result: dict[str, Tensor] = {}
    for name, value in weights.items():
        parts = name.split(".")
        match parts:
            case ["word_emb", "emb_layers", i, "weight"]:
                result[f"trunk.vocabulary.tables.{i}"] = value
            case ["word_emb", "emb_projs", i]:
                result[f"trunk.vocabulary.projections.{i}"] = value
            case ["crit", "out_layers", i, "bias"]:
                result[f"softmax.token_biases.{i}"] = value
            case ["crit", "out_projs", i]:
                tied = weights.get(f"word_emb.emb_projs.{i}")
                if tied is None or not torch.equal(tied, value):
                    result[f"softmax.projections.{i}"] = value
            case ["crit", "cluster_weight" | "cluster_bias" as which]:
                result[f"softmax.{which}"] = value
            case ["layers", i, *rest]:
                result |= _pytorch_layer(f"trunk.reader.layers.{i}", ".".join(rest), value)
            case ["r_w_bias"] if value.dim() == 2:
                result["trunk.reader.biases.0.content_HE"] = value
            case ["r_r_bias"]:
                result["trunk.reader.biases.0.position_HE"] = value
            case ["r_w_bias"]:
                result |= {f"trunk.reader.biases.{i}.content_HE": u for i, u in enumerate(value)}
            case ["r_bias"]:  # the last row is distance 0
                for i, bias in enumerate(value):
                    result[f"trunk.reader.layers.{i}.attention.relative.bias.weight"] = bias.flip(0)
            case ["r_emb"] if "r_bias" in weights:
                for i, table in enumerate(value):
                    result[f"trunk.reader.layers.{i}.attention.relative.key.weight"] = table.flatten(1).flip(0)
            case ["r_emb"]:
                result |= {f"trunk.reader.per_layer.{i}.table.weight": t.flatten(1) for i, t in enumerate(value)}
            case ["crit", "out_layers", _, "weight"] | ["pos_emb", "inv_freq"]:
                pass  # tied to word_emb, and computed
            case _:
                raise AssertionError(f"unmapped: {name}")
    return result


def _pytorch_layer(layer: str, name: str, value: Tensor) -> dict[str, Tensor]:
    if name == "dec_attn.qkv_net.weight":
        names = (f"{layer}.attention.{part}.weight" for part in ("query", "key", "value"))
        return dict(zip(names, value.chunk(3), strict=True))
    if name == "dec_attn.kv_net.weight":
        return dict(zip((f"{layer}.attention.{p}.weight" for p in ("key", "value")), value.chunk(2), strict=True))
    for old, new in {
        "dec_attn.q_net": "attention.query",
        "dec_attn.o_net": "attention.out",
        "dec_attn.r_net": "attention.relative.projection",
        "dec_attn.layer_norm": "attention_norm",
        "pos_ff.CoreNet.0": "feed_forward.widen",
        "pos_ff.CoreNet.3": "feed_forward.narrow",
        "pos_ff.layer_norm": "feed_forward_norm",
    }.items():
        if name.startswith(old):
            return {f"{layer}.{new}{name.removeprefix(old)}": value}
    raise AssertionError(f"unmapped: {name}")


def load_pytorch(name: str, dtype: torch.dtype) -> tuple[LanguageModel, dict]:
    folder = FIXTURES / "transformer_xl_pytorch" / name
    settings = json.loads((folder / "config.json").read_text())
    config = pytorch_config(settings["model"])
    return build(config, pytorch_state(arrays(folder / "state.npz")), dtype), settings


# ---------------------------------------------------------------------------- Transformer-XL, TensorFlow


def load_tensorflow(name: str, run: str, dtype: torch.dtype) -> LanguageModel:
    folder = FIXTURES / "transformer_xl_tf" / name
    settings = json.loads((folder / "config.json").read_text())
    model, lengths = settings["model"], settings["runs"][run]
    positions = {"kind": "xl", "shared_biases": not model["untie_r"]}
    config = model_config(
        vocabulary={
            "size": model["n_token"],
            "width": model["d_embed"],
            "scale": True,
            "cutoffs": model["cutoffs"],
            "shrink": model["div_val"],
            "project_first_bin": model["proj_same_dim"],
            "tie_projections": "all_but_first" if model["proj_share_all_but_first"] else "none",
            "cluster_order": "forward",
        },
        positions=positions | ({"clamp_distance": lengths["clamp_len"]} if lengths["clamp_len"] > 0 else {}),
        memory={"length": lengths["mem_len"], "initial": "zeros"},
        num_layers=model["n_layer"],
        width=model["d_model"],
        num_heads=model["n_head"],
        head_width=model["d_head"],
        inner_width=model["d_inner"],
        norm_epsilon=1e-12,
    )
    if lengths["same_length"]:
        config = changed(config, attention_span=lengths["mem_len"] + 1)
    return build(config, _tensorflow_state(arrays(folder / "model.npz")), dtype)


def _tensorflow_state(variables: dict[str, np.ndarray]) -> dict[str, Tensor]:
    result: dict[str, Tensor] = {}
    for name, array in variables.items():
        value = torch.from_numpy(np.ascontiguousarray(array))
        parts = [part.removeprefix("cutoff_") for part in name.split("/")]
        match parts:
            case ["transformer", "adaptive_embed", i, "lookup_table"]:
                result[f"trunk.vocabulary.tables.{i}"] = value
            case ["transformer", "adaptive_embed", "lookup_table"]:
                result["trunk.vocabulary.tables.0"] = value
            case ["transformer", "adaptive_embed", i, "proj_W"]:
                result[f"trunk.vocabulary.projections.{i}"] = value.T
            case ["transformer", "adaptive_softmax", i, "proj"]:
                result[f"softmax.projections.{i}"] = value.T
            case ["transformer", "adaptive_softmax", i, "b"]:
                result[f"softmax.token_biases.{i}"] = value
            case ["transformer", "adaptive_softmax", "bias"]:
                result["softmax.token_biases.0"] = value
            case ["transformer", "adaptive_softmax", "0", "cluster_W"]:
                result["softmax.cluster_weight"] = value
            case ["transformer", "adaptive_softmax", "0", "cluster_b"]:
                result["softmax.cluster_bias"] = value
            case ["transformer", "r_w_bias" | "r_r_bias" as which]:
                field = {"r_w_bias": "content_HE", "r_r_bias": "position_HE"}[which]
                rows = value if value.dim() == 3 else value[None]
                result |= {f"trunk.reader.biases.{i}.{field}": row for i, row in enumerate(rows)}
            case ["transformer", layer, *rest] if layer.startswith("layer_"):
                prefix = f"trunk.reader.layers.{layer.removeprefix('layer_')}"
                result |= _tensorflow_layer(prefix, "/".join(rest), value)
            case ["global_step"]:
                pass
            case _:
                raise AssertionError(f"unmapped: {name}")
    biases = [result.pop(f"softmax.token_biases.{i}") for i in range(3) if f"softmax.token_biases.{i}" in result]
    if "trunk.vocabulary.tables.1" in result or len(biases) == 1:
        result |= {f"softmax.token_biases.{i}": bias for i, bias in enumerate(biases)}
    else:  # one table for all bins has one bias for all bins
        result["softmax.token_biases.0"] = torch.cat(biases)
    return result


_TENSORFLOW_LAYER = {
    "rel_attn/LayerNorm/gamma": "attention_norm.weight",
    "rel_attn/LayerNorm/beta": "attention_norm.bias",
    "rel_attn/o/kernel": "attention.out.weight",
    "rel_attn/r/kernel": "attention.relative.projection.weight",
    "rel_attn/q/kernel": "attention.query.weight",
    "rel_attn/k/kernel": "attention.key.weight",
    "rel_attn/v/kernel": "attention.value.weight",
    "ff/LayerNorm/gamma": "feed_forward_norm.weight",
    "ff/LayerNorm/beta": "feed_forward_norm.bias",
    "ff/layer_1/kernel": "feed_forward.widen.weight",
    "ff/layer_1/bias": "feed_forward.widen.bias",
    "ff/layer_2/kernel": "feed_forward.narrow.weight",
    "ff/layer_2/bias": "feed_forward.narrow.bias",
}


def _tensorflow_layer(layer: str, name: str, value: Tensor) -> dict[str, Tensor]:
    if name == "rel_attn/qkv/kernel":
        names = (f"{layer}.attention.{part}.weight" for part in ("query", "key", "value"))
        return dict(zip(names, value.T.chunk(3), strict=True))
    if value.dim() == 3:  # XLNet keeps the heads apart: [D, H, E], the output kernel too
        value = value.flatten(1) if name == "rel_attn/o/kernel" else value.flatten(1).T
    elif name.endswith("kernel"):
        value = value.T
    return {f"{layer}.{_TENSORFLOW_LAYER[name]}": value}


# ------------------------------------------------------------------------------------------------- XLNet


def xlnet_config(name: str) -> ModelConfig:
    settings = json.loads((FIXTURES / "xlnet" / name / "xlnet_config.json").read_text())
    return model_config(
        objective="permutation",
        vocabulary={"size": settings["n_token"]},
        positions={"kind": "xl", "shared_biases": not settings["untie_r"]},
        segments="relative",
        num_layers=settings["n_layer"],
        width=settings["d_model"],
        num_heads=settings["n_head"],
        head_width=settings["d_head"],
        inner_width=settings["d_inner"],
        activation={"gelu": "gelu_tanh", "relu": "relu"}[settings["ff_activation"]],
        norm_epsilon=1e-12,
    )


def xlnet_state(variables: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The trunk and the softmax; variables of heads are left to their tests."""
    result: dict[str, Tensor] = {}
    for name, array in variables.items():
        value = torch.from_numpy(np.ascontiguousarray(array))
        match name.removeprefix("model/").split("/"):
            case ["transformer", "word_embedding", "lookup_table"]:
                result["trunk.vocabulary.tables.0"] = value
            case ["transformer", "mask_emb", "mask_emb"]:
                result["trunk.reader.mask_embedding_D"] = value.flatten()
            case ["lm_loss", "bias"]:
                result["softmax.token_biases.0"] = value
            case ["transformer", "seg_embed"]:
                result |= {f"trunk.reader.layers.{i}.attention.segment_2HE": g for i, g in enumerate(value)}
            case ["transformer", "r_w_bias" | "r_r_bias" | "r_s_bias" as which]:
                field = {"r_w_bias": "content_HE", "r_r_bias": "position_HE", "r_s_bias": "segment_HE"}[which]
                rows = value if value.dim() == 3 else value[None]
                result |= {f"trunk.reader.biases.{i}.{field}": row for i, row in enumerate(rows)}
            case ["transformer", layer, *rest] if layer.startswith("layer_"):
                prefix = f"trunk.reader.layers.{layer.removeprefix('layer_')}"
                result |= _tensorflow_layer(prefix, "/".join(rest), value)
    return result


def load_xlnet(name: str, dtype: torch.dtype, **settings: object) -> LanguageModel:
    config = changed(xlnet_config(name), **settings)
    return build(config, xlnet_state(arrays(FIXTURES / "xlnet" / name / "model.npz")), dtype)
