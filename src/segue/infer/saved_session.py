"""A session in a file: what it has read, in a form that only the same model goes on from.

In: a TokenStream and the text that is held back. Out: one safetensors file, written whole or not at all; and back. The
file says which format it has and which model, tokeniser and kind of weights it belongs to.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from segue.checkpoint.header import read_header
from segue.errors import CheckpointError
from segue.files import make_folder_of, write_file
from segue.infer.token_stream import TokenStream
from segue.model.streaming import Streamer
from segue.text.tokenizer import Tokenizer, Unfinished

FORMAT = "segue-session-1"


def write_session(path: Path, stream: TokenStream, state: Unfinished, tokenizer: Tokenizer) -> None:
    """Whole or not at all, over a file that is there."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in stream.cache.tensors().items()}
    tensors["recent"] = torch.tensor(list(stream.recent), dtype=torch.long)
    tensors["unread"] = torch.tensor(stream.unread, dtype=torch.long)
    if stream.hidden_1D is not None:
        tensors["hidden"] = stream.hidden_1D.cpu().contiguous()
    metadata = {
        "format": FORMAT,
        "model": stream.streamer.fingerprint(),
        "tokenizer": tokenizer.fingerprint(),
        "count": str(stream.count),
        "text": json.dumps(asdict(state)),
    }
    data = save(tensors, metadata=metadata)
    make_folder_of(path, failure=CheckpointError)
    write_file(path, data, failure=CheckpointError)


def read_session(
    path: Path, streamer: Streamer, tokenizer: Tokenizer, *, window: int | None
) -> tuple[TokenStream, Unfinished]:
    """The stream and the text that was held back."""
    if not path.is_file():
        raise CheckpointError(f"a saved session must be a file; got {path}, which is none. Check the path.")
    metadata = read_header(path).metadata
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} must have format {FORMAT}; got {str(metadata.get('format'))[:60]!r}. It is no saved session, or "
            "one of another version of segue."
        )
    for name, own in (("model", streamer.fingerprint()), ("tokenizer", tokenizer.fingerprint())):
        if metadata.get(name) != own:
            raise CheckpointError(
                f"{path} must be a session of the same {name}; got {str(metadata.get(name))[:12]} for {own[:12]}. Open "
                "the model that it was saved with, with the same memory and weights."
            )
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
        stream = TokenStream(streamer, window=window)
        _restore(stream, tensors, metadata, size=tokenizer.size)
        state = _unfinished(json.loads(metadata["text"]))
    except (SafetensorError, OSError, KeyError, ValueError, RuntimeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} must be a whole saved session; got {str(error)[:200]}. Use another copy."
        ) from None
    return stream, state


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
