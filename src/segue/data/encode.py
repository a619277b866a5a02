"""Text to ids on all cores: batches of document parts go to workers, encoded batches come back in the same order.

The number of batches in flight is bounded, so memory does not grow with the input. Workers are started with spawn, load
the tokeniser from its folder, and end with their parent, even if it is killed.
"""

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.data.writer import Encoded
from segue.errors import DataError
from segue.text.tokenizer import Tokenizer


class TextItem(NamedTuple):
    """A part of a document (`readers.DocumentPart`) in a form that is fast to send between processes."""

    store: int
    text: str
    lengths: list[int]
    """Lengths of its lines in characters."""
    begins: bool
    ends: bool


class TextBatch(NamedTuple):
    """Parts of documents, and the number of input bytes read up to their end."""

    items: list[TextItem]
    bytes_read: int


class EncodedBatch(NamedTuple):
    """An encoded batch, with one Encoded per store."""

    encoded: list[Encoded]
    unknown: int
    empty: int
    """Number of documents without tokens, which are left out."""
    bytes_read: int


@dataclass
class _Side:
    """The encoded content of one batch for one store."""

    arrays: list[NDArray[np.int64]] = field(default_factory=list)
    line_starts: list[int] = field(default_factory=list)
    document_starts: list[int] = field(default_factory=list)
    count: int = 0
    characters: int = 0
    bytes: int = 0
    words: int = 0

    def add(self, tokenizer: Tokenizer, item: TextItem, eod: NDArray[np.int64] | None) -> bool:
        """Add an item; return False if it is a whole document without tokens."""
        begin = self.count
        text = item.text
        if eod is None and item.ends:
            text += "\n"  # nothing else would separate this document from the next
        if len(item.lengths) == 1:
            ids = tokenizer.encode(text)
            starts = [0]
        else:
            encoding = tokenizer.encode_with_offsets(text)
            ids = encoding.ids
            # A line begins with the first token that reaches into it; a line without such a token has no border.
            borders = list(itertools.accumulate(item.lengths[:-1]))
            starts = sorted({0, *encoding.ends.searchsorted(borders, side="right").tolist()})
        self.line_starts += [begin + start for start in starts if start < len(ids)]
        self.arrays.append(ids)
        self.count += len(ids)
        if item.begins:
            if item.ends and self.count == begin:
                return False
            self.document_starts.append(begin)
        if item.ends and eod is not None:
            self.arrays.append(eod)
            self.count += len(eod)
        self.characters += len(text)
        self.bytes += len(text) if text.isascii() else len(text.encode())
        self.words += len(text.split())
        return True

    def encoded(self) -> Encoded:
        ids = np.concatenate(self.arrays) if self.arrays else np.zeros(0, dtype=np.int64)
        return Encoded(
            ids=ids.astype(np.uint32),
            line_starts=np.array(self.line_starts, dtype=np.int64),
            document_starts=np.array(self.document_starts, dtype=np.int64),
            characters=self.characters,
            bytes=self.bytes,
            words=self.words,
        )


def encode_batch(tokenizer: Tokenizer, batch: TextBatch, *, stores: int) -> EncodedBatch:
    """Encode one batch in this process."""
    sides = [_Side() for _ in range(stores)]
    unk = tokenizer.specials.get("unk")
    eod = np.array([tokenizer.specials["eod"]], dtype=np.int64) if "eod" in tokenizer.specials else None
    empty = sum(not sides[item.store].add(tokenizer, item, eod) for item in batch.items)
    encoded = [side.encoded() for side in sides]
    unknown = 0 if unk is None else sum(int(np.count_nonzero(one.ids == unk)) for one in encoded)
    return EncodedBatch(encoded, unknown, empty, batch.bytes_read)


def encode_all(
    batches: Iterator[TextBatch], tokenizer: Tokenizer, *, folder: Path, stores: int, workers: int
) -> Generator[EncodedBatch, None, None]:
    """Yield all batches, encoded, in order. `folder` holds the same tokeniser, for the workers."""
    if workers == 1:
        for batch in batches:
            yield encode_batch(tokenizer, batch, stores=stores)
        return
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start, initargs=(folder, stores)
    )
    waiting: deque[Future[EncodedBatch]] = deque()
    try:
        for batch in batches:
            with _without_interrupts():
                waiting.append(pool.submit(_work, batch))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise DataError(
            f"the {workers} encoding processes must stay alive; one died, perhaps for lack of memory. Use fewer "
            "workers. In a script, call this below `if __name__ == '__main__':`, as Python's multiprocessing needs it."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Shield processes started here from Ctrl-C, which goes to the whole process group; their parent ends them."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_MINE: dict[str, tuple[Tokenizer, int]] = {}  # in a worker process: its tokeniser and the number of stores


def _start(folder: Path, stores: int) -> None:
    from segue.text.files import load_tokenizer

    threading.Thread(target=_end_with_parent, daemon=True).start()
    _MINE["work"] = (load_tokenizer(folder), stores)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(batch: TextBatch) -> EncodedBatch:
    tokenizer, stores = _MINE["work"]
    return encode_batch(tokenizer, batch, stores=stores)
