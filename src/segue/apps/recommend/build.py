"""Training of a model from the database of a recommender, and its folder with the report."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segue.apps.database import Database
from segue.apps.recommend import store
from segue.apps.recommend.baselines import counts
from segue.apps.recommend.features import learn_features, popularity
from segue.apps.recommend.folder import write_model
from segue.apps.recommend.histories import Histories, Split, histories_of, latest_time, split_by_time
from segue.apps.recommend.learn import Learned, learn
from segue.apps.recommend.model import Recommender
from segue.apps.recommend.report import TITLE, report, summary
from segue.apps.recommend.settings import RecommenderSettings
from segue.apps.recommend.tables import KINDS, MOST_KINDS, Item
from segue.errors import DataError
from segue.report.pages import to_html, to_markdown

REPORT_PAGE, REPORT_TEXT = "report.html", "report.md"


@dataclass(frozen=True, kw_only=True)
class Material:
    """Data for training."""

    items: list[Item]
    histories: Histories
    kinds: dict[str, int]
    """Index of each kind; 0 stands for any other."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A trained and evaluated model."""

    model: Recommender
    material: Material
    split: Split
    learned: Learned
    about: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write model and report into an empty folder."""
        blocks = report(self.about["summary"], self.about["settings"])
        write_model(folder, self.model, self.about)
        (folder / REPORT_PAGE).write_text(to_html(TITLE, blocks), encoding="utf-8")
        (folder / REPORT_TEXT).write_text(to_markdown(TITLE, blocks), encoding="utf-8")


def material(database: Database, weights: Mapping[str, float]) -> Material:
    """Return all events and items of a database."""
    numbered = database.do(store.all_items)
    rows = database.do(store.all_events)
    if not rows:
        raise DataError("a recommender needs events to learn from; got none. Give a table with columns user and item.")
    frequent = [name for name, _ in Counter(row[3] for row in rows).most_common(MOST_KINDS)]
    names = sorted({*frequent, *weights})
    kinds = {name: place for place, name in enumerate(names, start=1)}
    items = [item for _, item in numbered]
    places = {item.id: place for place, item in enumerate(items, start=1)}
    return Material(items=items, histories=histories_of(rows, items=places, kinds=kinds), kinds=kinds)


def build(
    found: Material,
    *,
    weights: Mapping[str, float],
    settings: RecommenderSettings,
    model: str | None,
    seed: int,
    left_out: Mapping[str, int],
    told: Callable[[str], object],
) -> Built:
    """Train a model and evaluate it on the held-out events."""
    given = settings.model_dump(exclude_unset=True)
    split = split_by_time(found.histories, held_back=settings.held_back)
    settings = settings.resolved(events=int(split.learned_U.sum()))
    told("reading the texts of items")
    vectors = settings.vectors
    with_text = sum(1 for item in found.items if item.text)
    if vectors == "auto":
        vectors = "both" if with_text else "ids"
    if vectors == "text" and not with_text:
        raise DataError(
            "vectors=text needs items with a title, a description or tags; got none. Give a table of items, or use "
            "--set vectors=ids."
        )
    if vectors == "ids":
        settings = settings.model_copy(update={"hide": 0.0})
    features, own_NF = learn_features(found.items, texts=vectors != "ids", model=model)
    features_VF = np.concatenate([np.zeros((1, features.width), dtype=np.float32), own_NF])
    features_VF[:, 0] = popularity(counts(found.histories, split.learned_U, items=len(found.items)))
    kind_weights = [1.0, *(weights.get(name, 1.0) for name in found.kinds)]
    _check_weights(found, split, kind_weights)
    learned = learn(
        found.histories,
        split,
        features_VF,
        ids=vectors != "text",
        kind_weights=kind_weights,
        settings=settings,
        seed=seed,
        told=told,
        price=features.price is not None,
        tags=len(features.tags),
    )
    about = {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": seed,
        "text_model": model,
        "settings": settings.model_dump() | {"vectors": vectors},
        "given": given,
        "weights": dict(weights),
        "occurring": _occurring(found, weights),
        "last_event": int(found.histories.numbers_N.max()),
        "held_from": latest_time(found.histories, split.chosen_U),
        "summary": summary(found.histories, learned, items=len(found.items), with_text=with_text, left_out=left_out),
    }
    return Built(
        model=Recommender(
            learned.network,
            items=found.items,
            features=features,
            kinds=found.kinds,
            counts_V=learned.counts_V,
            window=settings.segment,
            repeats=learned.repeats,
            final=learned.final,
        ),
        material=found,
        split=split,
        learned=learned,
        about=about,
    )


def _occurring(found: Material, weights: Mapping[str, float]) -> list[str]:
    """Return the kinds of the events, the most frequent first, then others that were given a weight of their own."""
    counts_K = np.bincount(found.histories.kinds_N, minlength=len(found.kinds) + 1)
    names = sorted(found.kinds, key=lambda name: -counts_K[found.kinds[name]])
    return [name for name in names if counts_K[found.kinds[name]] or weights.get(name) != KINDS.get(name)]


def _check_weights(found: Material, split: Split, kind_weights: Sequence[float]) -> None:
    """Raise DataError if every training event has weight 0."""
    kinds = np.unique(found.histories.kinds_N[found.histories.first_events(split.learned_U)])
    if len(kinds) and not any(kind_weights[kind] for kind in kinds.tolist()):
        raise DataError(
            "at least one kind of the training events must have a weight above 0; got 0 for all of them. Change --kind."
        )
