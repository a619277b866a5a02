"""A complete pretraining run: from a config and a store to `last/` and `best/`, which can be stopped and resumed.

`pretrain` is a generator of events (an update, a validation, a saved state, the end). It writes `metrics.jsonl` and the
model folders; the caller displays the events. A run folder contains:

    config.toml     every setting, resolved
    metrics.jsonl   a line for each logged step and each validation
    last/           the newest state: a model folder with everything that a bit-exact resume needs and, if the run
                    started from an existing model, the record of that model
    best/           the model with the lowest validation loss
"""

import hashlib
import math
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.checkpoint.card import Facts, Metric, TrainingData
from segue.checkpoint.files import locate
from segue.checkpoint.folder import TOKENIZER, save
from segue.config import Config, DataConfig, TrainConfig, dump
from segue.config import load as load_config
from segue.data import manifest
from segue.data.batches import Batches
from segue.data.store import Store
from segue.errors import ConfigError, DataError
from segue.files import write_file
from segue.model import LanguageModel
from segue.train.distributed import place, processes, rank, sum_over_processes, whole_model, world
from segue.train.loop import REMEDY, DivergedError, StepReport, TrainState, is_sound, train
from segue.train.machine import peak_memory
from segue.train.metrics import losses_in, newest_losses, read_metrics
from segue.train.optim import WeightAverage, learning_rate, make_optimizer
from segue.train.plan import check_memory
from segue.train.run_folder import Metrics, Stop, check_folder, one_at_a_time, stop_signal
from segue.train.stages import Origin, start_with
from segue.train.state import load_state, save_state


@dataclass(frozen=True, kw_only=True)
class Started:
    """The run begins, or resumes."""

    step: int
    steps: int
    parameters: int
    changed: list[str]
    """Training settings that differ from those of the stopped run."""
    origin: Origin | None = None
    """The model that the run started from; None: new weights."""


@dataclass(frozen=True, kw_only=True)
class Validated:
    """A validation finished."""

    step: int
    loss: float
    best: bool


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A state was saved."""

    step: int
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run is finished, or was stopped by a signal."""

    step: int
    saved: int | None
    """Step of the state in `last/`, from which the run can be resumed; None: there is none yet."""
    finished: bool
    stopped_by: signal.Signals | None
    """Signal that stopped the run; None if all steps are done."""


Event = Started | StepReport | Validated | Saved | Ended


def pretrain(
    config: Config,
    run: Path,
    *,
    origin: Origin | None = None,
    command: str | None = None,
    verify: bool = True,
    stop: Stop | None = None,
    device: torch.device | None = None,
) -> Iterator[Event]:
    """Run until all steps are done or a signal requests a stop; an existing run folder is resumed. `origin` is the
    model whose weights a new run starts with (`stages.find_origin`), `command` is the command in the cards of its
    models. Without `verify`, the stores are not checked for damage. `stop` and `device` are for callers that handle
    signals and have joined the processes themselves."""
    data, settings = _required(config)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signal()) if stop is None else stop
        device = stack.enter_context(processes()) if device is None else device
        if rank() == 0:
            check_folder(run, "pretrain")
        store = Store.open(data.store, verify=verify)
        _check(config, data, store, origin, verify=verify)
        check_memory(config.model, data, settings, device)
        torch.manual_seed(settings.seed)
        seed = settings.seed if origin is None else origin.data_seed(settings.seed)
        batches = Batches(store, data, config.model, seed=seed, rank=rank(), world=world())
        weights = None if origin is None or origin.folder is None else origin.weights()
        stack.enter_context(one_at_a_time(run, "pretrain"))  # what is refused earlier leaves no folder behind
        state, changed = _start(config, run, batches, settings, device, weights)
        last = _Last(folder=run / "last", step=state.step if locate(run / "last").exists() else None, origin=origin)
        start = None if origin is None else origin.described()
        facts = Facts(data=_training_data(Path(data.store)), command=command, start=start)
        metrics = Metrics(run / "metrics.jsonl", step=state.step)
        if origin is not None and last.step is None:  # from now on the run does not need the model it starts from
            last.keep(state, config, batches.position, facts)
        losses = newest_losses(run / "metrics.jsonl") if rank() == 0 else {}
        count = sum(parameter.numel() for parameter in state.model.parameters())
        yield Started(step=state.step, steps=settings.steps, parameters=count, changed=changed, origin=origin)
        stopped_by, due = None, False
        for report in _explained(train(state, batches, settings), last):
            if report.step % settings.log_every == 0 or report.skipped or report.step == settings.steps:
                losses |= _log(metrics, _line(report))
            yield report
            last_step = report.step == settings.steps
            validating = settings.validate_every is not None and report.step % settings.validate_every == 0
            if data.validation is not None and (validating or last_step):
                validated = _validate(state, config, data, run, facts, device)
                losses |= _log(metrics, {"step": validated.step, "validation_loss": validated.loss})
                yield validated
            stopped_by = stop.agreed()
            due = due or last_step or stopped_by is not None or report.step % settings.save_every == 0
            if due and is_sound(state, batches, settings):  # otherwise later: `last/` stays one to resume from
                last.keep(state, config, batches.position, replace(facts, metrics=list(losses.values())))
                due = False
                yield Saved(step=state.step, folder=last.folder)
            if stopped_by is not None:
                break
        finished = state.step >= settings.steps
        if finished and last.step != state.step:
            raise DivergedError(
                f"training must end with a finite loss; it was not finite after the last step, {state.step}. {REMEDY} "
                f"{last.how_to_resume()}"
            )
        if finished and not last.folder.exists():  # a run that was killed during its last save
            last.keep(state, config, batches.position, replace(facts, metrics=list(losses.values())))
        yield Ended(step=state.step, saved=last.step, finished=finished, stopped_by=None if finished else stopped_by)


@dataclass
class _Last:
    """The newest state on disk."""

    folder: Path
    step: int | None
    """Step of the state; None: there is no state yet."""
    origin: Origin | None

    def keep(self, state: TrainState, config: Config, position: Mapping[str, int], facts: Facts) -> None:
        assert config.data is not None
        tokenizer = Path(config.data.store) / TOKENIZER
        origin = None if self.origin is None else self.origin.record()
        save_state(
            state, self.folder, config=config, tokenizer=tokenizer, position=position, facts=facts, origin=origin
        )
        self.step = state.step

    def how_to_resume(self) -> str:
        if self.step is None:
            return "No state had been saved yet: the same command with such a setting starts from the beginning."
        return f"{self.folder} is a sound state, of step {self.step}: the same command with such a setting resumes it."


def _explained(reports: Iterator[StepReport], last: _Last) -> Iterator[StepReport]:
    """Yield the same reports; errors in between say from where the run can be resumed."""
    try:
        yield from reports
    except DivergedError as error:
        raise DivergedError(f"{error} {last.how_to_resume()}") from None
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise ConfigError(
            f"a step must fit into the memory that is free; got {(str(error).splitlines() or ['no memory'])[0][:200]}. "
            f"Use train.accumulate=2 or more, or train.recompute=true. {last.how_to_resume()}"
        ) from None


def _is_out_of_memory(error: Exception) -> bool:
    """Return True for an out-of-memory error; PyTorch has a class for it on GPUs only."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


# ------------------------------------------------------------------------------------------------ start, resume


def _required(config: Config) -> tuple[DataConfig, TrainConfig]:
    if config.data is None or config.train is None:
        missing = " and ".join(f"[{name}]" for name in ("data", "train") if getattr(config, name) is None)
        raise ConfigError(f"pretraining needs [data] and [train]; got no {missing}. Add it to the config.")
    return config.data, config.train


def _check(config: Config, data: DataConfig, store: Store, origin: Origin | None, *, verify: bool) -> None:
    size = config.model.vocabulary.size
    if origin is not None and origin.tokenizer != store.manifest.tokenizer:
        tokenizer = "TOKENIZER" if origin.folder is None else origin.folder / TOKENIZER
        raise DataError(
            f"{data.store} must have the tokeniser of {origin.name}, which the run starts from; got another one. "
            "Prepare the text with it:",
            remedy=f"segue.prepare(TEXT, STORE, tokenizer={str(tokenizer)!r}).",
            option=f"segue prepare TEXT --tokenizer {tokenizer} --out STORE.",
        )
    if origin is None and size != store.vocabulary_size:
        raise ConfigError(
            f"model.vocabulary.size must be that of the store; got {size} and {store.vocabulary_size}. "
            f"Set it to {store.vocabulary_size}, or leave it out."
        )
    if data.lanes % world():
        raise ConfigError(
            f"data.lanes must be a multiple of the number of processes; got {data.lanes} and {world()}. "
            f"Use {math.ceil(data.lanes / world()) * world()}."
        )
    if data.validation is not None:
        other = Store.open(data.validation, verify=verify)
        other.verify()  # all of it, once: it is opened again for each validation
        if other.manifest.tokenizer != store.manifest.tokenizer:
            raise DataError(
                f"{data.validation} must have the tokeniser of {data.store}; got another one. "
                "Prepare it with --tokenizer and the tokeniser folder of the training store."
            )


def _start(
    config: Config,
    run: Path,
    batches: Batches,
    settings: TrainConfig,
    device: torch.device,
    weights: Mapping[str, Tensor] | None,
) -> tuple[TrainState, list[str]]:
    """Return a new state, with these weights if there are any, or the state in the run folder."""
    if locate(run / "last").exists():
        before = load_config(locate(run / "last") / "config.toml")
        changed = _changes(before, config)
        state, position = load_state(run / "last", settings, device=device)
        _check_past(before, config, done=state.step)
        batches.seek(position)
        _write_config(run, config)
        return state, changed
    _check_new(run, settings)
    _write_config(run, config)
    model = LanguageModel(config.model)
    if weights is not None:
        start_with(model, weights)
    model = place(model, device, sharded=settings.sharded)
    average = None if settings.average_decay is None else WeightAverage(model, settings.average_decay)
    state = TrainState(model=model, optimizer=make_optimizer(model, settings), average=average)
    if world() > 1:  # the same weights everywhere, different dropout in each process
        torch.manual_seed(settings.seed * 1_000_003 + rank())
    return state, []


def _check_new(run: Path, settings: TrainConfig) -> None:
    """Raise DataError for a run that has lost its state, which would overwrite a better model. A run that was killed
    before its first state starts from the beginning."""
    if not locate(run / "best").exists() or not (run / "metrics.jsonl").is_file():
        return
    reached = max((line["step"] for line in read_metrics(run / "metrics.jsonl")), default=0)
    if reached > settings.save_every:
        raise DataError(
            f"{run} must contain last/ to be resumed; it has only best/ and metrics up to step {reached}. Restore "
            "last/, or choose another --out."
        )


def _changes(before: Config, now: Config) -> list[str]:
    """Return the changed training settings; raise ConfigError if the model or the data changed since the run was
    stopped."""
    for section in ("model", "data"):
        old, new = (getattr(config, section).model_dump() for config in (before, now))
        differing = sorted(key for key in old | new if old.get(key) != new.get(key))
        if differing:
            raise ConfigError(
                f"a resumed run must keep its [{section}] settings; got other values for {', '.join(differing)}. "
                "Choose another --out, or use the earlier settings."
            )
    old, new = (config.train.model_dump() if config.train else {} for config in (before, now))
    return [f"train.{key}: {old.get(key)} -> {new[key]}" for key in new if old.get(key) != new[key]]


def _check_past(before: Config, now: Config, *, done: int) -> None:
    """Raise ConfigError if another length or form of the schedule would have changed steps already done. The rate and
    its warm-up may always be changed: that is the remedy for a run that diverges."""
    old, new = before.train, now.train
    assert old is not None
    assert new is not None
    if old.optimizer != new.optimizer:
        raise ConfigError(
            f'a resumed run must keep its train.optimizer, "{old.optimizer}", whose state was saved; got '
            f'"{new.optimizer}". Use that one, or continue from the model in a new run:',
            remedy='segue.pretrain(CONFIG, NEW, start="RUN/last").',
            option="--from RUN/last --out NEW.",
        )
    names = ("steps", "schedule", "decay_steps", "final_share")
    as_before = new.model_copy(update={name: getattr(old, name) for name in names})
    if done and learning_rate(done - 1, new) != learning_rate(done - 1, as_before):
        shown = [f"train.{name} = {getattr(new, name)}" for name in names if getattr(old, name) != getattr(new, name)]
        raise ConfigError(
            f"a resumed run must keep the learning rates of the {done} steps already done; got {', '.join(shown)}, "
            "which would change them. Runs with the schedules constant, inverse_sqrt and warmup_stable_decay (before "
            "its decay) can be extended. Use the earlier settings, or continue from the model in a new run:",
            remedy='segue.pretrain(CONFIG, NEW, start="RUN/last").',
            option="--from RUN/last --out NEW.",
        )
    if done and now.model.auxiliary is not None and old.steps != new.steps:
        raise ConfigError(
            "a run with model.auxiliary must keep its train.steps, which schedule the auxiliary losses; got "
            f"{new.steps} after {old.steps}. Use {old.steps}."
        )


def _write_config(run: Path, config: Config) -> None:
    if rank() == 0:
        write_file(run / "config.toml", dump(config))


# --------------------------------------------------------------------------------------------------- validation


def _validate(
    state: TrainState,
    config: Config,
    data: DataConfig,
    run: Path,
    facts: Facts,
    device: torch.device,
) -> Validated:
    """Compute the mean loss over the validation store, read once in lanes, and save the model if it is the best."""
    assert config.train is not None
    assert data.validation is not None
    if state.average is not None:
        state.average.exchange(state.model)
    read = data.model_copy(update={"targets": "all"})
    loss = validation_loss(
        state.model,
        Batches(Store.open(data.validation, verify=False), read, config.model, seed=0, rank=rank(), world=world()),
        steps=config.train.validation_steps,
        device=device,
    )
    best = math.isfinite(loss) and (state.best is None or loss < state.best)
    if best:
        state.best = loss
        model = whole_model(state.model)
        if rank() == 0:
            known = replace(facts, metrics=[Metric(name="validation loss", value=loss, step=state.step)])
            save(model, run / "best", config=config, tokenizer=Path(data.store) / TOKENIZER, facts=known)
    if state.average is not None:
        state.average.exchange(state.model)
    return Validated(step=state.step, loss=loss, best=best)


def _training_data(store: Path) -> TrainingData:
    """Return the training data for the model card."""
    digest = hashlib.sha256((store / manifest.NAME).read_bytes()).hexdigest()
    return TrainingData(name=store.resolve().name, tokens=manifest.load_manifest(store).tokens, sha256=digest)


@torch.no_grad()
def validation_loss(model: LanguageModel, batches: Batches, *, steps: int | None, device: torch.device) -> float:
    """Return the mean loss over one pass of the data, or over its first `steps` batches."""
    model.eval()
    memory = None
    nll, targets = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    count = batches.steps_per_epoch if steps is None else min(steps, batches.steps_per_epoch)
    for _ in range(count):
        batch = next(batches).to(device)
        result = model(batch, memory)
        memory = result.memory
        mask = torch.ones_like(result.nll, dtype=torch.bool) if batch.target_mask is None else batch.target_mask
        nll += (result.nll.double() * mask).sum().cpu()
        targets += mask.sum().cpu()
    model.train()
    return float(sum_over_processes(nll) / sum_over_processes(targets).clamp(min=1))


# ------------------------------------------------------------------------------------------------------- metrics


def _line(report: StepReport) -> dict[str, Any]:
    values = asdict(report)
    values["tokens_per_second"] = round(report.tokens / report.seconds, 1)
    values["peak_memory"] = peak_memory()
    values["time"] = round(time.time(), 3)
    return values


def _log(metrics: Metrics, values: Mapping[str, Any]) -> dict[str, Metric]:
    """Write a line; return the losses in it."""
    line = {key: value if _finite(value) else str(value) for key, value in values.items()}  # JSON has no NaN
    metrics.write(line)
    return losses_in(line)


def _finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
