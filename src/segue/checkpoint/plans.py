"""What a checkpoint of another library says of its model before a weight is read: settings, head, name table, guesses.

In: what `detect` found. Out: a `Plan`, a function for each family.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from segue.checkpoint.detect import Detected
from segue.checkpoint.files import shortened
from segue.checkpoint.heads import HeadConfig
from segue.checkpoint.names import (
    transformer_xl_original,
    transformer_xl_tensorflow,
    transformer_xl_transformers,
    xlnet_tensorflow,
    xlnet_transformers,
)
from segue.checkpoint.names.rules import Table
from segue.checkpoint.source import TensorSource
from segue.config import ModelConfig
from segue.errors import CheckpointError
from segue.model.named import named_models

_NO_MEMORY = "none, because the file does not say; the pretraining had 384, with model.memory.reuse_length 256"
_ATTENTION = "attention, because the file has weights for it; a file of several heads may have them for another"
_LAST = "last, the default of the XLNet code, because the file does not say"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a checkpoint says of its model, before anything is read."""

    values: dict[str, Any]
    """Keys of the `[model]` table."""
    table: Callable[[ModelConfig, HeadConfig | None], Table]
    head: HeadConfig | None = None
    scope: str = "task"
    unknown: Sequence[str] = ()
    """Settings of `[model]` that must be given, because the file does not show them."""
    notes: Sequence[str] = ()
    guesses: Mapping[str, str] = field(default_factory=dict)
    """Notes on settings that were taken without being told: `model.memory.length`, say."""


def make_plan(detected: Detected, source: TensorSource, head: str | None) -> Plan:
    """The plan of a checkpoint whose family is known; `head` chooses among several heads."""
    if head is not None and detected.family != "xlnet_tensorflow":
        raise CheckpointError(
            f"a head is chosen of a TensorFlow checkpoint, which may have several; got {head!r}. Leave it out."
        )
    match detected.family:
        case "xlnet_transformers":
            return _xlnet_transformers(detected.settings, source)
        case "transformer_xl_transformers":
            return _transformer_xl_transformers(detected.settings, source)
        case "xlnet_tensorflow":
            return _xlnet_tensorflow(detected.settings, source, head)
        case "transformer_xl_tensorflow":
            return _transformer_xl_tensorflow(source)
        case _:
            return _transformer_xl_original(detected, source)


def _needs_settings(settings: Mapping[str, Any], model_type: str) -> None:
    if "model_type" not in settings:
        raise CheckpointError(
            "weights of transformers must have their config.json beside them; got none. Copy it there."
        )
    if settings["model_type"] != model_type:
        raise CheckpointError(
            f'model_type in config.json must be "{model_type}", as the tensors are; got '
            f"{shortened(repr(settings['model_type']))}. Use the config of these weights."
        )


def _xlnet_transformers(settings: Mapping[str, Any], source: TensorSource) -> Plan:
    _needs_settings(settings, "xlnet")
    base = "word_embedding.weight" in source.tensors
    return Plan(
        values=xlnet_transformers.values(settings),
        table=partial(xlnet_transformers.table, base=base),
        head=xlnet_transformers.head(settings, source.tensors),
        notes=xlnet_transformers.notes(settings),
    )


def _transformer_xl_transformers(settings: Mapping[str, Any], source: TensorSource) -> Plan:
    _needs_settings(settings, "transfo-xl")
    base = "word_emb.emb_layers.0.weight" in source.tensors
    return Plan(
        values=transformer_xl_transformers.values(settings),
        table=partial(transformer_xl_transformers.table, base=base),
        head=transformer_xl_transformers.head(settings, source.tensors),
    )


def _xlnet_tensorflow(settings: Mapping[str, Any], source: TensorSource, head: str | None) -> Plan:
    unknown = []
    if not settings:
        settings = {"ff_activation": "gelu"} | xlnet_tensorflow.settings_of_shapes(source.tensors)
        unknown.append("activation")
    heads = xlnet_tensorflow.heads(source.tensors)
    if head is None and len(heads) > 1:
        raise CheckpointError(
            f"of several heads, one must be chosen; got {', '.join(heads)}.",
            remedy=f"Pass head={next(iter(heads))!r}, say, to segue.checkpoint.convert.convert.",
            option=f"With segue convert, add --head {next(iter(heads))}, say.",
        )
    if head is not None and head not in (*heads, "none"):
        raise CheckpointError(f"the head must be one of {', '.join([*heads, 'none'])}; got {head!r}. Use one of these.")
    scope = next(iter(heads), "task") if head is None else head
    chosen = heads.get(scope)
    return Plan(
        values=xlnet_tensorflow.values(settings),
        table=partial(xlnet_tensorflow.table, scope=scope),
        head=chosen,
        scope=scope if scope in heads else "task",
        unknown=unknown,
        guesses={"model.memory.length": _NO_MEMORY} | _summary_guess(chosen),
    )


def _summary_guess(head: HeadConfig | None) -> dict[str, str]:
    """How a head makes one vector of a sequence leaves no trace in a file but for the weights of attention, and these
    may be of another head."""
    if head is None or head.kind not in ("sequence_classifier", "sequence_scorer"):
        return {}
    return {"head.summary": _ATTENTION if head.summary == "attention" else _LAST}


def _transformer_xl_tensorflow(source: TensorSource) -> Plan:
    flags = transformer_xl_tensorflow.settings_of_shapes(source.tensors)
    values = transformer_xl_tensorflow.values(flags)
    name, memory = _released(values)
    values["memory"] = {"initial": "zeros"} | ({} if memory is None else {"length": memory})
    return Plan(
        values=values,
        table=lambda config, _: transformer_xl_tensorflow.table(config),
        unknown=["memory.length"] if memory is None else [],
        guesses={} if name is None else {"model.memory.length": f"{memory}, as in {name}, which has the same shapes"},
    )


def _released(values: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """A released model of the same sizes, and its memory length."""
    sizes = ("num_layers", "width", "num_heads", "head_width", "inner_width")
    for name, model in named_models().items():
        config = model.config
        same = all(getattr(config, size) == values[size] for size in sizes)
        if same and config.vocabulary.size == values["vocabulary"]["size"] and config.memory is not None:
            return name, config.memory.length
    return None, None


def _transformer_xl_original(detected: Detected, source: TensorSource) -> Plan:
    settings, unknown = dict(detected.settings), list[str]()
    if "n_layer" not in settings:
        settings, unknown = transformer_xl_original.settings_of_file(source, detected.attributes)
    bare = "n_layer" not in detected.settings and "n_layer" not in detected.attributes.get("", {})
    return Plan(
        values=transformer_xl_original.values(settings),
        table=lambda config, _: transformer_xl_original.table(config),
        unknown=unknown,
        notes=transformer_xl_original.notes(settings),
        guesses={"model.norm_first": "false; a state dict does not show it"} if bare else {},
    )
