"""Data sets of benchmarks.recommend: MovieLens, with all events, or with some of the users for a quick run."""

import lzma
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.apps.recommend.histories import Histories, Split, histories_of
from segue.apps.recommend.tables import Item, read_events, read_items


@dataclass(frozen=True, kw_only=True)
class Rated:
    """A data set: the items, and the ratings of each user, in order."""

    items: list[Item]
    histories: Histories


def ml1m(data: Path, *, users: int | None = None) -> Rated:
    """Load MovieLens 1M: a line for each user, the items in order of time. There are no times: the position is used
    instead."""
    items = list(read_items(data / "ml1m" / "items.tsv.xz", Counter()))
    places = {item.id: place for place, item in enumerate(items, start=1)}
    rows = []
    with lzma.open(data / "ml1m" / "sequences.txt.xz", "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if users is not None and number >= users:
                break
            rows += [(0, f"{number:05d}", item, "view", float(n)) for n, item in enumerate(line.split())]
    return Rated(items=items, histories=histories_of(rows, items=places, kinds={"view": 1}))


def movielens_small(data: Path, *, users: int | None = None) -> Rated:
    """Load MovieLens small, with times."""
    items = list(read_items(data / "movielens_small" / "movies.csv.xz", Counter()))
    places = {item.id: place for place, item in enumerate(items, start=1)}
    events = list(read_events(data / "movielens_small" / "ratings.csv.xz", Counter()))
    chosen = set(sorted({one.user for one in events})[:users])
    rows = [
        (number, one.user, one.item, one.kind, one.time)
        for number, one in enumerate(events, start=1)
        if one.user in chosen and one.item in places
    ]
    rows.sort(key=lambda row: (row[1], row[4], row[0]))
    return Rated(items=items, histories=histories_of(rows, items=places, kinds={"view": 1}))


def split_by_position(histories: Histories, *, held_back: float) -> Split:
    """Split off the last share of each history, for a data set without times."""
    lengths = histories.lengths
    return Split(
        learned_U=(lengths * (1 - 2 * held_back)).astype(np.int64),
        chosen_U=(lengths * (1 - held_back)).astype(np.int64),
    )


def in_pieces(histories: Histories, split: Split, *, size: int) -> tuple[Histories, Split]:
    """Cut the training part of each history into pieces of at most `size` events, counted from its end, as if they were
    of different users; later events follow the last piece."""
    users, learned, chosen, starts = [], [], [], [0]
    for user, name in enumerate(histories.users):
        start, stop = int(histories.starts_U[user]), int(histories.starts_U[user + 1])
        until, second = int(split.learned_U[user]), int(split.chosen_U[user])
        cuts = [*range(until % size or size, until, size), until] if until else [0]
        for place, cut in enumerate(cuts):
            first = cuts[place - 1] if place else 0
            more = cut == until
            users.append(f"{name}.{place}")
            learned.append(cut - first)
            chosen.append((second if more else cut) - first)
            starts.append(stop if more else start + cut)
    found = Histories(
        users=tuple(users),
        starts_U=np.array(starts, dtype=np.int64),
        items_N=histories.items_N,
        kinds_N=histories.kinds_N,
        times_N=histories.times_N,
        numbers_N=histories.numbers_N,
    )
    return found, Split(learned_U=np.array(learned, dtype=np.int64), chosen_U=np.array(chosen, dtype=np.int64))


def without_items(histories: Histories, split: Split, cold: set[int]) -> tuple[Histories, Split]:
    """Remove some items from the training part of each history; later events stay."""
    keep = np.ones(len(histories.items_N), dtype=bool)
    learned, chosen, starts = [], [], [0]
    for user in range(len(histories.users)):
        start, stop = int(histories.starts_U[user]), int(histories.starts_U[user + 1])
        first, second = int(split.learned_U[user]), int(split.chosen_U[user])
        early = np.array([int(item) not in cold for item in histories.items_N[start : start + second]], dtype=bool)
        keep[start : start + second] = early
        learned.append(int(early[:first].sum()))
        chosen.append(int(early.sum()))
        starts.append(starts[-1] + int(keep[start:stop].sum()))
    found = Histories(
        users=histories.users,
        starts_U=np.array(starts, dtype=np.int64),
        items_N=histories.items_N[keep],
        kinds_N=histories.kinds_N[keep],
        times_N=histories.times_N[keep],
        numbers_N=histories.numbers_N[keep],
    )
    return found, Split(learned_U=np.array(learned, dtype=np.int64), chosen_U=np.array(chosen, dtype=np.int64))
