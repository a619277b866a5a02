"""The model of a task: the trunk of a pretrained one, set up to read documents, and the head that the task wants.

In: a model folder, a task and how to read. Out: a TaskModel.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from segue.checkpoint.folder import HEAD, load
from segue.checkpoint.heads import build, load_head
from segue.checkpoint.hub import tokenizer_folder
from segue.config import ModelConfig, ReadConfig, changed
from segue.errors import ConfigError, DataError
from segue.model import Trunk
from segue.tasks.folder import TaskModel, summary_of
from segue.tasks.task import Task, TaskKind
from segue.text.files import load_tokenizer

LONGEST_SEGMENT = 512


def build_task_model(
    folder: Path,
    *,
    kind: TaskKind,
    task: Task,
    read: ReadConfig,
    dropout: float | None,
    new_weights: bool,
    device: torch.device,
) -> TaskModel:
    """The head is new unless the folder has the same one; with `new_weights` everything is."""
    source: nn.Module
    source_head = None
    if (folder / HEAD).is_file():
        source, source_head = load_head(folder)
    else:
        source = load(folder)
    tokenizer = load_tokenizer(tokenizer_folder(folder, folder))
    trunk = source.get_submodule("trunk")
    assert isinstance(trunk, Trunk)
    segment_length = _segment_length(trunk.config, read)
    config = reading_config(trunk.config, read, segment_length=segment_length, dropout=dropout)
    if tokenizer.size > config.vocabulary.size:
        raise DataError(
            f"{folder} must have a tokeniser that fits the model; got {tokenizer.size} ids for "
            f"{config.vocabulary.size} of the model. They belong to different models."
        )
    head = task.head(read, summary_of(read, config))
    model = build(config, head)
    if not new_weights:
        if type(source) is type(model) and head == source_head:
            model.load_state_dict(source.state_dict())
        else:
            model.get_submodule("trunk").load_state_dict(trunk.state_dict())
    return TaskModel(
        kind=kind,
        task=task,
        model=model.to(device),
        tokenizer=tokenizer,
        read=read,
        segment_length=segment_length,
    )


def reading_config(
    config: ModelConfig, read: ReadConfig, *, segment_length: int, dropout: float | None = None
) -> ModelConfig:
    """The model for reading documents one segment after the other: a memory of whole segments, where it may have one,
    and gradients through it."""
    values: dict[str, Any] = {}
    if read.carry and config.learned_positions is None and getattr(config.positions, "count_from", "start") == "start":
        old = config.memory
        length = read.memory_length or (old.length if old is not None else segment_length)
        values["memory"] = {"length": length, "initial": old.initial if old is not None else "empty"}
        if read.gradient_segments > 1:
            values["memory"]["backprop_segments"] = read.gradient_segments - 1
    if dropout is not None:
        values["dropout"] = dropout
    return changed(changed(config, memory=None), **values)


def _segment_length(config: ModelConfig, read: ReadConfig) -> int:
    limit = config.learned_positions
    length = read.segment_length or min(LONGEST_SEGMENT, limit or LONGEST_SEGMENT)
    if limit is not None and length > limit:
        raise ConfigError(
            f"read.segment_length must be at most the {limit} positions of the model; got {length}. Use {limit}."
        )
    return length
