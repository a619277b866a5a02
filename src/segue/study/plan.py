"""The plan of a study: each variant as a config that fits the budget, and the jobs for all seeds.

The folder of a run is a digest of its config, including the seed, and of the content of its stores; that of an
evaluation or a fine-tuning run is a digest of its settings, too. So variants, seeds and studies that need the same work
share it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.config import Config, DataConfig, ModelConfig, TrainConfig, changed, dump, parameter_count, parse
from segue.errors import ConfigError
from segue.evaluation.cost import multiply_adds
from segue.study.data import Corpus, TaskTables, digest
from segue.study.load import Study, finetuning, variant_values
from segue.study.schema import MeasuresConfig, StudyConfig, TaskConfig, VariantConfig
from segue.train.plan import predicted_positions

RUNS = "runs"
RUN, OUTCOME, SECONDS = "run", "outcome.json", "seconds.json"
LONGEST_SAVE = 500
"""Maximum number of updates between two saved states."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A resolved variant, with its cost."""

    name: str
    about: str
    config: Config
    """Config of the run with the first seed."""

    @property
    def model(self) -> ModelConfig:
        return self.config.model

    @property
    def parameters(self) -> int:
        return parameter_count(self.config.model)

    @property
    def tokens(self) -> int:
        """Number of tokens that a run reads in training."""
        data, train = _sections(self.config)
        return data.lanes * data.segment_length * train.steps

    @property
    def multiply_adds(self) -> float:
        """Number of multiply-adds of a run: a backward pass counts as two forward passes."""
        return 3 * _per_token(self.config) * self.tokens


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work for one process: a pretraining run with its evaluation, or a fine-tuning run."""

    name: str
    """Name for display."""
    run: str
    """Folder of the pretraining run, relative to the studies folder."""
    results: tuple[str, ...]
    """Files that exist when the job is done, relative to the same folder."""
    order: Mapping[str, Any] = field(repr=False)
    """The order for the worker process."""
    after: str | None = None
    """Outcome file of the run that must have finished before: for fine-tuning, its own pretraining run."""

    def is_done(self, folder: Path) -> bool:
        return all((folder / result).is_file() for result in self.results)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Paths of the results of a variant with one seed."""

    variant: str
    seed: int
    run: str
    measures: str
    tasks: Mapping[str, str]
    """Paths of fine-tuning results, by the names of tasks."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All work of a study."""

    study: Study
    corpus: Corpus
    variants: Sequence[Variant]
    cells: Sequence[Cell]
    jobs: Sequence[Job]
    """The jobs, each once, runs before those that depend on them."""


def plan_study(study: Study, corpus: Corpus, tables: Mapping[str, TaskTables]) -> Plan:
    """Return the plan of a study whose data is prepared."""
    settings = study.settings
    variants = resolved_variants(settings, corpus)
    cells: list[Cell] = []
    jobs: dict[tuple[str, ...], Job] = {}
    for seed in settings.seeds:
        for variant, given in zip(variants, settings.variants, strict=True):
            cell, needed = _cell(variant, given, settings, corpus, tables, seed=seed)
            cells.append(cell)
            for job in needed:
                jobs.setdefault(job.results, job)
    ordered = [job for job in jobs.values() if job.after is None]
    ordered += [job for job in jobs.values() if job.after is not None]
    return Plan(study=study, corpus=corpus, variants=variants, cells=cells, jobs=ordered)


# ------------------------------------------------------------------------------------------------------- budgets


def resolved_variants(study: StudyConfig, corpus: Corpus) -> list[Variant]:
    """Return every variant with the steps, and for equal parameters the inner width, that the budget gives it."""
    found: list[Variant] = []
    for given in study.variants:
        values = variant_values(study, given)
        values.setdefault("data", {}).update(store=corpus.store, validation=corpus.validation)
        values.setdefault("model", {}).setdefault("vocabulary", {}).setdefault("size", corpus.vocabulary_size)
        values.setdefault("train", {})
        config = parse(values)
        if study.budget.rule == "parameters" and found:
            model = _of_size(config.model, found[0].parameters, name=given.name)
            config = config.model_copy(update={"model": model})
        tokens = float(study.budget.tokens)
        if study.budget.rule == "multiply_adds" and found:
            tokens = found[0].multiply_adds / 3 / _per_token(config)
        config = config.model_copy(update={"train": _schedule(config, study, tokens)})
        found.append(Variant(name=given.name, about=given.about, config=parse(config.model_dump(exclude_none=True))))
    return found


def _schedule(config: Config, study: StudyConfig, tokens: float) -> TrainConfig:
    """Return the schedule for a number of tokens, in equal parts between validations."""
    data, train = _sections(config)
    batch, points = data.lanes * data.segment_length, study.budget.points
    part = max(1, math.ceil(tokens / batch / points - 1e-9))
    steps = part * points
    most = study.measures.validation_tokens
    return train.model_copy(
        update={
            "steps": steps,
            "seed": study.seeds[0],
            "warmup_steps": round(study.budget.warmup_share * steps),
            "validate_every": part,
            "validation_steps": None if most is None else max(1, math.ceil(most / batch)),
            "save_every": min(part, LONGEST_SAVE),
        }
    )


def _of_size(model: ModelConfig, parameters: int, *, name: str) -> ModelConfig:
    """Return the model with the inner width, a multiple of 8, for which its number of parameters is nearest to
    `parameters`: the number grows linearly with that width."""
    one, two = (parameter_count(model.model_copy(update={"inner_width": width})) for width in (8, 16))
    steps = round((parameters - one) / (two - one) + 1)
    if steps < 1:
        raise ConfigError(
            f"budget.rule parameters needs variants that can have those of the first one, {parameters:,}; variant "
            f"{name!r} has more at the smallest inner width, {one:,}. Give it fewer layers or a smaller width, or "
            "another rule."
        )
    return changed(model, inner_width=8 * steps)


def _per_token(config: Config) -> float:
    data, _ = _sections(config)
    predicted = predicted_positions(data, config.model)
    return multiply_adds(config.model, segment_length=data.segment_length, predicted=predicted)


def _sections(config: Config) -> tuple[DataConfig, TrainConfig]:
    assert config.data is not None
    assert config.train is not None
    return config.data, config.train


# ---------------------------------------------------------------------------------------------------------- jobs


def _cell(
    variant: Variant,
    given: VariantConfig,
    study: StudyConfig,
    corpus: Corpus,
    tables: Mapping[str, TaskTables],
    *,
    seed: int,
) -> tuple[Cell, list[Job]]:
    _, train = _sections(variant.config)
    config = variant.config.model_copy(update={"train": train.model_copy(update={"seed": seed})})
    run = f"{RUNS}/{run_key(config, corpus)}"
    order = measure_order(config, study.measures)
    measures = f"{run}/measures-{digest([order, corpus.validation_digest])}.json"
    name = f"{variant.name}, seed {seed}"
    outcome = f"{run}/{OUTCOME}"
    jobs = [
        Job(
            name=name,
            run=run,
            results=(outcome, measures),
            order={"run": run, "config": dump(config), "measures": order, "result": measures},
        )
    ]
    found = {}
    for task in study.measures.tasks:
        told = task_order(task, given, tables[task.name], seed=seed)
        key = digest([{**told, "files": None}, tables[task.name].digest])
        result = f"{run}/task-{key}.json"
        found[task.name] = result
        jobs.append(
            Job(
                name=f"{name}, {task.name}",
                run=run,
                results=(result,),
                order={"run": run, "task": told, "folder": f"{run}/task-{key}", "result": result},
                after=outcome,
            )
        )
    return Cell(variant=variant.name, seed=seed, run=run, measures=measures, tasks=found), jobs


def run_key(config: Config, corpus: Corpus) -> str:
    """Return a digest of everything that determines a run: all settings, including defaults and seed, and the content
    of its stores."""
    values = config.model_dump(mode="json")
    values["data"] |= {"store": corpus.digest, "validation": corpus.validation_digest}
    return digest(values)


def measure_order(config: Config, measures: MeasuresConfig) -> dict[str, Any]:
    """Return the evaluation settings of a model, besides its losses in training."""
    data, _ = _sections(config)
    order: dict[str, Any] = {"limit": measures.validation_tokens, "segment_length": data.segment_length}
    if config.model.objective != "causal":
        return {}
    reads_on = config.model.learned_positions is None
    order["memory_lengths"] = [None, *measures.memory_lengths] if measures.memory_lengths and reads_on else []
    order["contexts"] = list(measures.contexts)
    order["context_tokens"] = measures.context_tokens
    return order


def task_order(task: TaskConfig, variant: VariantConfig, tables: TaskTables, *, seed: int) -> dict[str, Any]:
    """Return the settings of a fine-tuning job."""
    settings = finetuning(task, variant, seed=seed)
    return {
        "task": task.task,
        "metric": task.metric,
        "new_weights": task.new_weights,
        "settings": settings.model_dump(mode="json", exclude_none=True),
        "files": dict(tables.files),
    }
