"""The manifest of a store, `manifest.json`: typed, validated, with a checksum of its own."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from segue.errors import DataError

NAME = "manifest.json"
FORMAT = 1
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    """Base model: no unknown fields, no conversion, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class FileRecord(_Part):
    """A file of the store."""

    bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class InputRecord(_Part):
    """An input file that was read."""

    path: str
    """Path as given, or as found below a given folder."""
    bytes: Count
    documents: Count
    """Number of documents that began in it, those of the validation store included."""


class StoreManifest(_Part):
    """Counts, checksums and origin of a store."""

    kind: Literal["segue-store"] = "segue-store"
    format: Literal[1] = 1
    dtype: Literal["uint16", "uint32"]
    """Little-endian, one number per token."""
    vocabulary_size: Annotated[int, Field(ge=1)]
    specials: dict[str, Count]
    tokenizer: str
    """Fingerprint of the tokeniser in `tokenizer/`."""
    tokens: Count
    """Number of ids, ends of documents included."""
    documents: Count
    lines: Count
    characters: Count
    """Number of characters of the text, with kept line ends, without ends of documents."""
    bytes: Count
    """Size of the text in UTF-8, in bytes."""
    words: Count
    """Number of words separated by white space."""
    shards: Annotated[tuple[Count, ...], Field(strict=False)]
    """Number of tokens in each tokens-NNNNN.bin."""
    files: dict[str, FileRecord]
    """Every file except this one, by its name inside the store."""
    settings: dict[str, JsonValue] = {}
    """Settings of the preparation."""
    inputs: Annotated[tuple[InputRecord, ...], Field(strict=False)] = ()
    problems: dict[str, Count] = {}
    """Counts of problems found in the text and corrected (`segue.data.problems`)."""


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"tokens-{number:05d}.bin"


def _checksum(content: Mapping[str, object]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def dump_manifest(manifest: StoreManifest) -> str:
    """Return the manifest as JSON, with the checksum of everything else in it."""
    content = manifest.model_dump(mode="json")
    return json.dumps({**content, "checksum": _checksum(content)}, indent=1, ensure_ascii=True) + "\n"


def load_manifest(folder: Path) -> StoreManifest:
    """Read and check the manifest of a store; raise DataError for any problem."""
    path = folder / NAME
    if folder.is_file():
        raise DataError(
            f"a store must be a folder written by segue prepare; got the file {folder}. Prepare a store from it first:",
            remedy=f"segue.prepare({str(folder)!r}, {str(folder.with_suffix('.store'))!r}).",
            option=f"segue prepare {folder} --out {folder.with_suffix('.store')}.",
        )
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise DataError(f"{path} must be a file; got something else. Copy the store again.")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(
            f"a store must be a folder with a {NAME}; {folder} has none. Check the path, or prepare a store: segue "
            "prepare INPUT --out STORE."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} must be readable; got {error}. Copy the store again.") from None
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} must be a JSON object; got {error}. Copy or prepare the store again.") from None
    if content.get("kind") != "segue-store" or content.get("format") != FORMAT:
        raise DataError(
            f"{path} must be the manifest of a segue-store of format {FORMAT}; got kind "
            f"{content.get('kind')!r}, format {content.get('format')!r}. Prepare the text again with this version."
        )
    written = content.pop("checksum", None)
    if written != _checksum(content):
        raise DataError(f"{path} must match its own checksum; got another. Copy or prepare the store again.")
    try:
        return StoreManifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{path} must be a valid manifest; got {place}: {first['msg']}. Prepare it again.") from None
