"""Publishing models: packaged in a folder, or pushed to the Hugging Face Hub."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segue.api.errors import python_errors
from segue.arguments import ModelPath, Positive
from segue.checkpoint.hub import Upload, plan_push
from segue.checkpoint.hub import push as pushed
from segue.checkpoint.packing import Packed
from segue.checkpoint.packing import package as packaged
from segue.errors import ConfigError

RANK = 8


@dataclass(frozen=True, kw_only=True)
class PushResult:
    """The result of a push, or of a dry run."""

    folder: Path
    name: str
    files: Mapping[str, int]
    """File sizes in bytes, by name."""
    stripped: Sequence[str]
    """Files from which local paths were removed."""
    url: str | None
    """Address of the model on the Hub; None for a dry run."""
    commit: str | None
    """Commit on the Hub; passed as `revision`, it always gives these files."""


@python_errors
def push(
    folder: str | Path,
    name: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    license: str | None = None,
    languages: Sequence[str] = (),
    dry_run: bool = False,
    on_event: Callable[[Upload], object] | None = None,
) -> PushResult:
    """Upload a model folder and its model card to the Hugging Face Hub. Files are checked first, and local paths are
    not uploaded.

    Args:
        folder: A model folder or a run folder.
        name: Name of the model on the Hub: "owner/name".
        private: Whether to create the model as private.
        revision: Branch to upload to; created if it does not exist. Default: the main branch.
        message: Commit message. Default: "Upload a segue model".
        license: Licence for the model card, e.g. "apache-2.0". Default: that of the existing card.
        languages: Language tags for the model card, e.g. ["en", "zh"]. Default: those of the existing card.
        dry_run: Whether to list the files without uploading.
        on_event: Called with the list of files before they are uploaded.

    Returns:
        The files and their sizes, the address and the commit.

    Raises:
        CheckpointError: If the folder is not a complete model, the name is invalid, or the Hub refuses the upload.

    Examples:
        >>> segue.push("model", "someone/reviews", license="mit", dry_run=True).url is None
        True
    """
    upload = plan_push(folder, name, licence=license, languages=languages)
    if on_event is not None:
        on_event(upload)
    done = None if dry_run else pushed(upload, private=private, revision=revision, message=message)
    return PushResult(
        folder=upload.folder,
        name=name,
        files=upload.files,
        stripped=upload.stripped,
        url=None if done is None else done.url,
        commit=None if done is None else done.commit,
    )


@python_errors
def package(
    model: ModelPath,
    out: str | Path,
    *,
    license: str,
    languages: Sequence[str],
    notes: str | Path | None = None,
    trunk: str | None = None,
    rank: Positive | None = None,
    replace: bool = False,
) -> Packed:
    """Package a model: 16-bit weights and a model card, loadable by name. For a pretraining run, the averaged weights
    are written.

    Args:
        model: A model folder, a run folder, or a name.
        out: Folder to write; its name becomes the name of the model.
        license: Licence for the model card, e.g. "apache-2.0".
        languages: Language tags for the model card, e.g. ["en"].
        notes: A Markdown file to append to the model card: data, training, results. Default: none.
        trunk: A packaged model to store only low-rank differences to, with the head. Default: all weights are written.
        rank: With `trunk`: rank of the differences. Default: 8.
        replace: Whether to replace a folder that segue wrote.

    Returns:
        The files and their sizes, and the entries missing from the model card.

    Raises:
        CheckpointError: If the model cannot be read, or the name is not valid for a packaged model.
        ConfigError: If a rank is given without a trunk.

    Examples:
        >>> packed = segue.package("model", "shelf/my-model", license="mit", languages=["en"])
        >>> packed.folder.name, "model.safetensors" in packed.files
        ('my-model', True)
    """
    if rank is not None and trunk is None:
        raise ConfigError("--rank requires --trunk; got it alone. Name the packaged model, or leave it out.")
    return packaged(
        model,
        out,
        licence=license,
        languages=languages,
        notes=notes,
        trunk=trunk,
        rank=RANK if rank is None else rank,
        replace=replace,
    )
