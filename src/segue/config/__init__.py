"""Settings: what there is (`schema`), what goes together (`rules`), how they are read and written (`load`).

Knows nothing of torch. What the settings do is the business of `model/`.
"""

from segue.config.load import changed, dump, load, model_config, parse, settings
from segue.config.schema import (
    AbsolutePositions,
    AlibiPositions,
    AuxiliaryConfig,
    Config,
    DataConfig,
    FinetuneConfig,
    LearnedRelativePositions,
    MaskingConfig,
    MemoryConfig,
    ModelConfig,
    PerLayerPositions,
    PermutationConfig,
    ReadConfig,
    RotaryPositions,
    Section,
    ShawPositions,
    TrainConfig,
    VocabularyConfig,
    XLPositions,
)

__all__ = [
    "AbsolutePositions",
    "AlibiPositions",
    "AuxiliaryConfig",
    "Config",
    "DataConfig",
    "FinetuneConfig",
    "LearnedRelativePositions",
    "MaskingConfig",
    "MemoryConfig",
    "ModelConfig",
    "PerLayerPositions",
    "PermutationConfig",
    "ReadConfig",
    "RotaryPositions",
    "Section",
    "ShawPositions",
    "TrainConfig",
    "VocabularyConfig",
    "XLPositions",
    "changed",
    "dump",
    "load",
    "model_config",
    "parse",
    "settings",
]
