"""Training with early stopping, and evaluation on later events.

Events are split by time into a training, a validation and a test set. The weights depend on nothing after the first cut
except through the choice of the epoch and the final ranking, which use the validation set; the figures of the report
are from the test set, on which only one decision depends: whether items that a user has seen are ranked (`come_back`),
for all methods alike.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from segue.apps.recommend.baselines import counts, faded, learn_neighbours
from segue.apps.recommend.batches import segments
from segue.apps.recommend.final import Asked, FinalRanking, Known, known_items, learn_final
from segue.apps.recommend.histories import Histories, Ints, Split, late_from, wanted_events
from segue.apps.recommend.measure import (
    Quality,
    Wanted,
    come_back,
    quality,
    ranks_by,
    ranks_of_neighbours,
    ranks_of_network,
    ranks_of_states,
    states,
)
from segue.apps.recommend.network import EventNetwork, network_config
from segue.apps.recommend.settings import RecommenderSettings
from segue.config import TrainConfig
from segue.errors import DataError
from segue.model import Memory
from segue.train.optim import WeightAverage, learning_rate, make_optimizer

CHOOSING = 2000
"""Maximum number of validation events."""
RANKED = 5000
"""Maximum number of validation events that the final ranking is fitted to."""
FADED = 500
"""Maximum number of validation events that choose the decay of item-kNN."""
FULL, DRAWN = 100_000, 8192
"""Maximum number of items for the full softmax, and number of sampled negatives beyond it."""
WARM_UP = 200
"""Maximum number of warm-up steps."""
PLANNED = 50
"""Number of steps between checks whether the time suffices."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A trained and evaluated network."""

    network: EventNetwork
    counts_V: Ints
    """Number of training events of each item."""
    final: FinalRanking
    repeats: bool
    """Whether users return to items."""
    epochs: int
    seconds: float
    chosen: float
    """NDCG@10 on the validation events."""
    held: dict[str, NDArray[np.float64]]
    """Ranks of the held-out events by each method."""
    wanted: list[tuple[int, int]]

    def qualities(self) -> dict[str, Quality]:
        """Return the metrics of each method."""
        return {name: quality(ranks) for name, ranks in self.held.items()}


def learn(
    histories: Histories,
    split: Split,
    features_VF: NDArray[np.float32],
    *,
    ids: bool,
    kind_weights: list[float],
    settings: RecommenderSettings,
    seed: int,
    told: Callable[[str], object],
    price: bool = False,
    tags: int = 0,
) -> Learned:
    """Train a network and its final ranking, and evaluate them beside the baselines. `features_VF` has a row of zeros,
    then one for each item: popularity, price (if `price`), `tags` columns of tags, and the text embedding."""
    items = len(features_VF) - 1
    if int(np.maximum(split.learned_U - 1, 0).sum()) == 0:
        raise DataError(
            "a recommender needs users with at least two events before the held-out period; got none. Give more "
            "events, or --set held_back=0.05."
        )
    repeats = come_back(histories)
    started = time.perf_counter()
    network, epochs, chosen = fit(
        histories,
        split,
        features_VF,
        ids=ids,
        kind_weights=kind_weights,
        settings=settings,
        seed=seed,
        repeats=repeats,
        told=told,
    )
    seconds = time.perf_counter() - started
    told("measuring")
    counts_V = counts(histories, split.learned_U, items=items)
    final = learn_ranking(
        network, histories, split, features_VF, price=price, tags=tags, length=settings.segment, seed=seed
    )
    neighbours = final.known.neighbours
    wanted = wanted_events(histories, split.chosen_U, histories.lengths, most=settings.measured, seed=seed)
    popular_V = counts_V.astype(np.float32)
    held = {
        "segue": ranks_of_final(network, final, histories, wanted, length=settings.segment, repeats=repeats),
        "network alone": ranks_of_network(network, histories, wanted, length=settings.segment, repeats=repeats),
        "item-kNN": ranks_of_neighbours(histories, wanted, neighbours, counts_V, repeats=repeats),
        "popularity": ranks_by(histories, wanted, lambda _: popular_V, repeats=repeats),
    }
    return Learned(
        network=network,
        counts_V=counts_V,
        final=final,
        repeats=repeats,
        epochs=epochs,
        seconds=seconds,
        chosen=chosen,
        held=held,
        wanted=wanted,
    )


def learn_ranking(
    network: EventNetwork,
    histories: Histories,
    split: Split,
    features_VF: NDArray[np.float32],
    *,
    price: bool,
    tags: int,
    length: int,
    seed: int,
) -> FinalRanking:
    """Fit the final ranking to the validation events, which the network was not trained on."""
    items, repeats = len(features_VF) - 1, come_back(histories)
    wanted = wanted_events(histories, split.learned_U, split.chosen_U, most=RANKED, seed=seed)
    past = [(histories.items_N[histories.of(user)], place) for user, place in wanted[:FADED]]
    neighbours = faded(
        learn_neighbours(histories, split.learned_U, items=items),
        [(own[max(0, place - length) : place], int(own[place])) for own, place in past],
    )
    counts_V = counts(histories, split.learned_U, items=items)
    known = known_items(
        neighbours,
        counts_V,
        counts(histories, split.learned_U, items=items, from_U=late_from(histories, split.learned_U)),
        features_VF,
        price=price,
        tags=tags,
        kind_weights=network.get_buffer("kind_weights").tolist(),
    )
    if network.features_VF.shape[1] > 1:  # ranked as they will be in use: by what is said of them
        fresh_V = counts_V == 0
        fresh_V[0] = False
        known = known.neutral(fresh_V)
    return learn_final(known, _asked(network, known, histories, wanted, length=length), repeats=repeats)


def _vectors(network: EventNetwork, known: Known) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vectors and biases of all items: as in use, if the final ranking tells new items from others."""
    if known.fresh_V is not None:
        return network.served(torch.from_numpy(known.fresh_V))
    with torch.no_grad():
        return network.table(), network.bias.detach()


@torch.no_grad()
def _asked(
    network: EventNetwork, known: Known, histories: Histories, wanted: Wanted, *, length: int
) -> Iterator[Asked]:
    """Yield events to predict, with the log-probabilities of the network."""
    table_VD, bias_V = _vectors(network, known)
    for keys, hidden_ND in states(network, table_VD, histories, wanted, length=length):
        logits_NV = hidden_ND @ table_VD.T + bias_V
        logits_NV[:, 0] = -1e9
        for (user, place), log_V in zip(keys, logits_NV.log_softmax(dim=-1).numpy(), strict=True):
            own_N3 = histories.events[histories.of(user)]
            yield Asked(
                user=user,
                log_V=log_V,
                recent_N3=own_N3[max(0, place - length) : place],
                seen=own_N3[:place, 0],
                target=int(own_N3[place, 0]),
            )


def ranks_of_final(
    network: EventNetwork, final: FinalRanking, histories: Histories, wanted: Wanted, *, length: int, repeats: bool
) -> NDArray[np.float64]:
    """Return the ranks of events by the final ranking."""
    table_VD, bias_V = _vectors(network.eval(), final.known)

    @torch.no_grad()
    def score(hidden_ND: torch.Tensor, recent: Sequence[Ints]) -> NDArray[np.float32]:
        logits_NV = hidden_ND @ table_VD.T + bias_V
        logits_NV[:, 0] = -1e9
        log_NV = logits_NV.log_softmax(dim=-1).numpy()
        return np.stack([final.scores(log_V, events) for log_V, events in zip(log_NV, recent, strict=True)])

    return ranks_of_states(network, table_VD, score, histories, wanted, length=length, repeats=repeats)


def fit(
    histories: Histories,
    split: Split,
    features_VF: NDArray[np.float32],
    *,
    ids: bool,
    kind_weights: list[float],
    settings: RecommenderSettings,
    seed: int,
    repeats: bool,
    told: Callable[[str], object],
) -> tuple[EventNetwork, int, float]:
    """Train a network with early stopping. Return it with its best weights, their epoch, and the NDCG@10 on the
    validation events."""
    settings = settings.resolved(events=int(split.learned_U.sum()))
    config = network_config(
        items=len(features_VF) - 1,
        objective=settings.objective,
        layers=settings.layers,
        width=settings.width,
        heads=settings.heads,
        memory=settings.memory,
        dropout=settings.dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = EventNetwork(config, kind_weights=kind_weights, features_VF=torch.from_numpy(features_VF), ids=ids)
        negatives = negatives_of(settings, items=len(features_VF) - 1)
        if negatives is not None:
            counts_V = counts(histories, split.learned_U, items=len(features_VF) - 1)
            network.draw_items(negatives, torch.from_numpy(counts_V))
        wanted = wanted_events(histories, split.learned_U, split.chosen_U, most=CHOOSING, seed=seed)
        run = _Run(network, histories, split.learned_U, settings, seed=seed)
        best, best_epoch, kept = -1.0, 0, _weights(network)
        for epoch in range(1, settings.epochs + 1):
            loss = run.epoch()
            run.average.exchange(network)
            ranks = ranks_of_network(network, histories, wanted, length=settings.segment, repeats=repeats)
            found = quality(ranks).ndcg if wanted else -loss
            told(f"epoch {epoch} of at most {settings.epochs}, loss {loss:.3f}, NDCG@10 {max(found, 0):.4f}")
            if found > best or epoch == 1:
                best, best_epoch, kept = found, epoch, _weights(network)
            run.average.exchange(network)
            if epoch - best_epoch >= settings.patience or run.over:
                break
    network.load_state_dict(kept)
    network.eval()
    return network, best_epoch, max(best, 0.0)


def negatives_of(settings: RecommenderSettings, *, items: int) -> int | None:
    """Return the number of sampled negatives per step; None for the softmax over all items."""
    if settings.negatives is not None:
        return settings.negatives
    return DRAWN if items > FULL else None


class _Run:
    """A training run. A moving average of the weights is what is evaluated and kept."""

    def __init__(
        self, network: EventNetwork, histories: Histories, until_U: Ints, settings: RecommenderSettings, *, seed: int
    ) -> None:
        self.network, self.histories, self.until_U, self.settings = network, histories, until_U, settings
        self.draw, self.order = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
        steps = sum(1 for _ in segments(histories, until_U, rows=settings.rows, length=settings.segment))
        self.plan = TrainConfig(
            steps=max(1, steps * settings.epochs),
            optimizer=settings.optimizer,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            warmup_steps=min(WARM_UP, steps),
            schedule="linear",
            final_share=0.02,
            beta2=0.98,
            clip_norm=1.0,
        )
        self.most = self.plan.steps
        """Number of steps of all epochs."""
        self.optimizer = make_optimizer(network, self.plan)
        self.average = WeightAverage(network, 0.0)
        self.longest = 1 - 1 / min(1000, max(10, steps))
        """Final decay of the moving average, which spans about an epoch."""
        self.done = 0
        self.began = time.monotonic()
        self.end = self.began + 60 * settings.minutes

    @property
    def over(self) -> bool:
        """Whether the time limit or the last step is reached."""
        return time.monotonic() > self.end or self.done >= self.plan.steps

    def epoch(self) -> float:
        """Train on all histories once, or until the time limit; return the mean loss."""
        self.network.train()
        memory: Memory | None = None
        total, events = 0.0, 0
        size = self.settings.rows * self.settings.segment
        for segment in segments(
            self.histories, self.until_U, rows=self.settings.rows, length=self.settings.segment, draw=self.order
        ):
            loss, memory = self.network(segment, memory, draw=self.draw, hidden_share=self.settings.hide, events=size)
            self._step(loss)
            total, events = total + float(loss.detach()) * size, events + int(segment.real_BQ.sum())
            if self.over:
                break
        return total / max(1, events)

    def _step(self, loss: torch.Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(min(self.done, self.plan.steps - 1), self.plan)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.plan.clip_norm or 1.0)
        if bool(torch.isfinite(norm)):
            self.optimizer.step()
        self.done += 1
        self.average.decay = min(self.longest, self.done / (10 + self.done))
        self.average.update(self.network)
        if self.done % PLANNED == 0:
            self._plan_again()

    def _plan_again(self) -> None:
        """Shorten the learning rate schedule if the time limit comes before the last epoch."""
        now = time.monotonic()
        fit = self.done + int((self.end - now) * self.done / (now - self.began))
        steps = min(self.most, max(self.done + 1, fit))
        if steps != self.plan.steps:
            self.plan = self.plan.model_copy(update={"steps": steps})


def _weights(network: EventNetwork) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
