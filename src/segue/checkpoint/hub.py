"""The model hub and its mirrors: download of a model `owner/name`, and upload of a model folder.

In: a name `owner/name`. Out: a folder on this machine with its commit. The hub is reached through huggingface_hub, with
its cache, its login and its settings (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE).

A mirror is a folder with `owner/name/` below it, each with the files of the hub, or with a folder for each revision
that may be requested. Other names of models, and the use of the files, are left to `segue.checkpoint.find`.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import segue
from segue.checkpoint.card import Facts, make_card, updated_card
from segue.checkpoint.detect import weights_in
from segue.checkpoint.files import (
    CARD,
    LARGEST_CARD,
    MANIFEST,
    inside,
    locate,
    manifest_text,
    read_manifest,
    read_small,
    verify,
)
from segue.checkpoint.folder import (
    CONFIG,
    HEAD,
    LARGEST_CONFIG,
    NGRAMS,
    TASK,
    TOKENIZER,
    TRUNK,
    WEIGHTS,
    is_model_folder,
    model_of_run,
    read_config,
)
from segue.checkpoint.heads import HeadConfig, on_card, read_head
from segue.checkpoint.private import public_card, public_config
from segue.config import ModelConfig
from segue.errors import CheckpointError
from segue.files import sha256, write_file

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
SMALL_FILES = (
    CONFIG, HEAD, TASK, NGRAMS, TRUNK, MANIFEST, CARD, f"{TOKENIZER}/*",
    "config.json", "generation_config.json", "model*.index.json", "pytorch_model*.index.json",
    "spiece.model", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.bin", "vocab.json", "merges.txt", "vocab.pkl",
    "xlnet_config.json",
)  # fmt: skip
_WEIGHTS = (("model*.safetensors",), ("pytorch_model*.bin",), ("*.ckpt*", "checkpoint"), ("model.pt",))
"""Weights formats in order of preference. Only the first that exists is downloaded: many models have several."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A model on this machine, in any format."""

    path: Path
    name: str | None = None
    """`owner/name`, if the model was found by name."""
    commit: str | None = None
    """Commit on the hub or in its cache. Passed as `revision`, it always gives the same files."""


def _one_format(folder: Path) -> Path:
    """Return a downloaded folder, or its first weights: a hub may hold the same model in several formats."""
    found = weights_in(folder)
    return folder / next(iter(found)) if len(found) > 1 and not is_model_folder(folder) else folder


def in_mirror(mirror: Path, name: str, given: str, revision: str | None) -> Found:
    """Return the files of a model in a mirror, under its name or under `given`, the name that the user wrote."""
    for base in (mirror / name, mirror / given):
        place = base if revision is None else base / revision
        if place.is_dir():
            commit = revision if revision and re.fullmatch("[0-9a-f]{40}", revision) else None
            return Found(path=_one_format(place), name=name, commit=commit)
    wanted = name if revision is None else f"{name}/{revision}"
    raise CheckpointError(
        f"the mirror must hold {wanted} as a folder; got {mirror} without it. Copy the files of the model there."
    )


def on_hub(name: str, given: str, revision: str | None, *, offline: bool) -> Found:
    """Return the files of a model, downloaded if needed; an old cache may have them under `given`."""
    hub = _hub()
    with _hub_errors(hub, name if revision is None else f"{name} at {revision}"):
        for weights in _WEIGHTS:
            folder = _snapshot(hub, [name, given], revision, weights, offline=offline)
            if any(next(folder.glob(pattern), None) for pattern in weights):
                return Found(path=_one_format(folder), name=name, commit=folder.name)
    raise CheckpointError(
        f"{name} must have weights in a format that segue reads "
        f"({', '.join(pattern for kind in _WEIGHTS for pattern in kind)}); got none, at commit {folder.name}. Choose "
        "another revision."
    )


def _snapshot(hub: Any, names: list[str], revision: str | None, weights: Sequence[str], *, offline: bool) -> Path:
    def download(name: str, *, offline: bool) -> Path:
        patterns = [*SMALL_FILES, *weights]
        return Path(
            hub.snapshot_download(
                name,
                revision=revision,
                allow_patterns=patterns,
                local_files_only=offline,
                library_name="segue",
                library_version=segue.__version__,
            )
        )

    try:
        return download(names[0], offline=offline)
    except hub.errors.LocalEntryNotFoundError:
        with suppress(hub.errors.LocalEntryNotFoundError, ValueError):  # an old cache has the old name
            return download(names[1], offline=True)
        raise


def is_offline() -> bool:
    """Return True if the user told huggingface_hub to use only its cache."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _hub() -> Any:
    try:
        import_module("huggingface_hub.errors")
        return import_module("huggingface_hub")
    except ImportError:
        raise CheckpointError(
            "a model by name needs huggingface_hub; it is not installed. Install it (pip install huggingface_hub), or "
            "use a mirror."
        ) from None


@contextmanager
def _hub_errors(hub: Any, thing: str) -> Iterator[None]:
    """Turn errors of the hub and of the network into errors with a remedy."""
    errors = hub.errors
    try:
        yield
    except errors.GatedRepoError:
        raise CheckpointError(
            f"{thing} must be accessible to you; it is gated on the Hub. Accept its terms on its page, then run `hf "
            "auth login`."
        ) from None
    except errors.RepositoryNotFoundError:
        raise CheckpointError(
            f"{thing} must be a local folder or a model on the Hub; it does not exist, or is private. Check the name, "
            "or log in with `hf auth login`."
        ) from None
    except errors.RevisionNotFoundError:
        raise CheckpointError(f"{thing} must be a revision on the Hub; it does not exist. Check its name.") from None
    except errors.IncompleteSnapshotError as error:
        raise CheckpointError(
            f"{thing} must be complete in the cache of the Hub; got {_first_line(error)} Try again with a connection."
        ) from None
    except errors.LocalEntryNotFoundError as error:
        if isinstance(error.__cause__, errors.HfHubHTTPError):
            raise _refused(thing, error.__cause__) from None
        reason = _first_line(error.__cause__ or "offline mode")
        raise CheckpointError(
            f"{thing} must be a local folder, in the cache of the Hub, or on a reachable Hub; got {reason}. Check the "
            "connection, or use a mirror: SEGUE_MIRROR=FOLDER with owner/name in it."
        ) from None
    except errors.HfHubHTTPError as error:
        raise _refused(thing, error) from None
    except CheckpointError:
        raise
    except (OSError, ValueError, EOFError) as error:  # a full disk, a truncated file, a hostile listing
        raise CheckpointError(
            f"{thing} must download completely from the Hub; got {_first_line(error)}. Try again."
        ) from None
    except Exception as error:
        if not type(error).__module__.startswith(("http", "hf_xet")):
            raise
        raise CheckpointError(
            f"{thing} must download completely from the Hub; got {_first_line(error) or type(error).__name__}. Try "
            "again."
        ) from None


def _refused(thing: str, error: Any) -> CheckpointError:
    remedies = {
        401: "Log in with `hf auth login`.",
        403: "Log in with `hf auth login`, with a token that may do this.",
        404: "Check the name and the revision.",
        429: "It has had too many requests: wait some minutes and try again.",
    }
    remedy = remedies.get(getattr(error.response, "status_code", 0), "Try again later.")
    return CheckpointError(f"{thing}: the Hub must respond; got {_first_line(error)}. {remedy}")


def _first_line(error: object) -> str:
    return next((line.strip().rstrip(".:") for line in str(error).splitlines() if line.strip()), "")


# ------------------------------------------------------------------------------------------------------- push


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The files of a model folder to upload, by their names on the hub, with their sizes."""

    folder: Path
    name: str
    files: dict[str, int]
    card: str
    """The card as it will be written into the folder."""
    texts: dict[str, str]
    """Files that are uploaded in an edited form, without paths of this machine."""
    stripped: list[str]
    """Locations of such paths."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The location of an uploaded model."""

    url: str
    commit: str


def plan_push(folder: str | Path, name: str, *, licence: str | None = None, languages: Sequence[str] = ()) -> Upload:
    """Return the files that `push` will upload of a model folder or a run, after all checks: the model and its
    tokeniser, without the training state and without paths of this machine. The existing card is used, with this
    licence and these languages."""
    if not NAME.fullmatch(name) or ".." in name:
        raise CheckpointError(f"a model on the Hub must be named owner/name; got {name!r}. Give both parts.")
    model = model_of_run(locate(Path(folder)))
    fresh = new_card(model, Facts())
    verify(model)
    hashes = read_manifest(model)
    own = (CONFIG, HEAD, TASK, NGRAMS, WEIGHTS)
    names = [file for file in hashes if file in own or file.startswith(f"{TOKENIZER}/")]
    card = updated_card(card_of(model) or fresh, licence=licence, languages=languages)
    config, stripped = public_config(read_small(model / CONFIG, limit=LARGEST_CONFIG).decode("utf-8"))
    public, has_paths = public_card(card)
    for file, text in ((CONFIG, config), (CARD, public)):
        hashes[file] = hashlib.sha256(text.encode("utf-8")).hexdigest()
    texts = {CONFIG: config, CARD: public, MANIFEST: manifest_text({file: hashes[file] for file in (*names, CARD)})}
    sizes = {file: (model / file).stat().st_size for file in names}
    sizes |= {file: len(text.encode("utf-8")) for file, text in texts.items()}
    stripped = [f"{name} in {CONFIG}" for name in stripped] + ([f"the command in {CARD}"] if has_paths else [])
    return Upload(folder=model, name=name, files=sizes, card=card, texts=texts, stripped=stripped)


def push(upload: Upload, *, private: bool = False, revision: str | None = None, message: str | None = None) -> Pushed:
    """Write the card into the folder and upload everything; create the model on the hub, and the branch `revision`, if
    they do not exist."""
    hub = _hub()
    with tempfile.TemporaryDirectory(prefix="segue-push-") as work, _hub_errors(hub, upload.name):
        write_file(upload.folder / CARD, upload.card, failure=CheckpointError)
        hashes = read_manifest(upload.folder) | {CARD: sha256(upload.folder / CARD)}
        write_file(upload.folder / MANIFEST, manifest_text(hashes), failure=CheckpointError)
        staged = Path(work)
        for file in upload.files:
            (staged / file).parent.mkdir(parents=True, exist_ok=True)
            if file in upload.texts:
                (staged / file).write_text(upload.texts[file], encoding="utf-8")
            else:
                (staged / file).symlink_to((upload.folder / file).resolve())
        api = hub.HfApi(library_name="segue", library_version=segue.__version__)
        api.create_repo(upload.name, private=private or None, exist_ok=True)
        if revision is not None:
            api.create_branch(upload.name, branch=revision, exist_ok=True)
        done = api.upload_folder(
            repo_id=upload.name, folder_path=staged, revision=revision, commit_message=message or "Upload a segue model"
        )
    return Pushed(url=str(done.commit_url), commit=str(done.oid))


def card_of(folder: Path) -> str | None:
    """Return the text of the card; None if there is none."""
    path = folder / CARD
    if not path.is_symlink() and not path.exists():
        return None
    if not inside(folder, path):
        raise CheckpointError(f"{path} must be a file in its folder; it links to a place outside. Copy it there.")
    try:
        return read_small(path, limit=LARGEST_CARD).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} must be UTF-8; got {error}. Correct it.") from None


def _described(folder: Path) -> tuple[ModelConfig, int, HeadConfig | None]:
    """Return the config, the number of parameters, and the head if there is one."""
    if not (folder / HEAD).is_file():
        return *read_config(folder), None
    config, head, parameters = read_head(folder)
    return config, parameters, head


def new_card(folder: Path, facts: Facts) -> str:
    """Return a new card for a model folder, from its files and these facts."""
    config, parameters, head = _described(folder)
    return make_card(config, parameters, facts, head=None if head is None else on_card(head))
