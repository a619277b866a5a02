"""Foreign checkpoints read as models: settings translated, tensors mapped, every tensor accounted for.

In: a path of any supported format, and settings that it lacks. Out: a `Foreign`: the model, and a report of its origin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from segue.checkpoint.detect import Detected, detect, read_settings
from segue.checkpoint.digests import Expected
from segue.checkpoint.families.family import Opened, ReadingPlan
from segue.checkpoint.families.mapping import Row, check, to_ours
from segue.checkpoint.files import locate, shortened
from segue.checkpoint.folder import NGRAMS, TOKENIZER, load, model_of_run
from segue.checkpoint.heads import HeadConfig, build, head_config, load_head, model_config_of
from segue.checkpoint.source import TensorSource, check_memory, readable
from segue.checkpoint.vocabularies import NAMES, FoundTokenizer, find_tokenizer, notes_on_calls
from segue.config import ModelConfig, parse, toml_value
from segue.errors import CheckpointError
from segue.model.build import shapes_only
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer

_WITHOUT_NGRAMS = f"CAREFUL: the n-grams that answer with this classifier, {NGRAMS}, are left out: its answers differ."


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A model read from a file, with the mapping of each tensor."""

    detected: Detected
    format: str
    """Name of the source format."""
    model: nn.Module
    config: ModelConfig
    head: HeadConfig | None = None
    scope: str = "task"
    """Name of a fine-tuned task, if the format has one."""
    step: int | None = None
    """Training step, if the checkpoint has it."""
    tokenizer: Tokenizer | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file that was read, by file name."""
    rows: list[Row] = field(default_factory=list)
    explained: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_foreign(
    path: str | Path,
    *,
    overrides: Sequence[str] = (),
    head: str | None = None,
    vocabulary: str | Path | None = None,
    sha256: Sequence[str] = (),
) -> Foreign:
    """Read a checkpoint in any supported format, a segue folder or run included. `overrides` are `model.key=value` and
    `head.key=value`; `head` chooses among several heads of one checkpoint; `vocabulary` is a tokeniser that is not
    beside the weights; `sha256` are the expected digests of files, as in `Expected`."""
    with readable(Path(path)):
        detected = detect(model_of_run(locate(Path(path))))
    expected = Expected(sha256)
    if detected.is_own_model:
        if overrides or head:
            raise CheckpointError(
                f"{path} is a model folder with a config of its own; got other settings too. Leave them out."
            )
        return _own(detected, vocabulary, expected)
    if detected.source is None:
        raise CheckpointError(f"{path} must hold a model; got a {detected.kind}. Give the path of its weights.")
    if detected.family is None:
        raise CheckpointError(
            f"{path} must hold the tensors of a Transformer-XL, an XLNet, a BERT or a GPT-2; got a "
            f"{detected.kind} with others. `segue inspect` shows them."
        )
    plan = _plan(detected, head)
    config, chosen = _configured(plan, overrides)
    guessed = {name: why for name, why in plan.guesses.items() if not _is_given(name, overrides)}
    notes = [
        *notes_on_calls(detected.calls),
        *plan.notes,
        *(f"{name}: {why}. Set {name} to say otherwise." for name, why in guessed.items()),
    ]
    return _filled(detected, replace(plan, notes=notes), config, chosen, vocabulary, expected)


def _own(detected: Detected, vocabulary: str | Path | None, expected: Expected) -> Foreign:
    path = detected.path
    digests = expected.digests(detected.files)
    head: HeadConfig | None = None
    model: nn.Module
    if detected.kind == "segue model":
        model = load(path, as_stored=True)
    else:
        model, head = load_head(path, as_stored=True)
    config = model_config_of(model)
    found = FoundTokenizer()
    if (path / TOKENIZER).is_dir():
        if vocabulary is not None:
            raise CheckpointError(f"{path} has a tokeniser of its own; got {vocabulary} too. Leave one of them out.")
        found = FoundTokenizer(tokenizer=load_tokenizer(path / TOKENIZER))
    elif vocabulary is not None:
        found = _given_tokenizer(Path(vocabulary), config.vocabulary.size)
        digests |= expected.digests([] if found.path is None else [found.path])
    expected.check_all_met()
    return Foreign(
        detected=detected,
        format=detected.kind,
        model=model,
        config=config,
        head=head,
        step=_own_step(path),
        tokenizer=found.tokenizer,
        digests=digests,
        notes=[*found.notes, *([_WITHOUT_NGRAMS] if (detected.path / NGRAMS).is_file() else [])],
    )


def _tokenizer(place: Path, size: int) -> FoundTokenizer:
    """Return the tokeniser of a folder or file, with the settings beside it."""
    with readable(place):
        beside = (place if place.is_dir() else place.parent) / "tokenizer_config.json"
        return find_tokenizer(place, size=size, settings=read_settings(beside) if beside.is_file() else {})


def _given_tokenizer(place: Path, size: int) -> FoundTokenizer:
    """Return the tokeniser named by the user, which must be in a regular file or a folder. A pipe may have no end."""
    if place.exists() and not place.is_file() and not place.is_dir():
        raise CheckpointError(
            f"a vocabulary must be a regular file or a folder; got {place}, a device or a pipe. Save it to a file."
        )
    found = _tokenizer(place, size)
    if found.tokenizer is None:
        what = "a folder without one" if place.is_dir() else "nothing there"
        raise CheckpointError(
            f"a vocabulary must be a file or folder with one ({', '.join(NAMES)}); got {place}, {what}. Check the path."
        )
    return found


def _own_step(path: Path) -> int | None:
    """Return the training step of a stopped run, which is stored with the state of its training."""
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
    detected: Detected,
    plan: ReadingPlan,
    config: ModelConfig,
    head: HeadConfig | None,
    vocabulary: str | Path | None,
    expected: Expected,
) -> Foreign:
    source = detected.source
    assert source is not None
    size = config.vocabulary.size
    found = _tokenizer(detected.folder, size) if vocabulary is None else _given_tokenizer(Path(vocabulary), size)
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
    check(table, source.tensors, model.state_dict())
    check_memory(detected.path, source.tensors)
    digests = expected.digests([*detected.files, *([] if found.path is None else [found.path])])
    expected.check_all_met()
    mapped = to_ours(table, source, model.state_dict())
    tensors, widened = _of_one_dtype(mapped.tensors)
    model.load_state_dict(tensors, assign=True)
    return Foreign(
        detected=detected,
        format=f"{table.family} ({detected.kind})",
        model=model.eval(),
        config=config,
        head=head,
        scope=plan.scope,
        step=_tensorflow_step(source),
        tokenizer=found.tokenizer,
        digests=digests,
        rows=mapped.rows,
        explained=mapped.explained,
        notes=[*plan.notes, *widened, *found.notes],
    )


def _of_one_dtype(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return all tensors in the narrowest dtype that holds each exactly, because a model computes in one, and a note if
    that changed any."""
    dtypes = sorted({str(value.dtype).removeprefix("torch.") for value in tensors.values()})
    if len(dtypes) < 2:
        return tensors, []
    widest = reduce(torch.promote_types, (value.dtype for value in tensors.values()))
    note = f"tensors of {' and '.join(dtypes)}: all are {str(widest).removeprefix('torch.')} now, with the same values."
    return {name: value.to(widest) for name, value in tensors.items()}, [note]


# ------------------------------------------------------------------------------------------------ settings


def _configured(plan: ReadingPlan, overrides: Sequence[str]) -> tuple[ModelConfig, HeadConfig | None]:
    """Return the config and the head with the user's overrides."""
    for text in overrides:
        if not text.startswith(("model.", "head.")) or "=" not in text:
            raise CheckpointError(
                f"a setting must have the form model.key=value or head.key=value; got {text!r}. Write "
                "model.memory.length=1600, for example."
            )
    values = {key: value for key, value in plan.values.items() if value is not None}
    if missing := [name for name in plan.unknown if not _is_given(f"model.{name}", overrides)]:
        raise CheckpointError(
            f"{', '.join(f'model.{name}' for name in missing)} must be given, because the file does not specify it; "
            "got nothing.",
            remedy=f"Pass overrides={[f'model.{name}=VALUE' for name in missing]} to segue.checkpoint.convert.convert.",
            option=f"With segue convert, add {' '.join(f'--set model.{name}=VALUE' for name in missing)}.",
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
    return any(f"{name}.".startswith(f"{key}.") for key in keys)


def _parsed(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key.strip(), toml_value(value)


def _plan(detected: Detected, head: str | None) -> ReadingPlan:
    """Return the reading plan of a checkpoint. Errors from a malformed config become a CheckpointError."""
    family, source = detected.family, detected.source
    assert family is not None
    assert source is not None
    if head is not None and not family.several_heads:
        raise CheckpointError(
            f"a head is chosen of a TensorFlow checkpoint, which may have several; got {head!r}. Leave it out."
        )
    try:
        return family.plan(Opened(source=source, settings=detected.settings, attributes=detected.attributes, head=head))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"{detected.path} must have the settings and tensors of its kind; got {type(error).__name__}: {error}. "
            "Use another copy, or correct its config."
        ) from None
