"""Models that go to others: packaged in a folder, or pushed to the hub."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segue.api.errors import python_errors
from segue.checkpoint.hub import Upload, plan_push
from segue.checkpoint.hub import push as pushed
from segue.checkpoint.packing import Packed
from segue.checkpoint.packing import package as packaged
from segue.errors import ConfigError

RANK = 8


@dataclass(frozen=True, kw_only=True)
class PushResult:
    """What went to the hub, or would go there."""

    folder: Path
    name: str
    files: Mapping[str, int]
    """Their sizes in bytes."""
    stripped: Sequence[str]
    """Where paths of this machine were left out."""
    url: str | None
    """None if nothing was sent."""
    commit: str | None
    """As `revision`, it gives the same files for ever."""


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
    """Upload a model folder with its card to the hub. The files are checked first; paths of this machine stay here.

    Args:
        folder: A model folder or a run folder.
        name: Name of the model on the hub: "owner/name".
        private: Whether a new model is private.
        revision: A branch; made if it does not exist. Default: the main branch.
        message: Commit message. Default: "Upload a segue model".
        license: Licence for the card: "apache-2.0", say. Default: as the card says.
        languages: Language tags for the card: ["en", "zh"], say. Default: as the card says.
        dry_run: Whether only to say what would go up.
        on_event: Called with the list of files, before they are sent.

    Returns:
        The files and their sizes, the address and the commit.

    Raises:
        CheckpointError: If the folder is no whole model, the name is no name, or the hub refuses it.

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
    model: str | Path,
    out: str | Path,
    *,
    license: str,
    languages: Sequence[str],
    notes: str | Path | None = None,
    trunk: str | None = None,
    rank: int | None = None,
    replace: bool = False,
) -> Packed:
    """Write a model in 16 bits with its card, to be used by its name. Of a pretraining run, the averaged weights.

    Args:
        model: A model folder, a run folder, or a name.
        out: Folder to write; its name is the name of the model.
        license: Licence for the card: "apache-2.0", say.
        languages: Language tags for the card: ["en"], say.
        notes: A Markdown file that the card ends with: data, training, figures. Default: none.
        trunk: A packaged model to which only the differences are kept, with the head. Default: all weights are written.
        rank: With `trunk`: rank of the differences. Default: 8.
        replace: Whether a folder that segue wrote is replaced.

    Returns:
        The files and their sizes, and what the card does not say yet.

    Raises:
        CheckpointError: If the model cannot be read, or the name is none for a packaged model.
        ConfigError: If a rank is given without a trunk.

    Examples:
        >>> packed = segue.package("model", "shelf/my-model", license="mit", languages=["en"])
        >>> packed.folder.name, "model.safetensors" in packed.files
        ('my-model', True)
    """
    if rank is not None and trunk is None:
        raise ConfigError("--rank must go with --trunk; got it alone. Name the packaged model, or leave it out.")
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
