"""Construction of task models: the trunk of a pretrained model, configured to read documents, and the head of the task.

In: a model folder, a task and reading settings. Out: a Source, then a TaskModel.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from segue.checkpoint.find import tokenizer_folder
from segue.checkpoint.folder import HEAD, load
from segue.checkpoint.heads import HeadConfig, build, load_head
from segue.config import ModelConfig, ReadConfig, changed
from segue.errors import ConfigError, DataError
from segue.model import Trunk
from segue.tasks.automatic import may_remember
from segue.tasks.folder import TaskModel, summary_of
from segue.tasks.layout import Layout
from segue.tasks.task import Task, TaskKind
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer

LONGEST_SEGMENT = 512


@dataclass(frozen=True, kw_only=True)
class Source:
    """A pretrained model and its tokeniser, from which a task model is built."""

    folder: Path
    model: nn.Module
    head: HeadConfig | None
    tokenizer: Tokenizer

    @property
    def trunk(self) -> Trunk:
        trunk = self.model.get_submodule("trunk")
        assert isinstance(trunk, Trunk)
        return trunk

    def layout(self, read: ReadConfig) -> Layout:
        """Return the layout of texts as documents of this model."""
        config = self.trunk.config
        return Layout(
            self.tokenizer, config, max_length=read.max_length, segment_length=segment_length_of(config, read)
        )


def open_source(folder: Path) -> Source:
    """Load the model of a folder, with its head if it has one."""
    source: nn.Module
    head = None
    if (folder / HEAD).is_file():
        source, head = load_head(folder)
    else:
        source = load(folder)
    opened = Source(folder=folder, model=source, head=head, tokenizer=load_tokenizer(tokenizer_folder(folder, folder)))
    if opened.tokenizer.size > opened.trunk.config.vocabulary.size:
        raise DataError(
            f"{folder} must have a tokeniser that fits the model; got {opened.tokenizer.size} ids for "
            f"{opened.trunk.config.vocabulary.size} of the model. They belong to different models."
        )
    return opened


def build_task_model(
    source: Source,
    *,
    kind: TaskKind,
    task: Task,
    read: ReadConfig,
    dropout: float | None,
    new_weights: bool,
    device: torch.device,
) -> TaskModel:
    """Build a task model. The head is new unless the source has the same one; with `new_weights`, all weights are
    new."""
    segment_length = segment_length_of(source.trunk.config, read)
    config = reading_config(source.trunk.config, read, segment_length=segment_length, dropout=dropout)
    head = task.head(read, summary_of(read, config))
    model = build(config, head)
    if not new_weights:
        if type(source.model) is type(model) and head == source.head:
            model.load_state_dict(source.model.state_dict())
        else:
            model.get_submodule("trunk").load_state_dict(source.trunk.state_dict())
    return TaskModel(
        kind=kind,
        task=task,
        model=model.to(device),
        tokenizer=source.tokenizer,
        read=read,
        segment_length=segment_length,
    )


def reading_config(
    config: ModelConfig, read: ReadConfig, *, segment_length: int, dropout: float | None = None
) -> ModelConfig:
    """Return the config for reading documents segment by segment: with a memory, if the model can have one, and
    gradients through it."""
    values: dict[str, Any] = {}
    if may_remember(config, read):
        old = config.memory
        length = read.memory_length or (old.length if old is not None else segment_length)
        values["memory"] = {"length": length, "initial": old.initial if old is not None else "empty"}
        if read.gradient_segments is not None and read.gradient_segments > 1:
            values["memory"]["backprop_segments"] = read.gradient_segments - 1
    if dropout is not None:
        values["dropout"] = dropout
    return changed(changed(config, memory=None), **values)


def segment_length_of(config: ModelConfig, read: ReadConfig) -> int:
    """Return the number of tokens read at a time."""
    limit = config.learned_positions
    length = read.segment_length or min(LONGEST_SEGMENT, limit or LONGEST_SEGMENT)
    if limit is not None and length > limit:
        raise ConfigError(
            f"read.segment_length must be at most the {limit} positions of the model; got {length}. Use {limit}."
        )
    if read.overlap is not None and (read.carry or read.overlap >= length):
        carried = "memory is carried" if read.carry else f"segments of {length} tokens"
        remedy = "Set read.carry to false" if read.carry else f"Use {length // 2}"
        raise ConfigError(
            "read.overlap is for segments that are read without memory, and must be shorter than they are; got "
            f"{read.overlap}, and {carried}. {remedy}, or leave it out."
        )
    return length
