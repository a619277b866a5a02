"""Tables for tests, written to files and read back."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from segue.data.tables import (
    Row,
    Table,
    TableSettings,
    open_table,
)
from segue.errors import DataError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(folder: Path, name: str, content: str | bytes, **options: Any) -> Table:
    return open_table(write(folder, name, content), TableSettings(**options))


def rows(folder: Path, name: str, content: str | bytes, **options: Any) -> list[Row]:
    return [row for _, row in table(folder, name, content, **options)]


def refused(folder: Path, name: str, content: str | bytes, **options: Any) -> str:
    """The message of the error."""
    with pytest.raises(DataError) as caught:
        rows(folder, name, content, **options)
    message = str(caught.value)
    assert name in message
    assert message[-1] in ".?"
    return message


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Segue means to go on.",
                    "qas": [
                        {"id": "q1", "question": "What?", "answers": [{"text": "go on", "answer_start": 15}]},
                        {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True},
                        {"id": 3, "question": "Who?", "answers": [{"text": "on", "answer_start": -1}]},
                    ],
                }
            ],
        }
    ],
}
