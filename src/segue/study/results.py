"""Results of the jobs of a study, by variant and seed, read from their files, whichever study wrote them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from segue.evaluation.recl import SHARES, effective_lengths
from segue.study.data import Corpus
from segue.study.load import VALIDATION
from segue.study.plan import OUTCOME, RUN, Cell, Plan
from segue.study.schema import MeasuresConfig
from segue.train.metrics import read_metrics

State = Literal["finished", "diverged", "missing"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a variant with one seed."""

    variant: str
    seed: int
    state: State
    """missing: not run yet, or failed."""
    reason: str = ""
    """How it diverged."""
    curve: Sequence[float | None] = ()
    """The validation metric at each point of the budget; None if it was not finite."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Metrics at the end of the budget, by name: "validation", or a task."""
    diverged_tasks: Sequence[str] = ()
    memory: Mapping[int | None, float] = field(default_factory=dict)
    """The validation metric by memory length; None is no memory."""
    lengths: Mapping[float, int] = field(default_factory=dict)
    """Relative effective context length, by the share of hard tokens."""
    open_ends: frozenset[float] = frozenset()
    """Shares for which it may be longer than the longest length measured."""
    processor: float | None = None
    """Seconds of processor time in pretraining."""
    task_processor: float | None = None
    """Seconds of processor time in fine-tuning, for all tasks."""


def read_results(plan: Plan, folder: Path) -> list[Result]:
    """Return all results so far, in the order of the plan's cells."""
    measures, corpus = plan.study.settings.measures, plan.corpus
    found = [_result(cell, measures, corpus, folder) for cell in plan.cells]
    return _with_lengths(found, plan, folder)


def shown(loss: float, measures: MeasuresConfig, corpus: Corpus) -> float:
    """Convert a loss in nats per token to the unit of the study."""
    match measures.unit:
        case "perplexity":
            return math.exp(min(loss, 700.0))
        case "bits_per_character":
            return loss / math.log(2) * corpus.tokens_per_character
        case "loss":
            return loss


def _result(cell: Cell, measures: MeasuresConfig, corpus: Corpus, folder: Path) -> Result:
    outcome = _read(folder / cell.run / OUTCOME)
    if outcome is None:
        return Result(variant=cell.variant, seed=cell.seed, state="missing")
    metrics = folder / cell.run / RUN / "metrics.jsonl"
    lines = read_metrics(metrics) if metrics.is_file() else []  # a run that diverges at once has none
    losses = [line["validation_loss"] for line in lines if "validation_loss" in line]
    curve = [shown(loss, measures, corpus) if isinstance(loss, float) else None for loss in losses]
    measured = _read(folder / cell.measures)
    if outcome["state"] == "diverged" or measured is None:
        return Result(
            variant=cell.variant,
            seed=cell.seed,
            state="diverged" if outcome["state"] == "diverged" else "missing",
            reason=outcome.get("reason", ""),
            curve=curve,
            processor=outcome["processor"],
        )
    loss = measured["loss"] if "loss" in measured else losses[-1] if losses else None
    values = {VALIDATION: shown(loss, measures, corpus)} if isinstance(loss, float) else {}
    read = {name: _read(folder / place) for name, place in cell.tasks.items()}
    tasks = {name: task for name, task in read.items() if task is not None}
    return Result(
        variant=cell.variant,
        seed=cell.seed,
        state="finished" if values else "diverged",
        reason="" if values else "the loss on the validation store is not finite",
        curve=curve,
        values=values | {name: task["value"] for name, task in tasks.items() if task["state"] == "finished"},
        diverged_tasks=[name for name, task in tasks.items() if task["state"] == "diverged"],
        memory={length: shown(one, measures, corpus) for length, one in measured.get("memory", []) if one is not None},
        processor=outcome["processor"],
        task_processor=sum(task["processor"] for task in tasks.values()) if tasks else None,
    )


def _with_lengths(found: Sequence[Result], plan: Plan, folder: Path) -> list[Result]:
    """Add the effective context length, which is relative to a group: all variants with the same seed."""
    contexts = plan.study.settings.measures.contexts
    if not contexts:
        return list(found)
    by_place: dict[int, Result] = dict(enumerate(found))
    for seed in plan.study.settings.seeds:
        places, losses = [], []
        for place, cell in enumerate(plan.cells):
            measured = _read(folder / cell.measures) if cell.seed == seed else None
            if measured and "contexts" in measured and np.isfinite(measured["contexts"]).all():
                places.append(place)
                losses.append(np.array(measured["contexts"], dtype=np.float64))
        if not places:
            continue
        by_share = {share: effective_lengths(np.stack(losses), contexts, share=share) for share in SHARES}
        for number, place in enumerate(places):
            by_place[place] = replace(
                by_place[place],
                lengths={share: lengths[number].context for share, lengths in by_share.items()},
                open_ends=frozenset(share for share, lengths in by_share.items() if lengths[number].open_end),
            )
    return [by_place[place] for place in range(len(found))]


def _read(path: Path) -> dict[str, Any] | None:
    """Return the values in a file; None if it does not exist."""
    if not path.is_file():
        return None
    values: dict[str, Any] = json.loads(path.read_bytes())
    return values
