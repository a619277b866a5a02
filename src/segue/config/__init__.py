"""Settings: what there is (`schema`), what goes together (`rules`), how they are read and written (`load`), and how
large the model is that they describe (`size`).

Knows nothing of torch. What the settings do is the business of `model/`.
"""

from segue.config.load import (
    changed,
    dump,
    load,
    merge,
    model_config,
    parse,
    read_config_file,
    settings,
    toml,
    toml_value,
)
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
from segue.config.size import parameter_count, trunk_parameter_count

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
    "merge",
    "model_config",
    "parameter_count",
    "parse",
    "read_config_file",
    "settings",
    "toml",
    "toml_value",
    "trunk_parameter_count",
]
