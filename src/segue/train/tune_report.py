"""The report of a hyperparameter search: trials best first, importance of settings, plots, and the command for the best
settings.

In: trials as plain values. Out: `report.md` and `report.html` in the study folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from segue.files import write_file
from segue.report.charts import Point, Series, chart, number
from segue.report.pages import Block, Bullets, Code, Heading, Paragraph, Picture, Table, to_html, to_markdown
from segue.train.command import changed_settings, finetune_command, written
from segue.train.events import Request
from segue.train.finetune import finetune_settings
from segue.train.search_space import Choice, Dimension

State = Literal["complete", "pruned", "failed", "stopped"]
FEW = 20
"""Number of trials below which the importance of settings is a hint at best."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of a search."""

    number: int
    state: State
    """pruned: stopped because others did better. failed: out of memory. stopped: by a user; it is repeated."""
    value: float | None
    """Metric of the best validation; for a pruned trial, until then."""
    settings: Mapping[str, Any]
    seconds: float
    validations: int
    error: str | None = None


def write_study_report(
    folder: Path,
    request: Request,
    space: Sequence[Dimension],
    trials: Sequence[Trial],
    importance: Mapping[str, float],
) -> str | None:
    """Write both files; return the command for the best settings, if there are any."""
    counted = [trial for trial in trials if trial.state != "stopped"]
    ranked = sorted(counted, key=_rank)
    best = ranked[0] if ranked and ranked[0].state == "complete" else None
    command = None if best is None else _command(request, best, folder)
    blocks: list[Block] = [*_best(best, command, counted, folder), *_table(ranked, space)]
    blocks += [*_over_trials(counted, best), *_against_settings(counted, best, space, importance)]
    blocks += _settings(request, space, counted)
    title = f"Search for settings: {request.kind.name}, {folder.name}"
    write_file(folder / "report.md", to_markdown(title, blocks))
    write_file(folder / "report.html", to_html(title, blocks))
    return command


def _rank(trial: Trial) -> tuple[int, float, int]:
    order = {"complete": 0, "pruned": 1, "failed": 2, "stopped": 3}
    return order[trial.state], -(trial.value if trial.value is not None else 0.0), trial.number


def _command(request: Request, best: Trial, folder: Path) -> str:
    drawn = [f"{key}={written(value)}" for key, value in best.settings.items()]
    settings = finetune_settings(request.kind, {}, [*changed_settings(request.settings), *drawn])
    return finetune_command(replace(request, settings=settings), f"{folder}-best")


def _best(best: Trial | None, command: str | None, counted: Sequence[Trial], folder: Path) -> list[Block]:
    if best is None or command is None:
        return [Paragraph(text="No trial has finished yet.")]
    words = (
        f"The best of {len(counted)} trials is number {best.number}, with {best.value:.4f} on the validation examples. "
        f"Its weights are in {folder.name}/trials/{best.number:04d}/best; those of the other trials are deleted. This "
        "command repeats the run:"
    )
    warning = (
        "The highest of many values on the same validation examples is optimistic for new ones. Add --test FILE to "
        "evaluate the run on examples that no trial has seen."
    )
    return [Paragraph(text=words), Code(text=command), Paragraph(text=warning)]


def _table(ranked: Sequence[Trial], space: Sequence[Dimension]) -> list[Block]:
    keys = [one.key for one in space]
    rows = []
    for trial in ranked:
        value = "" if trial.value is None else f"{trial.value:.4f}"
        state = trial.state if trial.error is None else f"{trial.state}: {trial.error}"
        cells = [_shown(trial.settings.get(key)) for key in keys]
        rows.append([str(trial.number), state, value, *cells, str(trial.validations), f"{trial.seconds:,.0f}"])
    header = ["trial", "state", "value", *keys, "validations", "seconds"]
    numbers = frozenset({0, *range(2, len(header))})
    return [Heading(text="Trials, best first"), Table(header=header, rows=rows, numbers=numbers)] if rows else []


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else "" if value is None else str(value)


def _over_trials(counted: Sequence[Trial], best: Trial | None) -> list[Block]:
    highest, so_far = float("-inf"), []
    for trial in counted:
        if trial.state == "complete" and trial.value is not None:
            highest = max(highest, trial.value)
        so_far.append(Point(x=trial.number, y=highest))
    dots = _dots(counted, best, {trial.number: float(trial.number) for trial in counted})
    line = Series(name="best so far", points=so_far, colour="second")
    svg = chart([line, *dots], title="Values over trials", x_label="trial", y_label="validation", whole_x=True)
    return [Heading(text="Over the trials"), Picture(svg=svg)] if svg else []


def _dots(counted: Sequence[Trial], best: Trial | None, places: Mapping[int, float]) -> list[Series]:
    series = []
    for state, name in (("complete", "complete"), ("pruned", "pruned")):
        points = [
            Point(x=places[trial.number], y=trial.value, full=trial is best)
            for trial in counted
            if trial.state == state and trial.value is not None and trial.number in places
        ]
        series.append(Series(name=name, points=points, line=False, dots=True, faint=state == "pruned"))
    return series


def _against_settings(
    counted: Sequence[Trial], best: Trial | None, space: Sequence[Dimension], importance: Mapping[str, float]
) -> list[Block]:
    blocks: list[Block] = [Heading(text="What mattered")]
    complete = sum(trial.state == "complete" for trial in counted)
    if importance:
        hint = f" With fewer than {FEW} of them this is only a hint." if complete < FEW else ""
        rows = [[key, f"{share:.2f}"] for key, share in sorted(importance.items(), key=lambda item: -item[1])]
        words = f"Importance of each setting for good trials (PED-ANOVA, {complete} complete trials).{hint}"
        blocks += [Paragraph(text=words), Table(header=["setting", "share"], rows=rows, numbers=frozenset({1}))]
    else:
        blocks.append(Paragraph(text="There are too few different trials yet to tell which settings matter."))
    for one in space:
        if isinstance(one, Choice):
            places = {
                trial.number: float(one.values.index(trial.settings[one.key]))
                for trial in counted
                if trial.settings.get(one.key) in one.values
            }
            names, log, whole = [_shown(value) for value in one.values], False, False
        else:
            places = {trial.number: float(trial.settings[one.key]) for trial in counted if one.key in trial.settings}
            names, log, whole = [], one.log, one.whole
        svg = chart(
            _dots(counted, best, places),
            title=f"Values against {one.key}",
            x_label=one.key,
            y_label="validation (full dot: the best)",
            log_x=log,
            whole_x=whole,
            x_names=names,
        )
        blocks += [Picture(svg=svg)] if svg else []
    return blocks


def _settings(request: Request, space: Sequence[Dimension], counted: Sequence[Trial]) -> list[Block]:
    texts = [f"model: {request.model}", f"task: {request.kind.name}", f"train: {request.train}"]
    texts.append(f"valid: {request.valid or 'a part of the training examples, the same for all trials'}")
    texts += [f"searched: {one}" for one in space]
    fixed = changed_settings(request.settings)
    texts.append(f"fixed: {', '.join(fixed) if fixed else 'the defaults'}; seed {request.settings.train.seed}")
    counts = {state: sum(trial.state == state for trial in counted) for state in ("complete", "pruned", "failed")}
    texts.append("trials: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    texts.append(f"time in trials: {sum(trial.seconds for trial in counted):,.0f} s")
    return [Heading(text="Settings"), Bullets(texts=texts)]
