"""Lists from scores: filters, business rules, diversity and novelty.

In: the log-probability of each item, and a `Wish`. Out: places of items, best first. Filters are strict; boosts,
diversity and novelty change the order of the remaining items.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from segue.apps.recommend.model import Recommender
from segue.apps.recommend.tables import LONGEST_NAME, has_control
from segue.config.messages import explain
from segue.errors import ConfigError


def _printable(value: str) -> str:
    if has_control(value):
        raise ValueError("be a text without control characters, such as line breaks")
    return value


Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_NAME), AfterValidator(_printable)
]
"""An id, a tag or a kind, without spaces around it, as in tables."""
Boost = Annotated[float, Field(ge=-20, le=20, allow_inf_nan=False)]
Dial = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
CANDIDATES = 200
"""Minimum number of best items among which diversity chooses."""


class Rules(BaseModel):
    """Business rules of a list."""

    model_config = ConfigDict(extra="forbid")

    without_tags: Annotated[list[Name], Field(max_length=100)] = []
    """Tags of items to exclude."""
    without_items: Annotated[list[Name], Field(max_length=10_000)] = []
    """Ids of items to exclude."""
    boost: Annotated[dict[Name, Boost], Field(max_length=100)] = {}
    """Values added to the log-probability of items with a tag: 0.7 doubles their probability, -3 demotes them."""
    boost_items: Annotated[dict[Name, Boost], Field(max_length=10_000)] = {}
    """Values added to the log-probability of single items."""
    first: Annotated[list[Name], Field(max_length=100)] = []
    """Ids of items pinned to the top of the list, unless a filter or a limit excludes them."""
    most_of_tag: Annotated[int | None, Field(ge=1, le=1000)] = None
    """Maximum number of items with the same first tag. Default: unlimited."""
    at_most: Annotated[dict[Name, Annotated[int, Field(ge=1, le=1000)]], Field(max_length=100)] = {}
    """Maximum number of items with a tag, in any position."""
    least_new: Annotated[int | None, Field(ge=1, le=1000)] = None
    """Minimum number of new items, those without training events. Where too few are likely enough, the best of them get
    the last places of the list."""


class Wish(Rules):
    """Filters, rules and adjustments of a requested list."""

    only_tags: Annotated[list[Name], Field(max_length=100)] = []
    """Tags of which an item must have one. Default: all items."""
    lowest_price: Annotated[float | None, Field(allow_inf_nan=False)] = None
    """Minimum price; items without a price are excluded. Default: no limit."""
    highest_price: Annotated[float | None, Field(allow_inf_nan=False)] = None
    """Maximum price; items without a price are excluded. Default: no limit."""
    seen: bool | None = None
    """Whether to list items that the user has seen. Default: only if the events show that users return to items."""
    diversity: Dial = 0.0
    """Diversity, from 0 (most likely items) to 1 (items that differ from those above them)."""
    novelty: Dial = 0.0
    """Novelty, from 0 (no adjustment) to 1 (items with few events)."""


def parse_wish(values: Mapping[str, Any]) -> Wish:
    """Return a wish from plain values; raise ConfigError if one is not valid."""
    try:
        return Wish.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(" ".join(f"wish.{explain(detail, Wish)}" for detail in error.errors())) from None


def unknown_tag(model: Recommender, wish: Wish) -> tuple[str, str] | None:
    """Return the field and the tag of a wish for items with a tag that no item has; None if there is none. Limits of
    unknown tags hold anyway."""
    wanted = [*(("only_tags", tag) for tag in wish.only_tags), *(("boost", tag) for tag in wish.boost)]
    if not wanted:
        return None
    known = {tag for item in model.items for tag in item.tags}
    return next(((field, tag) for field, tag in wanted if tag not in known), None)


def allowed(model: Recommender, wish: Wish, seen: set[int]) -> NDArray[np.bool_]:
    """Return a mask of the items that may be listed, and that the filters allow: [V]."""
    found = model.listed_V.copy()
    if not (model.repeats if wish.seen is None else wish.seen):
        found[sorted(seen)] = False
    for id in wish.without_items:
        if id in model.places:
            found[model.places[id]] = False
    only, without = set(wish.only_tags), set(wish.without_tags)
    if only or without or wish.lowest_price is not None or wish.highest_price is not None:
        low = -np.inf if wish.lowest_price is None else wish.lowest_price
        high = np.inf if wish.highest_price is None else wish.highest_price
        priced = wish.lowest_price is not None or wish.highest_price is not None
        for place, item in enumerate(model.items, start=1):
            tags = set(item.tags)
            wrong_tag = (only and not only & tags) or without & tags
            if wrong_tag or (priced and (item.price is None or not low <= item.price <= high)):
                found[place] = False
    return found


def choose(model: Recommender, scores_V: NDArray[np.float32], wish: Wish, *, count: int, seen: set[int]) -> list[int]:
    """Return the places of the items of a list, best first."""
    may_V = allowed(model, wish, seen)
    value_V = scores_V.astype(np.float64)
    value_V = value_V + _boosts(model, wish)
    if wish.novelty:
        known_V = np.log1p(model.counts_V)
        value_V = value_V - 2 * wish.novelty * known_V
    value_V[~may_V] = -np.inf
    head = [model.places[id] for id in dict.fromkeys(wish.first) if id in model.places and may_V[model.places[id]]]
    value_V[head] = -np.inf
    limited = wish.most_of_tag is not None or bool(wish.at_most)  # then all but a few may be left out
    pool = np.argsort(-value_V, kind="stable")
    pool = pool if limited else pool[: max(CANDIDATES, 5 * count)]
    pool = pool[np.isfinite(value_V[pool])]
    found = _greedy(model, head, pool.tolist(), value_V, wish, count=count)
    return found if wish.least_new is None else _with_new(model, found, head, value_V, wish, count=count)


def _with_new(
    model: Recommender, listed: list[int], head: Sequence[int], value_V: NDArray[np.float64], wish: Wish, *, count: int
) -> list[int]:
    """Return a list with at least `least_new` new items, as far as there are any: the best of them in place of the last
    items that are neither new nor pinned."""
    assert wish.least_new is not None
    missing = wish.least_new - int((model.counts_V[listed] == 0).sum())
    new_V = np.where(model.counts_V == 0, value_V, -np.inf)
    new_V[[0, *listed]] = -np.inf
    new = np.argsort(-new_V, kind="stable")[: int(np.isfinite(new_V).sum())].tolist()
    missing = min(missing, len(new))
    if missing <= 0:
        return listed
    others = [place for place in listed if model.counts_V[place] and place not in head]
    dropped = others[max(0, len(others) - missing + count - len(listed)) :]
    kept = [place for place in listed if place not in dropped]
    found = _greedy(model, kept, new, value_V, wish, count=min(count, len(kept) + missing))
    return _greedy(model, found, dropped, value_V, wish, count=count)  # if there were too few new ones


def _boosts(model: Recommender, wish: Wish) -> NDArray[np.float64]:
    found = np.zeros(len(model.items) + 1)
    if wish.boost:
        for place, item in enumerate(model.items, start=1):
            found[place] = sum(wish.boost.get(tag, 0.0) for tag in item.tags)
    for id, more in wish.boost_items.items():
        if id in model.places:
            found[model.places[id]] += more
    return found


def _greedy(
    model: Recommender,
    head: Sequence[int],
    pool: Sequence[int],
    value_V: NDArray[np.float64],
    wish: Wish,
    *,
    count: int,
) -> list[int]:
    """Fill a list greedily, after the pinned items (`head`) that the limits allow, with the best items, each penalized
    by its similarity to those above it."""
    chosen: list[int] = []
    first: Counter[str] = Counter()
    counted: Counter[str] = Counter()

    def fits(place: int) -> bool:
        tags = model.items[place - 1].tags
        full = wish.most_of_tag is not None and bool(tags) and first[tags[0]] >= wish.most_of_tag
        return not full and all(counted[tag] < wish.at_most[tag] for tag in tags if tag in wish.at_most)

    def take(place: int) -> None:
        tags = model.items[place - 1].tags
        counted.update(tags)
        first.update(tags[:1])

    for place in head:
        if len(chosen) < count and fits(place):
            chosen.append(place)
            take(place)
    left = list(pool)
    if not wish.diversity:
        for place in left:
            if len(chosen) >= count:
                break
            if fits(place):
                chosen.append(place)
                take(place)
        return chosen
    vectors = model.table_VD[left].numpy()
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    spread = max(float(np.std(value_V[left])), 1e-6) if left else 1.0
    alike = np.zeros(len(left))
    free = np.ones(len(left), dtype=bool)
    while len(chosen) < count and free.any():
        worth = (1 - wish.diversity) * value_V[left] / spread - 3 * wish.diversity * alike
        best = int(np.argmax(np.where(free, worth, -np.inf)))
        free[best] = False
        if fits(left[best]):
            chosen.append(left[best])
            take(left[best])
            alike = np.maximum(alike, vectors @ vectors[best])
    return chosen
