"""Explanations: for each listed item, the event that contributed most, proposed by attention and verified by leaving
it out.

Attention alone is no explanation. The events that the state can depend on, including those in memory, are read again
without each of the most attended ones, and of those by which item-kNN ranks the items. The reason for an item is the
event whose removal lowers its log-probability most; if no removal lowers it, there is no reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from segue.apps.recommend.final import NAMES
from segue.apps.recommend.model import Recommender, Session
from segue.explain.scores import recorded

CHECKED = 8
"""Maximum number of events proposed by attention, and as many by item-kNN, that are left out one at a time."""
LEAST = 0.05
"""Minimum decrease of the log-probability for a reason."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """The event that contributed most to an item."""

    item: int
    """Place of the item of the event."""
    attention: float
    """Share of attention to the event, through all layers."""
    fall: float
    """Decrease of the log-probability without the event."""


def attention_to(model: Recommender, recent: Sequence[tuple[int, int, int]]) -> NDArray[np.float64]:
    """Return the share of attention of the predicting state to each event: [N]. In a causal model it is the attention
    rollout: each layer passes on half of the layer below at the same position and half by the mean attention of its
    heads, so events beyond the span of the last layer have a share through those within it. In other models it is the
    mean over the layers, with two streams over those of the query stream."""
    with recorded(model.network.model.trunk.reader) as calls:
        model.states([recent])
    if model.network.config.objective == "causal":
        flow_QQ = torch.eye(len(recent) + 1)
        for _, inputs in calls:
            share_QQ = inputs.scores().probability[0].mean(dim=0)[: len(recent) + 1, : len(recent) + 1]
            flow_QQ = (0.5 * torch.eye(len(recent) + 1) + 0.5 * share_QQ) @ flow_QQ
        through: NDArray[np.float64] = flow_QQ[len(recent) - 1, : len(recent)].double().numpy()
        return through
    two_streams = any(inputs.view.at_BQ is not None for _, inputs in calls)
    found = []
    for _, inputs in calls:
        if two_streams and inputs.view.at_BQ is None:
            continue
        asking = 0 if two_streams else len(recent)
        share_HK = inputs.scores().probability[0, :, asking]
        found.append(share_HK.mean(dim=0)[: len(recent)].double().numpy())
    whole: NDArray[np.float64] = np.mean(found, axis=0)
    return whole


@torch.no_grad()
def reasons(model: Recommender, session: Session, places: Sequence[int]) -> list[Reason | None]:
    """Return the reason for each item of a list, or None if no event is one."""
    recent = session.recent
    if not recent or not places:
        return [None for _ in places]
    if len(recent) == 1:  # without it the user has done nothing
        nothing_V = model.scores(model.session())
        falls = model.scores(session) - nothing_V
        item = recent[0][0]
        return [
            Reason(item=item, attention=1.0, fall=float(falls[place])) if falls[place] >= LEAST else None
            for place in places
        ]
    attention = attention_to(model, recent)
    checked = list(dict.fromkeys([*np.argsort(-attention)[:CHECKED].tolist(), *_neighbours(model, recent, places)]))
    versions = [recent, *([*recent[:one], *recent[one + 1 :]] for one in checked)]
    last = [np.array(one[-model.window :]) for one in versions]
    log_NV = model.ranked(model.states(versions), last)
    found: list[Reason | None] = []
    for place in places:
        falls = log_NV[0, place] - log_NV[1:, place]
        best = int(np.argmax(falls))
        event = checked[best]
        real = float(falls[best]) >= LEAST
        reason = Reason(item=recent[event][0], attention=float(attention[event]), fall=float(falls[best]))
        found.append(reason if real else None)
    return found


def _neighbours(model: Recommender, recent: Sequence[tuple[int, int, int]], places: Sequence[int]) -> list[int]:
    """Return the events by which item-kNN ranks the items of a list, at most CHECKED; none if it has no part in the
    final ranking."""
    if model.final is None or not model.final.weights[NAMES.index("neighbours")]:
        return []
    shift = max(0, len(recent) - model.window)
    history = np.array([item for item, _, _ in recent[shift:]])
    found = [model.final.known.neighbours.source(history, place) for place in places]
    return [shift + one for one in dict.fromkeys(found) if one is not None][:CHECKED]
