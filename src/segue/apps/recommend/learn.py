"""Learning: histories read again and again, the best weights kept, and measured on what came later.

Three parts of the events, by time: the first is learned from, the second chooses the best epoch, the third measures.
Nothing that is learned hangs on anything that came after the first cut but the choice of the epoch, and the numbers of
the report hang on nothing that was chosen.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from segue.apps.recommend.baselines import Neighbours, counts, learn_neighbours
from segue.apps.recommend.batches import segments
from segue.apps.recommend.histories import Histories, Ints, Split, wanted_events
from segue.apps.recommend.measure import Quality, come_back, quality, ranks_by, ranks_of_neighbours, ranks_of_network
from segue.apps.recommend.network import EventNetwork, network_config
from segue.apps.recommend.settings import RecommenderSettings
from segue.config import TrainConfig
from segue.errors import DataError
from segue.model import Memory
from segue.train.optim import learning_rate, make_optimizer

CHOOSING = 2000
"""Most events that choose an epoch."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A network that was measured."""

    network: EventNetwork
    counts_V: Ints
    """How often each item was seen in what was learned from."""
    neighbours: Neighbours
    repeats: bool
    """Whether users come back to items."""
    epochs: int
    seconds: float
    chosen: float
    """NDCG on the events that chose."""
    held: dict[str, NDArray[np.float64]]
    """The ranks of the held-back events by each method."""
    wanted: list[tuple[int, int]]

    def qualities(self) -> dict[str, Quality]:
        """The measures of each method."""
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
) -> Learned:
    """`features_VF` has a row for each item, and one before them of zeros."""
    items = len(features_VF) - 1
    if int(np.maximum(split.learned_U - 1, 0).sum()) == 0:
        raise DataError(
            "a recommender must have users with at least two events before the time from which on events are held "
            "back; got none. Give more events, or --set held_back=0.05."
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
    neighbours = learn_neighbours(histories, split.learned_U, items=items)
    wanted = wanted_events(histories, split.chosen_U, histories.lengths, most=settings.measured, seed=seed)
    popular_V = counts_V.astype(np.float32)
    held = {
        "segue": ranks_of_network(network, histories, wanted, length=settings.segment, repeats=repeats),
        "item-kNN": ranks_of_neighbours(histories, wanted, neighbours, counts_V, repeats=repeats),
        "popularity": ranks_by(histories, wanted, lambda _: popular_V, repeats=repeats),
    }
    return Learned(
        network=network,
        counts_V=counts_V,
        neighbours=neighbours,
        repeats=repeats,
        epochs=epochs,
        seconds=seconds,
        chosen=chosen,
        held=held,
        wanted=wanted,
    )


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
    """The network with the best weights, the epoch they are of, and its NDCG on the events that choose."""
    config = network_config(
        items=len(features_VF) - 1,
        objective=settings.objective,
        layers=settings.layers,
        width=settings.width,
        heads=settings.heads,
        memory=settings.memory,
        dropout=settings.dropout,
    )
    draw, order = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = EventNetwork(config, kind_weights=kind_weights, features_VF=torch.from_numpy(features_VF), ids=ids)
        wanted = wanted_events(histories, split.learned_U, split.chosen_U, most=CHOOSING, seed=seed)
        steps = sum(1 for _ in segments(histories, split.learned_U, rows=settings.rows, length=settings.segment))
        plan = TrainConfig(
            steps=max(1, steps * settings.epochs),
            learning_rate=settings.learning_rate,
            warmup_steps=min(100, steps),
            schedule="linear",
            final_share=0.1,
            beta2=0.98,
            clip_norm=1.0,
        )
        optimizer = make_optimizer(network, plan)
        end = time.monotonic() + 60 * settings.minutes
        best, best_epoch, kept, done = -1.0, 0, _weights(network), 0
        for epoch in range(1, settings.epochs + 1):
            done, loss = _epoch(network, optimizer, plan, histories, split.learned_U, settings, draw, order, done, end)
            ranks = ranks_of_network(network, histories, wanted, length=settings.segment, repeats=repeats)
            found = quality(ranks).ndcg if wanted else -loss
            told(f"epoch {epoch} of at most {settings.epochs}, loss {loss:.3f}, NDCG@10 {max(found, 0):.4f}")
            if found > best or epoch == 1:
                best, best_epoch, kept = found, epoch, _weights(network)
            if epoch - best_epoch >= settings.patience or time.monotonic() > end:
                break
    network.load_state_dict(kept)
    network.eval()
    return network, best_epoch, max(best, 0.0)


def _epoch(
    network: EventNetwork,
    optimizer: torch.optim.Optimizer,
    plan: TrainConfig,
    histories: Histories,
    until_U: Ints,
    settings: RecommenderSettings,
    draw: torch.Generator,
    order: np.random.Generator,
    done: int,
    end: float,
) -> tuple[int, float]:
    """All histories once, or until the time is over; gives the number of steps so far, and the mean loss."""
    network.train()
    memory: Memory | None = None
    losses = []
    for segment in segments(histories, until_U, rows=settings.rows, length=settings.segment, draw=order):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(min(done, plan.steps - 1), plan)
        optimizer.zero_grad(set_to_none=True)
        loss, memory = network(segment, memory, draw=draw, hidden_share=settings.hide)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), plan.clip_norm or 1.0)
        if bool(torch.isfinite(norm)):
            optimizer.step()
        losses.append(float(loss.detach()))
        done += 1
        if time.monotonic() > end:
            break
    return done, float(np.mean(losses)) if losses else 0.0


def _weights(network: EventNetwork) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
