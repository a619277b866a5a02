"""What a running recommender knows: changed items, similar ones, rules, candidates of an index, a full disk."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.apps.database import DatabaseFullError
from segue.apps.recommend import store
from segue.apps.recommend.final import ALONE, FinalRanking
from segue.apps.recommend.model import Recommender, Session
from segue.apps.recommend.ranking import Wish
from segue.apps.recommend.reasons import reasons
from segue.apps.recommend.retrieval import Retrieval, candidate_scores
from segue.apps.recommend.service import RecommendService
from segue.apps.recommend.settings import ServiceSettings
from segue.apps.recommend.tables import Event, Item
from segue.errors import ConfigError
from segue.serve.errors import ApiError


def service_of(folder: Path, **settings: Any) -> RecommendService:
    service = RecommendService(folder, ServiceSettings(**settings))
    service.database.open()
    return service


@pytest.fixture
def service(rec: Path) -> Iterator[RecommendService]:
    one = service_of(rec)
    yield one
    one.database.close()


def read(model: Recommender, *items: str) -> Session:
    session = model.session()
    model.read(session, [(n, Event(user="u", item=item, time=1e9 + 60 * n)) for n, item in enumerate(items, start=1)])
    return session


def test_changed_items_stay_changed(rec: Path) -> None:
    """Tags, price and text of trained items are those of the database, after a restart too."""
    changed = Item(id="red-3", title="A green thing, number 3", tags=("green", "sold-out"), price=99.0)
    for start in (1, 2):
        service = service_of(rec)
        model = service.loaded(None).model
        place = model.places["red-3"]
        if start == 1:
            before = model.table_VD[place].clone()
            assert service.take_items([vars(changed)]) == 0
            after = model.table_VD[place].clone()
            assert not np.allclose(before, after)
        found = service.suggest("u", wish=Wish(lowest_price=50), count=9, then=[], why=False, model=None)["items"]
        assert [one["item"] for one in found] == ["red-3"]
        assert model.items[place - 1] == changed
        np.testing.assert_allclose(model.table_VD[place], after, atol=1e-6)
        service.database.close()
    again = segue.open_recommender(rec)
    np.testing.assert_allclose(again.table_VD[place], after, atol=1e-6)
    assert [one.item.id for one in segue.recommend(rec, "u", wish={"only_tags": ["sold-out"]})] == ["red-3"]
    for wish, message in (
        ({"only_tag": []}, r"^wish\.only_tag is not a setting\. Did you mean only_tags\?"),
        ({"novelty": 2}, r"^wish\.novelty must be at most 1; got 2\."),
    ):
        with pytest.raises(ConfigError, match=message):
            segue.recommend(rec, "u", wish=wish)
    model.add_items([Item(id="red-3", title="A red thing, number 3", tags=("red", "thing"), price=13.0)])
    np.testing.assert_allclose(model.table_VD[place], before, atol=1e-5)  # what it said before gives what it was before
    assert model.final is not None
    fresh = segue.open_recommender(rec)
    assert fresh.final is not None
    assert fresh.final.known.price_V[place] != model.final.known.price_V[place]


def test_similar_items_are_others_and_obey_the_rules(rec: Path) -> None:
    rules = {"without_items": ["red-2"], "without_tags": ["blue"], "first": ["green-1"], "boost": {"green": 20}}
    (rec / "rules.json").write_text(json.dumps(rules))
    service = service_of(rec)
    assert service.loaded(None).model.repeats  # users come back, and still an item is not like itself
    found = service.similar("red-1", count=30, wish=Wish())
    ids = [one["item"] for one in found]
    assert "red-1" not in ids
    assert "red-2" not in ids
    assert not any("blue" in one["tags"] for one in found)
    assert [one["cosine"] for one in found] == sorted((one["cosine"] for one in found), reverse=True)
    service.database.close()


def test_an_item_is_known_with_its_first_event(service: RecommendService) -> None:
    service.take_events([(None, Event(user="ann", item="brown-1", time=1e9))])
    assert "brown-1" not in [one["item"] for one in service.similar("brown-1", count=3, wish=Wish())]
    then = [Event(user="bea", item="brown-1", time=1e9)]
    assert service.suggest("bea", wish=Wish(), count=3, then=then, why=True, model=None)["items"]


def listed(service: RecommendService, user: str = "nobody", **wish: Any) -> list[str]:
    found = service.suggest(user, wish=Wish(**wish), count=99, then=[], why=False, model=None)["items"]
    return [one["item"] for one in found]


def test_items_that_are_known_by_an_event_alone_are_not_listed(rec: Path) -> None:
    service = service_of(rec)
    service.take_events([(None, Event(user="ann", item=item, time=1e9)) for item in ("brown-1", "red-1")])
    assert len(listed(service)) == 24
    assert "brown-1" not in listed(service, "ann", first=["brown-1"], boost_items={"brown-1": 20.0})
    assert "brown-1" not in [one.item.id for one in segue.recommend(rec, "ann", count=99)]
    service.take_items([{"id": "brown-1", "title": "A brown thing"}])
    assert "brown-1" in listed(service)
    assert "brown-1" in [one.item.id for one in segue.recommend(rec, "nobody", count=99)]
    service.database.close()


def test_a_withdrawn_item_is_not_listed_until_it_is_added_again(rec: Path) -> None:
    service = service_of(rec)
    service.withdraw("red-3")
    for start in (1, 2):
        assert "red-3" not in listed(service, first=["red-3"])
        assert "red-3" not in [one["item"] for one in service.similar("red-2", count=30, wish=Wish())]
        service.take_events([(None, Event(user="ann", item="red-3", time=1e9 + start))])  # events of it count as before
        service.database.close()
        service = service_of(rec)
    assert "red-3" not in [one.item.id for one in segue.recommend(rec, "nobody", count=99)]
    segue.copy_recommender(rec, rec.parent / "copy")
    assert "red-3" not in [one.item.id for one in segue.recommend(rec.parent / "copy", "nobody", count=99)]
    service.take_items([{"id": "red-3", "withdrawn": False}])
    assert "red-3" in listed(service)
    with pytest.raises(ApiError, match="must be known"):
        service.withdraw("nothing")
    service.database.close()


def test_events_of_a_new_item_make_it_popular(rec: Path) -> None:
    service = service_of(rec)
    service.take_items([{"id": "red-new", "title": "A red thing", "tags": ("red",)}])
    known = service.loaded(None).model.final
    assert known is not None
    place = service.current.model.places["red-new"]

    def popularity(one: RecommendService) -> float:
        final = one.loaded(None).model.final
        assert final is not None
        return float(final.known.popularity_V[place])

    before = popularity(service)
    for n in range(200):
        service.take_events([(f"event-{n // 2:05d}", Event(user="ann", item="red-new", time=1e9 + n))])  # each twice
    after = popularity(service)
    assert after > before
    service.database.close()
    again = service_of(rec)
    assert popularity(again) == pytest.approx(after)
    again.database.close()


def test_many_new_items_at_once_are_as_one_after_the_other(learned: Path) -> None:
    some = [Item(id=f"new-{n}", title=f"A blue thing, number {n}", tags=("blue",), price=5.0 + n) for n in range(4)]
    together, single = segue.open_recommender(learned), segue.open_recommender(learned)
    assert together.add_items([*some, some[0]]) == 4
    assert [single.add_items([one]) for one in some] == [1] * 4
    assert together.add_items(some) == 0
    assert together.places == single.places
    np.testing.assert_allclose(together.table_VD, single.table_VD, atol=1e-5)
    one, other = (model.scores(read(model, "blue-1", "new-2")) for model in (together, single))
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_lists_from_candidates_are_those_of_all_items(rec: Path) -> None:
    segue.copy_recommender(rec, rec.parent / "other")
    pytest.importorskip("faiss")
    exact, quick = service_of(rec), service_of(rec.parent / "other", retrieval="faiss", candidates=10)
    for service in (exact, quick):
        service.take_events([(None, Event(user="ann", item=f"red-{n}", time=1e9 + n)) for n in (1, 2, 3)])
    new = Item(id="red-new", title="A red thing, number 4", tags=("red", "thing"), price=14.0)
    other = {"id": "blue-1", "title": "A red thing, number 2", "tags": ("red",), "price": None}
    wishes: list[dict[str, Any]] = [
        {},
        {"first": ["green-7"], "without_tags": ["blue"]},
        {"only_tags": ["green"]},  # which leaves too few of the candidates
        {"boost": {"blue": 20.0}},
        {"novelty": 0.5, "diversity": 0.2},
    ]
    for step in range(2):
        for wish in wishes:
            lists = [
                service.suggest("ann", wish=Wish(**wish), count=5, then=[], why=True, model=None)["items"]
                for service in (exact, quick)
            ]
            ids = [[one["item"] for one in some] for some in lists]
            assert len(set(ids[0])) == 5
            assert ids[0] == ids[1], wish
            assert all(np.isfinite(one["log_probability"]) for one in lists[1])
        if step == 0:
            quick.take_items([vars(new)])
            exact.take_items([vars(new), other])
            quick.take_items([other])
    exact.database.close()
    quick.database.close()


@pytest.mark.parametrize("method", ["network", "mixed", "item-kNN"])
def test_candidates_have_the_scores_of_the_final_ranking(learned: Path, method: str) -> None:
    model = segue.open_recommender(learned)
    assert model.final is not None
    weights = (0.7, 0.5, 0.2, 0.1, 0.1, 0.3, 0.2, 0.4, 0.3) if method == "mixed" else ALONE[method]
    model.final = FinalRanking(known=model.final.known, weights=weights, method=method)
    session = read(model, "red-1", "red-2", "blue-5")
    all_V = model.scores(session)[1:]
    some_V = candidate_scores(Retrieval(model), session, count=len(model.items))[1:]
    np.testing.assert_allclose(some_V, all_V, atol=1e-4)  # where all are candidates
    few_V = candidate_scores(Retrieval(model), session, count=5, besides=[model.places["green-4"]])[1:]
    found = np.isfinite(few_V)
    assert found[model.places["green-4"] - 1]
    assert found.all() == (method != "network")  # here popular items are all items
    np.testing.assert_allclose(np.exp(few_V[found]).sum(), 1, atol=1e-5)
    np.testing.assert_allclose(np.diff(few_V[found]), np.diff(all_V[found]), atol=1e-4)


def test_a_reason_is_found_where_item_knn_ranks(learned: Path) -> None:
    """Attention need not fall on the event by which item-kNN ranks an item."""
    model = segue.open_recommender(learned)
    assert model.final is not None
    model.final = FinalRanking(known=model.final.known, weights=ALONE["item-kNN"], method="item-kNN")
    near = model.final.known.neighbours
    session = read(model, *(f"red-{n % 8}" for n in range(3)), "green-4", *(f"red-{n % 8}" for n in range(3, 7)))
    green = model.places["green-4"]
    scores_V = model.scores(session)
    place = max(
        (one for one in near.near_VK[green].tolist() if one), key=lambda one: float(near.scores(np.array([green]))[one])
    )
    assert model.items[place - 1].tags[0] == "green"
    history = np.array([item for item, _, _ in session.recent])
    assert near.source(history, place) == 3
    assert near.source(history, len(model.items) + 5) is None
    (reason,) = reasons(model, session, [place])
    assert reason is not None
    assert reason.item == green
    assert reason.fall == pytest.approx(
        float(scores_V[place] - model.scores(read(model, *(f"red-{n % 8}" for n in range(7))))[place]), abs=1e-3
    )


def test_lists_go_on_where_the_disk_is_full(service: RecommendService, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DatabaseFullError("no room")

    save = store.save_session
    monkeypatch.setattr(store, "save_session", full)
    found = service.suggest("user-1", wish=Wish(), count=3, then=[], why=False, model=None)
    assert len(found["items"]) == 3
    assert service.current.unsaved == {"user-1": 1}
    monkeypatch.setattr(store, "save_session", save)
    service._save_all()
    assert not service.current.unsaved
    assert service.database.do(lambda connection: store.saved_session(connection, "user-1", "0001")) is not None
