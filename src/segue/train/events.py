"""The request of a fine-tuning run, and the events that it emits."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.config import Config
from segue.data.tables import Table, TableSettings
from segue.evaluation.metrics.bootstrap import Metric
from segue.tasks.task import Example, Prediction, Task, TaskKind
from segue.train.pretrain import Event as PretrainEvent

STOPPED = "told to stop"
"""Reason of a run that was stopped by a signal."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for a fine-tuning run."""

    model: str
    """A model folder, a run folder, a checkpoint of another library or a name on the hub."""
    kind: TaskKind
    train: str | Table
    """A file, `datasets:NAME`, or a table in memory."""
    valid: str | Table | None = None
    """Validation examples. Default: hold out 10 % of the training examples."""
    test: str | Table | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by role, where column names do not match."""
    tables: TableSettings = field(default_factory=TableSettings)
    settings: Any = None
    """Settings, as made by `finetune_settings`. Default: the defaults."""
    new_weights: bool = False
    """Use only the shape and tokeniser of the model, with new weights."""
    baselines: bool = True
    """Evaluate baselines of a classifier."""
    adapt: int | None = None
    """Number of epochs to pretrain on the training texts before fine-tuning."""
    wide: bool | None = None
    """Combine the classifier with n-grams. Default: if they alone beat the model alone on at least 30 validation
    examples."""


@dataclass(frozen=True, kw_only=True)
class Adapting:
    """Adaptive pretraining on the training texts begins, or resumes."""

    config: Config
    run: Path
    notes: list[str]
    """Amount of text, and how it is used."""


@dataclass(frozen=True, kw_only=True)
class AdaptStep:
    """An event of the adaptive pretraining."""

    event: PretrainEvent


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """The adaptive pretraining finished, or was stopped."""

    place: Path | None
    """Folder of the adapted model; None if it was stopped, and the same command resumes it."""
    stopped_by: signal.Signals | None
    said: str
    """Description for the report."""
    start: str
    """Description for the model card: the model and its digest, and the texts that it was adapted to."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data has been read; training is about to begin."""

    counts: dict[str, int]
    notes: list[str]
    """Summary of the examples for display."""
    preview: list[str]
    """The first examples as the model reads them."""
    steps: int
    parameters: int
    metric: str
    """Metric that selects the best weights."""
    warnings: list[str] = field(default_factory=list)
    """Reasons to doubt the metrics: overlapping splits, or too few examples."""


@dataclass(frozen=True, kw_only=True)
class SimpleMethod:
    """A baseline."""

    name: str
    detail: str = ""
    """Settings of the baseline, and what it was fitted and measured on, if not on everything."""
    metrics: dict[str, dict[str, Metric]]
    """Metrics by split ("valid", "test") and name."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The baselines were measured."""

    methods: list[SimpleMethod]
    remark: str | None
    """Why a baseline is missing, if one is."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Updated:
    """One update."""

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    padding_share: float


@dataclass(frozen=True, kw_only=True)
class Validated:
    """A validation finished."""

    step: int
    metrics: dict[str, Metric]
    best: bool
    loss: float | None = None
    """Validation loss without class weights; None if the predictions do not determine it."""
    early: bool = False
    """True for the additional one in a long first epoch, which early stopping does not count."""


@dataclass(frozen=True, kw_only=True)
class Unsaved:
    """The best weights could not be written. They are kept in memory, and written at the next validation or at the
    end."""

    step: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """Training collapsed, and restarts from the pretrained weights."""

    step: int
    reason: str
    learning_rate: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Examples with the predictions of the best model."""

    name: str
    """valid or test."""
    examples: list[Example]
    predictions: list[Prediction]
    metrics: dict[str, Metric]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run is over."""

    reason: str
    """Reason of the end, for display."""
    stopped_by: signal.Signals | None = None
    """Signal that stopped the run; None if it ran to its end."""
    best_step: int
    judged: list[Judged]
    seconds: float
    truncated: int
    """Number of documents truncated to `read.max_length`."""
    task: Task
    place: Path
    """Folder of the model."""
    alone: list[Judged] = field(default_factory=list)
    """If n-grams are combined with the model: the same examples with the predictions of the model alone."""
    joined: str | None = None
    """Description of how they are combined, and why."""
    validated: bool = True
    """False if the run was stopped before its first validation: the weights are then those of the last update."""


Event = Adapting | AdaptStep | Adapted | Prepared | Compared | Updated | Validated | Unsaved | Restarted | Ended
