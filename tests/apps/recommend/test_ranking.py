"""Lists: the dials do what they say; and what the benchmark does to its data."""

from pathlib import Path

import numpy as np
from benchmarks.recommend import gain, interval, summed
from benchmarks.recommend_data import split_by_position, without_items

import segue
from segue.apps.recommend.histories import histories_of
from segue.apps.recommend.ranking import Wish, choose
from segue.apps.recommend.tables import Event


def test_diversity_and_novelty(learned: Path) -> None:
    model = segue.open_recommender(learned)
    session = model.session()
    model.read(session, [(n, Event(user="u", item=f"red-{n}", time=1e9 + 60 * n)) for n in range(1, 5)])
    scores_V = model.scores(session)

    def listed(**wish: float) -> list[int]:
        return choose(model, scores_V, Wish(**wish), count=6, seen=session.seen)  # type: ignore[arg-type]

    plain = listed()
    assert plain == np.argsort(-scores_V, kind="stable")[:6].tolist()

    def alike(places: list[int]) -> float:
        vectors = model.table_VD[places].numpy()
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return float((vectors @ vectors.T).mean())

    assert alike(listed(diversity=0.9)) < alike(plain)
    level_V = np.zeros_like(scores_V)  # where the model has no opinion, those that fewest know are first
    fewest = choose(model, level_V, Wish(novelty=1.0), count=6, seen=set())
    assert sorted(model.counts_V[fewest].tolist()) == sorted(model.counts_V[1:].tolist())[:6]
    assert len(set(listed(diversity=1.0, novelty=1.0))) == 6


def test_the_benchmark_hides_cold_items_from_what_is_learned() -> None:
    rows = [(n, f"u{n // 10}", f"i{n % 5}", "view", float(n % 10)) for n in range(30)]
    histories = histories_of(rows, items={f"i{n}": n + 1 for n in range(5)}, kinds={"view": 1})
    split = split_by_position(histories, held_back=0.2)
    assert split.learned_U.tolist() == [6, 6, 6]
    assert split.chosen_U.tolist() == [8, 8, 8]
    less, cut = without_items(histories, split, {5})
    for user in range(3):
        own = less.items_N[less.of(user)]
        assert 5 not in own[: cut.chosen_U[user]]
        assert own[cut.chosen_U[user] :].tolist() == [4, 5]
    assert cut.learned_U.tolist() == [5, 5, 5]


def test_measures_of_the_benchmark() -> None:
    ranks = np.array([1.0, 3.0, 20.0])
    assert gain(ranks).tolist() == [1.0, 0.5, 0.0]
    assert summed([ranks, ranks])["ndcg"] == 0.5
    found = interval(np.array([0.1, 0.1, 0.1]), [(0, 1), (1, 1), (2, 4)])
    assert found is not None
    assert found["low"] <= found["mean"] <= found["high"] + 1e-12
