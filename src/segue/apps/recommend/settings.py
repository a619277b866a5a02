"""Training settings of a recommender (`segue recommend learn --set width=128`), and limits of a running one (`segue
recommend run REC --set max_events=100`)."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from segue.config import Section, settings_error
from segue.errors import ConfigError
from segue.serve.settings import Bytes, Count, Seconds

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


FEW, VERY_FEW = 200_000, 20_000
"""Numbers of training events below which defaults change."""


class RecommenderSettings(Section):
    """The network and its training."""

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            """Raise ConfigError if a setting is not valid."""
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise settings_error(error, type(self)) from None

    objective: Literal["causal", "permutation", "masked"] = "causal"
    """Training objective. causal: predict each event from those before it. permutation: in any order (XLNet), read from
    left to right in use. masked: as in BERT; such a model re-reads the last segment for every list, and has no
    memory."""
    vectors: Literal["auto", "ids", "text", "both"] = "auto"
    """Source of the item vectors. auto: both, if items have texts or tags, else ids."""
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    """Number of layers."""
    width: Annotated[int, Field(ge=8, le=4096, multiple_of=8)] = 64
    """Width of the hidden states."""
    heads: Annotated[int, Field(ge=1, le=64)] = 2
    """Number of attention heads; must divide the width."""
    segment: Annotated[int, Field(ge=2, le=4096)] = 128
    """Segment length in events."""
    memory: Annotated[int, Field(ge=1, le=16384)] = 200
    """Memory length in events."""
    rows: Annotated[int, Field(ge=1, le=4096)] = 16
    """Batch size in histories; larger if histories are shorter than a segment. Default: 16; 8 below 200,000 training
    events; 4 below 20,000."""
    dropout: Share = 0.15
    """Dropout of the network. Default: 0.15; 0.3 below 200,000 training events."""
    hide: Share = 0.1
    """Share of items whose ids are hidden in each step, so that the network learns from their texts; 0 if items have no
    texts."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    """Peak learning rate."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """Optimizer. muon: the weight matrices of the layers are updated by orthogonalised momentum, all other weights by
    adamw."""
    weight_decay: Share = 0.01
    """Decoupled weight decay of weight matrices and item vectors."""
    negatives: Annotated[int | None, Field(ge=1, le=10**6)] = None
    """Number of negative items per step, sampled by popularity with the log-Q correction, instead of the softmax over
    all items. Default: all items if there are at most 100,000, else 8,192."""
    epochs: Count = 30
    """Maximum number of epochs."""
    minutes: Annotated[float, Field(gt=0, le=10**6)] = 60.0
    """Maximum training time in minutes."""
    patience: Count = 3
    """Early stopping: end after this many epochs without a better NDCG on the validation events."""
    held_back: Annotated[float, Field(gt=0, le=0.4)] = 0.1
    """Share of all events, the latest ones, held out to evaluate the model; as many before them select its best
    weights."""
    measured: Count = 5000
    """Maximum number of held-out events to rank."""

    def check(self) -> None:
        """Raise ConfigError if settings do not fit together."""
        if self.width % self.heads:
            fitting = max(one for one in range(1, self.heads) if self.width % one == 0)
            raise ConfigError(f"heads must divide width; got {self.heads} and {self.width}. Use heads={fitting}.")

    def resolved(self, *, events: int) -> "RecommenderSettings":
        """The settings with defaults that depend on the number of training events."""
        by_size: dict[str, float] = {}
        if events < FEW:
            by_size = {"rows": 8 if events >= VERY_FEW else 4, "dropout": 0.3}
        return self.model_copy(update={k: v for k, v in by_size.items() if k not in self.model_fields_set})


class ServiceSettings(Section):
    """Limits on requests, and on what is kept in memory."""

    retrieval: Literal["exact", "faiss"] = "exact"
    """How the items of a list are found. exact: all items are scored. faiss: candidates from an index of item vectors
    are ranked; for catalogues in which scoring all items takes too long (needs faiss-cpu)."""
    candidates: Annotated[int, Field(ge=10, le=100_000)] = 1000
    """Number of candidates from the index, with retrieval=faiss."""
    max_body: Bytes = 1_000_000
    """Maximum size of a request in bytes."""
    max_events: Count = 1000
    """Maximum number of events in a request."""
    max_items: Count = 1000
    """Maximum number of items in a request."""
    max_catalogue: Count = 200_000
    """Maximum number of items of the recommender."""
    max_list: Count = 100
    """Maximum number of items in a list."""
    max_sessions: Count = 2000
    """Maximum number of user sessions in memory; others are restored from the database."""
    save_every: Count = 16
    """Number of events of a user between saves of the session; at most this many are re-read after a crash."""
    max_queue: Count = 200
    """Maximum number of requests waiting for the model; further ones are refused with 429."""
    rate: Annotated[float, Field(gt=0, le=10**6)] = 5.0
    """Rate limit: requests per second from an address without an agent key."""
    burst: Count = 60
    """Maximum burst of requests above the rate limit."""
    trusted_proxy: str = ""
    """Address of a proxy whose X-Forwarded-For header is trusted."""
    body_timeout: Seconds = 30.0
    """Timeout in seconds for a request to arrive."""
    header_timeout: Seconds = 15.0
    """Timeout in seconds for the header of a request to arrive."""
    write_timeout: Seconds = 30.0
    """Timeout in seconds for a client to accept data before it is considered gone."""
    max_connections: Count = 1000
    """Maximum number of open connections."""
    drain: Annotated[float, Field(ge=0, le=10**6)] = 10.0
    """Seconds for open requests to finish after SIGTERM."""
