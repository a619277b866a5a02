"""The original implementations' configs and weights for the fixtures in tests/fixtures, through segue's name tables."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from segue.checkpoint.families import transformer_xl_original, transformer_xl_tensorflow, xlnet_tensorflow
from segue.checkpoint.families.rules import NameTable
from segue.checkpoint.source import TensorInfo
from segue.config import ModelConfig, changed, model_config
from segue.model import LanguageModel

FIXTURES = Path(__file__).parent / "fixtures"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


@dataclass(frozen=True)
class Held:
    """Tensors in memory, as a source that a table reads."""

    held: Mapping[str, Tensor]

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {n: TensorInfo(shape=tuple(t.shape), dtype=t.dtype) for n, t in self.held.items()}

    def read(self, name: str) -> Tensor:
        return self.held[name]


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


def tensors(values: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(value, order="C")) for name, value in values.items()}


def mapped(table: NameTable, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights or gradients under segue's names: some may be missing, none may be left over, copies must be equal."""
    result: dict[str, Tensor] = {}
    known = {copy.theirs for copy in table.copies}
    for rule in table.rules:
        known |= set(rule.theirs)
        if all(name in theirs for name in rule.theirs):
            values = rule.change.forward(tuple(theirs[name] for name in rule.theirs))
            result.update(zip(rule.ours, values, strict=True))
    for copy in table.copies:
        assert copy.theirs not in theirs or torch.equal(theirs[copy.theirs], theirs[copy.of]), copy
    left = [name for name in theirs if name not in known and table.why(name) is None]
    assert not left, f"unmapped: {left}"
    return result


# ------------------------------------------------------------------------------- Transformer-XL, PyTorch


def pytorch_state(state: Mapping[str, np.ndarray], config: ModelConfig | None = None) -> dict[str, Tensor]:
    """`config`: left out, what the shapes show."""
    theirs = tensors(state)
    if config is None:
        settings, _ = transformer_xl_original.settings_of_file(Held(theirs), {})
        config = model_config(**transformer_xl_original.values(settings))
    return mapped(transformer_xl_original.table(config), theirs)


def load_pytorch(name: str, dtype: torch.dtype) -> tuple[LanguageModel, dict]:
    folder = FIXTURES / "transformer_xl_pytorch" / name
    settings = json.loads((folder / "config.json").read_text())
    config = model_config(**transformer_xl_original.values(settings["model"]))
    return build(config, pytorch_state(arrays(folder / "state.npz"), config), dtype), settings


# ---------------------------------------------------------------------------- Transformer-XL, TensorFlow


def load_tensorflow(name: str, run: str, dtype: torch.dtype) -> LanguageModel:
    folder = FIXTURES / "transformer_xl_tf" / name
    settings = json.loads((folder / "config.json").read_text())
    config = model_config(**transformer_xl_tensorflow.values(settings["model"] | settings["runs"][run]))
    theirs = tensors(arrays(folder / "model.npz"))
    return build(config, mapped(transformer_xl_tensorflow.table(config), theirs), dtype)


# ------------------------------------------------------------------------------------------------- XLNet


def xlnet_config(name: str) -> ModelConfig:
    settings = json.loads((FIXTURES / "xlnet" / name / "xlnet_config.json").read_text())
    return model_config(**xlnet_tensorflow.values(settings))


def xlnet_state(variables: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The trunk and the softmax; variables of heads are left to their tests."""
    theirs = tensors(variables)
    settings = xlnet_tensorflow.settings_of_shapes(Held(theirs).tensors) | {"ff_activation": "relu"}
    return mapped(xlnet_tensorflow.table(model_config(**xlnet_tensorflow.values(settings))), theirs)


def load_xlnet(name: str, dtype: torch.dtype, **settings: object) -> LanguageModel:
    config = changed(xlnet_config(name), **settings)
    return build(config, xlnet_state(arrays(FIXTURES / "xlnet" / name / "model.npz")), dtype)
