"""Every model at a size at which everything can be tried: the named ones, and the choices that have no name."""

import torch

from segue.config import ModelConfig, changed
from segue.model import LanguageModel
from segue.model.named import named_models

VOCABULARY = 23


def shrunk(config: ModelConfig, **settings: object) -> ModelConfig:
    """The same choices, small; the head width is independent of the model width on purpose."""
    words = {"size": VOCABULARY, "cutoffs": [7, 13] if config.vocabulary.cutoffs else []}
    words["shrink"] = min(config.vocabulary.shrink, 2)
    small: dict[str, object] = {
        "vocabulary": words,
        "num_layers": 2,
        "width": 12,
        "num_heads": 2,
        "head_width": 4,
        "inner_width": 10,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if config.memory is not None:
        small["memory"] = {"length": 6} | ({"reuse_length": 3} if config.memory.reuse_length else {})
    if config.positions.kind == "shaw":
        small["positions"] = {"clip_distance": 3}
    if hasattr(config.positions, "max_length"):
        small["positions"] = {"max_length": 48}
    return changed(changed(config, **small), **settings)


def _all() -> dict[str, ModelConfig]:
    models: dict[str, ModelConfig] = {}
    for name, model in named_models().items():
        small = shrunk(model.config)
        if small not in models.values():  # base and large differ in size alone
            models[name] = small
    xl = models["transformer-xl-enwik8-base"]
    return models | {
        "tied": changed(xl, positions={"biases": "tied"}),
        "no-biases": changed(xl, positions={"biases": "none"}),
        "buckets": changed(xl, positions={"biases": "buckets", "shared_biases": False}),
        "shaw-keys": changed(models["shaw"], positions={"on_values": False}),
        "no-positions": changed(xl, positions={"kind": "none"}),
        "clamped": changed(xl, positions={"clamp_distance": 3}),
        "learned-relative": changed(xl, positions={"kind": "learned_relative", "max_distance": 4}),
        "absolute": changed(xl, positions={"kind": "absolute"}),
        "per-layer": changed(xl, positions={"kind": "per_layer"}),
        "rotary": changed(xl, positions={"kind": "rotary"}),
        "alibi": changed(xl, positions={"kind": "alibi"}, num_heads=3),
        "pre-norm": changed(xl, norm_first=True, final_norm=True),
        "projected": changed(xl, vocabulary={"width": 5, "tie_projections": "all"}),
        "untied": changed(models["transformer-xl-lm1b"], vocabulary={"tie_weights": False}),
        "permutation-shaw": changed(models["xlnet-base"], positions={"kind": "shaw", "clip_distance": 3}),
        "permutation-buckets": changed(models["xlnet-base"], positions={"biases": "buckets", "shared_biases": False}),
        "permutation-absolute": changed(models["xlnet-base"], positions={"kind": "absolute"}),
        "permutation-per-layer": changed(models["xlnet-base"], positions={"kind": "per_layer"}),
        "permutation-rotary": changed(models["xlnet-base"], positions={"kind": "rotary"}),
        "permutation-alibi": changed(models["xlnet-base"], positions={"kind": "alibi"}),
    }


MODELS = _all()
CAUSAL = {n: c for n, c in MODELS.items() if c.objective == "causal" and c.directions == "forward"}


def noisy(config: ModelConfig, seed: int = 0) -> LanguageModel:
    """In float64 and with noise in every parameter, biases and norms too, so that whatever is wrong shows."""
    model = LanguageModel(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4
            parameter.copy_(noise + 1 if name.endswith("norm.weight") else noise)
    return model


def random_ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))
