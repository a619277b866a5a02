"""Texts from memory or from files, one at a time.

A `str` is a text and a `Path` is a file, which may hold many. Tables and dicts give the texts of one field.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from segue.api.tables import rows_of
from segue.data.decode import CHUNK, check_encoding, decoded
from segue.data.inputs import Format
from segue.data.problems import Problems as Problems
from segue.data.readers import DocumentRule, ReadSettings
from segue.errors import DataError, kind_of
from segue.infer.documents import TextFiles as TextFiles
from segue.infer.documents import TextPart, text_parts

Texts: TypeAlias = Any
"""A text (`str`), a file or folder (`Path`), several of either in a list or an iterator, a column of texts (pandas,
polars, Arrow), or a table of any kind whose texts are in one field."""


def documents_of(
    texts: Texts, *, field: str = "text", documents: DocumentRule | None = None, encoding: str = "utf-8"
) -> Iterable[TextPart]:
    """Return the texts as documents, in order. Files are read as they are needed."""
    if isinstance(texts, TextFiles):
        return texts
    several = _several(texts)
    first = list(islice(several, 1))
    several = chain(first, several)
    if first and isinstance(first[0], Path):
        return TextFiles(list(_paths(several)), ReadSettings(document=documents, field=field, encoding=encoding))
    return text_parts(_texts(several, field))


def text_files(
    inputs: Sequence[str | Path],
    *,
    field: str = "text",
    documents: DocumentRule | None = None,
    encoding: str = "utf-8",
    largest_expansion: int | None = None,
    standard_input: Format = "text",
) -> TextFiles:
    """Return files, folders, globs and `-` (standard input) as texts for `score_each` and `embed_each`. Missing files
    are reported at once; problems in the text are counted in `problems`."""
    read = ReadSettings(document=documents, field=field, encoding=encoding, largest_expansion=largest_expansion)
    return TextFiles(inputs, read, standard_input=standard_input)


def decoded_stream(stream: BinaryIO, *, name: str, encoding: str, problems: Problems) -> Iterator[str]:
    """Yield the text of a stream as it arrives, without waiting for more. Messages refer to it as `name`."""
    check_encoding(encoding)
    take = getattr(stream, "read1", stream.read)
    yield from decoded(iter(partial(take, CHUNK), b""), name, problems, encoding=encoding, strict=True)


def texts_of(texts: Texts, *, field: str = "text") -> list[str]:
    """Return the texts, none of which may be a file."""
    return list(_texts(_several(texts), field))


def _several(texts: Texts) -> Iterator[Any]:
    """Return an iterator over texts, paths or rows."""
    if isinstance(texts, str | Path):
        return iter([texts])
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        return iter(rows_of(texts, name="texts"))
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise DataError(
            f"texts must be a str, a Path, a table, or several of them; got {kind_of(texts)}. Use a list of "
            "str, for example."
        )
    return iter(texts.to_pylist() if hasattr(texts, "to_pylist") else texts)


def _texts(several: Iterable[Any], field: str) -> Iterator[str]:
    for number, one in enumerate(several, start=1):
        if isinstance(one, Mapping) and field not in one:
            raise DataError(
                f"row {number} of the texts must have the field {field!r}; got {', '.join(map(repr, one)) or 'none'}. "
                "Name the field of the text: field=NAME."
            )
        text = one[field] if isinstance(one, Mapping) else one
        if not isinstance(text, str):
            got = "nothing" if text is None else kind_of(text)
            raise DataError(f"text {number} must be a str; got {got}. Remove it, or replace it with a text.")
        yield text


def _paths(several: Iterable[Any]) -> Iterator[Path]:
    for one in several:
        if not isinstance(one, Path):
            raise DataError(f"texts and files must not be mixed; got {kind_of(one)} beside a Path. Make two calls.")
        yield one
