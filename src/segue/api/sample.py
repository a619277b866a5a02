"""Real corpora for a first try."""

from pathlib import Path

from segue.api.errors import python_errors
from segue.data.samples import write_sample


@python_errors
def sample(name: str, out: str | Path, *, replace: bool = False) -> Path:
    """Write a real corpus for a first try: English or Chinese, plain text or labelled texts.

    Args:
        name: Name of the sample; `segue sample` on the command line describes them.
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
    write_sample(name, out, replace=replace)
    return Path(out)
