"""How a recommender learns (`segue recommend learn --set width=128`), and every limit of one that runs
(`segue recommend run REC --set max_events=100`)."""

from typing import Annotated, Literal

from pydantic import Field

from segue.config import Section
from segue.serve.settings import Bytes, Count, Seconds

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


FEW, VERY_FEW = 200_000, 20_000
"""Events to learn from."""


class RecommenderSettings(Section):
    """The network, and how long it learns."""

    objective: Literal["causal", "permutation", "masked"] = "causal"
    """causal: each event is predicted from those before it. permutation: in any order (XLNet); it is read from left to
    right later. masked: as in BERT; such a model reads the last segment again for every list, and has no memory."""
    vectors: Literal["auto", "ids", "text", "both"] = "auto"
    """Where the vectors of items come from. auto: both, where items have texts or tags, else ids."""
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    """Number of layers."""
    width: Annotated[int, Field(ge=8, le=4096, multiple_of=8)] = 64
    """Width of the vectors."""
    heads: Annotated[int, Field(ge=1, le=64)] = 2
    """Attention heads; they divide the width."""
    segment: Annotated[int, Field(ge=2, le=4096)] = 128
    """Events that are read together."""
    memory: Annotated[int, Field(ge=1, le=16384)] = 200
    """Events before the segment that each layer remembers."""
    rows: Annotated[int, Field(ge=1, le=4096)] = 16
    """Histories that are read side by side; more of them where they fill less than a segment. Default: 16, and 8 where
    there are fewer than 200,000 events to learn from, 4 where there are fewer than 20,000."""
    dropout: Share = 0.15
    """Dropout of the network. Default: 0.15, and 0.3 where there are fewer than 200,000 events to learn from."""
    hide: Share = 0.1
    """Share of the items whose ids are hidden in a step, so that their texts must do; without texts none is."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    """Highest learning rate."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon: the matrices of the layers are updated by orthogonalised momentum, all other weights as by adamw."""
    weight_decay: Share = 0.01
    """Decoupled decay of matrices and vectors of items."""
    negatives: Annotated[int | None, Field(ge=1, le=10**6)] = None
    """Items that are drawn for each step, by how often they were seen, in place of the softmax over all items, with the
    log-Q correction. Default: all items where there are up to 100,000 of them, else 8,192."""
    epochs: Count = 30
    """Most times that all histories are read."""
    minutes: Annotated[float, Field(gt=0, le=10**6)] = 60.0
    """Most minutes of learning."""
    patience: Count = 3
    """Epochs without a better NDCG on the events that choose, after which learning ends."""
    held_back: Annotated[float, Field(gt=0, le=0.4)] = 0.1
    """Share of all events, the latest, that measure the model; as many before them choose its best weights."""
    measured: Count = 5000
    """Most held-back events that are ranked."""

    def resolved(self, *, events: int) -> "RecommenderSettings":
        """With what hangs on how many events there are to learn from, where it was not given."""
        by_size: dict[str, float] = {}
        if events < FEW:
            by_size = {"rows": 8 if events >= VERY_FEW else 4, "dropout": 0.3}
        return self.model_copy(update={k: v for k, v in by_size.items() if k not in self.model_fields_set})


class ServiceSettings(Section):
    """What others may send, and how much is kept ready."""

    max_body: Bytes = 1_000_000
    """Bytes of a request."""
    max_events: Count = 1000
    """Events of a request."""
    max_items: Count = 1000
    """Items of a request,"""
    max_catalogue: Count = 200_000
    """and of the recommender."""
    max_list: Count = 100
    """Items of a list."""
    max_sessions: Count = 2000
    """Sessions of users that are kept in memory; others are restored from the database."""
    save_every: Count = 16
    """Events of a user after which the session is saved again; after a crash no more than so many are read again."""
    max_queue: Count = 200
    """Requests that wait for the model; those above it are refused with 429."""
    rate: Annotated[float, Field(gt=0, le=10**6)] = 5.0
    """Requests a second of an address without a key of an agent,"""
    burst: Count = 60
    """and how many it may make at once."""
    trusted_proxy: str = ""
    """Address of a proxy whose X-Forwarded-For is believed."""
    body_timeout: Seconds = 30.0
    """Seconds for a request to arrive."""
    header_timeout: Seconds = 15.0
    """Seconds for the header of a request to arrive."""
    write_timeout: Seconds = 30.0
    """Seconds that a client may take nothing before it counts as gone."""
    max_connections: Count = 1000
    """Open connections."""
    drain: Annotated[float, Field(ge=0, le=10**6)] = 10.0
    """Seconds that requests have to end after SIGTERM."""
