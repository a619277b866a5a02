"""Studies: variants compared at equal budgets, over several seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from segue.api.configs import Settings, overrides
from segue.api.errors import python_errors
from segue.api.progress import StatusLine, duration
from segue.arguments import Positive, Workers
from segue.errors import ConfigError
from segue.study.load import open_study, ready_studies, ready_text
from segue.study.pool import JobEnded, JobProgress, JobsStopping, JobStarted
from segue.study.results import Result
from segue.study.run import Planned, StudyEnded, StudyEvent
from segue.study.run import run_study as events_of


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """A study on disk, finished or not."""

    name: str
    folder: Path
    """Study folder, which other studies may share."""
    results: Sequence[Result]
    """One result per variant and seed: state, values, learning curve over the budget, and cost."""
    problems: Mapping[str, str]
    """Failed runs and their errors; the same call retries them."""
    stopped_by: Signals | None = None
    """Signal that stopped it, if any; the same call continues."""

    @property
    def report(self) -> Path:
        """The report as an HTML file, with Markdown and JSON versions beside it."""
        return self.folder / f"{self.name}.html"


@python_errors
def run_study(
    study: str | Path,
    out: str | Path,
    *,
    budget: Positive | None = None,
    settings: Settings | None = None,
    workers: Workers | None = None,
    progress: bool = True,
    on_event: Callable[[StudyEvent], object] | None = None,
) -> StudyResult:
    """Run a study: variants of a model at equal budgets, over several seeds, with a report of their differences.

    Ctrl-C saves the state of all runs and returns; the same call continues. Nothing is computed twice: a run with the
    settings, data and seed of an earlier one in the same folder is reused.

    Args:
        study: A TOML file, or the name of a built-in study.
        out: Folder for the report and the runs. Several studies may share it.
        budget: Training tokens of the first variant. Default: as the study specifies.
        settings: Settings to change in the study: {"seeds": [1, 2], "base.model.width": 64}, or nested dicts.
        workers: Number of processes. Default: one per core, or a single one on a GPU.
        progress: Whether to show progress on standard error.
        on_event: Called with each event of `segue.study.run` and `segue.study.pool`: `Planned`, `JobStarted`,
            `JobProgress`, `JobEnded`, `JobsStopping`, `StudyEnded`.

    Returns:
        The results of all variants and seeds, and the path of the report.

    Raises:
        ConfigError: If the study is invalid; the message lists all problems.
        DataError: If texts or examples cannot be read.

    Examples:
        >>> file = Path("memory.toml")
        >>> written = file.write_text('''
        ... corpus = {files = ["texts.txt"], kind = "characters", validation_share = 0.5}
        ... budget = {tokens = 32, points = 2}
        ... seeds = [1]
        ... [base]
        ... data = {lanes = 2, segment_length = 8}
        ... model = {num_layers = 1, width = 16, num_heads = 2, inner_width = 16, memory = {length = 8}}
        ... [[variants]]
        ... name = "memory"
        ... [[variants]]
        ... name = "no memory"
        ... without = ["model.memory"]
        ... ''')
        >>> found = segue.run_study(file, "studies", workers=1, progress=False)
        >>> [(one.variant, one.state) for one in found.results], found.report.name
        ([('memory', 'finished'), ('no memory', 'finished')], 'memory.html')
    """
    if budget is not None and budget < 1:
        raise ConfigError(f"--budget must be at least 1 token; got {budget}. Use 1000000, for example.")
    given = [*overrides(settings), *([] if budget is None else [f"budget.tokens={budget}"])]
    asked = open_study(study, given)
    view = _Line(show=progress)
    ended: StudyEnded | None = None
    try:
        for event in events_of(asked, Path(out), workers=workers):
            view.show(event)
            if on_event is not None:
                on_event(event)
            ended = event if isinstance(event, StudyEnded) else ended
    finally:
        view.line.clear()
    assert ended is not None
    return StudyResult(
        name=asked.name,
        folder=Path(out),
        results=ended.results,
        problems=ended.problems,
        stopped_by=ended.stopped_by,
    )


@python_errors
def studies() -> dict[str, str]:
    """List the built-in studies.

    Returns:
        Study names with their titles.

    Examples:
        >>> "recurrence-and-positions" in segue.studies()
        True
    """
    return ready_studies()


def check_study(study: str, settings: Sequence[str]) -> None:
    """Raise an error if the study does not exist or is invalid."""
    open_study(study, settings)


def study_text(name: str) -> str:
    """Return a built-in study as TOML, as a starting point."""
    return ready_text(name)


class _Line:
    """Shows a study as one status line, and a line for each job."""

    def __init__(self, *, show: bool) -> None:
        self.line = StatusLine(show=show)
        self.total = self.done = 0
        self.running: dict[tuple[str, ...], str] = {}

    def show(self, event: StudyEvent) -> None:
        match event:
            case Planned():
                self.total, self.done = len(event.plan.jobs), event.done
                there = f", {event.done} of them done already" if event.done else ""
                processes = "1 process" if event.workers == 1 else f"{event.workers} processes"
                self.line.say(f"study: {self.total} jobs{there}; {processes}")
            case JobStarted():
                self.running[event.job.results] = f"{event.job.name} starting"
            case JobProgress():
                share = event.done / max(1, event.total)
                self.running[event.job.results] = f"{event.job.name} {event.phase} {share:.0%}"
                running = "; ".join(self.running.values())
                self.line.update(f"study: {self.done} of {self.total} jobs done; {running}")
            case JobEnded():
                self.running.pop(event.job.results, None)
                self.done += event.problem is None
                how = "done" if event.problem is None else f"failed: {event.problem}"
                self.line.say(f"study: {event.job.name}: {how} ({self.done} of {self.total})")
            case JobsStopping():
                jobs = "1 job" if event.running == 1 else f"{event.running} jobs"
                self.line.say(f"study: stopping; {jobs} will save what there is after a step or a measure")
            case StudyEnded():
                spent = sum((one.processor or 0.0) + (one.task_processor or 0.0) for one in event.results)
                self.line.say(f"study: {duration(spent)} of processor time are in these results")
