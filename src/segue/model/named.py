"""The named models: each is a config for the common trunk, and no behaviour depends on its name.

Sizes and settings are those of the papers and of the released checkpoints; docs/differences.md compares them.
"""

import difflib
from dataclasses import dataclass
from functools import cache
from typing import Any

from segue.config import ModelConfig, model_config, parameter_count
from segue.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """A config with a description and its paper."""

    config: ModelConfig
    about: str
    paper: str
    for_transformers: bool = True
    """Whether transformers can express it, if it is a Transformer-XL or an XLNet."""

    def parameters(self) -> int:
        """Return the number of parameters of the language model."""
        return parameter_count(self.config)


_TRANSFORMER_XL = "Dai et al. 2019, arXiv 1901.02860"
_XLNET = "Yang et al. 2019, arXiv 1906.08237"
_CHINESE_XLNET = "Cui et al. 2020, arXiv 2004.13922"
_AL_RFOU = "Al-Rfou et al. 2018, arXiv 1808.04444"
_GPT = "Radford et al. 2018"
_BERT = "Devlin et al. 2018, arXiv 1810.04805"
_SHAW = "Shaw et al. 2018, arXiv 1803.02155"
_ELMO = "Peters et al. 2018, arXiv 1802.05365"


def transformer_xl(*, vocabulary_size: int, memory_length: int, **settings: Any) -> ModelConfig:
    """Return the config of a Transformer-XL: causal, with memory and the relative positional encoding with u and v."""
    vocabulary = {"size": vocabulary_size, "scale": True} | settings.pop("vocabulary", {})
    memory = {"length": memory_length} | settings.pop("memory", {})
    return model_config(vocabulary=vocabulary, memory=memory, **settings)


def _released_transformer_xl(**settings: Any) -> ModelConfig:
    """Return the config of a TensorFlow release: memory starts as zeros, LayerNorm has the smaller epsilon."""
    return transformer_xl(memory={"initial": "zeros"}, norm_epsilon=1e-12, **settings)


def xlnet(*, vocabulary_size: int = 32000, **settings: Any) -> ModelConfig:
    """Return the config of an XLNet: two-stream attention over permutations, relative segments, untied biases, memory
    as in its pretraining."""
    defaults: dict[str, Any] = {
        "positions": {"kind": "xl", "shared_biases": False},
        "memory": {"length": 384, "reuse_length": 256},
        "activation": "gelu_tanh",
        "attention_dropout": 0.1,
        "norm_epsilon": 1e-12,
    }
    return model_config(
        objective="permutation",
        vocabulary={"size": vocabulary_size},
        segments="relative",
        **(defaults | settings),
    )


def vanilla(*, vocabulary_size: int = 256, **settings: Any) -> ModelConfig:
    """Return the config of Al-Rfou et al.: a causal model without memory, with learned positions in every layer and
    auxiliary losses."""
    defaults: dict[str, Any] = {
        "positions": {"kind": "per_layer", "max_length": 512},
        "auxiliary": {"targets": 2},
        "dropout": 0.55,
        "attention_dropout": 0.55,
    }
    return model_config(vocabulary={"size": vocabulary_size, "tie_weights": False}, **(defaults | settings))


def gpt(*, vocabulary_size: int = 40478, **settings: Any) -> ModelConfig:
    """Return the config of a GPT: causal, without memory, with learned absolute positions."""
    defaults: dict[str, Any] = {
        "positions": {"kind": "absolute", "encoding": "learned", "max_length": 512},
        "activation": "gelu_tanh",
        "attention_bias": True,
        "attention_dropout": 0.1,
    }
    return model_config(vocabulary={"size": vocabulary_size}, **(defaults | settings))


def bert(*, vocabulary_size: int = 30522, **settings: Any) -> ModelConfig:
    """Return the config of a BERT: masked, bidirectional, with learned absolute positions and segments."""
    defaults: dict[str, Any] = {
        "positions": {"kind": "absolute", "encoding": "learned", "max_length": 512},
        "segments": "absolute",
        "activation": "gelu",
        "attention_bias": True,
        "embedding_norm": True,
        "attention_dropout": 0.1,
        "norm_epsilon": 1e-12,
    }
    vocabulary = {"size": vocabulary_size, "transform": True}
    return model_config(objective="masked", vocabulary=vocabulary, **(defaults | settings))


_WT103_BASE: dict[str, Any] = {
    "num_layers": 16,
    "width": 410,
    "num_heads": 10,
    "head_width": 41,
    "inner_width": 2100,
}
_WT103_WORDS: dict[str, Any] = {"cutoffs": [20000, 40000, 200000]}
_LM1B_WORDS: dict[str, Any] = {
    "cutoffs": [60000, 100000, 640000],
    "shrink": 4,
    "project_first_bin": False,
    "tie_projections": "none",
}
_ENWIK8_LARGE: dict[str, Any] = {
    "num_layers": 24,
    "width": 1024,
    "num_heads": 8,
    "inner_width": 3072,
    "dropout": 0.15,
    "attention_dropout": 0.15,
}
_BASE: dict[str, Any] = {"num_layers": 12, "width": 768, "num_heads": 12, "inner_width": 3072}
_LARGE: dict[str, Any] = {"num_layers": 24, "width": 1024, "num_heads": 16, "inner_width": 4096}
_UNTIED: dict[str, Any] = {"kind": "xl", "shared_biases": False}


@cache
def named_models() -> dict[str, NamedModel]:
    """Return all named models, by name."""
    return {
        "transformer-xl-wt103-base": NamedModel(
            config=transformer_xl(vocabulary_size=267735, memory_length=150, vocabulary=_WT103_WORDS, **_WT103_BASE),
            about="Transformer-XL, words of WikiText-103, base recipe",
            paper=_TRANSFORMER_XL,
        ),
        "transformer-xl-wt103": NamedModel(
            config=_released_transformer_xl(
                vocabulary_size=267735,
                memory_length=384,
                vocabulary=_WT103_WORDS | {"shrink": 4},
                positions=_UNTIED,
                num_layers=18,
                width=1024,
                num_heads=16,
                inner_width=4096,
                dropout=0.2,
                attention_dropout=0.2,
                init_std=0.005,
            ),
            about="Transformer-XL, words of WikiText-103, as released",
            paper=_TRANSFORMER_XL,
        ),
        "transformer-xl-enwik8-base": NamedModel(
            config=transformer_xl(vocabulary_size=204, memory_length=512),
            about="Transformer-XL, bytes of enwik8, base recipe",
            paper=_TRANSFORMER_XL,
        ),
        "transformer-xl-enwik8": NamedModel(
            config=_released_transformer_xl(vocabulary_size=204, memory_length=768, **_ENWIK8_LARGE),
            about="Transformer-XL, bytes of enwik8, as released",
            paper=_TRANSFORMER_XL,
        ),
        "transformer-xl-text8": NamedModel(
            config=_released_transformer_xl(vocabulary_size=27, memory_length=768, **_ENWIK8_LARGE),
            about="Transformer-XL, letters of text8, as released",
            paper=_TRANSFORMER_XL,
        ),
        "transformer-xl-lm1b": NamedModel(
            config=_released_transformer_xl(
                vocabulary_size=793471,
                memory_length=32,
                vocabulary=_LM1B_WORDS,
                positions=_UNTIED,
                num_layers=24,
                width=1280,
                num_heads=16,
                inner_width=8192,
                dropout=0.05,
                attention_dropout=0.05,
                init_std=0.005,
            ),
            about="Transformer-XL, words of One Billion Word, as released",
            paper=_TRANSFORMER_XL,
            for_transformers=False,
        ),
        "xlnet-base": NamedModel(config=xlnet(**_BASE), about="XLNet, English, base", paper=_XLNET),
        "xlnet-large": NamedModel(config=xlnet(**_LARGE), about="XLNet, English, large", paper=_XLNET),
        "xlnet-chinese-base": NamedModel(
            config=xlnet(**_BASE, activation="relu"), about="XLNet, Chinese, base", paper=_CHINESE_XLNET
        ),
        "xlnet-chinese-mid": NamedModel(
            config=xlnet(**(_BASE | {"num_layers": 24}), activation="relu"),
            about="XLNet, Chinese, mid",
            paper=_CHINESE_XLNET,
        ),
        "vanilla-12": NamedModel(
            config=vanilla(num_layers=12, width=512, num_heads=2, inner_width=2048),
            about="Vanilla Transformer, bytes, 12 layers, auxiliary losses",
            paper=_AL_RFOU,
        ),
        "vanilla-64": NamedModel(
            config=vanilla(num_layers=64, width=512, num_heads=2, inner_width=2048),
            about="Vanilla Transformer, bytes, 64 layers, auxiliary losses",
            paper=_AL_RFOU,
        ),
        "gpt": NamedModel(config=gpt(**_BASE), about="GPT: causal, absolute positions", paper=_GPT),
        "bert-base": NamedModel(config=bert(**_BASE), about="BERT, base", paper=_BERT),
        "bert-large": NamedModel(config=bert(**_LARGE), about="BERT, large", paper=_BERT),
        "bert-memory": NamedModel(
            config=bert(
                vocabulary_size=32000,
                positions=_UNTIED,
                segments="relative",
                memory={"length": 384},
                **_BASE,
            ),
            about="BERT's objective with memory and relative positions (DAE + Transformer-XL)",
            paper=_XLNET,
        ),
        "shaw": NamedModel(
            config=transformer_xl(
                vocabulary_size=267735,
                memory_length=150,
                vocabulary=_WT103_WORDS,
                positions={"kind": "shaw", "clip_distance": 16},
                **_WT103_BASE,
            ),
            about="Clipped relative positions on keys and values, with memory",
            paper=_SHAW,
        ),
        "two-direction": NamedModel(
            config=transformer_xl(vocabulary_size=32000, memory_length=128, directions="both", num_layers=6),
            about="One causal reader each way, states joined (ELMo's idea)",
            paper=_ELMO,
            for_transformers=False,
        ),
    }


def named(name: str) -> ModelConfig:
    """Return the config of a named model; `segue models` lists them."""
    models = named_models()
    if not isinstance(name, str) or name not in models:
        nearest = difflib.get_close_matches(str(name), models, n=1, cutoff=0.3)
        hint = f"Did you mean {nearest[0]}?" if nearest else "`segue models` lists them."
        raise ConfigError(f"a named model must be one of {', '.join(models)}; got {name!r}. {hint}")
    return models[name].config
