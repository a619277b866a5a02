"""`segue prepare`: progress while it runs, then what was found and what it looks like in tokens."""

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from segue.cli.paragraphs import duration, progress_console, say
from segue.data.manifest import StoreManifest
from segue.data.prepare import PreparationReport, PrepareSettings, Progress, examples, preparation
from segue.data.problems import MEANING
from segue.data.store import Store

_STAGES = {"sample": "reading a sample", "train": "training the tokeniser", "encode": "encoding"}
_PLAIN_SECONDS = 10.0  # between lines where output is not a terminal


def run(inputs: Sequence[str], *, out: Path, settings: PrepareSettings, workers: int | None, replace: bool) -> None:
    """Prepares and reports."""
    progress = progress_console()
    steps = preparation(inputs, out=out, settings=settings, workers=workers, replace=replace)
    with closing(steps):  # an interrupt anywhere in here stops the workers and removes the work folder
        report = _watch_live(progress, steps) if progress.is_terminal else _watch_plain(progress, steps)
    _print_report(Console(highlight=False), report)


class _Meter:
    """Rates within a stage."""

    def __init__(self) -> None:
        self._stage = ""
        self._started = 0.0

    def line(self, progress: Progress) -> str:
        """One line: stage, share, rates, time left."""
        now = time.perf_counter()
        if progress.stage != self._stage:
            self._stage, self._started = progress.stage, now
        parts = [_STAGES[progress.stage]]
        seconds = now - self._started
        if progress.bytes_total:
            parts[0] += f" {min(progress.bytes_read / progress.bytes_total, 1):.0%}"
        if progress.bytes_read and seconds > 0:
            rate = progress.bytes_read / seconds
            parts.append(f"{rate / 1e6:.1f} MB/s")
            if progress.tokens:
                parts.append(f"{_short(progress.tokens / seconds)} tokens/s")
            left = max(progress.bytes_total - progress.bytes_read, 0) / rate
            parts.append(f"{duration(left)} left")
        elif seconds > 1:
            parts.append(duration(seconds))
        return ", ".join(parts)


def _watch_live(console: Console, steps: Generator[Progress, None, PreparationReport]) -> PreparationReport:
    """One line that changes; it is gone when all is done."""
    meter = _Meter()
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        while True:
            try:
                progress = next(steps)
            except StopIteration as end:
                report: PreparationReport = end.value
                return report
            live.update(Text(meter.line(progress), overflow="ellipsis", no_wrap=True))


def _watch_plain(console: Console, steps: Generator[Progress, None, PreparationReport]) -> PreparationReport:
    """A line at the beginning of a stage, and now and then."""
    meter = _Meter()
    stage, told = "", 0.0
    while True:
        try:
            progress = next(steps)
        except StopIteration as end:
            report: PreparationReport = end.value
            return report
        line = meter.line(progress)
        if progress.stage != stage or time.perf_counter() - told > _PLAIN_SECONDS:
            stage, told = progress.stage, time.perf_counter()
            say(console, line, hang=2)


def _print_report(console: Console, report: PreparationReport) -> None:
    rate = report.manifest.bytes + (report.validation_manifest.bytes if report.validation_manifest else 0)
    with_workers = f"{report.workers} workers" if report.workers > 1 else "one process"
    console.print(Text(str(report.store), style="bold"), soft_wrap=True)
    _print_counts(console, report.manifest)
    if report.validation_manifest is not None:
        console.print(Text(str(report.validation), style="bold"), soft_wrap=True)
        _print_counts(console, report.validation_manifest)
    for kind, meaning in MEANING.items():
        number = report.problems.counts.get(kind, 0)
        if number:
            first = report.problems.first[kind]
            say(
                console,
                f"{number:,} {meaning}" + (f"; first: {first}" if first else ""),
                indent=2,
                hang=2,
                style="yellow",
            )
    speed = f"{rate / 1e6 / max(report.encode_seconds, 1e-9):.1f} MB/s with {with_workers}"
    say(console, f"{duration(report.seconds)}; encoded at {speed}.", indent=2, style="dim")
    for text, tokens in examples(Store.open(report.store)):
        console.print()
        _indented(console, Text(text.strip() or repr(text)))
        _indented(console, Text("·".join(token.replace("\n", "\\n") for token in tokens), style="cyan"))


def _indented(console: Console, text: Text) -> None:
    """Text of any script, wrapped by the columns it really takes."""
    console.print(Padding(text, (0, 0, 0, 2), expand=False), overflow="fold")


def _print_counts(console: Console, manifest: StoreManifest) -> None:
    rows = [
        ("documents", f"{manifest.documents:,}"),
        ("lines", f"{manifest.lines:,}"),
        ("characters", f"{manifest.characters:,}"),
        ("words", f"{manifest.words:,}"),
        ("tokens", f"{manifest.tokens:,}"),
        ("vocabulary", f"{manifest.vocabulary_size:,}"),
        ("per character", f"{manifest.tokens / max(manifest.characters, 1):.3f} tokens"),
        ("per word", f"{manifest.tokens / max(manifest.words, 1):.3f} tokens"),
    ]
    for name, value in rows:
        console.print(Text(f"  {name:<14}{value:>15}"), soft_wrap=True)


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f}"
