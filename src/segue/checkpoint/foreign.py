"""Checkpoints of others as models: settings translated, tensors mapped, every one of them accounted for.

In: a path of any supported format, settings that it does not say. Out: a `Foreign`: the model, and how it came about.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from segue.checkpoint.detect import Detected, detect, read_settings
from segue.checkpoint.files import locate, shortened
from segue.checkpoint.folder import TOKENIZER, load, model_of_run
from segue.checkpoint.heads import HeadConfig, build, head_config, load_head
from segue.checkpoint.names import (
    transformer_xl_original,
    transformer_xl_tensorflow,
    transformer_xl_transformers,
    xlnet_tensorflow,
    xlnet_transformers,
)
from segue.checkpoint.names.rules import Row, Table, to_ours
from segue.checkpoint.source import TensorSource
from segue.checkpoint.vocabularies import find_tokenizer
from segue.config import ModelConfig, parse, toml_value
from segue.errors import CheckpointError
from segue.model.build import shapes_only
from segue.model.named import named_models
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A model that was read, and what became of each tensor of its file."""

    detected: Detected
    format: str
    """What it was, in words."""
    model: nn.Module
    config: ModelConfig
    head: HeadConfig | None = None
    scope: str = "task"
    """The name of a fine-tuned task, where the format has one."""
    step: int | None = None
    """Of the training, where the checkpoint says it."""
    tokenizer: Tokenizer | None = None
    rows: list[Row] = field(default_factory=list)
    explained: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What a checkpoint says of its model, before anything is read."""

    values: dict[str, Any]
    """Of the `[model]` table."""
    table: Callable[[ModelConfig, HeadConfig | None], Table]
    head: HeadConfig | None = None
    scope: str = "task"
    unknown: Sequence[str] = ()
    """Settings of `[model]` that must be given, because the file does not show them."""
    notes: Sequence[str] = ()
    guesses: Mapping[str, str] = field(default_factory=dict)
    """Notes on settings of `[model]` that were taken without being told."""


def read_foreign(
    path: str | Path,
    *,
    overrides: Sequence[str] = (),
    head: str | None = None,
    vocabulary: str | Path | None = None,
) -> Foreign:
    """Reads a checkpoint of anyone's, a segue folder or run too. `overrides` are `model.key=value` and
    `head.key=value`; `head` chooses among several heads of one checkpoint; `vocabulary` is a tokeniser that is not
    beside the weights."""
    detected = detect(model_of_run(locate(Path(path))))
    if detected.kind in ("segue model", "segue model with a head"):
        if overrides or head:
            raise CheckpointError(
                f"{path} is a model folder with a config of its own; got other settings too. Leave them out."
            )
        return _own(detected)
    if detected.source is None:
        raise CheckpointError(f"{path} must hold a model; got a {detected.kind}. Give the path of its weights.")
    if detected.family is None:
        raise CheckpointError(
            f"{path} must hold the tensors of a Transformer-XL or an XLNet; got a {detected.kind} with others. "
            "`segue inspect` shows them."
        )
    plan = _guarded(detected, lambda: _plan(detected, detected.source, head))
    config, chosen = _configured(plan, overrides)
    guessed = {name: why for name, why in plan.guesses.items() if not _is_given(name, overrides)}
    notes = [
        *plan.notes,
        *(f"model.{name}: {why}. --set model.{name}=... says otherwise." for name, why in guessed.items()),
    ]
    return _filled(detected, replace(plan, notes=notes), config, chosen, vocabulary)


def _own(detected: Detected) -> Foreign:
    path = detected.path
    head: HeadConfig | None = None
    model: nn.Module
    if detected.kind == "segue model":
        model = load(path)
    else:
        model, head = load_head(path)
    tokenizer = load_tokenizer(path / TOKENIZER) if (path / TOKENIZER).is_dir() else None
    trunk = model.get_submodule("trunk")
    config = trunk.config
    assert isinstance(config, ModelConfig)
    return Foreign(
        detected=detected,
        format=detected.kind,
        model=model,
        config=config,
        head=head,
        step=_own_step(path),
        tokenizer=tokenizer,
    )


def _own_step(path: Path) -> int | None:
    """That of a stopped run, which is kept with the state of its training."""
    state = path / "training" / "state.json"
    step = read_settings(state).get("step") if state.is_file() else None
    return step if type(step) is int and 0 <= step < 1 << 63 else None


def _tensorflow_step(source: TensorSource) -> int | None:
    info = source.tensors.get("global_step")
    if info is None or info.shape or info.dtype not in (torch.int64, torch.int32):
        return None
    step = int(source.read("global_step"))
    return step if step >= 0 else None


def _filled(
    detected: Detected, plan: _Plan, config: ModelConfig, head: HeadConfig | None, vocabulary: str | Path | None
) -> Foreign:
    source = detected.source
    assert source is not None
    if max(config.num_layers, len(config.vocabulary.cutoffs)) > len(source.tensors):
        raise CheckpointError(
            f"{detected.path} must hold the tensors of its config; got {len(source.tensors)} tensors for "
            f"{config.num_layers} layers and {len(config.vocabulary.cutoffs)} cutoffs. Correct the config."
        )
    try:
        with shapes_only():
            model = build(config, head)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{detected.path} must have a config to build; got {shortened(error)}. Correct it."
        ) from None
    table = plan.table(config, head)
    mapped = to_ours(table, source, model.state_dict())
    tensors, widened = _of_one_dtype(mapped.tensors)
    model.load_state_dict(tensors, assign=True)
    place = detected.folder if vocabulary is None else Path(vocabulary)
    beside = (place if place.is_dir() else place.parent) / "tokenizer_config.json"
    settings = read_settings(beside) if beside.is_file() else {}
    tokenizer, known = find_tokenizer(place, size=config.vocabulary.size, settings=settings)
    return Foreign(
        detected=detected,
        format=f"{table.family} ({detected.kind})",
        model=model.eval(),
        config=config,
        head=head,
        scope=plan.scope,
        step=_tensorflow_step(source),
        tokenizer=tokenizer,
        rows=mapped.rows,
        explained=mapped.explained,
        notes=[*plan.notes, *widened, *known],
    )


def _of_one_dtype(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """All in the narrowest dtype that holds each exactly, and a note if that changed any: a model computes in one."""
    dtypes = sorted({str(value.dtype).removeprefix("torch.") for value in tensors.values()})
    if len(dtypes) < 2:
        return tensors, []
    widest = reduce(torch.promote_types, (value.dtype for value in tensors.values()))
    note = f"tensors of {' and '.join(dtypes)}: all are {str(widest).removeprefix('torch.')} now, with the same values."
    return {name: value.to(widest) for name, value in tensors.items()}, [note]


# ------------------------------------------------------------------------------------------------ settings


def _configured(plan: _Plan, overrides: Sequence[str]) -> tuple[ModelConfig, HeadConfig | None]:
    """The config and the head with what the user gave."""
    for text in overrides:
        if not text.startswith(("model.", "head.")) or "=" not in text:
            raise CheckpointError(
                f"a setting must read model.key=value or head.key=value; got {text!r}. "
                "Write model.memory.length=1600, say."
            )
    values = {key: value for key, value in plan.values.items() if value is not None}
    if missing := [name for name in plan.unknown if not _is_given(name, overrides)]:
        raise CheckpointError(
            f"{', '.join(f'model.{name}' for name in missing)} must be given, because the file does not say; got "
            f"nothing. Add {' '.join(f'--set model.{name}=VALUE' for name in missing)}."
        )
    config = parse({"model": values}, [text for text in overrides if text.startswith("model.")]).model
    head = plan.head
    own = [text.removeprefix("head.") for text in overrides if text.startswith("head.")]
    if own and head is None:
        raise CheckpointError(f"{overrides[0]} is a setting of a head; the checkpoint has none. Leave it out.")
    if own and head is not None:
        head = head_config(head.model_dump() | dict(map(_parsed, own)))
    return config, head


def _is_given(name: str, overrides: Sequence[str]) -> bool:
    keys = [text.partition("=")[0].strip() for text in overrides]
    return any(f"model.{name}.".startswith(f"{key}.") for key in keys)


def _parsed(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key.strip(), toml_value(value)


def _guarded(detected: Detected, plan: Callable[[], _Plan]) -> _Plan:
    """A config of nonsense is the file's fault, not ours."""
    try:
        return plan()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"{detected.path} must have the settings and tensors of its kind; got {type(error).__name__}: {error}. "
            "Use another copy, or correct its config."
        ) from None


# --------------------------------------------------------------------------------------------------- plans


def _plan(detected: Detected, source: TensorSource | None, head: str | None) -> _Plan:
    assert source is not None
    if head is not None and detected.family != "xlnet_tensorflow":
        raise CheckpointError(f"only a TensorFlow checkpoint may have several heads; got --head {head}. Leave it out.")
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


def _xlnet_transformers(settings: Mapping[str, Any], source: TensorSource) -> _Plan:
    _needs_settings(settings, "xlnet")
    base = "word_embedding.weight" in source.tensors
    return _Plan(
        values=xlnet_transformers.values(settings),
        table=partial(xlnet_transformers.table, base=base),
        head=xlnet_transformers.head(settings, source.tensors),
        notes=xlnet_transformers.notes(settings),
    )


def _transformer_xl_transformers(settings: Mapping[str, Any], source: TensorSource) -> _Plan:
    _needs_settings(settings, "transfo-xl")
    base = "word_emb.emb_layers.0.weight" in source.tensors
    return _Plan(
        values=transformer_xl_transformers.values(settings),
        table=partial(transformer_xl_transformers.table, base=base),
        head=transformer_xl_transformers.head(settings, source.tensors),
    )


def _xlnet_tensorflow(settings: Mapping[str, Any], source: TensorSource, head: str | None) -> _Plan:
    unknown = []
    if not settings:
        settings = {"ff_activation": "gelu"} | xlnet_tensorflow.settings_of_shapes(source.tensors)
        unknown.append("activation")
    heads = xlnet_tensorflow.heads(source.tensors)
    if head is None and len(heads) > 1:
        raise CheckpointError(
            f"of several heads, one must be chosen; got {', '.join(heads)}. Add --head {next(iter(heads))}, say."
        )
    if head is not None and head not in (*heads, "none"):
        raise CheckpointError(f"--head must be one of {', '.join([*heads, 'none'])}; got {head!r}. Use one of these.")
    scope = next(iter(heads), "task") if head is None else head
    return _Plan(
        values=xlnet_tensorflow.values(settings),
        table=partial(xlnet_tensorflow.table, scope=scope),
        head=heads.get(scope),
        scope=scope if scope in heads else "task",
        unknown=unknown,
        guesses={"memory.length": "none, because the file does not say; 384 was that of the pretraining"},
    )


def _transformer_xl_tensorflow(source: TensorSource) -> _Plan:
    flags = transformer_xl_tensorflow.settings_of_shapes(source.tensors)
    values = transformer_xl_tensorflow.values(flags)
    name, memory = _released(values)
    values["memory"] = {"initial": "zeros"} | ({} if memory is None else {"length": memory})
    return _Plan(
        values=values,
        table=lambda config, _: transformer_xl_tensorflow.table(config),
        unknown=["memory.length"] if memory is None else [],
        guesses={} if name is None else {"memory.length": f"{memory}, as in {name}, which has the same shapes"},
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


def _transformer_xl_original(detected: Detected, source: TensorSource) -> _Plan:
    settings, unknown = dict(detected.settings), list[str]()
    if "n_layer" not in settings:
        settings, unknown = transformer_xl_original.settings_of_file(source, detected.attributes)
    bare = "n_layer" not in detected.settings and "n_layer" not in detected.attributes.get("", {})
    return _Plan(
        values=transformer_xl_original.values(settings),
        table=lambda config, _: transformer_xl_original.table(config),
        unknown=unknown,
        notes=transformer_xl_original.notes(settings),
        guesses={"norm_first": "false; a state dict does not show it"} if bare else {},
    )
