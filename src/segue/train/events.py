"""What a fine-tuning run is asked to do, and what it tells as it goes on."""

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
"""How a run ended that a signal stopped."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a run is asked to do."""

    model: str
    """A model folder, a run folder, a checkpoint of another library or a name on the hub."""
    kind: TaskKind
    train: str | Table
    """A file, `datasets:NAME`, or a table in memory."""
    valid: str | Table | None = None
    """Left out, a tenth of the training examples is kept apart."""
    test: str | Table | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of the tables by their role, where their names do not say it."""
    tables: TableSettings = field(default_factory=TableSettings)
    settings: Any = None
    """As `finetune_settings` makes them; left out, the defaults."""
    new_weights: bool = False
    """Take the shape and the tokeniser of the model, not its weights: what is gained by pretraining is the rest."""
    baselines: bool = True
    """Measure simple methods beside a classifier."""
    adapt: int | None = None
    """Before fine-tuning, pretrain for this many epochs on the training texts."""
    wide: bool | None = None
    """Join n-grams to a classifier, which then answer with it. Default: if they alone are better than the model alone
    on the validation examples, 30 or more."""


@dataclass(frozen=True, kw_only=True)
class Adapting:
    """Pretraining on the training texts begins, or goes on."""

    config: Config
    run: Path
    notes: list[str]
    """How much text there is, and what is done with it."""


@dataclass(frozen=True, kw_only=True)
class AdaptStep:
    """Something happened in that pretraining."""

    event: PretrainEvent


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """That pretraining is done, or was stopped."""

    place: Path | None
    """Folder of the adapted model; None: it was stopped, and the same command goes on."""
    stopped_by: signal.Signals | None
    said: str
    """In words, for the report."""
    start: str
    """For the card: the model and its digest, and what it was adapted to."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data is read and understood; training is about to begin."""

    counts: dict[str, int]
    notes: list[str]
    """What a person should know of the examples."""
    preview: list[str]
    """The first examples as the model reads them."""
    steps: int
    parameters: int
    metric: str
    """The measure that decides which weights are best."""
    warnings: list[str] = field(default_factory=list)
    """What makes the measures doubtful: examples in several parts, or too few."""


@dataclass(frozen=True, kw_only=True)
class SimpleMethod:
    """A method that needs no model."""

    name: str
    detail: str = ""
    """Its settings, and what it was fitted and measured on if that is not all there is."""
    metrics: dict[str, dict[str, Metric]]
    """By the part, valid or test, and the name of the measure."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Simple methods did the task."""

    methods: list[SimpleMethod]
    remark: str | None
    """Why one of them is missing."""
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
    """The validation examples were answered."""

    step: int
    metrics: dict[str, Metric]
    best: bool
    loss: float | None = None
    """Validation loss, all classes weighted alike; None where the answers do not tell it."""


@dataclass(frozen=True, kw_only=True)
class Unsaved:
    """The best weights could not be written. They are kept in memory, and written at the next validation or at the
    end."""

    step: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """The attempt collapsed; a new one begins from the pretrained weights."""

    step: int
    reason: str
    learning_rate: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Examples with the answers of the best model."""

    name: str
    """valid or test."""
    examples: list[Example]
    predictions: list[Prediction]
    metrics: dict[str, Metric]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run is over."""

    reason: str
    """In words, for people."""
    stopped_by: signal.Signals | None = None
    """The signal that ended it before its time."""
    best_step: int
    judged: list[Judged]
    seconds: float
    truncated: int
    """Documents that `read.max_length` cut."""
    task: Task
    place: Path
    """Folder of the model."""
    alone: list[Judged] = field(default_factory=list)
    """Where n-grams are joined to the model: the same examples with the answers of the model alone."""
    joined: str | None = None
    """What was chosen there, and why, in words."""
    validated: bool = True
    """False if the run was stopped before its first validation: the weights are then those of the last update."""


Event = Adapting | AdaptStep | Adapted | Prepared | Compared | Updated | Validated | Unsaved | Restarted | Ended
