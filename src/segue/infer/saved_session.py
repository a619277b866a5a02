"""Saved sessions: the state of a session in a file that only the same model can continue.

In: a TokenStream and the text that is held back. Out: one safetensors file, written atomically; and back. The file
names its format and the model, tokeniser and kind of weights it belongs to.

Its metadata hold the sha256 of the file, computed with zeros in place of that sha256, so every byte is covered.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from segue.checkpoint.safetensors_files import header_of, read_header
from segue.errors import CheckpointError
from segue.files import make_folder_of, write_file
from segue.infer.token_stream import TokenStream
from segue.model.streaming import Streamer
from segue.text.tokenizer import Tokenizer, Unfinished

FORMAT = "segue-session-2"
WITHOUT_CHECKSUM = "segue-session-1"
"""The format of earlier versions."""
_DIGEST, _NO_DIGEST = "sha256", "0" * 64


def write_session(path: Path, stream: TokenStream, state: Unfinished, tokenizer: Tokenizer) -> None:
    """Write a session atomically; an existing file is replaced."""
    kept = Kept.of(stream, state)
    header, rest = packed(kept, model=stream.streamer.fingerprint(), tokenizer=tokenizer.fingerprint())
    make_folder_of(path, failure=CheckpointError)
    write_file(path, header + rest, failure=CheckpointError)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The state of a session as an immutable value: several sessions may continue from it."""

    cache: Mapping[str, Tensor]
    """The result of `Cache.tensors`."""
    hidden_1D: Tensor | None
    recent: tuple[int, ...]
    unread: tuple[int, ...]
    count: int
    place: int
    text: Unfinished

    @classmethod
    def of(cls, stream: TokenStream, text: Unfinished, cache: Mapping[str, Tensor] | None = None) -> "Kept":
        """Return the state of a stream. `cache`: copied tensors, if the stream's cache is elsewhere; otherwise those of
        the stream are copied."""
        if cache is None:
            cache = {name: tensor.clone() for name, tensor in stream.cache.tensors().items()}
        return cls(
            cache=cache,
            hidden_1D=stream.hidden_1D,
            recent=tuple(stream.recent),
            unread=tuple(stream.unread),
            count=stream.count,
            place=stream.place,
            text=text,
        )

    @property
    def tokens(self) -> int:
        """Number of tokens read and generated."""
        return self.count + len(self.unread)

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        tensors = [*self.cache.values(), *([] if self.hidden_1D is None else [self.hidden_1D])]
        return sum(t.nbytes for t in tensors) + 16 * (len(self.recent) + len(self.unread)) + 4 * len(self.text.text)

    def stream(self, streamer: Streamer, *, window: int | None) -> TokenStream:
        """Return a stream that continues from here."""
        stream = TokenStream(streamer, window=window)
        stream.cache.restore(dict(self.cache))
        stream.hidden_1D = self.hidden_1D
        stream.recent.extend(self.recent)
        stream.unread = list(self.unread)
        stream.count, stream.place = self.count, self.place
        return stream


def packed(kept: Kept, *, model: str, tokenizer: str) -> tuple[bytes, memoryview]:
    """Return the two parts of the file. `model` and `tokenizer` are their fingerprints."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in kept.cache.items()}
    tensors["recent"] = torch.tensor(kept.recent, dtype=torch.long)
    tensors["unread"] = torch.tensor(kept.unread, dtype=torch.long)
    if kept.hidden_1D is not None:
        tensors["hidden"] = kept.hidden_1D.cpu().contiguous()
    metadata = {
        "format": FORMAT,
        "model": model,
        "tokenizer": tokenizer,
        "count": str(kept.count),
        "text": json.dumps(asdict(kept.text)),
    }
    return sealed(tensors, metadata)


def sealed(tensors: dict[str, Tensor], metadata: dict[str, str]) -> tuple[bytes, memoryview]:
    """Return the two parts of the file, the first with the checksum of both. The same session always gives the same
    bytes: safetensors writes metadata in a random order, so the header is rewritten."""
    data = save(tensors, metadata=metadata | {_DIGEST: _NO_DIGEST})
    start = 8 + int.from_bytes(data[:8], "little")
    rest = memoryview(data)[start:]
    told = json.dumps(json.loads(data[8:start]), sort_keys=True, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)
    header = len(told).to_bytes(8, "little") + told
    found = hashlib.sha256(header)
    found.update(rest)
    empty, filled = (f'"{_DIGEST}":"{digest}"'.encode() for digest in (_NO_DIGEST, found.hexdigest()))
    return header.replace(empty, filled), rest


def _own_digest(header: bytes, rest: bytes | memoryview, digest: str) -> str:
    """Return the sha256 of a file whose header contains `digest`, with zeros in its place."""
    found = hashlib.sha256(header.replace(digest.encode(errors="replace"), _NO_DIGEST.encode()))
    found.update(rest)
    return found.hexdigest()


def read_session(
    path: Path, streamer: Streamer, tokenizer: Tokenizer, *, window: int | None
) -> tuple[TokenStream, Unfinished]:
    """Return the stream of a saved session and the text that was held back."""
    if not path.is_file():
        raise CheckpointError(f"a saved session must be a file; {path} is not one. Check the path.")
    metadata = read_header(path).metadata
    _check_format(str(path), metadata)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} must be a readable file; got {error.strerror or error}.") from None
    fingerprints = {"model": streamer.fingerprint(), "tokenizer": tokenizer.fingerprint()}
    return _unpacked(str(path), data, metadata, streamer, fingerprints, size=tokenizer.size, window=window)


def unpacked(
    name: str,
    data: bytes,
    streamer: Streamer,
    tokenizer: Tokenizer,
    *,
    fingerprints: Mapping[str, str],
    window: int | None,
) -> Kept:
    """Return the session from the bytes of `packed`, for the model and tokeniser with these `fingerprints`; `name` is
    used in errors."""
    metadata = header_of(Path(name), data).metadata
    _check_format(name, metadata)
    found = _unpacked(name, data, metadata, streamer, fingerprints, size=tokenizer.size, window=window)
    return Kept.of(*found)


def _check_format(name: str, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") == WITHOUT_CHECKSUM:
        raise CheckpointError(
            f"{name} must have a checksum; got a session that an earlier version of segue saved without one, in which "
            "damage would not show. Feed its text to a new session and save that."
        )
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{name} must have format {FORMAT}; got {str(metadata.get('format'))[:60]!r}. It is not a saved session, "
            "or is of another version of segue."
        )


def _unpacked(
    name: str,
    data: bytes,
    metadata: Mapping[str, str],
    streamer: Streamer,
    fingerprints: Mapping[str, str],
    *,
    size: int,
    window: int | None,
) -> tuple[TokenStream, Unfinished]:
    _verify(name, data, metadata.get(_DIGEST, ""))
    for what, own in fingerprints.items():
        if metadata.get(what) != own:
            raise CheckpointError(
                f"{name} must be a session of the same {what}; got {str(metadata.get(what))[:12]} for {own[:12]}. Open "
                "the model that it was saved with, with the same memory and weights."
            )
    try:
        stream = TokenStream(streamer, window=window)
        _restore(stream, load(data), metadata, size=size)
        state = _unfinished(json.loads(metadata["text"]))
    except (SafetensorError, KeyError, ValueError, RuntimeError, RecursionError) as error:
        raise CheckpointError(
            f"{name} must be a complete saved session; got {str(error)[:200]}. Use another copy."
        ) from None
    return stream, state


def _verify(name: str, data: bytes, digest: str) -> None:
    """Raise CheckpointError for bytes that do not match their digest."""
    start = 8 + int.from_bytes(data[:8], "little")
    if len(digest) != len(_NO_DIGEST) or _own_digest(data[:start], memoryview(data)[start:], digest) != digest:
        raise CheckpointError(
            f"{name} must match its own sha256; got other bytes. It is damaged: use another copy, or feed its text to "
            "a new session and save that."
        )


def _restore(stream: TokenStream, tensors: dict[str, Tensor], metadata: Mapping[str, str], *, size: int) -> None:
    cache = stream.cache
    used = tensors["valid"].shape[1]
    layers, _, heads, _, width = cache.key_LBHCE.shape
    shape = (layers, 1, heads, used, width)
    fits = (
        used <= cache.length
        and tensors["valid"].shape == (1, used)
        and tensors["valid"].dtype == torch.bool
        and tensors["position"].shape == (1,)
        and all(
            tensors[name].shape == shape and tensors[name].dtype == cache.key_LBHCE.dtype for name in ("key", "value")
        )
    )
    if not fits:
        raise ValueError("tensors that do not fit the model")
    ids = [*tensors["recent"].tolist(), *tensors["unread"].tolist()]
    if any(not isinstance(index, int) or not 0 <= index < size for index in ids):
        raise ValueError("ids that are not in the vocabulary")
    cache.restore(tensors)
    stream.recent.extend(tensors["recent"].tolist())
    stream.unread = tensors["unread"].tolist()
    stream.count, stream.place = int(metadata["count"]), int(cache.position_B[0])
    if "hidden" in tensors:
        if tensors["hidden"].shape != (1, stream.streamer.model.config.width):
            raise ValueError("a state that does not fit the model")
        stream.hidden_1D = tensors["hidden"].to(cache.key_LBHCE)


def _unfinished(values: Any) -> Unfinished:
    kinds = {"text": str, "read": int, "given": int}
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != kinds:
        raise ValueError("text that cannot be read")
    return Unfinished(**values)
