"""Preparation of raw text as a store: `prepare`, and `preparation`, a generator that also reports progress.

In: files, folders and globs. Out: a store, and on request a validation store beside it (`OUT-valid`). Both are written
atomically; a run that was killed starts anew, and removes what the killed one left.
"""

import hashlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from segue.config.schema import LARGEST_VOCABULARY
from segue.data.decode import Position
from segue.data.encode import TextBatch, TextItem, encode_all
from segue.data.inputs import InputFile, find_inputs
from segue.data.manifest import InputRecord, StoreManifest
from segue.data.problems import Problems
from segue.data.readers import DocumentPart, DocumentRule, ReadSettings, check_rule, read_documents
from segue.data.store import Store
from segue.data.writer import StoreWriter
from segue.errors import DataError, SegueWarning
from segue.files import check_folder, sweep
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer
from segue.text.train import Kind, VocabularyTooLargeError, train_tokenizer

USUAL_VOCABULARY = 8000
BATCH = 2**19  # characters per task of a worker
SMALL_INPUT = 2**24  # bytes; below, starting processes costs more than it saves


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """Settings that determine the content of a store, besides the text. The number of workers does not."""

    read: ReadSettings = field(default_factory=ReadSettings)
    tokenizer: str | None = None
    """Folder of a tokeniser, or of a store whose tokeniser is used. Default: a new one is trained."""
    kind: Kind = "unigram"
    """Kind of tokeniser to train."""
    vocabulary_size: int | None = None
    """Vocabulary size of the trained tokeniser. Default: 8000 (unigram, bpe), or the most that a short
    text allows; no limit (words, characters)."""
    sample_characters: int = 2**22
    """Maximum characters of the random sample of the text that unigram and bpe are trained on; training takes most of
    the time of a small preparation, and memory."""
    validation_share: float | None = None
    """Share of the documents in the validation store, chosen by a hash of their text and the seed: equal documents are
    never on both sides."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DataError(f"the kind must be one of {', '.join(get_args(Kind))}; got {self.kind!r}.")
        if self.vocabulary_size is not None and not 1 <= self.vocabulary_size <= LARGEST_VOCABULARY:
            raise DataError(
                f"vocabulary_size must be from 1 to {LARGEST_VOCABULARY}; got {self.vocabulary_size}. 8000 to 32000 is "
                "usual."
            )
        if not -(2**63) <= self.seed < 2**63:
            raise DataError(f"seed must be from -2**63 to 2**63 - 1; got {self.seed}. Use 0, for example.")
        if self.sample_characters < 1:
            raise DataError(f"sample_characters must be at least 1; got {self.sample_characters}. Try {2**22}.")
        if self.validation_share is not None and not 0 < self.validation_share < 1:
            raise DataError(
                f"validation_share must be above 0 and below 1; got {self.validation_share}. Try 0.01, or leave it out."
            )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a preparation."""

    stage: Literal["sample", "train", "encode"]
    bytes_read: int = 0
    """Bytes of the inputs on disk read in this stage."""
    bytes_total: int = 0
    tokens: int = 0
    documents: int = 0


@dataclass(frozen=True, kw_only=True)
class PreparationReport:
    """The result of a preparation."""

    store: Path
    manifest: StoreManifest
    validation: Path | None
    validation_manifest: StoreManifest | None
    problems: Problems
    seconds: float
    encode_seconds: float
    workers: int


def prepare(
    inputs: Sequence[str | Path],
    *,
    out: str | Path,
    tokenizer: str | Path | None = None,
    kind: Kind = "unigram",
    vocabulary_size: int | None = None,
    document: DocumentRule | None = None,
    field: str = "text",
    encoding: str = "utf-8",
    workers: int | None = None,
    validation_share: float | None = None,
    seed: int = 0,
    replace: bool = False,
) -> PreparationReport:
    """Prepare a store and wait for it."""
    settings = PrepareSettings(
        read=ReadSettings(document=document, field=field, encoding=encoding),
        tokenizer=None if tokenizer is None else str(tokenizer),
        kind=kind,
        vocabulary_size=vocabulary_size,
        validation_share=validation_share,
        seed=seed,
    )
    steps = preparation(inputs, out=out, settings=settings, workers=workers, replace=replace)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            report: PreparationReport = end.value
            return report


def preparation(
    inputs: Sequence[str | Path],
    *,
    out: str | Path,
    settings: PrepareSettings,
    workers: int | None = None,
    replace: bool = False,
) -> Generator[Progress, None, PreparationReport]:
    """Prepare a store step by step; the caller's loop shows progress. Closing it early leaves nothing behind.

    `workers`: number of encoding processes. Default: one for each core, or only this process for small inputs.
    """
    started = time.perf_counter()
    target = Path(out)
    check_folder(target, kind="store", replace=replace)
    validation = None if settings.validation_share is None else validation_path(target)
    if validation is not None:
        check_folder(validation, kind="store", replace=replace)
    sweep(validation_path(target))
    problems = Problems()
    files = find_inputs(inputs, problems)
    check_rule(files, settings.read)
    read: list[str | Path] = [file.path for file in files]
    read += [] if settings.tokenizer is None else [settings.tokenizer]
    for path in (target, validation):
        if path is not None:
            check_folder(path, kind="store", replace=replace, inputs=read)
    workers = _workers(workers, files)
    tokenizer = yield from _tokenizer(files, settings)
    encode_started = time.perf_counter()
    writers: list[StoreWriter] = []
    try:
        for path in (target, validation):
            if path is not None:
                writers.append(StoreWriter(path, tokenizer, settings=_recorded(settings), replace=replace, inputs=read))
        inputs_read = yield from _encode(files, settings, problems, tokenizer, writers, workers)
        if settings.validation_share is not None:
            _check_split([writer.totals.documents for writer in writers], settings.validation_share)
        manifests = [writer.seal(inputs=inputs_read, problems=problems.counts) for writer in writers]
        writers[0].publish(*writers[1:])
    finally:
        for writer in writers:
            writer.abort()
    return PreparationReport(
        store=target,
        manifest=manifests[0],
        validation=validation,
        validation_manifest=manifests[1] if validation is not None else None,
        problems=problems,
        seconds=time.perf_counter() - started,
        encode_seconds=time.perf_counter() - encode_started,
        workers=workers,
    )


def _check_split(documents: Sequence[int], share: float) -> None:
    """Raise DataError if all documents are in one of the two stores."""
    total = sum(documents)
    if total and not all(documents):
        got = "1 document" if total == 1 else f"{total} documents"
        where = "validation" if documents[0] else "training"
        raise DataError(
            f"validation_share must leave documents for training and for validation; with {got}, a share of {share} "
            f"left none for {where}. Use more documents, another share, or smaller documents such as lines."
        )


def validation_path(out: Path) -> Path:
    """Return the path of the validation store: `OUT-valid`, beside OUT."""
    return out.with_name(f"{out.name}-valid")


def examples(store: Store, *, number: int = 3, tokens: int = 24) -> list[tuple[str, list[str]]]:
    """Return lines from all over a store: the text of their first tokens, and these tokens."""
    tokenizer = store.tokenizer()
    lines = len(store.line_starts)
    found = []
    for line in sorted({lines * (2 * place + 1) // (2 * number) for place in range(number)}):
        start = int(store.line_starts[line])
        stop = int(store.line_starts[line + 1]) if line + 1 < lines else store.length
        ids = store.read(start, min(stop, start + tokens))
        found.append((tokenizer.decode(ids), [tokenizer.token(int(index)) for index in ids]))
    return found


def _workers(asked: int | None, files: list[InputFile]) -> int:
    if asked is not None:
        if asked < 1:
            raise DataError(f"workers must be at least 1; got {asked}. Leave it out to use all cores.")
        return asked
    if sum(file.size for file in files) < SMALL_INPUT:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _recorded(settings: PrepareSettings) -> dict[str, str | int | float | None]:
    """Return the settings for the manifest: flat, and without those that were not used."""
    content = asdict(settings)
    read = content.pop("read")
    if settings.tokenizer is not None:
        content["kind"] = content["vocabulary_size"] = content["sample_characters"] = None
    return {**read, **content}


# ------------------------------------------------------------------------------------------------------ tokeniser


def _tokenizer(files: list[InputFile], settings: PrepareSettings) -> Generator[Progress, None, Tokenizer]:
    if settings.tokenizer is not None:
        folder = Path(settings.tokenizer)
        return load_tokenizer(folder / "tokenizer" if (folder / "tokenizer").is_dir() else folder)
    kind, size = settings.kind, settings.vocabulary_size
    texts: Iterable[str]
    if kind in ("unigram", "bpe"):
        sampled = yield from _sample(files, settings)
        if size is None:
            return (yield from _pieces_that_fit(kind, sampled, seed=settings.seed))
        texts = sampled
    elif kind == "bytes":
        texts = ()
    else:
        # Counting takes little memory, and a vocabulary must not miss rare symbols: the whole text is read.
        texts = (text for text, _, _ in _training_texts(files, settings))
    return (yield from _train(lambda: train_tokenizer(kind, texts, vocabulary_size=size, seed=settings.seed)))


def _pieces_that_fit(kind: Kind, texts: list[str], *, seed: int) -> Generator[Progress, None, Tokenizer]:
    """Train pieces of the usual vocabulary size, or of the largest one that short texts allow."""
    try:
        return (yield from _train(lambda: train_tokenizer(kind, texts, vocabulary_size=USUAL_VOCABULARY, seed=seed)))
    except VocabularyTooLargeError as error:
        most = error.most
    warnings.warn(
        f"the vocabulary has {most:,} tokens instead of {USUAL_VOCABULARY:,}, because the text is short. Give more "
        "text, or a vocabulary size.",
        SegueWarning,
        stacklevel=2,
    )
    return (yield from _train(lambda: train_tokenizer(kind, texts, vocabulary_size=most, seed=seed)))


def _train(work: Callable[[], Tokenizer]) -> Generator[Progress, None, Tokenizer]:
    """Run one long call in a separate thread, so that the caller's loop continues and handles interrupts."""
    result: Future[Tokenizer] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not result.done():
        yield Progress(stage="train")
        wait([result], timeout=0.1)
    return result.result()


def _sample(files: list[InputFile], settings: PrepareSettings) -> Generator[Progress, None, list[str]]:
    """Return a random sample of the text that fits in memory, each part of a document with the same probability.

    Parts whose hash is below a threshold are kept; when there are too many, the threshold is halved. It takes one pass,
    needs no estimate of the size, and is the same for the same text and seed.
    """
    total = sum(file.size for file in files)
    kept: list[tuple[float, str]] = []
    characters, threshold, told = 0, 1.0, 0
    for text, chance, read in _training_texts(files, settings):
        if chance < threshold:
            kept.append((chance, text))
            characters += len(text)
        while characters > settings.sample_characters and len(kept) > 1:
            threshold /= 2
            kept = [(chance, text) for chance, text in kept if chance < threshold]
            characters = sum(len(text) for _, text in kept)
        if read - told >= 2**20:
            told = read
            yield Progress(stage="sample", bytes_read=read, bytes_total=total)
    if not kept:
        raise DataError(
            "the inputs must contain text to train a tokeniser on; got none. Check them, or give a tokeniser."
        )
    return [text for _, text in kept]


def _training_texts(files: list[InputFile], settings: PrepareSettings) -> Iterator[tuple[str, float, int]]:
    """Yield the text that is not for validation in parts, with a hash value for each and the input bytes read."""
    ignored = Problems()  # counted in the second pass
    for store, part, read in _parts(files, settings, ignored, []):
        if store == 0:
            text = "".join(part.lines)
            yield text, _chance(text, settings.seed, b"sample"), read


# -------------------------------------------------------------------------------------------------------- encoding


def _encode(
    files: list[InputFile],
    settings: PrepareSettings,
    problems: Problems,
    tokenizer: Tokenizer,
    writers: list[StoreWriter],
    workers: int,
) -> Generator[Progress, None, list[InputRecord]]:
    records: list[InputRecord] = []
    total = sum(file.size for file in files)
    yield Progress(stage="encode", bytes_total=total)
    batches = _batches(files, settings, problems, records)
    results = encode_all(batches, tokenizer, folder=writers[0].tokenizer_folder, stores=len(writers), workers=workers)
    try:
        for result in results:
            for writer, encoded in zip(writers, result.encoded, strict=True):
                writer.extend(encoded)
            problems.count("unknown_tokens", "", result.unknown)
            problems.count("empty_documents", "", result.empty)
            yield Progress(
                stage="encode",
                bytes_read=result.bytes_read,
                bytes_total=total,
                tokens=sum(writer.totals.tokens for writer in writers),
                documents=sum(writer.totals.documents for writer in writers),
            )
    finally:
        results.close()  # ends the workers now, not at garbage collection
        batches.close()
    return records


def _batches(
    files: list[InputFile], settings: PrepareSettings, problems: Problems, records: list[InputRecord]
) -> Generator[TextBatch, None, None]:
    items: list[TextItem] = []
    size = read = 0
    for store, part, read in _parts(files, settings, problems, records):
        item = TextItem(store, "".join(part.lines), list(map(len, part.lines)), part.begins, part.ends)
        items.append(item)
        size += len(item.text)
        if size >= BATCH:
            yield TextBatch(items, read)
            items, size = [], 0
    if items:
        yield TextBatch(items, read)


def _parts(
    files: list[InputFile], settings: PrepareSettings, problems: Problems, records: list[InputRecord]
) -> Iterator[tuple[int, DocumentPart, int]]:
    """Yield all parts of all files, each with the index of its store and the number of input bytes read."""
    before = 0
    for file in files:
        position, documents, store = Position(), 0, 0
        for part in read_documents(file, settings.read, problems, position):
            if part.begins:
                documents += 1
                store = int(_is_validation(part, settings))
            yield store, part, before + position.bytes
        before += file.size
        records.append(InputRecord(path=str(file.path), bytes=file.size, documents=documents))


def _is_validation(part: DocumentPart, settings: PrepareSettings) -> bool:
    share = settings.validation_share
    return share is not None and _chance("".join(part.lines), settings.seed, b"validation") < share


def _chance(text: str, seed: int, purpose: bytes) -> float:
    """Return a number from 0 to 1, the same for the same text, seed and purpose."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode(), person=purpose)
    return int.from_bytes(digest.digest(), "little") / 2**64
