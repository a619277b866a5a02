"""A study from its file to its report, as a generator of events; stopped by a signal, resumed by the same call.

Several studies may use the same folder, one after the other, and share what they have in common. The folder contains:

    NAME.html, NAME.md  the report of a study, updated whenever a run ends
    NAME.json           the same numbers for programs
    runs/KEY/           a pretraining run, its evaluation and its fine-tuning runs; KEY is a digest of its settings
    data/               samples, stores and tables
"""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

import torch

from segue.errors import ConfigError
from segue.study.data import corpus_of, tables_of
from segue.study.load import Study
from segue.study.plan import Job, Plan, plan_study
from segue.study.pool import JobEnded, JobProgress, JobsStopping, JobStarted, cores, run_jobs
from segue.study.report import write_report
from segue.study.results import Result, read_results
from segue.train.run_folder import one_at_a_time, stop_signal


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The data is prepared, and the plan is known."""

    plan: Plan
    done: int
    """Number of jobs whose results exist already."""
    workers: int


@dataclass(frozen=True, kw_only=True)
class StudyEnded:
    """The report is written."""

    report: Path
    """The HTML file; the others are beside it."""
    plan: Plan
    results: list[Result]
    problems: dict[str, str]
    """Failed jobs by name, and why: the same call tries them again."""
    stopped_by: Signals | None
    """Signal that stopped it, if any; the same call continues."""


StudyEvent = Planned | JobStarted | JobProgress | JobEnded | JobsStopping | StudyEnded


def run_study(study: Study, folder: Path, *, workers: int | None = None) -> Iterator[StudyEvent]:
    """Run all jobs that are not done yet, and write the report."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError("a study starts its own processes; torchrun started several. Run it without torchrun.")
    with one_at_a_time(folder, "study"), stop_signal() as stop:
        corpus = corpus_of(study.settings.corpus, folder)
        tables = {task.name: tables_of(task, folder) for task in study.settings.measures.tasks}
        plan = plan_study(study, corpus, tables)
        todo = [job for job in plan.jobs if not job.is_done(folder)]
        count = workers or _usual_workers(todo)
        yield Planned(plan=plan, done=len(plan.jobs) - len(todo), workers=count)
        problems: dict[str, str] = {}
        with closing(run_jobs(todo, folder, workers=count, stop=stop)) as events:
            for event in events:
                yield event
                if isinstance(event, JobEnded):
                    if event.problem is not None:
                        problems[event.job.name] = event.problem
                    write_report(plan, read_results(plan, folder), folder, problems=problems)
        results = read_results(plan, folder)
        report = write_report(plan, results, folder, problems=problems)
        undone = any(not job.is_done(folder) for job in plan.jobs)
        stopped_by = stop.received if undone else None
        yield StudyEnded(report=report, plan=plan, results=results, problems=problems, stopped_by=stopped_by)


def _usual_workers(todo: list[Job]) -> int:
    """Return the default number of workers: one for each core, or one for a GPU, but no more than there are jobs."""
    return 1 if torch.cuda.is_available() else max(1, min(cores(), len(todo)))
