"""Lists: the dials do what they say; and what the benchmark does to its data."""

import json
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from benchmarks.recommend import gain, interval, summed
from benchmarks.recommend_data import in_pieces, split_by_position, without_items

import segue
from segue.apps.recommend.histories import histories_of, split_last
from segue.apps.recommend.ranking import Rules, Wish, choose
from segue.apps.recommend.reasons import attention_to, reasons
from segue.apps.recommend.retrieval import Retrieval
from segue.apps.recommend.rules import read_rules, with_rules
from segue.apps.recommend.tables import Event, Item

TAGS = ("red", "green", "blue")


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


def test_limits_by_tag_and_single_items(learned: Path) -> None:
    model = segue.open_recommender(learned)
    level_V = np.zeros(len(model.items) + 1, dtype=np.float32)

    def tags(**wish: object) -> list[tuple[str, ...]]:
        places = choose(model, level_V, Wish.model_validate(wish), count=9, seen=set())
        return [model.items[place - 1].tags for place in places]

    assert sum("red" in one for one in tags(at_most={"red": 2}, boost={"red": 5.0})) == 2
    assert len(tags(at_most={"thing": 4})) == 4  # every item is a thing
    assert sum("blue" in one for one in tags(boost={"blue": -5.0})) == 0
    (top,) = choose(model, level_V, Wish(boost_items={"green-3": 1.0}), count=1, seen=set())
    assert model.items[top - 1].id == "green-3"


def test_new_items_have_the_last_places(learned: Path) -> None:
    model = segue.open_recommender(learned)
    model.add_items([Item(id=f"new-{n}", title=f"A {tag} thing", tags=(tag, "thing")) for n, tag in enumerate(TAGS)])
    scores_V = np.arange(len(model.items), -1, -1).astype(np.float32)
    scores_V[-3:] = [-30, -10, -20]
    first = len(model.items) - 2
    pinned = {"first": [model.items[8].id, model.items[7].id]}

    def listed(count: int = 6, **wish: object) -> list[int]:
        return choose(model, scores_V, Wish.model_validate(wish), count=count, seen=set())

    assert listed() == [1, 2, 3, 4, 5, 6]
    assert listed(least_new=1) == [1, 2, 3, 4, 5, first + 1]
    assert listed(least_new=2) == [1, 2, 3, 4, first + 1, first + 2]
    assert listed(least_new=9) == [1, 2, 3, first + 1, first + 2, first]  # there are no more
    assert listed(least_new=1, boost_items={"new-0": 20, "new-1": 20}) == [1, 2, 3, 4, 5, first + 1]
    assert listed(least_new=1, without_items=["new-1"]) == [1, 2, 3, 4, 5, first + 2]
    assert listed(3, least_new=2, **pinned) == [9, 8, first + 1]  # what is pinned stays
    assert listed(2, least_new=2, **pinned) == [9, 8]
    assert listed(least_new=2, at_most={TAGS[1]: 1}, first=["new-2"])[0] == first + 2
    limited = listed(least_new=3, at_most={"thing": 2})
    assert len(limited) == 2  # limits hold
    assert sorted(listed(least_new=2, diversity=0.5))[-2:] == [first + 1, first + 2]
    short = listed(len(model.items) - 1, least_new=3, seen=True)
    assert len(short) == len(model.items) - 1
    assert set(short) >= {first, first + 1, first + 2}


def test_rules_of_the_house_are_obeyed_whoever_asks(rec: Path) -> None:
    before = [one.item.id for one in segue.recommend(rec, "user-1", count=6, wish={"seen": True})]
    rules = {"first": ["green-5"], "without_items": [before[0]], "boost": {"red": -20}, "at_most": {"blue": 1}}
    (rec / "rules.json").write_text(json.dumps(rules))
    found = [one.item for one in segue.recommend(rec, "user-1", count=6, wish={"seen": True, "at_most": {"blue": 3}})]
    assert found[0].id == "green-5"
    assert before[0] not in [one.id for one in found]
    assert sum("blue" in one.tags for one in found) == 1
    segue.copy_recommender(rec, rec.parent / "copy")
    assert read_rules(rec.parent / "copy") == read_rules(rec)
    wish = with_rules(read_rules(rec), Wish(first=["red-1"], boost={"red": 1.0}, most_of_tag=2))
    assert with_rules(Rules(least_new=2), Wish(least_new=1)).least_new == 2
    assert with_rules(Rules(), Wish(least_new=1)).least_new == 1
    assert wish.first == ["green-5", "red-1"]
    assert wish.boost == {"red": -19.0}
    assert wish.most_of_tag == 2
    for wrong in ('{"first": "all"}', '{"pin": []}', "{", "[]", "[" * 100_000):
        (rec / "rules.json").write_text(wrong)
        with pytest.raises(segue.SegueError, match=r"rules\.json must have rules"):
            segue.recommend(rec, "user-1", count=3)


def test_pinned_items_obey_the_limits(rec: Path) -> None:
    pinned = {"first": ["red-0", "red-1", "red-2", "green-1"], "seen": True}

    def listed(rules: dict[str, object]) -> list[str]:
        (rec / "rules.json").write_text(json.dumps(rules))
        return [one.item.id for one in segue.recommend(rec, "user-1", count=9, wish=pinned)]

    assert listed({})[:4] == ["red-0", "red-1", "red-2", "green-1"]
    for rules in ({"at_most": {"red": 1}}, {"most_of_tag": 1}):
        found = listed(rules)
        assert found[:2] == ["red-0", "green-1"]
        assert [id for id in found if id.startswith("red")] == ["red-0"]
    found = listed({"first": ["red-7"], "at_most": {"red": 1}})  # what the rules pin comes first
    assert found[:2] == ["red-7", "green-1"]


def test_a_file_nested_too_deeply_is_refused(rec: Path) -> None:
    (rec / "recommend.json").write_text("[" * 100_000)
    with pytest.raises(segue.SegueError, match="must be a recommender of this version"):
        segue.recommend(rec, "user-1")


def test_a_reason_lies_behind_the_last_segment(learned: Path) -> None:
    """All that a causal state can hang on is looked at, and without the reason the item is less likely."""
    model = segue.open_recommender(learned)
    assert model.reach == 2 * 8 + 1 > model.window
    events = [
        (n, Event(user="u", item=f"{'blue' if n < 6 else 'red'}-{n % 8}", time=1e9 + 60 * n)) for n in range(1, 40)
    ]
    session = model.session()
    model.read(session, events)
    assert len(session.recent) == model.reach
    whole = model.ranked(model.states([session.recent]), [np.array([one[0] for one in session.recent[-8:]])])[0]
    np.testing.assert_allclose(whole, model.scores(session), atol=1e-4)  # what is read again is what was served
    attention = attention_to(model, session.recent)
    assert attention.shape == (17,)
    assert attention[: 17 - 9].sum() > 0  # farther than one layer looks
    places = np.argsort(-whole)[:4].tolist()
    for place, reason in zip(places, reasons(model, session, places), strict=True):
        assert reason is None or reason.fall >= 0.05
        if reason is not None:
            without = [one for one in session.recent if one[0] != reason.item]
            assert len(without) < len(session.recent), place


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_vectors_find_what_the_network_ranks_first(learned: Path, kind: Literal["exact", "faiss"]) -> None:
    if kind == "faiss":
        pytest.importorskip("faiss")
    model = segue.open_recommender(learned)
    hidden_ND = torch.randn(5, model.table_VD.shape[1], generator=torch.Generator().manual_seed(0))
    places, scores = Retrieval(model, kind=kind).nearest(hidden_ND, count=4)
    assert places.shape == (5, 4)
    log_NV = model.log_probabilities(hidden_ND)
    assert places.tolist() == np.argsort(-log_NV, axis=1, kind="stable")[:, :4].tolist()
    np.testing.assert_allclose(np.diff(scores), np.diff(np.take_along_axis(log_NV, places, axis=1)), atol=1e-4)


def test_a_missing_index_is_said_kindly(learned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(segue.SegueError, match="faiss-cpu"):
        Retrieval(segue.open_recommender(learned), kind="faiss")


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


def test_pieces_of_histories_for_a_network_without_memory() -> None:
    """Every training event is in one piece, and what is predicted follows the last piece of its user."""
    rows = [
        (0, user, str(1 + n), "view", float(n)) for user, count in (("a", 5), ("b", 13), ("c", 2)) for n in range(count)
    ]
    whole = histories_of(rows, items={str(n): n for n in range(1, 14)}, kinds={"view": 1})
    pieces, split = in_pieces(whole, split_last(whole), size=5)
    assert pieces.users == ("a.0", "b.0", "b.1", "b.2", "c.0")
    assert pieces.lengths.tolist() == [5, 1, 5, 7, 2]
    assert split.learned_U.tolist() == [3, 1, 5, 5, 0]
    assert split.chosen_U.tolist() == [4, 1, 5, 6, 1]
    assert pieces.items_N is whole.items_N
    assert pieces.items_N[pieces.of(3)].tolist() == [7, 8, 9, 10, 11, 12, 13]
