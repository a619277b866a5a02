"""Fine-tuned models on disk: a model folder with its head and `task.toml`, which describes the task. If n-grams are
joined to the model, they are in `ngrams.safetensors`.

In: a model, its task and its settings, or a path. Out: a folder, or the three with the tokeniser.
"""

import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError
from torch import nn

from segue.checkpoint.card import Facts
from segue.checkpoint.files import inside, read_small, verify
from segue.checkpoint.find import find, model_folder, tokenizer_folder
from segue.checkpoint.folder import (
    HEAD,
    LARGEST_TASK,
    NGRAMS,
    TASK,
    TOKENIZER,
    load,
    read_tensors,
    save,
    write_tensors,
)
from segue.checkpoint.heads import HeadConfig, load_head, model_config_of, save_head
from segue.checkpoint.source import readable
from segue.config import ModelConfig, ReadConfig
from segue.errors import CheckpointError, SegueWarning
from segue.model import LanguageModel, Trunk
from segue.tasks.classify import Classify
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.table import task_kind
from segue.tasks.task import Task, TaskKind
from segue.tasks.wide import Wide, restore_wide
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer

SEGMENT_LENGTH = 512
"""Segment length of a converted model in tokens."""


@dataclass(frozen=True, kw_only=True)
class TaskModel:
    """A fine-tuned model with its task."""

    kind: TaskKind
    task: Task
    model: nn.Module
    tokenizer: Tokenizer
    read: ReadConfig
    segment_length: int
    wide: Wide | None = None
    """N-grams whose predictions are joined to the model's."""

    @property
    def config(self) -> ModelConfig:
        trunk = self.model.get_submodule("trunk")
        assert isinstance(trunk, Trunk)
        return trunk.config

    def layout(self) -> Layout:
        """Return a new layout, whose counts are of one use."""
        return Layout(self.tokenizer, self.config, max_length=self.read.max_length, segment_length=self.segment_length)

    def reader(self) -> Reader:
        """Return a new reader, whose counts are of one use."""
        return Reader(self.read, segment_length=self.segment_length)


def save_task_model(made: TaskModel, folder: Path, *, tokenizer: Path, facts: Facts | None = None) -> None:
    """Write the folder atomically."""
    values = {
        "task": made.kind.name,
        "segment_length": made.segment_length,
        "read": made.read.model_dump(exclude_none=True),
        "values": made.task.to_values(),
    }

    if made.wide is not None:
        values["wide"] = made.wide.to_values()

    def also(new: Path) -> None:
        (new / TASK).write_text(tomli_w.dumps(values), encoding="utf-8")
        if made.wide is not None:
            write_tensors(made.wide.to_tensors(), new / NGRAMS)

    head = made.task.head(made.read, summary_of(made.read, made.config))
    if head is None:
        assert isinstance(made.model, LanguageModel)
        save(made.model, folder, tokenizer=tokenizer, facts=facts, also=also)
    else:
        save_head(made.model, head, folder, tokenizer=tokenizer, facts=facts, also=also)


def load_task_model(source: str | Path) -> TaskModel:
    """Load a model with its task from a model folder, a run folder, a packaged model by its name, or a name on the hub;
    its files are checked. A converted classifier, which has no task, gets `classify`, or `regress` if it predicts a
    number."""
    path = model_folder(find(source))
    with readable(path):
        if not (path / TASK).is_file():
            return _converted(source, path)
    values = _values(path / TASK)
    model: nn.Module
    head: HeadConfig | None = None
    if (path / HEAD).is_file():
        model, head = load_head(path)
    else:
        model = load(path)
    try:
        kind = task_kind(values["task"])
        task = kind.restore(values["values"])
        made = TaskModel(
            kind=kind,
            task=task,
            model=model,
            tokenizer=load_tokenizer(path / TOKENIZER),
            read=ReadConfig.model_validate(values["read"]),
            segment_length=int(values["segment_length"]),
            wide=_wide(path, task, values["wide"]) if "wide" in values else None,
        )
        expected = task.head(made.read, summary_of(made.read, made.config))
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise CheckpointError(
            f"{path / TASK} must be as segue finetune writes it; got {type(error).__name__}: {error}. Use another copy."
        ) from None
    if expected != head:
        raise CheckpointError(
            f"{path / TASK} must fit head.toml beside it; got another head. They belong to different models."
        )
    return made


def _wide(path: Path, task: Task, values: Any) -> Wide:
    if not isinstance(task, Classify):
        raise ValueError("n-grams are joined to classifiers only")
    if not inside(path, path / NGRAMS):
        raise CheckpointError(f"{path / NGRAMS} must be in its folder; it links to a place outside. Copy it there.")
    verify(path, [NGRAMS])
    try:
        return restore_wide(
            values,
            read_tensors(path / NGRAMS),
            texts=len(task.roles),
            classes=len(task.labels),
            multiple=task.settings.multiple,
        )
    except ValueError as error:
        raise CheckpointError(
            f"{path / NGRAMS} must be as segue finetune writes it; got {error}. Use another copy."
        ) from None


def _converted(folder: str | Path, path: Path) -> TaskModel:
    """Return a model with a converted head. A note says what its file does not specify."""
    if not (path / HEAD).is_file():
        raise CheckpointError(
            f"{folder} must hold a fine-tuned model, with {TASK}; got none there. Make one: segue finetune. A head of "
            "another library must be converted first: segue convert."
        )
    tokenizer = load_tokenizer(tokenizer_folder(folder, path))
    model, head = load_head(path)
    if head.kind != "sequence_classifier":
        raise CheckpointError(
            f"{folder} must have {TASK}, which says how rows become inputs of a {head.kind}; got none, as it was "
            "converted. Use segue.checkpoint.heads.load_head, and make its batches yourself."
        )
    values: dict[str, Any] = {"roles": ["text"], "settings": {}}
    if head.task == "regression":
        name, what = "regress", "numbers as the head gives them"
        values |= {"mean": 0.0, "scale": 1.0}
    else:
        name, labels = "classify", head.labels or tuple(map(str, range(head.num_labels)))
        values |= {"labels": list(labels), "settings": {"multiple": head.task == "multiple"}}
        what = f"labels {', '.join(labels[:8])}{', ...' if len(labels) > 8 else ''}"
    kind = task_kind(name)
    warnings.warn(
        f"{folder} has no {TASK}: read for the task {name}, one text a row, {what}.", SegueWarning, stacklevel=3
    )
    config = model_config_of(model)
    return TaskModel(
        kind=kind,
        task=kind.restore(values),
        model=model,
        tokenizer=tokenizer,
        read=ReadConfig(summary=head.summary, pool=head.pool, carry=config.memory is not None),
        segment_length=min(SEGMENT_LENGTH, config.learned_positions or SEGMENT_LENGTH),
    )


def summary_of(read: ReadConfig, config: ModelConfig) -> str:
    """Return the summary of a segment: CLS if the model has one, unless the settings say otherwise."""
    return read.summary or ("first" if config.objective == "masked" else "last")


def _values(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_small(path, limit=LARGEST_TASK).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must be TOML; got {str(error)[:200]}. Use another copy.") from None
