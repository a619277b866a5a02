"""Data sets of the `datasets` library as tables: from its cache, the hub, or a folder that it wrote."""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from segue.data.problems import Problems
from segue.data.tables.parquet import class_names, with_names
from segue.data.tables.reader import TableReader, TableRows
from segue.errors import DataError

DATASETS = "datasets:"


def load_dataset(source: str) -> Any:
    """Return the data set named by `datasets:NAME[/CONFIG][@SPLIT]`."""
    name, _, split = source.removeprefix(DATASETS).partition("@")
    try:
        library = import_module("datasets")
    except ImportError:
        raise DataError(
            f"{source} needs the datasets library. Install it (pip install datasets), or save the data as a jsonl, csv "
            "or parquet file and name that."
        ) from None
    found = _loaded(library, source, name)
    if isinstance(found, dict):
        splits = ", ".join(map(str, found))
        if not split and len(found) > 1:
            raise DataError(f"{source} must name one of its splits ({splits}); got none. Write {source}@SPLIT.")
        if split and split not in found:
            raise DataError(f"{source} must name one of its splits ({splits}); got {split!r}. Name another.")
        return found[split or next(iter(found))]
    if split:
        raise DataError(f"{source} has no splits; got {split!r}. Leave @{split} out.")
    return found


def dataset_rows(source: str, found: Any, problems: Problems) -> TableRows:
    """Return the rows of a loaded data set, with class names in place of class numbers."""
    classes = class_names(found.features.to_dict())
    reading = TableReader(source, (), problems, malformed_share=0.0)
    reading.unit = "row"
    rows = ((number, reading.cleaned(with_names(row, classes), number)) for number, row in enumerate(found, 1))
    return TableRows(tuple(found.column_names), "row", rows)


def _loaded(library: Any, source: str, name: str) -> Any:
    """Load a data set. A name with one slash can be OWNER/NAME or NAME/CONFIG: the first that is found."""
    folder = Path(name)
    if any((folder / file).is_file() for file in ("state.json", "dataset_dict.json")):
        tries = [partial(library.load_from_disk, name)]
    else:
        parts = name.split("/")
        tries = [partial(library.load_dataset, name)] if len(parts) < 3 or folder.exists() else []
        if len(parts) > 1:
            tries.append(partial(library.load_dataset, "/".join(parts[:-1]), parts[-1]))
    reasons = []
    for load in tries:
        try:
            return load()
        except Exception as error:  # the library passes on whatever its many back ends raise
            reasons.append(f"{type(error).__name__}: {str(error).strip()[:300]}")
    raise DataError(
        f"{source} must be a data set that the datasets library finds (datasets:NAME[/CONFIG][@SPLIT]); got "
        + "; ".join(dict.fromkeys(reasons))
        + ". Check the name; without a network, load it once where there is one, or save it to a file."
    )
