"""Retraining on all events so far, with a switch only if the new model is no worse.

The latest events are held out. The current model, which was never trained on them, and the new one predict the same of
them; the new one is used if its NDCG@10 is not lower.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.folder import MODELS, next_name, read_about
from segue.apps.recommend.build import build, material
from segue.apps.recommend.folder import read_model
from segue.apps.recommend.histories import Histories, later_than
from segue.apps.recommend.measure import Wanted, quality, ranks_of_states
from segue.apps.recommend.model import Recommender
from segue.apps.recommend.settings import RecommenderSettings
from segue.apps.recommend.store import RECOMMEND
from segue.apps.recommend.tables import Item
from segue.config import settings as settings_of
from segue.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RecommenderImprovement:
    """Result of retraining."""

    model: str
    """Name of the new model."""
    learned: int
    """Number of events since the current model was trained."""
    deleted: int
    """Number of events that the current model was trained on and that were deleted since."""
    asked: int
    """Number of held-out events."""
    before: float
    """NDCG@10 of the current model."""
    now: float
    """NDCG@10 of the new model."""
    switched: bool
    """Whether the new model is now in use."""


def improve(
    folder: Path, *, changes: Mapping[str, Any], seed: int, told: Callable[[str], object]
) -> RecommenderImprovement:
    """Retrain on all events of the database, with the settings of the current model and some `changes`.

    Settings that were never given keep their defaults, which depend on the number of events.
    """
    with RECOMMEND.changing(folder):
        return _improve(folder, changes=changes, seed=seed, told=told)


def _improve(
    folder: Path, *, changes: Mapping[str, Any], seed: int, told: Callable[[str], object]
) -> RecommenderImprovement:
    before = RECOMMEND.current_model(folder)
    about = read_about(folder / MODELS / before)
    settings = settings_of(RecommenderSettings, {**about.get("given", about["settings"]), **changes})
    settings.check()
    with RECOMMEND.opened(folder) as database:
        found = material(database, about["weights"])
    new = int((found.histories.numbers_N > about["last_event"]).sum())
    deleted = int(about["summary"]["events"]) - (len(found.histories.numbers_N) - new)
    if not new and deleted <= 0 and not changes:
        raise ConfigError(
            f"{folder} must have events that it has not learned from, or fewer than it has learned from; got the same. "
            "Send some to the running recommender, or change a setting, e.g. --set objective=permutation."
        )
    built = build(
        found,
        weights=about["weights"],
        settings=settings,
        model=about["text_model"],
        seed=seed,
        left_out={},
        told=told,
    )
    told("asking the model in use")
    old = read_model(folder / MODELS / before)
    fair = later_than(found.histories, built.learned.wanted, [about.get("held_from")])
    wanted = [one for one, fits in zip(built.learned.wanted, fair, strict=True) if fits]
    ranks = ranks_of_model(old, built.model, found.histories, wanted)
    was, now = quality(ranks).ndcg, quality(ranks_of_model(built.model, built.model, found.histories, wanted)).ndcg
    built.about["improved"] = {"from": before, "asked": len(ranks), "before": was, "now": now}
    name = next_name(folder)
    RECOMMEND.write_model(folder, name, built.write)
    switched = len(ranks) > 0 and now >= was
    if switched:
        RECOMMEND.use_model(folder, name, instead_of=before)
    return RecommenderImprovement(
        model=name,
        learned=new,
        deleted=max(0, deleted),
        asked=len(ranks),
        before=was,
        now=now,
        switched=switched,
    )


def ranks_of_model(
    model: Recommender, catalogue: Recommender, histories: Histories, wanted: Wanted
) -> NDArray[np.float64]:
    """Return the ranks of events by a model that may know fewer items; it knows the others by their texts."""
    model.add_items(catalogue.items)
    kinds = {place: model.kinds.get(name, 0) for name, place in catalogue.kinds.items()}
    own = in_places_of(model, catalogue.items, kinds, histories)
    return ranks_of_states(
        model.network, model.table_VD, model.ranked, own, wanted, length=model.window, repeats=catalogue.repeats
    )


def in_places_of(
    model: Recommender, items: Sequence[Item], kinds: Mapping[int, int], histories: Histories
) -> Histories:
    """Return the histories with the places that a model gives to these items, and with kinds mapped by `kinds`."""
    items_V = np.array([0, *(model.places[item.id] for item in items)], dtype=np.int64)
    kinds_K = np.array([0, *(kinds[place] for place in range(1, len(kinds) + 1))], dtype=np.int64)
    return Histories(
        users=histories.users,
        starts_U=histories.starts_U,
        items_N=items_V[histories.items_N],
        kinds_N=kinds_K[histories.kinds_N],
        times_N=histories.times_N,
        numbers_N=histories.numbers_N,
    )
