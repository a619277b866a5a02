"""What a session has read, as bytes: for the store, and signed for the client who takes it away.

In: what was kept, and the model it belongs to. Out: bytes that only the same model and tokeniser go on from, with a
checksum over all of them; and back.
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
    """States of sessions, for all models that are served."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self._models = models
        self._empty: dict[str, Kept] = {}

    def served(self, name: str) -> Served:
        """The model of a session; an error where it is not served."""
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
        """What a session has that has read nothing."""
        if model not in self._empty:
            how = self.served(model).streaming()
            self._empty[model] = Kept.of(TokenStream(how.streamer, window=how.window), Unfinished())
        return self._empty[model]

    def packed(self, model: str, kept: Kept) -> bytes:
        """For the store."""
        fingerprints = self.served(model).streaming().fingerprints
        return b"".join(packed(kept, model=fingerprints["model"], tokenizer=fingerprints["tokenizer"]))

    def unpacked(self, model: str, data: bytes) -> Kept:
        """And back; an error where they are damaged, or of another model."""
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
        """Bytes that a state can have at most."""
        stream = self.served(model).streaming()
        config, length = stream.streamer.model.config, stream.streamer.memory_length
        numbers = 2 * config.num_layers * length * config.num_heads * config.resolved_head_width + config.width
        return 8 * numbers + 64 * length + 16 * 2**20


def signed(secret: bytes, data: bytes) -> bytes:
    """A state that the server takes back."""
    return MAGIC + hmac.digest(secret, data, hashlib.sha256) + data


def verified(secret: bytes, data: bytes) -> bytes:
    """What was signed; an error for any other bytes."""
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
