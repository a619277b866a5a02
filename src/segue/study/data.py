"""The data of a study: a store with its validation store, and tables for the tasks, prepared once.

They are in the studies folder, under names that are digests of their sources, so that studies with the same text share
them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from segue.data.inputs import find_inputs
from segue.data.prepare import PrepareSettings, preparation, validation_path
from segue.data.problems import Problems
from segue.data.readers import ReadSettings
from segue.data.samples import labelled_samples, write_sample
from segue.data.store import Store
from segue.errors import DataError
from segue.files import make_folder_of, new_text_file, settle, sha256
from segue.study.planted import planted_rows
from segue.study.schema import CorpusConfig, TaskConfig

DATA = "data"
SAMPLES, STORES, TABLES = f"{DATA}/samples", f"{DATA}/stores", f"{DATA}/tables"


def digest(value: object) -> str:
    """Return a digest of plain values, independent of the order of their keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8")).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A store with its validation store."""

    store: str
    """Folder of the store, relative to the studies folder."""
    validation: str
    digest: str
    validation_digest: str
    vocabulary_size: int
    tokens: int
    validation_tokens: int
    tokens_per_character: float
    """Number of tokens per character, measured on the validation store."""


@dataclass(frozen=True, kw_only=True)
class TaskTables:
    """Tables with the examples of a task."""

    files: Mapping[str, str]
    """Paths of `train`, and of `valid` and `test` if there are any, relative to the studies folder."""
    digest: str


def corpus_of(settings: CorpusConfig, folder: Path) -> Corpus:
    """Prepare the text, unless that was done before."""
    if settings.store is not None and settings.validation is not None:
        store, validation = Path(settings.store).resolve(), Path(settings.validation).resolve()
        return _opened(str(store), str(validation), folder)
    inputs: list[str | Path] = [_sample(name, folder, ending="txt") for name in settings.samples]
    inputs += settings.files
    digests = [sha256(file.path) for file in find_inputs(inputs, Problems())]
    prepared = PrepareSettings(
        read=ReadSettings(document=settings.documents),
        kind=settings.kind,
        vocabulary_size=settings.vocabulary_size,
        validation_share=settings.validation_share,
    )
    key = digest([digests, settings.model_dump(mode="json", exclude={"samples", "files"})])
    store = folder / STORES / key
    make_folder_of(store)
    settle(store)  # a process may have been killed while it was moved in
    if not store.exists():
        for _ in preparation(inputs, out=store, settings=prepared, workers=1):
            pass
    return _opened(f"{STORES}/{key}", f"{STORES}/{validation_path(store).name}", folder)


def _opened(store: str, validation: str, folder: Path) -> Corpus:
    train, other = Store.open(folder / store), Store.open(folder / validation)
    if other.length < 2:
        raise DataError(
            f"{folder / validation} must have text to validate on; got {other.length} tokens. Use more text, or a "
            "larger corpus.validation_share."
        )
    return Corpus(
        store=store,
        validation=validation,
        digest=_content(train),
        validation_digest=_content(other),
        vocabulary_size=train.vocabulary_size,
        tokens=train.length,
        validation_tokens=other.length,
        tokens_per_character=other.length / max(1, other.manifest.characters),
    )


def _content(store: Store) -> str:
    """Return a digest of the ids and the tokeniser of a store, independent of its path and file names."""
    records = {name: record.sha256 for name, record in store.manifest.files.items()}
    return digest([records, store.manifest.tokenizer])


def _sample(name: str, folder: Path, *, ending: str) -> Path:
    path = folder / SAMPLES / f"{name}.{ending}"
    if not path.exists():
        write_sample(name, path)
    return path


# -------------------------------------------------------------------------------------------------------- tables


def tables_of(task: TaskConfig, folder: Path) -> TaskTables:
    """Write the tables of a task from a sample, unless that was done before; tables of the user stay where they are."""
    if task.train is not None:
        files = {"train": task.train, "valid": task.valid, "test": task.test}
        given = {name: str(Path(path).resolve()) for name, path in files.items() if path is not None}
        for path in given.values():
            if not Path(path).is_file():
                raise DataError(f"{path} must be a file with examples of the task {task.name!r}; got none. Check it.")
        return TaskTables(files=given, digest=digest({name: sha256(Path(path)) for name, path in given.items()}))
    counts = {"train": task.train_rows, "valid": task.valid_rows, "test": task.test_rows}
    lines = _lines(task, folder, sum(counts.values()))
    found, start = {}, 0
    for name, count in counts.items():
        part = "".join(f"{line}\n" for line in lines[start : start + count])
        start += count
        key = hashlib.sha256(part.encode("utf-8")).hexdigest()[:20]
        target = folder / TABLES / f"{key}.jsonl"
        if not target.exists():
            make_folder_of(target)
            with new_text_file(target) as file:
                file.write(part)
        found[name] = f"{TABLES}/{key}.jsonl"
    return TaskTables(files=found, digest=digest(found))


def _lines(task: TaskConfig, folder: Path, count: int) -> list[str]:
    """Return the first `count` rows, as JSON."""
    if task.planted is not None:
        training = task.train_rows + task.valid_rows
        return [_json(row) for row in planted_rows(task.planted, count, training=training)]
    assert task.sample is not None
    path = _sample(task.sample, folder, ending="jsonl")
    with path.open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in islice(file, count)]
    if len(lines) < count:
        raise DataError(
            f"the task {task.name!r} must take at most {len(lines):,} rows, which the sample {task.sample} has "
            f"({labelled_samples()[task.sample].about}); got {count:,}. Use smaller train_rows, valid_rows or "
            "test_rows."
        )
    return lines


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)
