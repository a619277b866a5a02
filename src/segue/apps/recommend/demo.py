"""The demo: a quickly trained recommender from a folder of real events.

The folder has `events.*` (user, item, time) and `items.*` (id, title, tags), as csv, tsv, jsonl or parquet, compressed
or not; or `ratings.*` and `movies.*`, as in MovieLens.
"""

from collections.abc import Callable
from pathlib import Path

from segue.apps.recommend.interface import learn_recommender
from segue.apps.recommend.settings import RecommenderSettings
from segue.errors import ConfigError, DataError

MINUTES = 0.5
"""Training time in minutes: enough for a first look, not for good lists."""


def prepare_demo(folder: Path, data: Path | None, *, told: Callable[[str], object]) -> None:
    """Train a recommender in `folder`, if it does not exist."""
    if folder.exists():
        return
    if data is None:
        raise ConfigError(
            "the demo needs real events; got no --data. Give --data FOLDER, with events.csv (user, item, time) and "
            "items.csv (id, title, tags)."
        )
    events, items = (_found(data, names) for names in (("events", "ratings"), ("items", "movies")))
    if events is None:
        raise DataError(
            f"{data} must contain events.csv or ratings.csv, with columns user and item; it does not. Add it."
        )
    told(f"learning a recommender in {folder}, for half a minute")
    found = learn_recommender(
        events, folder, items=items, settings=RecommenderSettings(minutes=MINUTES, vectors="ids", measured=500)
    )
    numbers = found.numbers
    told(
        f"{numbers['users']:,} users, {numbers['items']:,} items, {numbers['events']:,} events; NDCG@10 "
        f"{numbers['held_back']['segue']['ndcg']:.4f} on held-out events"
    )


def _found(data: Path, names: tuple[str, ...]) -> Path | None:
    """Return a file with one of these names, whatever its suffix, or None."""
    for name in names:
        for path in sorted(data.glob(f"{name}.*")) if data.is_dir() else ():
            if path.is_file():
                return path
    return None
