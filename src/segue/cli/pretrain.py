"""`segue pretrain`: a live view of a pretraining run."""

import math
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from signal import Signals
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import TaskID

from segue.api.catalogue import only_for_segue
from segue.api.configs import chosen_config
from segue.api.pretrain import Throughput, origin_of, pretrained
from segue.api.processes import is_first_process
from segue.cli.completion import complete_model
from segue.cli.console import duration, finish, moving_line, progress_console, say
from segue.cli.options import ConfigArgument, OverridesArgument
from segue.config import Config, ModelConfig
from segue.errors import ConfigError, DataError
from segue.train.loop import StepReport
from segue.train.pretrain import Ended, Event, Saved, Started, Validated
from segue.train.stages import Origin

Board: TypeAlias = Callable[[str, float, int], object]
"""Callback that takes a name, a value and a step, for TensorBoard and similar."""
BESIDE_LINE = 15
"""Width in columns of the share that is done, before the status line, and of a short bar after it."""


def run_pretraining(
    config: Config,
    run: Path,
    *,
    origin: Origin | None = None,
    tensorboard: bool = False,
    wandb: bool = False,
    verify: bool = True,
) -> Signals | None:
    """Show the run; return the signal that stopped it, or None if all steps are done."""
    boards = ([_tensorboard(run)] if tensorboard else []) + ([_wandb(run, config)] if wandb else [])
    view = LiveView(progress_console(), config, run, boards=[])

    def show(event: Event) -> None:
        if is_first_process():
            if isinstance(event, Started):  # now the folder belongs to the run
                view.boards = [board() for board in boards]
            view.show(event)

    command = shlex.join(["segue", *sys.argv[1:]])
    with view:
        made = pretrained(config, run, origin=origin, command=command, verify=verify, progress=False, on_event=show)
    return made.stopped_by


class LiveView:
    """A status line in a terminal; plain lines elsewhere."""

    def __init__(self, console: Console, config: Config, run: Path, *, boards: list[Board]) -> None:
        assert config.data is not None
        assert config.train is not None
        self.console, self.run, self.validation = console, run, config.data.validation
        self.steps, self.log_every = config.train.steps, config.train.log_every
        self.model = config.model
        self.throughput = Throughput(config)
        self.progress = moving_line(console)
        self.task: TaskID | None = None
        self.boards = boards

    def __enter__(self) -> "LiveView":
        return self

    def __exit__(self, *_: object) -> None:
        finish(self.progress)

    def show(self, event: Event) -> None:
        match event:
            case Started():
                self._started(event)
            case StepReport():
                self._step(event)
            case Validated():
                mark = ", the best so far" if event.best else ""
                say(self.console, f"step {event.step}: validation {loss_in_words(event.loss, self.model)}{mark}")
                for board in self.boards:
                    board("validation_loss", event.loss, event.step)
            case Saved():
                pass
            case Ended():
                self._ended(event)

    def _started(self, event: Started) -> None:
        self.throughput.measure_machine()
        verb = "resumes at" if event.step else "starts at"
        size = f"{event.parameters / 1e6:.2f} M parameters"
        say(self.console, f"{self.run} {verb} step {event.step} of {event.steps}; {size}.")
        if event.origin is not None:
            say(self.console, f"started from {event.origin.described()}", indent=2, hang=2)
        for change in event.changed:
            say(self.console, f"changed: {change}", indent=2)
        if event.step == 0 and (why := only_for_segue(self.model)):
            say(self.console, f"segue only: {why}", indent=2, hang=2)
        if self.console.is_terminal and event.step < event.steps:
            self.task = self.progress.add_task("pretrain", total=event.steps, completed=event.step, line="")
            self.progress.start()

    def _ended(self, event: Ended) -> None:
        finish(self.progress)
        if event.finished:
            best = self.run / "best"
            model = best if best.exists() else self.run / "last"
            text = f"Done at step {event.step}. Evaluate the model: segue evaluate {model} {self.validation or 'STORE'}"
        elif event.saved is None:
            text = f"Stopped at step {event.step}; no state is saved. The same command starts from the beginning."
        else:
            text = (
                f"Stopped at step {event.step}. The same command resumes from step {event.saved}, in {self.run}/last."
            )
        say(Console(highlight=False, emoji=False), text)

    def _step(self, report: StepReport) -> None:
        if report.skipped:
            say(
                self.console,
                f"step {report.step} skipped: loss {report.loss}, gradient {report.gradient_norm}",
                style="red",
            )
        else:
            self.throughput.recent.append(report)
        if self.task is not None:
            room = self.console.width - BESIDE_LINE
            self.progress.update(self.task, completed=report.step, line=self._line(report, room))
        elif report.step % self.log_every == 0:
            self.console.print(self._line(report, None), soft_wrap=True)
        if report.step % self.log_every == 0:
            for board in self.boards:
                board("loss", report.loss, report.step)
                board("learning_rate", report.learning_rate, report.step)
                board("gradient_norm", report.gradient_norm, report.step)

    def _line(self, report: StepReport, room: int | None) -> str:
        """Return means over the last steps; if they do not fit, the least important are left out."""
        step = f"step {report.step}/{self.steps}"
        if not self.throughput.recent:
            return f"{step}  no finite step yet"
        loss, share = self.throughput.loss, self.throughput.share_of_peak
        left = (self.steps - report.step) * self.throughput.seconds_per_step
        parts = {  # in the order in which they are shown
            "step": step,
            "loss": loss_in_words(loss, self.model),
            "speed": f"{self.throughput.tokens_per_second:,.0f} tokens/s",
            "share": f"{share or 0.0:.0%} of peak",
            "memory": f"{self.throughput.memory / 2**30:.1f} GiB",
            "left": f"{duration(left)} left",
        }
        if share is None:
            del parts["share"]
        for dispensable in ("share", "memory", "speed", "step", "perplexity"):
            if room is None or len("  ".join(parts.values())) <= room:
                break
            if dispensable == "perplexity":
                parts["loss"] = f"loss {loss:.3f}"
            else:
                parts.pop(dispensable, None)
        return "  ".join(parts.values())


def loss_in_words(loss: float, model: ModelConfig) -> str:
    """Return the loss with its perplexity, or with bits if the vocabulary consists of characters or bytes."""
    if not math.isfinite(loss):
        return f"loss {loss}"
    if model.vocabulary.size <= 300:
        return f"loss {loss:.3f} = {loss / math.log(2):.3f} bits"
    return f"loss {loss:.3f} = perplexity {math.exp(loss):,.1f}" if loss < 50 else f"loss {loss:.3f}"


def _tensorboard(run: Path) -> Callable[[], Board]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "--tensorboard needs TensorBoard; it is not installed. Install it: pip install tensorboard."
        ) from None

    def board() -> Board:
        try:
            writer = SummaryWriter(str(run / "tensorboard"))
        except OSError as error:
            raise DataError(
                f"{run} must be a writable folder; got {error.strerror or error}. Choose another --out."
            ) from None
        return lambda name, value, step: writer.add_scalar(name, value, step)

    return board


def _wandb(run: Path, config: Config) -> Callable[[], Board]:
    try:
        wandb = import_module("wandb")
    except ImportError:
        raise ConfigError(
            "--wandb needs Weights & Biases; it is not installed. Install it: pip install wandb."
        ) from None

    def board() -> Board:
        started = wandb.init(project="segue", name=run.name, dir=str(run), config=config.model_dump(mode="json"))
        return lambda name, value, step: started.log({name: value}, step=step)

    return board


def pretrain(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; an existing run is resumed.")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Model to start from: model folder, run folder or name. Its [model] settings are used. Default: "
            "new weights.",
            autocompletion=complete_model,
        ),
    ] = None,
    new_weights: Annotated[bool, typer.Option("--new-weights", hidden=True)] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Also send metrics to Weights & Biases.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Skip verifying the checksums of stores.")] = False,
) -> None:
    """Pretrain a model on a store, or resume a run.

    Ctrl-C or SIGTERM saves the training state and exits; the same command resumes from it, bit for bit.

    \b
    Example:
      segue pretrain small-xlnet data.store=corpus --out run
    """
    if out is None:
        raise ConfigError("pretraining needs a run folder; got no --out. Give --out RUN.")
    if new_weights:
        raise ConfigError(
            "pretraining starts with new weights unless --from names a model; got --new-weights, which is for "
            "fine-tuning. Leave it out."
        )
    origin = origin_of(start, out)
    settings = chosen_config(config, settings=overrides, base=None if origin is None else origin.config)
    stopped_by = run_pretraining(
        settings, out, origin=origin, tensorboard=tensorboard, wandb=wandb, verify=not no_verify
    )
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)
