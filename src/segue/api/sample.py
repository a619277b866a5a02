"""Sample corpora."""

from dataclasses import dataclass
from pathlib import Path

from segue.api.errors import python_errors
from segue.data.samples import LabelledSample, Sample, labelled_samples, write_sample
from segue.data.samples import samples as plain_samples


@python_errors
def sample(name: str, out: str | Path, *, replace: bool = False) -> Path:
    """Write a sample corpus: English or Chinese, plain or labelled.

    Args:
        name: Name of the sample; `samples()` lists them.
        out: File to write: text with a blank line between documents, or labelled texts as JSON lines.
        replace: Whether to overwrite an existing file. Default: False.

    Returns:
        The path of the file.

    Raises:
        DataError: If the sample does not exist, or is neither in an installed package nor available for download.

    Examples:
        >>> store = segue.prepare(segue.sample("english", "english.txt"), "corpus")  # doctest: +SKIP
        >>> segue.sample("latin", "latin.txt")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        segue.errors.DataError: a sample must be one of english, chinese, ...; got 'latin'.
    """
    return written_sample(name, out, replace=replace).path


@python_errors
def samples() -> dict[str, Sample | LabelledSample]:
    """List the sample corpora.

    Returns:
        Samples by name: their subject, language, origin, and what must be downloaded. A `LabelledSample` is for
        fine-tuning.

    Examples:
        >>> segue.samples()["english"].language
        'English'
    """
    return {**plain_samples(), **labelled_samples()}


@dataclass(frozen=True, kw_only=True)
class WrittenSample:
    """A sample corpus that was written."""

    path: Path
    task: str | None
    """Task to fine-tune on; None for plain text."""
    count: int
    """Number of documents or labelled texts."""
    characters: int


def written_sample(name: str, out: str | Path | None = None, *, replace: bool = False) -> WrittenSample:
    """Write a sample as `sample` does, and return counts. The default file name is that of the sample."""
    labelled = labelled_samples().get(name)
    path = Path(f"{name}.txt" if labelled is None else f"{name}.jsonl") if out is None else Path(out)
    count, characters = write_sample(name, path, replace=replace)
    task = None if labelled is None else labelled.task
    return WrittenSample(path=path, task=task, count=count, characters=characters)
