"""Real corpora for a first try."""

from dataclasses import dataclass
from pathlib import Path

from segue.api.errors import python_errors
from segue.data.samples import LabelledSample, Sample, labelled_samples, write_sample
from segue.data.samples import samples as plain_samples


@python_errors
def sample(name: str, out: str | Path, *, replace: bool = False) -> Path:
    """Write a real corpus for a first try: English or Chinese, plain text or labelled texts.

    Args:
        name: Name of the sample; `samples()` describes them.
        out: File to write: text with a blank line between documents, or labelled texts as JSON lines.
        replace: Whether a file that exists is replaced. Default: False.

    Returns:
        The path of the file.

    Raises:
        DataError: If there is no such sample, or it can be neither found in an installed package nor downloaded.

    Examples:
        >>> store = segue.prepare(segue.sample("english", "english.txt"), "corpus")  # doctest: +SKIP
        >>> segue.sample("latin", "latin.txt")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        segue.errors.DataError: a sample must be one of english, chinese, ...; got 'latin'.
    """
    return written_sample(name, out, replace=replace).path


@python_errors
def samples() -> dict[str, Sample | LabelledSample]:
    """List the corpora that `sample` writes.

    Returns:
        Each by its name: what it is about, its language, where it comes from, what has to be downloaded for it. A
        `LabelledSample` is for fine-tuning.

    Examples:
        >>> segue.samples()["english"].language
        'English'
    """
    return {**plain_samples(), **labelled_samples()}


@dataclass(frozen=True, kw_only=True)
class WrittenSample:
    """A corpus that was written."""

    path: Path
    task: str | None
    """What `finetune` makes of labelled texts; None for plain ones."""
    count: int
    """Number of documents, or of labelled texts."""
    characters: int


def written_sample(name: str, out: str | Path | None = None, *, replace: bool = False) -> WrittenSample:
    """The same as `sample`, with counts. Without a file, it is called as the sample is."""
    labelled = labelled_samples().get(name)
    path = Path(f"{name}.txt" if labelled is None else f"{name}.jsonl") if out is None else Path(out)
    count, characters = write_sample(name, path, replace=replace)
    task = None if labelled is None else labelled.task
    return WrittenSample(path=path, task=task, count=count, characters=characters)
