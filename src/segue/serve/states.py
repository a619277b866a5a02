"""States of sessions as bytes: for the store, and signed for clients that download them.

In: a state and the name of its model. Out: bytes with a checksum, which only the same model and tokeniser accept; and
back.
"""

import hashlib
import hmac
from collections.abc import Mapping

from segue.errors import CheckpointError
from segue.infer.saved_session import Kept, packed, unpacked
from segue.infer.token_stream import TokenStream
from segue.serve.errors import ApiError, shown
from segue.serve.models import Served
from segue.text.tokenizer import Unfinished

MAGIC = b"segue-state-1\n"


class States:
    """States of sessions, for all served models."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self._models = models
        self._empty: dict[str, Kept] = {}

    def served(self, name: str) -> Served:
        """Return the model of a session; raise ApiError if it is not served."""
        served = self._models.get(name)
        if served is None:
            raise ApiError(
                409,
                f"a session must be of a model that is served; got one of {shown(name)}. Start the server with it, or "
                "delete the session.",
                code="model_not_served",
            )
        return served

    def empty(self, model: str) -> Kept:
        """Return the state of a session that has read nothing."""
        if model not in self._empty:
            how = self.served(model).streaming()
            self._empty[model] = Kept.of(TokenStream(how.streamer, window=how.window), Unfinished())
        return self._empty[model]

    def packed(self, model: str, kept: Kept) -> bytes:
        """Return a state as bytes, for the store."""
        fingerprints = self.served(model).streaming().fingerprints
        return b"".join(packed(kept, model=fingerprints["model"], tokenizer=fingerprints["tokenizer"]))

    def unpacked(self, model: str, data: bytes) -> Kept:
        """Return the state in some bytes; raise ApiError if they are damaged or belong to another model."""
        served = self.served(model)
        how = served.streaming()
        try:
            return unpacked(
                "the state",
                data,
                how.streamer,
                served.tokenizer,
                fingerprints=how.fingerprints,
                window=how.window,
            )
        except CheckpointError as error:
            raise ApiError(409, str(error), code="state_refused") from None

    def largest(self, model: str) -> int:
        """Return the maximum size of a state in bytes."""
        stream = self.served(model).streaming()
        config, length = stream.streamer.model.config, stream.streamer.memory_length
        numbers = 2 * config.num_layers * length * config.num_heads * config.resolved_head_width + config.width
        return 8 * numbers + 64 * length + 16 * 2**20


def signed(secret: bytes, data: bytes) -> bytes:
    """Return a state with a signature."""
    return MAGIC + hmac.digest(secret, data, hashlib.sha256) + data


def verified(secret: bytes, data: bytes) -> bytes:
    """Return a state without its signature; raise ApiError if the signature is invalid."""
    start = len(MAGIC) + hashlib.sha256().digest_size
    found = data[start:]
    right = hmac.compare_digest(hmac.digest(secret, found, hashlib.sha256), data[len(MAGIC) : start])
    if data[: len(MAGIC)] != MAGIC or not right:
        raise ApiError(
            400,
            "a state must be as this server gave it; got other bytes, or those of another server. Take it again: "
            "GET /v1/sessions/ID/state.",
            code="bad_state",
        )
    return found
