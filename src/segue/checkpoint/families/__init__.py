"""Foreign checkpoint formats: one `Family` for each format of tensor names and settings, readable and writable.

`family` defines the Family; `rules` the building blocks of its table of tensor names; `bins` the projections of an
adaptive vocabulary; `absolute` the parts shared by BERT and GPT-2; `writing` checks whether a model can be written in a
family and builds what is written. Each other file is a family and ends with its value, `FAMILY`. Nothing here opens a
file.
"""

from collections.abc import Collection, Mapping
from typing import Any

from segue.checkpoint.families import (
    bert_transformers,
    gpt2_transformers,
    transformer_xl_original,
    transformer_xl_tensorflow,
    transformer_xl_transformers,
    xlnet_tensorflow,
    xlnet_transformers,
)
from segue.checkpoint.families.family import Family, Target
from segue.config import ModelConfig

FAMILIES = (
    xlnet_tensorflow.FAMILY,
    transformer_xl_tensorflow.FAMILY,
    xlnet_transformers.FAMILY,
    bert_transformers.FAMILY,
    gpt2_transformers.FAMILY,
    transformer_xl_transformers.FAMILY,
    transformer_xl_original.FAMILY,
)
"""All families, in the order in which they are tried for reading and for writing."""


def recognise(names: Collection[str], settings: Mapping[str, Any]) -> Family | None:
    """Return the family of a checkpoint with these tensors and settings; None if segue knows none."""
    return next((family for family in FAMILIES if family.recognises(names, settings)), None)


def family_for(config: ModelConfig, to: Target) -> Family:
    """Return the family to write a model in for a target: the first that suits it. The original PyTorch code has no
    XLNet; its family raises the error."""
    families = [family for family in FAMILIES if family.target == to]
    return next((family for family in families if family.suits(config)), families[0])
