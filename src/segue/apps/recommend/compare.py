"""Comparison of two models by interleaving on replayed events.

Team-draft interleaving (Radlinski et al. 2008): for each event that neither model was trained on, the two lists are
merged in random turns. If the item that the user chose next is in the merged list, the model that contributed it wins.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.apps.folder import MODELS, read_about
from segue.apps.recommend.build import material
from segue.apps.recommend.folder import check_name, read_model
from segue.apps.recommend.histories import Histories, later_than, split_by_time, wanted_events
from segue.apps.recommend.improve import in_places_of
from segue.apps.recommend.measure import Wanted, quality, rank, states
from segue.apps.recommend.model import Recommender
from segue.apps.recommend.store import RECOMMEND

SHOWN = 10
"""Length of the lists."""


@dataclass(frozen=True, kw_only=True)
class RecommenderComparison:
    """Result of comparing two models."""

    first: str
    second: str
    asked: int
    """Number of replayed events."""
    first_wins: int
    second_wins: int
    neither: int
    p_value: float
    """Two-sided p-value of the sign test."""
    first_ndcg: float
    second_ndcg: float


def compare(folder: Path, first: str, second: str, *, most: int, seed: int) -> RecommenderComparison:
    """Compare two models on the latest events, which neither was trained on."""
    names = [check_name(folder, first), check_name(folder, second)]
    about = [read_about(folder / MODELS / name) for name in names]
    with RECOMMEND.opened(folder) as database:
        found = material(database, about[0]["weights"])
    models = [read_model(folder / MODELS / name) for name in names]
    for model in models:
        model.add_items(found.items)
    held_back = min(float(one["settings"]["held_back"]) for one in about)
    split = split_by_time(found.histories, held_back=held_back)
    held = wanted_events(found.histories, split.chosen_U, found.histories.lengths, most=most, seed=seed)
    fair = later_than(found.histories, held, [one.get("held_from") for one in about])
    wanted = [one for one, fits in zip(held, fair, strict=True) if fits]
    lists, ranks = [], []
    for model in models:
        kinds = {place: model.kinds.get(name, 0) for name, place in found.kinds.items()}
        own = in_places_of(model, found.items, kinds, found.histories)
        best, places = _lists(model, own, wanted)
        lists.append(best)
        ranks.append(places)
    targets = [found.items[int(found.histories.items_N[found.histories.of(u)][p]) - 1].id for u, p in wanted]
    wins = _wins(lists, targets, seed=seed)
    return RecommenderComparison(
        first=names[0],
        second=names[1],
        asked=len(wanted),
        first_wins=wins[0],
        second_wins=wins[1],
        neither=len(wanted) - sum(wins),
        p_value=sign_test(*wins),
        first_ndcg=quality(np.array(ranks[0], dtype=np.float64)).ndcg,
        second_ndcg=quality(np.array(ranks[1], dtype=np.float64)).ndcg,
    )


def _lists(model: Recommender, histories: Histories, wanted: Wanted) -> tuple[list[list[str]], list[float]]:
    """Return the ids of each list, and the rank of the next item."""
    lists: dict[tuple[int, int], list[str]] = {}
    ranks: dict[tuple[int, int], float] = {}
    for keys, hidden_ND in states(model.network, model.table_VD, histories, wanted, length=model.window):
        whole = [histories.events[histories.of(user)] for user, _ in keys]
        recent = [events[max(0, place - model.window) : place] for events, (_, place) in zip(whole, keys, strict=True)]
        for key, events, scores_V in zip(keys, whole, model.ranked(hidden_ND, recent), strict=True):
            items = events[:, 0]
            seen = None if model.repeats else items[: key[1]]
            ranks[key] = rank(scores_V, int(items[key[1]]), seen)
            if seen is not None:
                scores_V[seen] = -np.inf
            scores_V[0] = -np.inf
            lists[key] = [model.items[place - 1].id for place in np.argsort(-scores_V, kind="stable")[:SHOWN].tolist()]
    return [lists[one] for one in wanted], [ranks[one] for one in wanted]


def interleaved(first: list[str], second: list[str], draw: np.random.Generator) -> list[tuple[str, int]]:
    """Merge two lists; each item comes with the index of its team. In each round, a random team picks first."""
    found: dict[str, int] = {}
    teams = (list(first), list(second))
    while len(found) < SHOWN and (teams[0] or teams[1]):
        order = (0, 1) if draw.random() < 0.5 else (1, 0)
        for team in order:
            while teams[team] and teams[team][0] in found:
                teams[team].pop(0)
            if teams[team] and len(found) < SHOWN:
                found[teams[team].pop(0)] = team
    return list(found.items())


def _wins(lists: list[list[list[str]]], targets: list[str], *, seed: int) -> tuple[int, int]:
    draw = np.random.default_rng(seed)
    wins = [0, 0]
    for first, second, target in zip(*lists, targets, strict=True):
        team = dict(interleaved(first, second, draw)).get(target)
        if team is not None:
            wins[team] += 1
    return wins[0], wins[1]


def sign_test(first: int, second: int) -> float:
    """Return the two-sided p-value of two numbers of wins under a fair coin."""
    total, more = first + second, max(first, second)
    if total == 0:
        return 1.0
    logs = [
        math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) - total * math.log(2)
        for k in range(more, total + 1)
    ]
    return min(1.0, 2 * sum(map(math.exp, logs)))
