"""Hyperparameter search: many fine-tuning runs, each evaluated on the validation examples, guided by Optuna.

`tune` is a generator of events, like `finetune`. A study folder contains:

    study.db        the trials so far (SQLite); the same command resumes it
    trials/NNNN/    the run folder of each trial; only that of the best one keeps its weights
    report.md       trials, plots and the command for the best settings; report.html is the same with charts

A trial is sampled from the results of the finished ones and the seed, so that a resumed search makes the same trials as
one that was not stopped. Test examples are not used.
"""

import os
import signal
import time
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import read_config
from segue.errors import ConfigError, DataError
from segue.files import remove_folder
from segue.tasks.automatic import usual_layer_decay, usual_rate
from segue.train.command import changed_settings, written
from segue.train.events import Ended, Event, Prepared, Request, Validated
from segue.train.finetune import finetune, finetune_settings
from segue.train.run_folder import Stop, one_at_a_time, remove_run, stop_signal
from segue.train.search_space import Choice, Dimension, default_space
from segue.train.tune_report import State, Trial, write_study_report

DATABASE = "study.db"
TRIALS = "trials"
STUDY = "segue"
RANDOM_TRIALS = 10
"""Number of random trials before the sampler uses earlier results."""
UNPRUNED_TRIALS = 5
"""Number of trials that are never pruned, because the median needs some."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Definition of a search."""

    request: Request
    """The request with its fixed settings; without test examples."""
    space: tuple[Dimension, ...]
    trials: int = 20
    """Total number of trials in the study, including earlier ones."""
    hours: float | None = None
    """Hours after which no trial begins."""


@dataclass(frozen=True, kw_only=True)
class Began:
    """A trial begins."""

    number: int
    settings: dict[str, Any]
    done: int
    """Number of earlier trials that count."""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """An event in the run of a trial."""

    number: int
    event: Event


@dataclass(frozen=True, kw_only=True)
class TrialEnded:
    """A trial ended."""

    trial: Trial
    best: bool
    """True if it is the best so far."""


@dataclass(frozen=True, kw_only=True)
class SearchEnded:
    """The search ended."""

    reason: str
    """Reason of the end, for display."""
    stopped_by: signal.Signals | None = None
    """Signal that stopped the search."""
    trials: list[Trial]
    best: Trial | None
    command: str | None
    """Command that repeats the best run."""


TuneEvent = Began | Inside | TrialEnded | SearchEnded


def tune(search: Search, folder: Path) -> Iterator[TuneEvent]:
    """Make trials until there are enough, the time is over, or a signal requests a stop; all of them are kept."""
    if search.request.test is not None:
        raise ConfigError(
            "a search must not see test examples; got some. Evaluate on them afterwards, with segue finetune."
        )
    if not search.space:
        raise ConfigError("a search needs settings to search; got only fixed ones. Give --search, or fix fewer.")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError("a search runs in one process; torchrun started several. Run segue tune without torchrun.")
    optuna = _optuna()
    with one_at_a_time(folder, "tune"), stop_signal() as stop:
        study = _open(optuna, search, folder)
        until = None if search.hours is None else time.monotonic() + 3600 * search.hours
        reason, stopped_by = None, None
        while reason is None:
            done = [trial for trial in _trials(study) if trial.state != "stopped"]
            if stop.received is not None:
                reason, stopped_by = "told to stop", stop.received
            elif len(done) >= search.trials:
                reason = f"{len(done)} trials are made"
            elif until is not None and time.monotonic() >= until:
                reason = f"{search.hours:g} hours are over"
            else:
                yield from _trial(optuna, study, search, folder, stop=stop, done=len(done))
                write_study_report(folder, search.request, search.space, _trials(study), _importance(optuna, study))
        trials = [trial for trial in _trials(study) if trial.state != "stopped"]
        command = write_study_report(folder, search.request, search.space, _trials(study), _importance(optuna, study))
        yield SearchEnded(reason=reason, stopped_by=stopped_by, trials=trials, best=best_of(trials), command=command)


def usual_space(request: Request, fixed: Mapping[str, Any]) -> list[Dimension]:
    """Return the default search space of the model, without fixed settings."""
    config, _ = read_config(model_folder(find(request.model)))
    space = default_space(config.width, new_weights=request.new_weights)
    return [one for one in space if one.key not in fixed]


def best_of(trials: list[Trial]) -> Trial | None:
    """Return the complete trial with the highest value, the first in a tie."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return max(complete, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)


# ------------------------------------------------------------------------------------------------------- a trial


def _trial(
    optuna: Any, study: Any, search: Search, folder: Path, *, stop: Stop, done: int
) -> Generator[TuneEvent, None, None]:
    """Run a trial and report its result to the study however it ends; its weights are kept if they are the best."""
    trial = _ask(optuna, study, search, done=done)
    run = folder / TRIALS / f"{trial.number:04d}"
    remove_run(run)
    fixed = changed_settings(search.request.settings)
    drawn = [f"{key}={written(value)}" for key, value in trial.params.items()]
    settings = finetune_settings(search.request.kind, {}, [*fixed, *drawn])
    request = replace(search.request, settings=settings, baselines=False)
    states, failed = optuna.trial.TrialState, None
    yield Began(number=trial.number, settings=dict(trial.params), done=done)
    outcome: _Outcome = _Outcome(state="stopped", value=None)
    try:
        outcome = yield from _run(request, run, trial, stop=stop)
    except (torch.OutOfMemoryError, MemoryError) as error:
        failed = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        outcome = _Outcome(state="failed", value=None)
    finally:
        if outcome.state == "complete":
            study.tell(trial, outcome.value)
        elif outcome.state == "pruned":
            study.tell(trial, state=states.PRUNED)
        else:
            if failed is not None:
                trial.set_user_attr("error", failed)
            study.tell(trial, state=states.FAIL)
        trials = _trials(study)
        best = best_of(trials)
        _keep_weights_of(best, folder)
    if outcome.state == "stopped":
        remove_run(run)
        return
    (ended,) = [one for one in trials if one.number == trial.number]
    yield TrialEnded(trial=ended, best=best is not None and best.number == trial.number)


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    state: State
    value: float | None


def _run(request: Request, run: Path, trial: Any, *, stop: Stop) -> Generator[TuneEvent, None, _Outcome]:
    """Run a trial; each validation is compared with those of other trials after as many examples."""
    metric, steps, best, place = "", 0, -np.inf, 0
    reported: set[int] = set()
    with closing(finetune(request, run, stop=stop)) as events:
        for event in events:
            yield Inside(number=trial.number, event=event)
            match event:
                case Prepared():
                    metric, steps = event.metric, event.steps
                case Validated():
                    best, place = max(best, event.metrics[metric].value), place + 1
                    if place not in reported:
                        trial.report(best, step=place)
                        reported.add(place)
                    if event.step < steps and trial.should_prune():
                        return _Outcome(state="pruned", value=None)
                case Ended():
                    stopped = event.stopped_by is not None
                    return _Outcome(state="stopped" if stopped else "complete", value=None if stopped else float(best))
    return _Outcome(state="stopped", value=None)


def _ask(optuna: Any, study: Any, search: Search, *, done: int) -> Any:
    """Return a new trial. Its random numbers depend on the number of finished trials, not on the start of the
    process."""
    seed = search.request.settings.train.seed
    state = int(np.random.SeedSequence([seed, done]).generate_state(1)[0])
    study.sampler = optuna.samplers.TPESampler(seed=state, n_startup_trials=RANDOM_TRIALS)
    waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    if done == 0 and not waiting:  # the defaults come first, so that the recommended settings are never worse
        study.enqueue_trial(_defaults(search))
    return study.ask({one.key: _distribution(optuna, one) for one in search.space})


def _defaults(search: Search) -> dict[str, Any]:
    values = search.request.settings
    found = {}
    for one in search.space:
        section, _, key = one.key.partition(".")
        value = getattr(getattr(values, section), key)
        if one.key == "train.learning_rate" and value is None:
            config, _ = read_config(model_folder(find(search.request.model)))
            value = usual_rate(config.width, new_weights=search.request.new_weights)
        if one.key == "train.layer_decay" and value is None:
            value = usual_layer_decay(new_weights=search.request.new_weights)
        if one.holds(value):
            found[one.key] = value
    return found


def _distribution(optuna: Any, one: Dimension) -> Any:
    kinds = optuna.distributions
    if isinstance(one, Choice):
        return kinds.CategoricalDistribution(one.values)
    if one.whole:
        return kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
    return kinds.FloatDistribution(float(one.low), float(one.high), log=one.log)


def _keep_weights_of(best: Trial | None, folder: Path) -> None:
    for run in (folder / TRIALS).glob("*"):
        if best is None or run.name != f"{best.number:04d}":
            remove_folder(run / "best")


# ------------------------------------------------------------------------------------------------------- a study


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError("segue tune needs optuna; it is not installed. Install it: pip install optuna.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _open(optuna: Any, search: Search, folder: Path) -> Any:
    """Open the study of the folder, which must have the same definition; trials of a killed process are ended."""
    from sqlalchemy.exc import SQLAlchemyError

    path = (folder / DATABASE).absolute()
    if "?" in str(path):
        raise ConfigError(f"--out of a search must be without a question mark; got {folder}. Choose another.")
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path}",
            study_name=STUDY,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED_TRIALS),
        )
    except (SQLAlchemyError, RuntimeError) as error:
        raise DataError(
            f"{path} must be a study as segue tune writes it; got {str(error).splitlines()[0][:200]}. Choose another "
            "--out, or move the file away."
        ) from None
    asked, before = _fixed_values(search), study.user_attrs.get("asked")
    if before is None:
        study.set_user_attr("asked", asked)
    elif before != asked:
        differing = [key for key in asked if before.get(key) != asked[key]]
        shown = "; ".join(f"{key} {asked[key]!r}, not {before.get(key)!r}" for key in differing)
        raise ConfigError(
            f"{folder} must be continued with its original settings; got {shown}. Use the same command, or another "
            "--out."
        )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        remove_run(folder / TRIALS / f"{trial.number:04d}")
    return study


def _fixed_values(search: Search) -> dict[str, Any]:
    request = search.request
    return {
        "model": request.model,
        "task": request.kind.name,
        "train": str(request.train),
        "valid": None if request.valid is None else str(request.valid),
        "columns": dict(request.columns),
        "tables": repr(request.tables),
        "new_weights": request.new_weights,
        "settings": changed_settings(request.settings),
        "search": [str(one) for one in search.space],
    }


def _trials(study: Any) -> list[Trial]:
    """Return the trials in order, as plain values, without those that wait or run."""
    found = []
    for trial in study.get_trials(deepcopy=False):
        name, error = trial.state.name, trial.user_attrs.get("error")
        states: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned"}
        state: State = states.get(name, "stopped" if error is None else "failed")
        if name in ("RUNNING", "WAITING"):
            continue
        values = trial.intermediate_values
        value = trial.value if state == "complete" else values[max(values)] if values else None
        found.append(
            Trial(
                number=trial.number,
                state=state,
                value=value,
                settings=dict(trial.params),
                seconds=trial.duration.total_seconds() if trial.duration is not None else 0.0,
                validations=len(values),
                error=error,
            )
        )
    return found


def _importance(optuna: Any, study: Any) -> dict[str, float]:
    """Return the importance of each setting for the result; empty if there are too few trials, of which Optuna
    warns."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError, UserWarning):
        return {}
    return {key: float(value) for key, value in found.items() if np.isfinite(value)}
