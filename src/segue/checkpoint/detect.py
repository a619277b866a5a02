"""Detection of the format of a file or folder, without reading weights.

In: a path. Out: a `Detected`: its kind, the family of its tensor names, its settings, and an open `TensorSource`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import Tensor

from segue.checkpoint.families import recognise
from segue.checkpoint.families.family import SETTINGS, XLNET_SETTINGS, Family
from segue.checkpoint.files import locate, read_small, shortened
from segue.checkpoint.folder import CONFIG, HEAD, WEIGHTS, is_model_folder
from segue.checkpoint.pickles import Name
from segue.checkpoint.safetensors_files import INDEX, SINGLE, SafetensorsFile, ShardedFiles, open_safetensors
from segue.checkpoint.source import TensorInfo, TensorSource, readable
from segue.checkpoint.tensorflow import TensorflowCheckpoint, open_tensorflow
from segue.checkpoint.torch_files import TorchFile, open_torch
from segue.checkpoint.vocabularies import PICKLED, WORDS, find_tokenizer, is_own
from segue.errors import CheckpointError, SegueError
from segue.files import settle
from segue.text.byte_pairs import VOCABULARY
from segue.text.folder import FORMAT as TOKENIZER_FORMAT
from segue.text.folder import HEADER as TOKENIZER_HEADER
from segue.text.folder import PIECES_FILE
from segue.text.released import read_pieces

Kind: TypeAlias = Literal[
    "segue model",
    "segue model with a head",
    "segue run",
    "segue store",
    "segue tokeniser",
    "segue session",
    "segue export",
    "transformers folder",
    "TensorFlow checkpoint",
    "torch file",
    "safetensors",
    "SentencePiece model",
    "vocabulary",
]
BIN, BIN_INDEX, MODULE = "pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt"
LARGEST_SETTINGS = 1 << 20
SESSION, EXPORT, EXPORTED = "segue-session-", "segue-export-", "export.json"
"""Prefixes of the format names of saved sessions and of exports, and the file that holds the format of an export."""
_Opened: TypeAlias = SafetensorsFile | ShardedFiles | TorchFile | TensorflowCheckpoint


@dataclass(frozen=True, kw_only=True)
class Detected:
    """Description of a file or folder."""

    path: Path
    kind: Kind
    family: Family | None = None
    """Family of the tensor names, if segue knows the model."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The config as stored."""
    attributes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Attributes of a pickled module and its parts, by the path of the part."""
    source: TensorSource | None = None
    """The tensors, if any."""
    files: tuple[Path, ...] = ()
    """The files that are read: weights and settings."""
    calls: frozenset[Name] = frozenset()
    """Functions that its pickle asks to call; none is called."""

    @property
    def is_own_model(self) -> bool:
        """True for a model folder of segue, with or without a head."""
        return self.kind in ("segue model", "segue model with a head")

    @property
    def folder(self) -> Path:
        """Folder that would hold its tokeniser."""
        return self.path if self.path.is_dir() else self.path.parent


def detect(path: str | Path) -> Detected:
    """Return the description of a file or folder; raise CheckpointError if it has none of the known formats."""
    with readable(Path(path)):
        settle(Path(path), failure=CheckpointError)  # a killed writer may have left a pair of stores half replaced
        place = locate(Path(path))
        found = _folder(place) if place.is_dir() else _file(place)
        if found is not None:
            return found
        if not place.exists():
            raise CheckpointError(f"{place} must be a file or a folder; it does not exist. Check the path.")
        raise CheckpointError(
            f"{place} must be a model folder, a run, a store, a tokeniser, a session, an export, a folder of "
            "transformers, a TensorFlow checkpoint, a file of torch.save, safetensors, a SentencePiece model or a "
            f"vocabulary; got none of these but {_glimpse(place)}. Check the path."
        )


def _glimpse(path: Path) -> str:
    """Return a short description of unrecognised content, for an error message."""
    if path.is_dir():
        names = sorted(inner.name for inner in islice(path.iterdir(), 100))
        shown = ", ".join(shortened(name) for name in names[:4]) + (" and others" if len(names) > 4 else "")
        return f"a folder with {shown}" if names else "an empty folder"
    if not path.is_file():
        return "a device or a pipe"
    with path.open("rb") as file:
        start = file.read(40)
    return f"a file that starts with {start!r}" if start else "an empty file"


# ------------------------------------------------------------------------------------------------- folders


def _folder(path: Path) -> Detected | None:
    if is_model_folder(path):
        kind: Kind = "segue model with a head" if (path / HEAD).is_file() else "segue model"
        files = tuple(path / name for name in (WEIGHTS, CONFIG, HEAD) if (path / name).is_file())
        return Detected(path=path, kind=kind, source=open_safetensors(path / WEIGHTS), files=files)
    if any((path / name / CONFIG).is_file() for name in ("best", "last")):
        return Detected(path=path, kind="segue run")
    if (path / "manifest.json").is_file():
        manifest = read_settings(path / "manifest.json")
        if manifest.get("kind") == "segue-store":
            return Detected(path=path, kind="segue store", settings=manifest)
    if (path / EXPORTED).is_file():
        exported = read_settings(path / EXPORTED)
        if str(exported.get("format")).startswith(EXPORT):
            return Detected(path=path, kind="segue export", settings=exported)
    found = weights_in(path)
    if len(found) > 1:
        got = " and ".join(f"{words} ({name})" for name, words in found.items())
        raise CheckpointError(
            f"{path} must hold weights in one format; got {got}. Give the path of the file to use: "
            f"{path / next(iter(found))}, for example."
        )
    settings = read_settings(path / SETTINGS) if (path / SETTINGS).is_file() else {}
    if _TENSORFLOW in found.values():
        return _tensorflow(path)
    if found:
        name = next(iter(found))
        bare: Kind = "safetensors" if name in (SINGLE, INDEX) else "torch file"
        kind = "transformers folder" if "model_type" in settings else bare
        return _with_tensors(path, kind, _opened(path / name), settings)
    if "model_type" in settings:
        raise CheckpointError(
            f"{path} must hold {SINGLE}, {BIN} or an index of either; got only {SETTINGS}. Copy the weights too."
        )
    if (path / TOKENIZER_HEADER).is_file():
        header = read_settings(path / TOKENIZER_HEADER)
        if header.get("format") == TOKENIZER_FORMAT:
            return Detected(path=path, kind="segue tokeniser", settings=header)
    if (path / PIECES_FILE).is_file():
        return _pieces(path / PIECES_FILE)
    if (path / "checkpoint").is_file() or (path / XLNET_SETTINGS).is_file():
        return _tensorflow(path)  # raises an error that names the missing file
    return None


_TENSORFLOW = "a TensorFlow checkpoint"


def weights_in(path: Path) -> dict[str, str]:
    """Return the weights in a folder in any format: name to pass for each, and its description, the safest first.
    Several TensorFlow checkpoints count as one, because they are steps of one training."""
    formats = {
        SINGLE: "safetensors",
        INDEX: "safetensors in parts",
        BIN: "a file of torch.save",
        BIN_INDEX: "files of torch.save",
        MODULE: "a module of torch.save",
    }
    found = {name: words for name, words in formats.items() if (path / name).is_file()}
    prefixes = sorted(index.name.removesuffix(".index") for index in path.glob("*.ckpt*.index"))
    return found | ({prefixes[-1]: _TENSORFLOW} if prefixes else {})


def _opened(path: Path) -> SafetensorsFile | ShardedFiles | TorchFile:
    if path.name in (SINGLE, INDEX):
        return open_safetensors(path)
    return ShardedFiles(path, open_torch) if path.name == BIN_INDEX else open_torch(path)


def _tensorflow(path: Path) -> Detected:
    source = open_tensorflow(path)
    beside = (path if path.is_dir() else path.parent) / XLNET_SETTINGS
    settings = read_settings(beside) if beside.is_file() else {}
    return _with_tensors(path, "TensorFlow checkpoint", source, settings, settings_file=XLNET_SETTINGS)


# --------------------------------------------------------------------------------------------------- files


def _file(path: Path) -> Detected | None:
    if path.name.endswith(".index") or path.with_name(f"{path.name}.index").is_file():
        return _tensorflow(path)
    if not path.is_file():
        return None
    beside = path.parent / SETTINGS
    settings = read_settings(beside) if beside.is_file() else {}
    if path.name in (INDEX, BIN_INDEX):
        return _with_tensors(path, "transformers folder", _opened(path), settings)
    with path.open("rb") as file:
        start = file.read(16)
    if path.suffix == ".safetensors" or start[8:9] == b"{":
        safetensors = SafetensorsFile(path)
        if safetensors.metadata.get("format", "").startswith(SESSION):
            return Detected(path=path, kind="segue session", settings=safetensors.metadata, source=safetensors)
        return _with_tensors(path, "safetensors", safetensors, settings)
    if path.name in (WORDS, VOCABULARY, *PICKLED) or (path.name == TOKENIZER_HEADER and not is_own(path.parent)):
        return _vocabulary(path)
    if path.name == TOKENIZER_HEADER:
        return Detected(path=path, kind="segue tokeniser", settings=read_settings(path))
    if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
        return _with_tensors(path, "torch file", open_torch(path), settings)
    return _pieces(path)


def _pieces(path: Path) -> Detected | None:
    try:
        tokenizer = read_pieces(path)
    except SegueError:
        return None
    return Detected(path=path, kind="SentencePiece model", settings={"pieces": tokenizer.size})


def _vocabulary(path: Path) -> Detected:
    beside = path.parent / "tokenizer_config.json"
    found = find_tokenizer(path, size=None, settings=read_settings(beside) if beside.is_file() else {})
    assert found.tokenizer is not None
    settings = {"symbols": found.tokenizer.size} | ({"notes": " ".join(found.notes)} if found.notes else {})
    return Detected(path=path, kind="vocabulary", settings=settings)


# ----------------------------------------------------------------------------------------------- contents


def _with_tensors(
    path: Path,
    kind: Kind,
    opened: _Opened,
    settings: Mapping[str, Any],
    *,
    settings_file: str = SETTINGS,
) -> Detected:
    source: TensorSource = opened
    if source.tensors and all(name.startswith("module.") for name in source.tensors):
        source = _Unwrapped(source)
    parts = list(opened.sources.values()) if isinstance(opened, ShardedFiles) else [opened]
    beside = opened.files[0].parent / settings_file
    return Detected(
        path=path,
        kind=kind,
        family=recognise(source.tensors, settings),
        settings=settings,
        attributes=opened.attributes if isinstance(opened, TorchFile) else {},
        source=source,
        files=(*opened.files, *([beside] if beside.is_file() else [])),
        calls=frozenset().union(*(part.calls for part in parts if isinstance(part, TorchFile))),
    )


def read_settings(path: Path) -> dict[str, Any]:
    """Return the table in a small JSON file."""
    try:
        values = json.loads(read_small(path, limit=LARGEST_SETTINGS).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must be JSON; got {shortened(error)}. Use another copy.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold a table of settings; got {type(values).__name__}. Use another copy.")
    return values


class _Unwrapped:
    """A source without the `module.` prefix that data-parallel training adds to every name."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name.removeprefix("module."): info for name, info in self._source.tensors.items()}

    def read(self, name: str) -> Tensor:
        return self._source.read(f"module.{name}")
