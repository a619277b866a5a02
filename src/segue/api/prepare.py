"""Preparation of text as a store: token ids on disk, ready for training."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

from segue.api.errors import python_errors
from segue.api.progress import StatusLine, duration
from segue.arguments import Number, Positive, Seed, Share, Workers
from segue.data.prepare import PreparationReport, PrepareSettings, examples, preparation
from segue.data.prepare import Progress as PrepareProgress
from segue.data.readers import DocumentRule, ReadSettings
from segue.data.store import Store
from segue.text.train import Kind

_STAGES = {"sample": "reading a sample", "train": "training the tokeniser", "encode": "encoding"}


@python_errors
def prepare(
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    tokenizer: str | Path | None = None,
    kind: Kind = "unigram",
    vocabulary_size: Positive | None = None,
    sample_characters: Positive = 2**22,
    documents: DocumentRule | None = None,
    field: str = "text",
    encoding: str = "utf-8",
    validation_share: Annotated[float, Number(above=0, below=1)] | None = None,
    malformed_share: Share = 0.05,
    largest_expansion: Positive | None = None,
    workers: Workers | None = None,
    seed: Seed = 0,
    replace: bool = False,
    progress: bool = True,
    on_event: Callable[[PrepareProgress], object] | None = None,
) -> Store:
    """Tokenise text files into a store: token ids on disk, ready for training, with their tokeniser.

    Args:
        files: Files, folders or globs: txt, jsonl, csv, tsv or parquet, each also compressed.
        out: Folder of the new store; OUT-valid holds the validation documents, if any.
        tokenizer: Tokeniser folder, or store whose tokeniser to use. Default: train a new one.
        kind: Kind of tokeniser to train: "unigram", "bpe", "words", "characters" or "bytes".
        vocabulary_size: Vocabulary size. Default: 8000 for unigram and bpe, or as many as a short text allows, with a
            warning; no limit for words and characters.
        sample_characters: Maximum number of characters to train unigram and bpe on.
        documents: Unit of a document: "block" (up to a blank line), "line", "file" or "record". Default: blocks in text
            files, records in others.
        field: Field or column that holds the text of a record.
        encoding: Encoding of files without a byte order mark, e.g. "gb18030".
        validation_share: Share of documents to hold out in a validation store. Default: no validation store.
        malformed_share: Maximum share of unreadable records in a file.
        largest_expansion: Maximum ratio of decompressed to compressed size. Default: 100.
        workers: Number of processes. Default: one per core, for large inputs.
        seed: Seed for sampling text and for choosing validation documents.
        replace: Whether to replace an existing store.
        progress: Whether to show progress on standard error.
        on_event: Called with `segue.data.prepare.Progress` events as the work proceeds.

    Returns:
        The opened store. `store.manifest` holds its counts; `Store.open("OUT-valid")` opens the validation store.

    Raises:
        DataError: If files are missing or unreadable, or the folder exists.

    Examples:
        >>> store = segue.prepare("texts.txt", "corpus", kind="characters", progress=False)
        >>> store.manifest.documents
        6
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
        tokenizer=None if tokenizer is None else str(tokenizer),
        kind=kind,
        vocabulary_size=vocabulary_size,
        sample_characters=sample_characters,
        validation_share=validation_share,
        seed=seed,
    )
    inputs = [files] if isinstance(files, str | Path) else list(files)
    report = prepared(inputs, out, settings, workers=workers, replace=replace, progress=progress, on_event=on_event)
    return Store.open(report.store, verify=False)


def encoded_examples(store: str | Path) -> list[tuple[str, list[str]]]:
    """Return a few texts of a store, and their tokens."""
    return examples(Store.open(store))


def prepared(
    files: Sequence[str | Path],
    out: str | Path,
    settings: PrepareSettings,
    *,
    workers: Workers | None = None,
    replace: bool = False,
    progress: bool = True,
    on_event: Callable[[PrepareProgress], object] | None = None,
) -> PreparationReport:
    """Run `prepare` with all settings in one value, and return a report."""
    line = StatusLine(show=progress)
    steps = preparation(files, out=out, settings=settings, workers=workers, replace=replace)
    with closing(steps):  # an interrupt anywhere in here stops the workers and removes incomplete files
        try:
            while True:
                event = next(steps)
                if on_event is not None:
                    on_event(event)
                share = f" {event.bytes_read / event.bytes_total:.0%}" if event.bytes_total else ""
                line.update(f"prepare: {_STAGES[event.stage]}{share}")
        except StopIteration as end:
            report: PreparationReport = end.value
        finally:
            line.clear()
    tokens, documents = report.manifest.tokens, report.manifest.documents
    line.say(f"{report.store}: {tokens:,} tokens of {documents:,} documents, {duration(report.seconds)}")
    return report
