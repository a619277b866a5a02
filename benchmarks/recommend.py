"""How good is a recommender? One harness for all methods: every rank is among all items, without sampled negatives.

Each part is a result of its own, so the same command continues with what is missing.

    .venv/bin/python -m benchmarks.recommend --data DATA
    .venv/bin/python -m benchmarks.recommend --data DATA --parts time-small --users 300 --seeds 1 --epochs 2

DATA has the folders ml1m and movielens_small. All methods predict the same events. ALS needs the package `implicit`; if
it is not installed, the result says so. The parts that end in -sasrec and -gru4rec need the package `cornac`, in an
environment of its own. The part that ends in -without-memory is the same trunk and full softmax that trains on and
reads 200 events at a time, as SASRec does, with relative positions. Settings of item-kNN, ALS and the final ranking are
chosen on the same events as the best epoch. Networks are kept in --networks, so that parts with the same split and
settings share them. --users, --seeds, --epochs and --minutes make a quick run, which is marked in the result. Speeds
are meaningful only on an otherwise idle machine: --busy marks them.
"""

import argparse
import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from benchmarks.provenance import RESULTS, Result, newest, origin, record, seconds_since
from benchmarks.recommend_baselines import als, best_als, cornac, tfidf
from benchmarks.recommend_data import Rated, in_pieces, ml1m, movielens_small, split_by_position, without_items
from segue.apps.recommend.baselines import counts, faded, learn_neighbours
from segue.apps.recommend.features import learn_features, popularity
from segue.apps.recommend.final import NAMES, FinalRanking
from segue.apps.recommend.histories import Histories, Split, split_by_time, split_last, wanted_events
from segue.apps.recommend.learn import fit, learn_ranking, ranks_of_final
from segue.apps.recommend.measure import (
    Wanted,
    come_back,
    quality,
    rank,
    ranks_by,
    ranks_of_neighbours,
    ranks_of_network,
    states,
)
from segue.apps.recommend.model import Recommender
from segue.apps.recommend.network import EventNetwork, network_config
from segue.apps.recommend.ranking import Wish, choose
from segue.apps.recommend.settings import RecommenderSettings
from segue.apps.recommend.tables import Event

DRAWS = 2000
COLD = 0.1
LONG = 200
CUT = 200
ROWS = 10
"""Batch size of networks without memory: about as many events as with memory, where segments are shorter."""
SPEED_EVENTS = 1000


def tell(said: str) -> None:
    """Print progress."""
    print(f"    {said}", flush=True)


class Bench:
    """The data and settings that all parts share."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.data: Path = arguments.data
        self.users: int | None = arguments.users
        self.seeds: int = arguments.seeds
        self.epochs: int | None = arguments.epochs
        self.busy: bool = arguments.busy
        self.most: int = arguments.most
        self.minutes: float = arguments.minutes
        self.kept: Path | None = arguments.networks

    @property
    def quick(self) -> bool:
        """True if the result is not of a full run."""
        return self.users is not None or self.epochs is not None or self.seeds < 3 or self.minutes < 600

    def settings(self, **changed: Any) -> RecommenderSettings:
        """Return the settings of a full run, with some changed."""
        usual: dict[str, Any] = {"minutes": self.minutes, "patience": 5}
        if self.epochs is not None:
            usual["epochs"] = self.epochs
        return RecommenderSettings(**{**usual, **changed})

    def features(self, rated: Rated, split: Split, *, texts: bool) -> NDArray[np.float32]:
        """Return the features of all items, with a row of zeros before them."""
        _, own_NF = learn_features(rated.items, texts=texts, model=None)
        found = np.concatenate([np.zeros((1, own_NF.shape[1]), dtype=np.float32), own_NF])
        found[:, 0] = popularity(counts(rated.histories, split.learned_U, items=len(rated.items)))
        return found

    def network(
        self, rated: Rated, split: Split, features_VF: NDArray[np.float32], *, ids: bool, seed: int, **settings: Any
    ) -> tuple[EventNetwork, RecommenderSettings, int]:
        """Return a network trained on the first part."""
        chosen = self.settings(**settings)
        path = self._path(rated, split, features_VF, chosen, ids=ids, seed=seed)
        if path is not None and path.is_file():
            tell(f"the network {path.name} is there")
            return kept_network(path, features_VF, chosen, ids=ids), chosen, 0
        network, epoch, _ = fit(
            rated.histories,
            split,
            features_VF,
            ids=ids,
            kind_weights=[1.0, 1.0],
            settings=chosen,
            seed=seed,
            repeats=come_back(rated.histories),
            told=tell,
        )
        if path is not None:
            save_file(network.state_dict(), path)
        return network, chosen, epoch

    def _path(
        self,
        rated: Rated,
        split: Split,
        features_VF: NDArray[np.float32],
        settings: RecommenderSettings,
        *,
        ids: bool,
        seed: int,
    ) -> Path | None:
        """Return the path of a saved network, by everything that determines it."""
        if self.kept is None:
            return None
        self.kept.mkdir(parents=True, exist_ok=True)
        known = hashlib.sha256(settings.model_dump_json().encode())
        known.update(f"{ids} {seed} {rated.histories.items_N.sum()}".encode())
        for array in (rated.histories.items_N, split.learned_U, split.chosen_U, features_VF):
            known.update(np.ascontiguousarray(array).tobytes())
        return self.kept / f"{known.hexdigest()[:16]}.safetensors"

    def choosing(self, rated: Rated, split: Split) -> list[tuple[int, int]]:
        """Return the events that select settings, for every method."""
        return wanted_events(rated.histories, split.learned_U, split.chosen_U, most=1000, seed=0)

    def wanted(self, rated: Rated, split: Split) -> list[tuple[int, int]]:
        """Return the events of the evaluation."""
        return wanted_events(rated.histories, split.chosen_U, rated.histories.lengths, most=self.most, seed=0)

    # ----------------------------------------------------------------------------------------------------------- parts

    def methods(self, rated: Rated, split: Split) -> Result:
        """Evaluate all methods on one split."""
        histories, items, wanted = rated.histories, len(rated.items), self.wanted(rated, split)
        repeats = come_back(histories)
        counts_V = counts(histories, split.learned_U, items=items)
        choosing = self.choosing(rated, split)
        past = [histories.items_N[histories.of(user)][: place + 1] for user, place in choosing]
        plain = learn_neighbours(histories, split.learned_U, items=items)
        near = faded(plain, [(own[:-1], int(own[-1])) for own in past])
        ranks: dict[str, list[NDArray[np.float64]]] = {
            "popularity": [ranks_by(histories, wanted, lambda _: counts_V.astype(np.float32), repeats=repeats)],
            "item-kNN": [ranks_of_neighbours(histories, wanted, near, counts_V, repeats=repeats)],
            "item-kNN, all events alike": [ranks_of_neighbours(histories, wanted, plain, counts_V, repeats=repeats)],
        }
        tell(f"{len(wanted):,} events; popularity and item-kNN are done")
        missing: dict[str, str] = {}
        try:
            shape = best_als(histories, split.learned_U, choosing, items=items, repeats=repeats, told=tell)
            found = [als(histories, split.learned_U, items=items, seed=seed, shape=shape) for seed in range(self.seeds)]
            ranks["ALS (implicit)"] = [ranks_by(histories, wanted, one, repeats=repeats) for one in found]
        except ImportError as error:
            missing["ALS (implicit)"] = str(error)
        features_VF = self.features(rated, split, texts=False)
        finals = []
        for seed in range(self.seeds):
            network, chosen, _ = self.network(rated, split, features_VF, ids=True, seed=seed)
            length = chosen.segment
            final = learn_ranking(network, histories, split, features_VF, price=False, tags=0, length=length, seed=seed)
            finals.append({"method": final.method, "weights": dict(zip(NAMES, final.weights, strict=True))})
            own = {
                "segue": ranks_of_final(network, final, histories, wanted, length=length, repeats=repeats),
                "segue, network alone": ranks_of_network(network, histories, wanted, length=length, repeats=repeats),
            }
            if not repeats:
                name = "segue, network alone, seen items ranked too"
                own[name] = ranks_of_network(network, histories, wanted, length=length, repeats=True)
            for name, one in own.items():
                ranks.setdefault(name, []).append(one)
        return {
            "asked": len(wanted),
            "seen items": "ranked" if repeats else "not ranked, for any method",
            "item-kNN": {"fade": near.fade},
            "methods": {name: summed(all) for name, all in ranks.items()},
            "final": finals,
            "missing": missing,
        }

    def no_memory(self, rated: Rated, split: Split) -> Result:
        """Evaluate the same trunk without memory on the same events: it trains on pieces of 200 events, and reads the
        last 200."""
        wanted, repeats = self.wanted(rated, split), come_back(rated.histories)
        features_VF = self.features(rated, split, texts=False)
        histories, cuts = in_pieces(rated.histories, split, size=CUT)
        pieces = Rated(items=rated.items, histories=histories)
        all_ranks, epochs = [], []
        for seed in range(self.seeds):
            # the memory is as long as a piece, so an event sees all that is before it in its piece, and nothing else
            network, _, epoch = self.network(
                pieces, cuts, features_VF, ids=True, seed=seed, segment=CUT, memory=CUT, rows=ROWS
            )
            epochs.append(epoch)
            all_ranks.append(_cut_ranks(network, rated, wanted, cut=CUT, length=CUT, repeats=repeats))
        return {"asked": len(wanted), "best epochs": epochs, "methods": {"no memory, last 200": summed(all_ranks)}}

    def cornac(self, rated: Rated, split: Split, *, name: Literal["SASRec", "GRU4Rec"]) -> Result:
        """Evaluate a network of cornac on the same events; a part of its own, because it can take hours."""
        histories, items, wanted = rated.histories, len(rated.items), self.wanted(rated, split)
        epochs, repeats = self.settings().epochs, come_back(rated.histories)
        all_ranks = []
        for seed in range(self.seeds):
            began = time.monotonic()
            score = cornac(name, histories, split.learned_U, items=items, epochs=epochs, seed=seed)
            all_ranks.append(ranks_by(histories, wanted, score, repeats=repeats))
            ndcg = quality(all_ranks[-1]).ndcg
            tell(f"{name}, seed {seed}, {epochs} epochs: NDCG@10 {ndcg:.4f}, {seconds_since(began):.0f} s")
        return {"asked": len(wanted), "epochs": epochs, "methods": {f"{name} (cornac)": summed(all_ranks)}}

    def long(self, rated: Rated, split: Split) -> Result:
        """Evaluate the same model with its memory, and limited to the last 50 and 200 events, after more than 200
        events."""
        wanted = [one for one in self.wanted(rated, split) if one[1] > LONG]
        features_VF = self.features(rated, split, texts=False)
        repeats = come_back(rated.histories)
        gains: dict[str, list[NDArray[np.float64]]] = {}
        for seed in range(self.seeds):
            network, chosen, _ = self.network(rated, split, features_VF, ids=True, seed=seed)
            whole = ranks_of_network(network, rated.histories, wanted, length=chosen.segment, repeats=repeats)
            gains.setdefault("memory", []).append(gain(whole))
            for cut in (50, 200):
                ranks = _cut_ranks(network, rated, wanted, cut=cut, length=chosen.segment, repeats=repeats)
                gains.setdefault(f"cut at {cut}", []).append(gain(ranks))
        means = {name: np.mean(all, axis=0) for name, all in gains.items()}
        return {
            "asked": len(wanted),
            "ndcg": {name: float(one.mean()) if len(one) else None for name, one in means.items()},
            "memory less cut at 50": interval(means["memory"] - means["cut at 50"], wanted),
            "memory less cut at 200": interval(means["memory"] - means["cut at 200"], wanted),
        }

    def cold(self, rated: Rated) -> Result:
        """Evaluate cold items: one item in ten is never in training, and is found by its text."""
        items = len(rated.items)
        drawn = np.random.default_rng(0).permutation(items)[: int(items * COLD)] + 1
        cold = set(drawn.tolist())
        histories, split = without_items(rated.histories, split_by_time(rated.histories, held_back=0.1), cold)
        less = Rated(items=rated.items, histories=histories)
        wanted = [
            one
            for one in wanted_events(histories, split.chosen_U, histories.lengths, most=10**7, seed=0)
            if int(histories.items_N[histories.of(one[0])][one[1]]) in cold
        ][: self.most]
        among = np.zeros(items + 1, dtype=bool)
        among[drawn] = True
        counts_V = counts(histories, split.learned_U, items=items)
        repeats = come_back(histories)
        features_VF = self.features(less, split, texts=True)
        methods: dict[str, list[NDArray[np.float64]]] = {
            "popularity": [ranks_by(histories, wanted, lambda _: counts_V.astype(np.float32), repeats=repeats)],
            "TF-IDF": [ranks_by(histories, wanted, tfidf(rated.items), repeats=repeats)],
            "segue, text and ids": [],
        }
        known = [
            one
            for one in wanted_events(histories, split.chosen_U, histories.lengths, most=10**7, seed=0)
            if counts_V[histories.items_N[histories.of(one[0])][one[1]]]
        ]
        known = [known[place] for place in np.random.default_rng(0).permutation(len(known))[: len(wanted)]]
        lists: dict[str, dict[str, list[NDArray[np.float64]]]] = {"cold": {}, "known": {}}
        weights = []
        for seed in range(self.seeds):
            network, chosen, _ = self.network(less, split, features_VF, ids=True, seed=seed)
            model = _recommender(network, less, counts_V, window=chosen.segment)
            methods["segue, text and ids"].append(_model_ranks(model, less, wanted, repeats=repeats))
            tags, length = len(model.features.tags), chosen.segment
            final = learn_ranking(
                network, histories, split, features_VF, price=False, tags=tags, length=length, seed=seed
            )
            weights.append({"method": final.method, "weights": dict(zip(NAMES, final.weights, strict=True))})
            model = _recommender(network, less, counts_V, window=length, final=final)
            for least in (None, 1, 2, 3, 5):
                for kind, events in (("cold", wanted), ("known", known)):
                    name = "final ranking" if least is None else f"final ranking, at least {least} new"
                    lists[kind].setdefault(name, []).append(_list_ranks(model, less, events, Wish(least_new=least)))
        return {
            "cold items": len(cold),
            "items without training events": int((counts_V[1:] == 0).sum()),
            "asked": len(wanted),
            "asked of known items": len(known),
            "methods": {n: summed(all) for n, all in methods.items()},
            "lists of ten": {kind: {n: summed(all) for n, all in found.items()} for kind, found in lists.items()},
            "final": weights,
        }

    def vectors(self, rated: Rated) -> Result:
        """Compare item vectors of ids, of text, and of both."""
        split = split_by_time(rated.histories, held_back=0.1)
        wanted, repeats = self.wanted(rated, split), come_back(rated.histories)
        found = {}
        for name, (texts, ids) in {"ids": (False, True), "text": (True, False), "both": (True, True)}.items():
            features_VF = self.features(rated, split, texts=texts)
            all_ranks = []
            for seed in range(self.seeds):
                network, chosen, _ = self.network(rated, split, features_VF, ids=ids, seed=seed)
                all_ranks.append(
                    ranks_of_network(network, rated.histories, wanted, length=chosen.segment, repeats=repeats)
                )
            found[name] = summed(all_ranks)
        return {"asked": len(wanted), "vectors": found}

    def objectives(self, rated: Rated) -> Result:
        """Compare the causal, permutation and masked objectives."""
        split = split_by_time(rated.histories, held_back=0.1)
        wanted, repeats = self.wanted(rated, split), come_back(rated.histories)
        features_VF = self.features(rated, split, texts=False)
        found = {}
        for name in ("causal", "permutation", "masked"):
            all_ranks = []
            for seed in range(self.seeds):
                network, chosen, _ = self.network(rated, split, features_VF, ids=True, seed=seed, objective=name)
                all_ranks.append(
                    ranks_of_network(network, rated.histories, wanted, length=chosen.segment, repeats=repeats)
                )
            found[name] = summed(all_ranks)
        return {"asked": len(wanted), "objectives": found}

    def serving(self, rated: Rated) -> Result:
        """Measure events per second in a session, each with the scores of all items after it, beside reading the last
        200 again for each; the parts of both, reading and scoring, apart."""
        split = split_by_time(rated.histories, held_back=0.1)
        features_VF = self.features(rated, split, texts=False)
        network, _, _ = self.network(rated, split, features_VF, ids=True, seed=0, epochs=1, minutes=0.2)
        counts_V = counts(rated.histories, split.learned_U, items=len(rated.items))
        model = _recommender(network, rated, counts_V, window=CUT)
        draw = np.random.default_rng(0)
        events = [
            (n, Event(user="u", item=rated.items[int(place)].id, time=1e9 + 60 * n))
            for n, place in enumerate(draw.integers(len(rated.items), size=200 + SPEED_EVENTS), start=1)
        ]
        session = model.read_history(events[:200])
        steps, again = [], []
        for place, one in enumerate(events[200:]):
            steps.append(_timed(lambda one=one: model.read(session, [one]), lambda _: model.scores(session)))
            if place % 10 == 0:  # in turn, so that other work on the machine slows both
                again.append(_timed(lambda: model.states([session.recent[-CUT:]]), model.log_probabilities))
        (step_reading, step_scoring), (again_reading, again_scoring) = (
            np.median(one, axis=0) for one in (steps, again)
        )
        times, times_again = np.sum(steps, axis=1)[:, 0], np.sum(again, axis=1)[:, 0]
        processor = (again_reading + again_scoring)[1] / (step_reading + step_scoring)[1]
        return {
            "milliseconds of processor time, median": {
                "one step": {"reading": _ms(step_reading[1]), "scoring": _ms(step_scoring[1])},
                "the last 200 read again": {"reading": _ms(again_reading[1]), "scoring": _ms(again_scoring[1])},
            },
            "times as many, by processor time": round(float(processor), 1),
            "events a second, one step": round(1 / float(np.mean(times)), 1),
            "p95 of one step, milliseconds": _ms(np.quantile(times, 0.95)),
            "events a second, the last 200 read again": round(1 / float(np.mean(times_again)), 1),
            "times as many": round(float(np.mean(times_again) / np.mean(times)), 1),
            "machine was busy with other work": self.busy,
        }


# ------------------------------------------------------------------------------------------------------------- helpers


def gain(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the contribution of each event to NDCG@10."""
    return np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0.0)


def summed(all_ranks: list[NDArray[np.float64]]) -> Result:
    """Return the metrics over seeds."""
    found = [asdict(quality(ranks)) for ranks in all_ranks]
    means = {name: float(np.mean([one[name] for one in found])) for name in ("hit_rate", "ndcg", "mrr")}
    spread = float(np.std([one["ndcg"] for one in found]))
    return {**means, "ndcg_spread_of_seeds": spread, "seeds": len(found)}


def interval(difference: NDArray[np.float64], wanted: Wanted) -> Result | None:
    """Return the mean of a difference, with a confidence interval over users."""
    if not len(difference):
        return None
    users = np.unique([user for user, _ in wanted], return_inverse=True)[1]
    sums, sizes = np.bincount(users, weights=difference), np.bincount(users)
    drawn = np.random.default_rng(0).integers(len(sums), size=(DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": float(difference.mean()), "low": float(low), "high": float(high)}


def _timed(read: Callable[[], Any], score: Callable[[Any], Any]) -> list[tuple[float, float]]:
    """Return the seconds that reading and scoring take, each by the clock and of the processor."""
    marks = [(time.perf_counter(), time.process_time())]
    found = read()
    marks.append((time.perf_counter(), time.process_time()))
    score(found)
    marks.append((time.perf_counter(), time.process_time()))
    return [(wall - marks[n][0], own - marks[n][1]) for n, (wall, own) in enumerate(marks[1:])]


def _ms(seconds: float) -> float:
    return round(1000 * float(seconds), 3)


def _cut_ranks(
    network: EventNetwork, rated: Rated, wanted: Wanted, *, cut: int, length: int, repeats: bool
) -> NDArray[np.float64]:
    """Return the ranks if no more than the last `cut` events before each are read; seen items are those of all
    events."""
    histories = rated.histories
    here = [int(histories.starts_U[user]) + place for user, place in wanted]
    first = [max(at - cut, int(histories.starts_U[user])) for at, (user, _) in zip(here, wanted, strict=True)]
    index = np.concatenate([np.arange(start, at + 1) for start, at in zip(first, here, strict=True)])
    lengths = [at + 1 - start for start, at in zip(first, here, strict=True)]
    parts = Histories(
        users=tuple(map(str, range(len(wanted)))),
        starts_U=np.cumsum([0, *lengths], dtype=np.int64),
        items_N=histories.items_N[index],
        kinds_N=histories.kinds_N[index],
        times_N=histories.times_N[index],
        numbers_N=histories.numbers_N[index],
    )
    found = np.zeros(len(wanted))
    with torch.no_grad():
        table_VD = network.eval().table()
        asked = [(row, count - 1) for row, count in enumerate(lengths)]
        for keys, hidden_ND in states(network, table_VD, parts, asked, length=length):
            for (row, _), scores_V in zip(keys, (hidden_ND @ table_VD.T + network.bias).numpy(), strict=True):
                user, place = wanted[row]
                items = histories.items_N[histories.of(user)]
                found[row] = rank(scores_V, int(items[place]), None if repeats else items[:place])
    return found


def kept_network(
    path: Path, features_VF: NDArray[np.float32], settings: RecommenderSettings, *, ids: bool
) -> EventNetwork:
    """Load a network that was trained before."""
    config = network_config(
        items=len(features_VF) - 1,
        objective=settings.objective,
        layers=settings.layers,
        width=settings.width,
        heads=settings.heads,
        memory=settings.memory,
        dropout=settings.dropout,
    )
    network = EventNetwork(config, kind_weights=[1.0, 1.0], features_VF=torch.from_numpy(features_VF), ids=ids)
    network.load_state_dict(load_file(path))
    return network.eval()


def _recommender(
    network: EventNetwork,
    rated: Rated,
    counts_V: NDArray[np.int64],
    *,
    window: int,
    final: FinalRanking | None = None,
) -> Recommender:
    features, _ = learn_features([], texts=False, model=None)
    if network.features_VF.shape[1] > 1:
        features, _ = learn_features(rated.items, texts=True, model=None)
    return Recommender(
        network,
        items=rated.items,
        features=features,
        kinds={"view": 1},
        counts_V=counts_V,
        window=window,
        repeats=False,
        final=final,
    )


def _model_ranks(model: Recommender, rated: Rated, wanted: Wanted, *, repeats: bool) -> NDArray[np.float64]:
    """Return the ranks by a recommender, whose unseen items have vectors of their texts alone."""
    found: dict[tuple[int, int], float] = {}
    for keys, hidden_ND in states(model.network, model.table_VD, rated.histories, wanted, length=model.window):
        for key, scores_V in zip(keys, model.log_probabilities(hidden_ND), strict=True):
            items = rated.histories.items_N[rated.histories.of(key[0])]
            found[key] = rank(scores_V, int(items[key[1]]), None if repeats else items[: key[1]])
    return np.array([found[one] for one in wanted], dtype=np.float64)


def _list_ranks(model: Recommender, rated: Rated, wanted: Wanted, wish: Wish) -> NDArray[np.float64]:
    """Return the ranks in lists of ten; an item that is not in its list has the last of all ranks."""
    found: dict[tuple[int, int], float] = {}
    for keys, hidden_ND in states(model.network, model.table_VD, rated.histories, wanted, length=model.window):
        whole = [rated.histories.events[rated.histories.of(user)] for user, _ in keys]
        recent = [events[max(0, place - model.window) : place] for events, (_, place) in zip(whole, keys, strict=True)]
        for key, events, scores_V in zip(keys, whole, model.ranked(hidden_ND, recent), strict=True):
            listed = choose(model, scores_V, wish, count=10, seen=set(events[: key[1], 0].tolist()))
            target = int(events[key[1], 0])
            found[key] = 1 + listed.index(target) if target in listed else len(model.items)
    return np.array([found[one] for one in wanted], dtype=np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results go. Default: benchmarks/results")
    parser.add_argument("--parts", nargs="*", help="only these")
    parser.add_argument("--users", type=int, help="only so many users. Default: all")
    parser.add_argument("--seeds", type=int, default=3, help="seeds. Default: 3")
    parser.add_argument("--epochs", type=int, help="most epochs. Default: those of a full run")
    parser.add_argument("--minutes", type=float, default=600.0, help="most minutes of a network. Default: 600")
    parser.add_argument("--networks", type=Path, help="folder where networks are kept and found. Default: none")
    parser.add_argument("--most", type=int, default=20_000, help="most events that are asked. Default: 20,000")
    parser.add_argument("--again", action="store_true", help="also what has a result of this code")
    parser.add_argument("--busy", action="store_true", help="the machine does other work: its speeds mean little")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    large, small = (partial(one, bench.data, users=bench.users) for one in (ml1m, movielens_small))
    sasrec, gru4rec = partial(bench.cornac, name="SASRec"), partial(bench.cornac, name="GRU4Rec")

    def by_position(rated: Rated) -> Split:
        return split_by_position(rated.histories, held_back=0.1)

    def by_time(rated: Rated) -> Split:
        return split_by_time(rated.histories, held_back=0.1)

    def last(rated: Rated) -> Split:
        return split_last(rated.histories)

    def on(make: Callable[[], Rated], cut: Callable[[Rated], Split], part: Callable[[Rated, Split], Result]) -> Result:
        rated = make()
        return part(rated, cut(rated))

    parts: dict[str, Callable[[], Result]] = {
        "leave-one-out-ml1m": lambda: on(large, last, bench.methods),
        "long-ml1m": lambda: on(large, last, bench.long),
        "time-small": lambda: on(small, by_time, bench.methods),
        "position-ml1m": lambda: on(large, by_position, bench.methods),
        "cold-small": lambda: bench.cold(small()),
        "vectors-small": lambda: bench.vectors(small()),
        "objectives-small": lambda: bench.objectives(small()),
        "serving": lambda: bench.serving(small()),
        "leave-one-out-ml1m-without-memory": lambda: on(large, last, bench.no_memory),
        "leave-one-out-ml1m-sasrec": lambda: on(large, last, sasrec),
        "leave-one-out-ml1m-gru4rec": lambda: on(large, last, gru4rec),
        "time-small-without-memory": lambda: on(small, by_time, bench.no_memory),
        "time-small-sasrec": lambda: on(small, by_time, sasrec),
        "time-small-gru4rec": lambda: on(small, by_time, gru4rec),
    }
    for name in arguments.parts or parts:
        kind = f"recommend-{name}"
        if not arguments.again and newest(arguments.results, kind) is not None:
            print(f"{name}: has a result")
            continue
        print(name, flush=True)
        began, where = time.monotonic(), origin()
        values = parts[name]()
        settings = bench.settings().model_dump()
        more = {"quick": bench.quick, "settings": settings, "seconds": seconds_since(began)}
        record(kind, {**values, **more}, origin=where, folder=arguments.results)
        print(values, flush=True)


if __name__ == "__main__":
    main()
