"""`segue prepare`: progress, then a report with counts and examples of tokens."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from segue.api.prepare import encoded_examples, prepared
from segue.cli.console import duration, progress_console, say
from segue.cli.options import (
    DocumentsOption,
    ExpansionOption,
    FieldOption,
    InputEncodingOption,
    ReplaceFolderOption,
)
from segue.data.manifest import StoreManifest
from segue.data.prepare import PreparationReport, PrepareSettings, Progress
from segue.data.problems import MEANING
from segue.data.readers import ReadSettings

_STAGES = {"sample": "reading a sample", "train": "training the tokeniser", "encode": "encoding"}
Show: TypeAlias = Callable[[Progress], object]
_PLAIN_SECONDS = 10.0  # between lines if output is not a terminal


def run(inputs: Sequence[str], *, out: Path, settings: PrepareSettings, workers: int | None, replace: bool) -> None:
    """Prepare a store and print a report."""
    console = progress_console()
    watch = _watch_live if console.is_terminal else _watch_plain
    with watch(console) as show:
        report = prepared(inputs, out, settings, workers=workers, replace=replace, progress=False, on_event=show)
    _print_report(Console(highlight=False, emoji=False), report)


class _Meter:
    """Rates within a stage."""

    def __init__(self) -> None:
        self._stage = ""
        self._started = 0.0

    def line(self, progress: Progress) -> str:
        """Return one line: stage, share, rates, time left."""
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


@contextmanager
def _watch_live(console: Console) -> Iterator[Show]:
    """Show a status line, which is removed at the end."""
    meter = _Meter()
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield lambda progress: live.update(Text(meter.line(progress), overflow="ellipsis", no_wrap=True))


@contextmanager
def _watch_plain(console: Console) -> Iterator[Show]:
    """Print a line at the start of each stage, and periodically."""
    meter = _Meter()
    stage, told = "", 0.0

    def show(progress: Progress) -> None:
        nonlocal stage, told
        line = meter.line(progress)
        if progress.stage != stage or time.perf_counter() - told > _PLAIN_SECONDS:
            stage, told = progress.stage, time.perf_counter()
            say(console, line, hang=2)

    yield show


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
    for text, tokens in encoded_examples(report.store):
        console.print()
        _indented(console, Text(text.strip() or repr(text)))
        _indented(console, Text("·".join(token.replace("\n", "\\n") for token in tokens), style="cyan"))


def _indented(console: Console, text: Text) -> None:
    """Print text of any script, wrapped by its display width."""
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


def prepare(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files, folders or quoted globs: txt, jsonl, csv, tsv, parquet, each also as .gz, .xz, .zst or .bz2.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder of the new store; OUT-valid holds the validation documents, if any.")
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Tokeniser folder, or store whose tokeniser to use. Default: train a new one."),
    ] = None,
    kind: Annotated[
        Literal["unigram", "bpe", "words", "characters", "bytes"], typer.Option(help="Kind of tokeniser to train.")
    ] = "unigram",
    vocabulary_size: Annotated[
        int | None,
        typer.Option(
            help="Vocabulary size. Default: 8000 for unigram and bpe, fewer for a short text; no limit for words and "
            "characters."
        ),
    ] = None,
    sample_characters: Annotated[
        int, typer.Option(help="Maximum number of characters, sampled at random, to train unigram and bpe on.")
    ] = 2**22,
    documents: DocumentsOption = None,
    field: FieldOption = "text",
    encoding: InputEncodingOption = "utf-8",
    workers: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per core, for large inputs.")
    ] = None,
    validation_share: Annotated[
        float | None,
        typer.Option(
            help="Share of documents to hold out in a validation store, e.g. 0.01. Default: no validation store."
        ),
    ] = None,
    malformed_share: Annotated[
        float, typer.Option(help="Maximum share of unreadable records in a file; more is an error.")
    ] = 0.05,
    largest_expansion: ExpansionOption = None,
    seed: Annotated[int, typer.Option(help="Seed for sampling text and for choosing validation documents.")] = 0,
    replace: ReplaceFolderOption = False,
) -> None:
    """Tokenise text into a store: token ids on disk, ready for training.

    Malformed bytes become U+FFFD, NULs are dropped, lines longer than 65,536 characters are split, and empty and
    duplicate files are skipped; all of this is counted and reported. An interrupted run leaves no partial store.

    \b
    Example:
      segue prepare texts/ --out corpus --validation-share 0.01
    """
    read = ReadSettings(
        document=documents,
        field=field,
        encoding=encoding,
        malformed_share=malformed_share,
        largest_expansion=largest_expansion,
    )
    settings = PrepareSettings(
        read=read,
        tokenizer=tokenizer,
        kind=kind,
        vocabulary_size=vocabulary_size,
        sample_characters=sample_characters,
        validation_share=validation_share,
        seed=seed,
    )
    run(inputs, out=out, settings=settings, workers=workers, replace=replace)
