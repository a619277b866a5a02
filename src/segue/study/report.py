"""The report of a study: NAME.md, NAME.html, and NAME.json with the same numbers.

In: the plan and the results so far. Out: files. Values are means over seeds, with 95 % confidence intervals by
Student's t; differences from the first variant are paired by seed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tomli_w

from segue.files import write_file
from segue.report.charts import Point, Series, chart
from segue.report.pages import Block, Bullets, Code, Heading, Paragraph, Picture, Table, to_html, to_markdown
from segue.study.load import VALIDATION
from segue.study.plan import Plan
from segue.study.results import Result
from segue.study.schema import PaperConfig
from segue.study.statistics import Estimate, estimate, paired

Verdict = Literal["agrees", "differs", "not resolved at this size"]
UNITS = {
    "perplexity": "validation perplexity",
    "bits_per_character": "validation, bits per character",
    "loss": "validation loss",
}
DIGITS = {"perplexity": 2, "bits_per_character": 4, "loss": 4}
RULES = {
    "tokens": "Every variant reads the same number of tokens in training.",
    "parameters": "Every variant reads the same number of tokens in training, and has as many parameters as the first "
    "one, as closely as the inner width of its layers, a multiple of 8, allows.",
    "multiply_adds": "Every variant uses as many multiply-adds in training as the first one, with more or fewer "
    "tokens.",
}
PAPER_RULE = (
    "Agrees: the 95 % confidence interval of our paired difference from the first variant excludes zero, on the same "
    "side as the paper's difference. Differs: it is on the other side, or the paper reports no difference. Not "
    "resolved at this size: the interval includes zero, or there are fewer than two seeds. Only the order is compared, "
    "not the values: model, data and budget differ."
)


def write_report(plan: Plan, results: Sequence[Result], folder: Path, *, problems: Mapping[str, str]) -> Path:
    """Write all files; return the path of the HTML file."""
    view = _View(plan, results)
    blocks: list[Block] = [
        *view.question(),
        *view.ends(),
        *view.differences(),
        *view.papers(),
        *view.curves(),
        *view.memories(),
        *view.contexts(),
        *view.costs(),
        *view.troubles(problems),
        *view.origin(),
    ]
    name, title = plan.study.name, plan.study.title
    write_file(folder / f"{name}.md", to_markdown(title, blocks))
    write_file(folder / f"{name}.json", json.dumps(view.figures(problems), indent=1, ensure_ascii=False))
    write_file(folder / f"{name}.html", to_html(title, blocks))
    return folder / f"{name}.html"


def verdict(paper: PaperConfig, variant: str, reference: str, ours: Estimate | None, *, higher: bool) -> Verdict:
    """Return whether our results confirm the paper's order of a variant and the reference. `higher` is True if higher
    values of our metric are better."""
    sign = 0 if ours is None else ours.sign
    if not sign:
        return "not resolved at this size"
    difference = paper.values[variant] - paper.values[reference]
    gain = (difference > 0) - (difference < 0)
    theirs = gain if paper.better == "higher" else -gain
    return "agrees" if theirs == (sign if higher else -sign) else "differs"


class _View:
    def __init__(self, plan: Plan, results: Sequence[Result]) -> None:
        self.plan, self.settings = plan, plan.study.settings
        self.names = [variant.name for variant in plan.variants]
        self.reference = self.names[0]
        self.results = {name: [one for one in results if one.variant == name] for name in self.names}
        self.comparable = len({variant.model.objective for variant in plan.variants}) == 1
        self.unit = self.settings.measures.unit
        self.tasks = [task.name for task in self.settings.measures.tasks]

    # ------------------------------------------------------------------------------------------------ values

    def values(self, name: str, measure: str) -> dict[int, float]:
        """Return the values of a metric for one variant, by seed."""
        return {one.seed: one.values[measure] for one in self.results[name] if measure in one.values}

    def measures(self) -> list[str]:
        """Return the metrics by which variants are compared; losses of different objectives are not comparable."""
        return [*([VALIDATION] if self.comparable else []), *self.tasks]

    def difference(self, name: str, measure: str) -> Estimate | None:
        return paired(self.values(name, measure), self.values(self.reference, measure))

    def header(self, measure: str) -> str:
        return UNITS[self.unit] if measure == VALIDATION else measure

    def number(self, value: float, measure: str = VALIDATION, *, sign: bool = False) -> str:
        digits = DIGITS[self.unit] if measure == VALIDATION else 4
        return f"{value:{'+' if sign else ''},.{digits}f}"

    def interval(self, one: Estimate | None, measure: str = VALIDATION, *, sign: bool = False) -> str:
        if one is None:
            return ""
        mean = self.number(one.mean, measure, sign=sign)
        if one.low is None or one.high is None:
            return f"{mean} (one seed)"
        low, high = (self.number(value, measure, sign=sign) for value in (one.low, one.high))
        return f"{mean} ({low} to {high})"

    # ------------------------------------------------------------------------------------------------ blocks

    def question(self) -> Iterator[Block]:
        if self.settings.question:
            yield Paragraph(text=self.settings.question)
        done = sum(one.state != "missing" for some in self.results.values() for one in some)
        total = sum(map(len, self.results.values()))
        if done < total:
            yield Paragraph(text=f"Not complete: {done} of {total} runs have ended. Run the same command to continue.")
        seeds = ("seed " if len(self.settings.seeds) == 1 else "seeds ") + ", ".join(map(str, self.settings.seeds))
        yield Paragraph(
            text=f"{RULES[self.settings.budget.rule]} Each variant is run with {seeds}. Values are "
            "means over seeds, with 95 % confidence intervals (Student's t) in parentheses; the first variant is the "
            "reference of all comparisons."
        )

    def ends(self) -> Iterator[Block]:
        measures = [VALIDATION, *self.tasks]
        rows = []
        for name in self.names:
            cells = [self.interval(estimate(list(self.values(name, m).values())), m) for m in measures]
            rows.append([name, *cells, self.state(name)])
        yield Heading(text="Results at the end of the budget")
        header = ["variant", *(self.header(measure) for measure in measures), "runs"]
        yield Table(header=header, rows=rows, numbers=frozenset(range(1, len(measures) + 1)))
        if not self.comparable:
            yield Paragraph(
                text="The variants have different training objectives, whose losses are not comparable: the validation "
                "values of different variants must not be compared. Variants are compared by the tasks."
            )

    def state(self, name: str) -> str:
        """Return the numbers of finished, diverged and missing runs."""
        counts = {state: sum(one.state == state for one in self.results[name]) for state in ("finished", "diverged")}
        missing = len(self.results[name]) - sum(counts.values())
        parts = [f"{count} {state}" for state, count in [*counts.items(), ("missing", missing)] if count]
        tasks = sum(len(one.diverged_tasks) for one in self.results[name])
        return ", ".join([*parts, *([f"{tasks} diverged in fine-tuning"] if tasks else [])])

    def differences(self) -> Iterator[Block]:
        measures = self.measures()
        if not measures:
            return
        rows = [
            [name, *(self.interval(self.difference(name, m), m, sign=True) for m in measures)]
            for name in self.names[1:]
        ]
        yield Heading(text=f"Differences from {self.reference}, paired by seed")
        header = ["variant", *(self.header(measure) for measure in measures)]
        yield Table(header=header, rows=rows, numbers=frozenset(range(1, len(header))))
        better = "Lower is better in validation, higher in tasks." if self.tasks else "Lower is better."
        explained = "An interval that excludes zero is a difference that the variation between seeds does not explain."
        yield Paragraph(text=f"{explained} {better}")

    def papers(self) -> Iterator[Block]:
        for paper in self.settings.paper:
            measure = paper.ours
            rows = []
            for name in [name for name in self.names if name in paper.values]:
                ours = self.interval(estimate(list(self.values(name, measure).values())), measure)
                found = "" if name == self.reference else self.verdict(paper, name)
                rows.append([name, f"{paper.values[name]:g}", ours, found])
            yield Heading(text=f"Comparison with the paper: {paper.source}")
            yield Table(
                header=["variant", f"paper ({paper.better} is better)", f"ours: {self.header(measure)}", "order"],
                rows=rows,
                numbers=frozenset({1, 2}),
            )
        if self.settings.paper:
            yield Paragraph(text=PAPER_RULE)

    def verdict(self, paper: PaperConfig, name: str) -> Verdict:
        ours = self.difference(name, paper.ours) if paper.ours in self.measures() else None
        return verdict(paper, name, self.reference, ours, higher=paper.ours != VALIDATION)

    def curve(self, name: str) -> list[Point]:
        """Return the mean at each point of the budget, over the seeds that have a value there."""
        points, found = self.settings.budget.points, []
        for number in range(points):
            values = [one.curve[number] for one in self.results[name] if len(one.curve) > number]
            one = estimate([value for value in values if value is not None])
            if one is not None:
                found.append(Point(x=(number + 1) / points, y=one.mean, low=one.low, high=one.high))
        return found

    def curves(self) -> Iterator[Block]:
        points = self.settings.budget.points
        shares = [f"{(number + 1) / points:.0%}" for number in range(points)]
        curves = {name: {point.x: point for point in self.curve(name)} for name in self.names}
        rows = []
        for name, curve in curves.items():
            cells = [curve.get((number + 1) / points) for number in range(points)]
            rows.append([name, *("" if point is None else self.number(point.y) for point in cells)])
        yield Heading(text="Learning curves")
        yield Paragraph(
            text=f"{self.header(VALIDATION).capitalize()} after each share of the budget, measured during training; "
            "mean over seeds. It is computed in batches and may differ slightly from the final value."
        )
        yield Table(header=["variant", *shares], rows=rows, numbers=frozenset(range(1, points + 1)))
        for name in self.names if not self.comparable else self.names[1:]:
            lines = [Series(name=name, points=list(curves[name].values()), colour="second", dots=True)]
            if self.comparable:
                first = list(curves[self.reference].values())
                lines.insert(0, Series(name=self.reference, points=first, dots=True))
            title = f"{name} over the budget"
            svg = chart(lines, title=title, x_label="share of the budget", y_label=self.header(VALIDATION))
            if svg:
                yield Picture(svg=svg)

    def memories(self) -> Iterator[Block]:
        lengths = [None, *self.settings.measures.memory_lengths] if self.settings.measures.memory_lengths else []
        if not lengths:
            return
        rows = []
        for name in self.names:
            cells = [estimate([one.memory[m] for one in self.results[name] if m in one.memory]) for m in lengths]
            rows.append([name, *(self.interval(cell) for cell in cells)])
        yield Heading(text="Effect of the memory length")
        yield Paragraph(
            text=f"{self.header(VALIDATION).capitalize()} of the same weights with other memory lengths. Not "
            "available for models with learned absolute positions and for models that are not causal."
        )
        header = ["variant", *("no memory" if length is None else f"{length:,}" for length in lengths)]
        yield Table(header=header, rows=rows, numbers=frozenset(range(1, len(header))))

    def contexts(self) -> Iterator[Block]:
        contexts = self.settings.measures.contexts
        shares = sorted({share for some in self.results.values() for one in some for share in one.lengths})
        if not contexts or not shares:
            return
        rows = []
        for name in self.names:
            cells = []
            for share in shares:
                having = [one for one in self.results[name] if share in one.lengths]
                found = estimate([float(one.lengths[share]) for one in having])
                opened = "+" if any(share in one.open_ends for one in having) else ""
                cells.append("" if found is None else f"{found.mean:,.0f}{opened}")
            rows.append([name, *cells])
        yield Heading(text="Relative effective context length")
        yield Paragraph(
            text="Context length in tokens up to which more context still helps (Dai et al. 2019, appendix C), among "
            f"lengths from {contexts[0]:,} to {contexts[-1]:,}, for the given share r of the hardest tokens; mean over "
            "seeds. A plus means that it still helps at the longest length measured. The variants with the same seed "
            "form the group."
        )
        header = ["variant", *(f"r = {share:g}" for share in shares)]
        yield Table(header=header, rows=rows, numbers=frozenset(range(1, len(header))))

    def costs(self) -> Iterator[Block]:
        rows = []
        for variant in self.plan.variants:
            some = self.results[variant.name]
            time = estimate([one.processor for one in some if one.processor is not None])
            tuning = estimate([one.task_processor for one in some if one.task_processor is not None])
            row = [variant.name, f"{variant.parameters:,}", f"{variant.tokens:,}", f"{variant.multiply_adds:.3g}"]
            row.append("" if time is None else f"{time.mean:,.0f}")
            rows.append(row + (["" if tuning is None else f"{tuning.mean:,.0f}"] if self.tasks else []))
        header = ["variant", "parameters", "tokens", "multiply-adds", "processor seconds"]
        header += ["processor seconds, tasks"] if self.tasks else []
        yield Heading(text="Cost of a run")
        yield Table(header=header, rows=rows, numbers=frozenset(range(1, len(header))))
        yield Paragraph(
            text="Tokens and multiply-adds are those of pretraining, by formula, with a full memory; a backward pass "
            "counts as two forward passes. Processor seconds are means over seeds, measured on the machine of the run."
        )

    def troubles(self, problems: Mapping[str, str]) -> Iterator[Block]:
        found = [
            f"{one.variant}, seed {one.seed}: diverged: {one.reason}"
            for some in self.results.values()
            for one in some
            if one.state == "diverged"
        ]
        found += [
            f"{one.variant}, seed {one.seed}: diverged in fine-tuning: {task}"
            for some in self.results.values()
            for one in some
            for task in one.diverged_tasks
        ]
        found += [f"{name}: failed: {why}. Run the same command to try again." for name, why in problems.items()]
        if found:
            yield Heading(text="Failed runs")
            yield Bullets(texts=found)

    def origin(self) -> Iterator[Block]:
        corpus, settings = self.plan.corpus, self.settings
        text = ", ".join([*settings.corpus.samples, *settings.corpus.files]) or str(settings.corpus.store)
        yield Heading(text="Data and settings")
        texts = [
            f"text: {text}; {corpus.tokens:,} training tokens, {corpus.validation_tokens:,} validation tokens, a "
            f"vocabulary of {corpus.vocabulary_size:,} (content digest {corpus.digest})"
        ]
        texts += [f"{variant.name}: {variant.about}" for variant in self.plan.variants if variant.about]
        texts += list(settings.limits)
        yield Bullets(texts=texts)
        yield Paragraph(text="The settings of the study, to run it again or to change it:")
        yield Code(
            text=tomli_w.dumps(_plain(settings.model_dump(mode="json", exclude_none=True, exclude_defaults=True)))
        )

    # ------------------------------------------------------------------------------------------------ figures

    def figures(self, problems: Mapping[str, str]) -> dict[str, Any]:
        """Return the numbers of the report, for programs."""
        return {
            "study": self.plan.study.name,
            "unit": self.unit,
            "variants": [
                {
                    "name": variant.name,
                    "parameters": variant.parameters,
                    "tokens": variant.tokens,
                    "multiply_adds": variant.multiply_adds,
                    "runs": [_figures(one) for one in self.results[variant.name]],
                }
                for variant in self.plan.variants
            ],
            "differences": {
                measure: {
                    name: None if (found := self.difference(name, measure)) is None else vars(found)
                    for name in self.names[1:]
                }
                for measure in self.measures()
            },
            "paper": [
                {"source": paper.source}
                | {name: self.verdict(paper, name) for name in self.names[1:] if name in paper.values}
                for paper in self.settings.paper
            ],
            "problems": dict(problems),
        }


def _figures(one: Result) -> dict[str, Any]:
    return {
        "seed": one.seed,
        "state": one.state,
        "reason": one.reason,
        "curve": list(one.curve),
        "values": dict(one.values),
        "memory": [[length, value] for length, value in one.memory.items()],
        "effective_lengths": {f"{share:g}": length for share, length in one.lengths.items()},
        "processor_seconds": one.processor,
        "task_processor_seconds": one.task_processor,
    }


def _plain(value: Any) -> Any:
    """Return a value without empty tables and lists."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if one not in ({}, [])}
    return [_plain(one) for one in value] if isinstance(value, list) else value
