"""Pretraining runs, and planning them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any

import torch

from segue.api.configs import Settings, check_has_weights, chosen_config
from segue.api.errors import python_errors
from segue.api.models import load
from segue.api.processes import is_first_process
from segue.api.progress import StatusLine, duration
from segue.config import Config
from segue.data.store import Store
from segue.evaluation.cost import matrix_product_peak, multiply_adds
from segue.model import LanguageModel
from segue.train.distributed import world
from segue.train.loop import StepReport
from segue.train.machine import peak_memory
from segue.train.metrics import read_metrics
from segue.train.plan import Plan, predicted_positions
from segue.train.plan import plan as plan_of
from segue.train.pretrain import Ended, Event, Started, Validated
from segue.train.pretrain import pretrain as events_of
from segue.train.stages import Origin, find_origin

METRICS = "metrics.jsonl"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A pretraining run on disk. Functions of segue accept its folder as a model."""

    folder: Path
    step: int
    """Number of completed updates."""
    finished: bool
    """True if all steps are done; if not, the same call resumes the run."""
    stopped_by: Signals | None = None
    """Signal that stopped the run; None if it finished."""

    @property
    def model(self) -> Path:
        """Folder of the best model, or of the last one if none was validated."""
        best = self.folder / "best"
        return best if best.exists() else self.folder / "last"

    def load(self) -> LanguageModel:
        """Load the best model."""
        return load(self.model)

    def metrics(self) -> list[dict[str, Any]]:
        """Return one dict for each logged step ("step", "loss", ...) and each validation ("step",
        "validation_loss")."""
        return read_metrics(self.folder / METRICS)

    @property
    def validation_loss(self) -> float | None:
        """Lowest validation loss in nats; None without a validation."""
        losses = [line["validation_loss"] for line in self.metrics() if "validation_loss" in line]
        return min((loss for loss in losses if isinstance(loss, float)), default=None)


@python_errors
def pretrain(
    config: str | Path | Config,
    out: str | Path,
    *,
    store: str | Path | Store | None = None,
    validation: str | Path | Store | None = None,
    start: str | Path | None = None,
    settings: Settings | None = None,
    verify: bool = True,
    command: str | None = None,
    progress: bool = True,
    on_event: Callable[[Event], object] | None = None,
) -> Run:
    """Pretrain a model on a store, or resume an interrupted run.

    Ctrl-C saves the training state and returns; the same call resumes the run, bit for bit.

    Args:
        config: A preset name, a TOML file, or a `Config`.
        out: Run folder; an existing run is resumed.
        store: The store to train on, as returned by `prepare`, or its folder. Default: as in the config.
        validation: A validation store. Default: as in the config, if any.
        start: Model to start from: a name, a folder or a run. Its [model] settings are used. Default: new weights.
        settings: Settings to change in the config: {"train.steps": 1000, "model.width": 256}, or nested dicts.
        verify: Whether to verify the checksums of stores first.
        command: Command that started the run, for the model card. Default: none.
        progress: Whether to show progress on standard error.
        on_event: Called with each event: `Started`, `StepReport`, `Validated`, `Saved`, `Ended` of
            `segue.train.pretrain`.

    Returns:
        The run: its folder, metrics and best model.

    Raises:
        ConfigError: If settings are unknown or inconsistent; the message lists all problems.
        DataError: If a store is damaged, or does not fit the model.

    Examples:
        >>> store = segue.prepare("texts.txt", "corpus", kind="characters", progress=False)
        >>> tiny = {"model": {"num_layers": 1, "width": 16, "num_heads": 2, "inner_width": 16, "memory.length": 8},
        ...         "data": {"lanes": 2, "segment_length": 8}, "train": {"steps": 2, "warmup_steps": 1}}
        >>> run = segue.pretrain("small-transformer-xl", "run", store=store, settings=tiny, progress=False)
        >>> run.step, run.finished
        (2, True)
    """
    folder = Path(out)
    origin = origin_of(start, folder)
    base = None if origin is None else origin.config
    chosen = chosen_config(config, store=store, validation=validation, settings=settings, base=base)
    return pretrained(
        chosen, folder, origin=origin, verify=verify, command=command, progress=progress, on_event=on_event
    )


def origin_of(start: str | Path | None, folder: Path) -> Origin | None:
    """Return the model that a run starts from: the given one, or the one that an existing run in the folder started
    from."""
    if start is not None:
        check_has_weights(str(start))
    return find_origin(None if start is None else str(start), folder)


class Throughput:
    """Throughput of a run: tokens per second over recent steps, and the share of the machine's peak performance."""

    def __init__(self, config: Config) -> None:
        assert config.data is not None
        assert config.train is not None
        self.recent: deque[StepReport] = deque(maxlen=50)
        self.dtype: torch.dtype = getattr(torch, config.train.precision)
        self._flops = 3 * multiply_adds(
            config.model,
            segment_length=config.data.segment_length,
            predicted=predicted_positions(config.data, config.model),
        )
        self.peak = 0.0
        """Peak multiply-adds per second of the machine; 0 if not measured."""

    def measure_machine(self) -> None:
        """Measure peak performance with a matrix product, over all processes of the run."""
        self.peak = matrix_product_peak(self.dtype) * world()

    @property
    def seconds_per_step(self) -> float:
        return sum(report.seconds for report in self.recent) / len(self.recent)

    @property
    def tokens_per_second(self) -> float:
        return sum(report.tokens for report in self.recent) / sum(report.seconds for report in self.recent)

    @property
    def loss(self) -> float:
        """Mean loss over recent steps."""
        return sum(report.loss for report in self.recent) / len(self.recent)

    @property
    def share_of_peak(self) -> float | None:
        """Share of peak performance; None if unknown, because other work slowed the machine while its peak was
        measured."""
        share = self.tokens_per_second * self._flops / self.peak if self.peak else 0.0
        return share if 0 < share <= 1 else None

    @property
    def memory(self) -> int:
        """Peak memory of the process in bytes."""
        return peak_memory()


def pretrained(
    config: Config,
    folder: Path,
    *,
    origin: Origin | None = None,
    verify: bool = True,
    command: str | None = None,
    progress: bool = True,
    on_event: Callable[[Event], object] | None = None,
) -> Run:
    """Run `pretrain` with a complete config and the model that the run starts from."""
    line = _Line(show=progress)
    ended = None
    try:
        for event in events_of(config, folder, origin=origin, command=command, verify=verify):
            if is_first_process():
                line.show(event)
            if on_event is not None:
                on_event(event)
            ended = event if isinstance(event, Ended) else ended
    finally:
        line.line.clear()
    assert ended is not None
    return Run(folder=folder, step=ended.step, finished=ended.finished, stopped_by=ended.stopped_by)


@python_errors
def plan(
    config: str | Path | Config,
    *,
    store: str | Path | Store | None = None,
    settings: Settings | None = None,
) -> Plan:
    """Measure what a pretraining run needs, with a few updates on random token ids.

    Args:
        config: A preset name, a TOML file, or a `Config`.
        store: The store of the run, for its vocabulary size. Default: as in the config.
        settings: Settings to change in the config: {"train.steps": 1000}, or nested dicts.

    Returns:
        Number of parameters and tokens, memory in bytes, and seconds per step.

    Raises:
        ConfigError: If settings are unknown or inconsistent.

    Examples:
        >>> tiny = {"model": {"num_layers": 1, "width": 16, "num_heads": 2, "inner_width": 16, "vocabulary.size": 100},
        ...         "data": {"lanes": 2, "segment_length": 8, "store": "corpus"}, "train": {"steps": 5}}
        >>> segue.plan("small-transformer-xl", settings=tiny).tokens
        80
    """
    return plan_of(chosen_config(config, store=store, settings=settings))


class _Line:
    """Shows a run as one status line, and a line for each validation."""

    def __init__(self, *, show: bool) -> None:
        self.line = StatusLine(show=show)
        self.steps = 0
        self.mean_loss: float | None = None
        self.mean_seconds: float | None = None

    def show(self, event: Event) -> None:
        match event:
            case Started():
                self.steps = event.steps
                what = "resumed at" if event.step else "starts at"
                millions = f"{event.parameters / 1e6:.2f} M parameters"
                self.line.say(f"pretrain: {what} step {event.step:,} of {event.steps:,}; {millions}")
            case StepReport() if not event.skipped:
                self.mean_loss = _mean(self.mean_loss, event.loss)
                self.mean_seconds = _mean(self.mean_seconds, event.seconds)
                left = duration(self.mean_seconds * (self.steps - event.step))
                self.line.update(
                    f"pretrain: step {event.step:,} of {self.steps:,}, loss {self.mean_loss:.3f}, {left} left"
                )
            case Validated():
                best = ", the best so far" if event.best else ""
                self.line.say(f"pretrain: step {event.step:,}, validation loss {event.loss:.4f}{best}")
            case Ended():
                self.line.say(f"pretrain: {'done' if event.finished else 'stopped'} at step {event.step:,}")


def _mean(before: float | None, value: float) -> float:
    return value if before is None else 0.95 * before + 0.05 * value
