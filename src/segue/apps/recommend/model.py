"""A loaded recommender: items with their vectors, and user sessions that read an event in constant time.

In: events. Out: a state for each user, from which one matrix product scores all items. New items get vectors from their
texts, and can be recommended at once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from segue.apps.recommend.features import Features
from segue.apps.recommend.final import FinalRanking
from segue.apps.recommend.histories import gap_step
from segue.apps.recommend.network import EventNetwork
from segue.apps.recommend.tables import Event, Item
from segue.arguments import Index, checks_arguments
from segue.config import ModelConfig
from segue.errors import DataError
from segue.model import Batch
from segue.model.cache import Cache
from segue.model.streaming import Streamer

FARTHEST = 1000
"""Maximum number of recent events that a session keeps."""
ONE = torch.zeros(1, 1, dtype=torch.long)
"""Token ids for the streamer when embeddings are given instead."""
AT_ONCE = 64
"""Number of events read at a time when a whole history is read."""


@dataclass(kw_only=True)
class Session:
    """State of a user in a model."""

    cache: Cache | None
    """Cached keys and values; None if the model has no memory and re-reads `recent`."""
    recent: list[tuple[int, int, int]] = field(default_factory=list)
    """(item, kind, gap) of the last events, as many as a prediction can depend on."""
    hidden_D: Tensor | None = None
    """Hidden state that predicts the next item; None before the first event."""
    seen: set[int] = field(default_factory=set)
    last: float | None = None
    """Time of the last event."""
    number: int = 0
    """Highest number of an event that it has read, in the database."""

    def fork(self) -> "Session":
        """Return an independent copy, for what-if questions."""
        cache = None if self.cache is None else self.cache.select([0])
        return replace(self, cache=cache, recent=list(self.recent), seen=set(self.seen))


def reach(config: ModelConfig, window: int) -> int:
    """Number of last events that a prediction can depend on. In a causal model each layer reaches as many further back
    as its memory is long; other models look at no more than the memory or the segment holds."""
    if config.memory is None:
        return window
    deep = config.num_layers if config.objective == "causal" else 1
    return max(window, min(FARTHEST, deep * config.memory.length + 1))


class Recommender:
    """A trained network with its items."""

    def __init__(
        self,
        network: EventNetwork,
        *,
        items: Sequence[Item],
        features: Features,
        kinds: Mapping[str, int],
        counts_V: NDArray[np.int64],
        window: int,
        repeats: bool,
        final: FinalRanking | None = None,
    ) -> None:
        """`items` are those the network was trained with, in the order of its vocabulary; `window` is the number of
        last events that the final ranking and masked models use. Without a final ranking, the network ranks."""
        fresh_V = counts_V == 0
        fresh_V[0] = False
        self.final = None if final is None else replace(final, known=final.known.neutral(fresh_V))
        self.network, self.features, self.kinds = network.eval(), features, dict(kinds)
        self.window, self.repeats = window, repeats
        self.learned = len(items)
        """Number of items that the network was trained with."""
        self.items: list[Item] = list(items)
        self.places = {item.id: place for place, item in enumerate(self.items, start=1)}
        self.table_VD, self.bias_V = network.served(torch.from_numpy(fresh_V))
        self._kinds_KD, self._gaps_GD = network.kinds.weight.detach(), network.gaps.weight.detach()
        self.counts_V = counts_V
        """Number of training events of each item."""
        self._later: Counter[int] = Counter()
        learned = self.bias_V[1:][torch.from_numpy(counts_V[1:] > 0)]
        self._fresh_bias = float(learned.median()) if len(learned) else 0.0
        self.listed_V = np.array([False, *(self._is_listed(place) for place in range(1, len(self.items) + 1))])
        """Whether each item may be listed: it has a text or was seen in training, and is not withdrawn. An item that is
        known by its id alone, from an event, has a vector that says nothing."""
        self.revision = 0
        """Number of times that vectors of known items have changed."""
        memory = network.config.memory
        self.reach = reach(network.config, window)
        """Number of last events that a session keeps."""
        self.streamer = (
            None if memory is None else Streamer(network.model, memory_length=memory.length, most_at_once=AT_ONCE)
        )

    # ----------------------------------------------------------------------------------------------------------- items

    def add_items(self, items: Iterable[Item]) -> int:
        """Add new items, which can be recommended at once by their texts, and update known items that have changed.
        Return the number of new items."""
        given = [item for item in {item.id: item for item in items}.values() if self._is_other(item)]
        if not given:
            return 0
        features_NF = self.features.of(given)
        new = np.array([item.id not in self.places for item in given])
        self._update([item for item in given if item.id in self.places], features_NF[~new])
        self._append([item for item in given if item.id not in self.places], features_NF[new])
        return int(new.sum())

    def _is_listed(self, place: int) -> bool:
        item = self.items[place - 1]
        return not item.withdrawn and (bool(item.text) or self.counts_V[place] > 0)

    def _is_other(self, item: Item) -> bool:
        place = self.places.get(item.id)
        return place is None or self.items[place - 1] != item

    @torch.no_grad()
    def _append(self, items: Sequence[Item], features_NF: NDArray[np.float32]) -> None:
        if not items:
            return
        if self.final is not None:
            self.final = replace(self.final, known=self.final.known.more(*self._price_and_tags(features_NF)))
        vectors_ND = self.network.project(torch.from_numpy(features_NF))
        self.table_VD = torch.cat([self.table_VD, vectors_ND])
        self.bias_V = torch.cat([self.bias_V, torch.full((len(items),), self._fresh_bias)])
        self.counts_V = np.append(self.counts_V, np.zeros(len(items), dtype=self.counts_V.dtype))
        for item in items:
            self.items.append(item)
            self.places[item.id] = len(self.items)
        first = len(self.listed_V)
        self.listed_V = np.append(self.listed_V, [self._is_listed(place) for place in range(first, first + len(items))])

    @torch.no_grad()
    def _update(self, items: Sequence[Item], features_NF: NDArray[np.float32]) -> None:
        """Replace what is known of items. Learned id vectors and popularity stay; the projection of the features is
        computed again."""
        if not items:
            return
        places = np.array([self.places[item.id] for item in items])
        seen = (places <= self.learned) & (self.counts_V[places] > 0)
        if self.final is not None:
            self.final.known.change(places, *self._price_and_tags(features_NF))
        features_NF[seen, 0] = self.network.features_VF[places[seen], 0].numpy()
        vectors_ND = self.network.project(torch.from_numpy(features_NF))
        if self.network.ids:
            vectors_ND[seen] += self.network.id_vectors[places[seen]]
        self.table_VD[places] = vectors_ND
        self.revision += 1
        for place, item in zip(places.tolist(), items, strict=True):
            self.items[place - 1] = item
            self.listed_V[place] = self._is_listed(place)

    def count_events(self, events: Mapping[str, int]) -> None:
        """Count events since training, by item, for the popularity of items that had none in training."""
        if self.final is None:
            return
        places = [self.places[id] for id in events if id in self.places]
        places = [place for place in places if self.counts_V[place] == 0]
        if not places:
            return
        self._later.update({place: events[self.items[place - 1].id] for place in places})
        logs_V = np.log1p(self.counts_V[1 : self.learned + 1].astype(np.float64))
        logs_N = np.log1p([self._later[place] for place in places])
        known = self.final.known
        found_N = (logs_N - logs_V.mean()) / max(float(logs_V.std()), 1e-3)
        known.popularity_V[places] = np.maximum(known.popularity_V[places], found_N)

    def _price_and_tags(self, features_NF: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the price and the tags of items as the final ranking knows them, from their features."""
        priced = self.features.price is not None
        prices_N = features_NF[:, 1] if priced else np.zeros(len(features_NF), dtype=np.float32)
        return prices_N, features_NF[:, 1 + priced : 1 + priced + len(self.features.tags)]

    @checks_arguments
    def place_of(self, item: str) -> int:
        """Return the place of an item; raise DataError if it is unknown."""
        place = self.places.get(item)
        if place is None:
            raise DataError(f"an item must be in the catalogue of the recommender; got {item[:60]!r}. Add it first.")
        return place

    # -------------------------------------------------------------------------------------------------------- sessions

    def session(self) -> Session:
        """Return the session of a user without events."""
        return Session(cache=None if self.streamer is None else self.streamer.new_cache())

    @checks_arguments
    def read(self, session: Session, events: Sequence[tuple[int, Event]]) -> None:
        """Read numbered events, one step each; the cost does not grow with the history."""
        for number, event in events:
            triple = self._triple(session, event)
            session.recent.append(triple)
            del session.recent[: -self.reach]
            session.seen.add(triple[0])
            session.last, session.number = event.time, max(session.number, number)
            session.hidden_D = self._step(session, [triple])

    @checks_arguments
    def read_history(self, events: Sequence[tuple[int, Event]]) -> Session:
        """Return a session that has read a whole history, many events at a time."""
        session = self.session()
        triples = []
        for number, event in events:
            triples.append(self._triple(session, event))
            session.seen.add(triples[-1][0])
            session.last, session.number = event.time, max(session.number, number)
        session.recent = triples[-self.reach :]
        if self.streamer is None:
            session.hidden_D = self._step(session, []) if triples else None
        else:
            for start in range(0, len(triples), AT_ONCE):
                session.hidden_D = self._step(session, triples[start : start + AT_ONCE])
        return session

    def _triple(self, session: Session, event: Event) -> tuple[int, int, int]:
        gap = 0 if session.last is None else gap_step(event.time - session.last)
        place = self.places.get(event.item)
        if place is None:
            place = self.place_of(event.item)  # raises
        return place, self.kinds.get(event.kind, 0), gap

    @torch.no_grad()
    def _step(self, session: Session, triples: Sequence[tuple[int, int, int]]) -> Tensor:
        if self.streamer is None or session.cache is None:
            return self.states([session.recent])[0]  # its reach is its window
        if len(triples) == 1:  # the usual case, on a shorter path
            item, kind, gap = triples[0]
            embedded_D = self.table_VD[item] + self._kinds_KD[kind] + self._gaps_GD[gap]
            return self.streamer.read(ONE, session.cache, embedded_BQD=embedded_D[None, None])[0, -1]
        items_BQ, kinds_BQ, gaps_BQ = torch.tensor([triples]).unbind(dim=2)
        embedded_BQD = self.network.embed(self.table_VD, items_BQ, kinds_BQ, gaps_BQ)
        ids_BQ = torch.zeros_like(items_BQ)
        return self.streamer.read(ids_BQ, session.cache, embedded_BQD=embedded_BQD)[0, -1]

    @torch.no_grad()
    def states(self, histories: Sequence[Sequence[tuple[int, int, int]]]) -> Tensor:
        """Return the states after histories, each read in one segment without memory: [N, D]."""
        length = max(len(one) for one in histories) + 1
        values = torch.zeros(3, len(histories), length, dtype=torch.long)
        for row, one in enumerate(histories):
            if one:
                values[:, row, : len(one)] = torch.tensor(list(one)).T
        items_BQ, kinds_BQ, gaps_BQ = values
        count_B = torch.tensor([len(one) for one in histories])
        embedded_BQD = self.network.embed(self.table_VD, items_BQ, kinds_BQ, gaps_BQ)
        batch = self._next_batch(items_BQ, count_B)
        output = self.network.read(embedded_BQD, batch, None, remember=False)
        if output.predicted_BPD is not None:
            return output.predicted_BPD[:, 0]
        return output.hidden_BQD[torch.arange(len(histories)), (count_B - 1).clamp(min=0)]

    def _next_batch(self, items_BQ: Tensor, count_B: Tensor) -> Batch:
        """Return the batch that predicts the event after the last one of each row."""
        objective = self.network.config.objective
        place_Q = torch.arange(items_BQ.shape[1])
        if objective == "causal":
            return Batch(ids_BQ=torch.zeros_like(items_BQ), real_BQ=place_Q < count_B[:, None].clamp(min=1))
        real_BQ = place_Q <= count_B[:, None]
        visible_BQQ = (place_Q[None, :] <= place_Q[:, None]).expand(len(items_BQ), -1, -1)
        return Batch(
            ids_BQ=torch.zeros_like(items_BQ),
            real_BQ=real_BQ,
            visible_BQQ=visible_BQQ if objective == "permutation" else None,
            predicted_BP=count_B[:, None],
        )

    # ---------------------------------------------------------------------------------------------------------- scores

    @torch.no_grad()
    @checks_arguments
    def scores(self, session: Session) -> NDArray[np.float32]:
        """Return the log-probability of each item to be next, [V]; by popularity for a user without events."""
        if session.hidden_D is None:
            shares = torch.from_numpy(self.counts_V + 0.1).float()
            shares[0] = 1e-9
            popular: NDArray[np.float32] = (shares / shares.sum()).log().numpy()
            return popular
        log_V: NDArray[np.float32] = self.log_probabilities(session.hidden_D[None])[0]
        if self.final is None or self.final.method == "network":
            return log_V
        return self.final.scores(log_V, np.array(session.recent[-self.window :]))

    def ranked(self, hidden_ND: Tensor, recent: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """Return log-probabilities by the final ranking, after histories that end with `recent` events (item, kind and
        gap bucket): [N, V]."""
        log_NV = self.log_probabilities(hidden_ND)
        if self.final is None or self.final.method == "network":
            return log_NV
        return np.stack([self.final.scores(log_V, events) for log_V, events in zip(log_NV, recent, strict=True)])

    @torch.no_grad()
    def log_probabilities(self, hidden_ND: Tensor) -> NDArray[np.float32]:
        """Return log-probabilities by the network alone: [N, V]."""
        if len(hidden_ND) == 1:  # one row is quicker as a vector
            logits_NV = torch.addmv(self.bias_V, self.table_VD, hidden_ND[0])[None]
        else:
            logits_NV = torch.addmm(self.bias_V, hidden_ND, self.table_VD.T)
        logits_NV[:, 0] = -1e9
        found: NDArray[np.float32] = logits_NV.log_softmax(dim=-1).numpy()
        return found

    @checks_arguments
    def similar(self, place: Index) -> NDArray[np.float32]:
        """Return the cosine similarity of each item's vector to that of one item: [V]."""
        if place > len(self.items):
            raise DataError(f"place must be at most {len(self.items):,}; got {place:,}. Use the result of place_of.")
        norm_VD = torch.nn.functional.normalize(self.table_VD, dim=1)
        found: NDArray[np.float32] = (norm_VD @ norm_VD[place]).numpy()
        return found

    # ---------------------------------------------------------------------------------------------------------- saving

    def saved(self, session: Session) -> bytes:
        """Serialize a session."""
        tensors = {
            "recent": torch.tensor(session.recent, dtype=torch.long).view(-1, 3),
            "seen": torch.tensor(sorted(session.seen), dtype=torch.long),
            "last": torch.tensor([] if session.last is None else [session.last], dtype=torch.float64),
            "hidden": torch.zeros(0) if session.hidden_D is None else session.hidden_D,
        }
        if session.cache is not None:
            tensors |= {f"cache.{name}": value for name, value in session.cache.row_tensors(0).items()}
        return save_tensors({name: value.contiguous() for name, value in tensors.items()})

    def restored(self, state: bytes, number: int) -> Session:
        """Restore a serialized session, bit for bit; raise DataError if it is damaged."""
        try:
            tensors = load_tensors(state)
            cache = None
            if self.streamer is not None:
                cache = self.streamer.new_cache()
                cache.restore({name[6:]: value for name, value in tensors.items() if name.startswith("cache.")})
            last = tensors["last"].tolist()
            recent = [(int(item), int(kind), int(gap)) for item, kind, gap in tensors["recent"].tolist()]
            return Session(
                cache=cache,
                recent=recent,
                hidden_D=tensors["hidden"] if len(tensors["hidden"]) else None,
                seen=set(tensors["seen"].tolist()),
                last=last[0] if last else None,
                number=number,
            )
        except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise DataError(f"a saved session must be one of this model; got {str(error)[:80]}.") from None
