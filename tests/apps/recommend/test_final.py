"""The final ranking: the best of what there is ranks, and a mixture is learned only from what was not learned from."""

from pathlib import Path

import numpy as np
import pytest

import segue
from segue.apps.recommend.baselines import Neighbours, counts, faded, learn_neighbours
from segue.apps.recommend.final import NAMES, Asked, FinalRanking, Known, final_of, final_tensors, learn_final
from segue.apps.recommend.histories import Histories, histories_of, late_from
from segue.apps.recommend.tables import Event, Item

ITEMS = 12


def pairs(users: int = 40) -> Histories:
    """Each user goes from an odd item to the even one behind it."""
    rows = []
    for user in range(users):
        for n in range(4):
            odd = 1 + 2 * ((user + n) % (ITEMS // 2))
            rows += [(0, f"u{user:02d}", str(odd + more), "view", 2.0 * n + more) for more in (0, 1)]
    return histories_of(rows, items={str(n): n for n in range(1, ITEMS + 1)}, kinds={"view": 1})


def known(histories: Histories) -> Known:
    neighbours = learn_neighbours(histories, histories.lengths, items=ITEMS)
    return Known(
        neighbours=neighbours,
        popularity_V=np.linspace(-1, 1, ITEMS + 1, dtype=np.float32),
        trend_V=np.zeros(ITEMS + 1, dtype=np.float32),
        price_V=np.zeros(ITEMS + 1, dtype=np.float32),
        tags_VT=np.zeros((ITEMS + 1, 0), dtype=np.float32),
        kinds_K=np.array([1.0, 1.0, 3.0], dtype=np.float32),
    )


def history(*events: tuple[int, int, int]) -> np.ndarray:
    """Events of item, kind and gap bucket."""
    return np.array(events, dtype=np.int64).reshape(-1, 3)


def asked(logs: dict[str, float], draw: np.random.Generator, *, popular: bool = False) -> list[Asked]:
    """Events whose target the network knows (`own`), or has no idea of."""
    found = []
    for user in range(60):
        target = ITEMS if popular else int(draw.integers(1, ITEMS + 1))
        log_V = draw.normal(size=ITEMS + 1).astype(np.float32)
        log_V[target] += logs["own"]
        seen = history((1 + user % (ITEMS - 1), 1, 0))
        found.append(Asked(user=user, log_V=log_V, recent_N3=seen, seen=seen[:, 0], target=target))
    return found


def test_the_best_method_ranks() -> None:
    draw = np.random.default_rng(0)
    about = known(pairs())
    good = learn_final(about, asked({"own": 6.0}, draw), repeats=True)
    assert good.weights[NAMES.index("network")] > 0.5
    blind = learn_final(about, asked({"own": 0.0}, draw, popular=True), repeats=True)
    assert abs(blind.weights[0]) < blind.weights[NAMES.index("popularity")]
    log_V = draw.normal(size=ITEMS + 1).astype(np.float32)
    scores_V = blind.scores(log_V, history((3, 1, 0)))
    assert int(scores_V.argmax()) == ITEMS
    assert float(np.exp(scores_V).sum()) == pytest.approx(1, abs=1e-5)
    none = learn_final(about, [], repeats=True)
    assert none.method == "network"
    assert none.scores(log_V, history((3, 1, 0))) is log_V


def test_kind_and_age_of_the_last_event_with_an_item() -> None:
    about = known(pairs())
    found = about.features(np.zeros(ITEMS + 1, dtype=np.float32), history((4, 2, 0), (7, 2, 3), (4, 1, 12), (5, 0, 4)))
    kind_V, gap_V = found[NAMES.index("kind")], found[NAMES.index("gap")]
    assert kind_V[[4, 5, 7]].tolist() == [1.0, 1.0, 3.0]  # of item 4 the later event, a view, counts
    assert gap_V[5] > gap_V[4] > gap_V[7] > 0
    others = np.setdiff1d(np.arange(ITEMS + 1), [4, 5, 7])
    assert not kind_V[others].any()
    assert not gap_V[others].any()
    some = np.array([7, 2, 4])
    np.testing.assert_array_equal(
        about.features(np.zeros(3, dtype=np.float32), history((4, 2, 0), (7, 2, 3)), some),
        about.features(np.zeros(ITEMS + 1, dtype=np.float32), history((4, 2, 0), (7, 2, 3)))[:, some],
    )


def test_a_ranking_learns_that_users_return_to_what_they_bought() -> None:
    draw = np.random.default_rng(0)
    about = known(pairs())
    returning = []
    for user in range(80):
        bought, *viewed = draw.permutation(np.arange(1, ITEMS + 1))[:6].tolist()
        events = [(bought, 2, 5), *((one, 1, 5) for one in viewed)]
        recent_N3 = history(*(events[place] for place in draw.permutation(6)))
        log_V = draw.normal(size=ITEMS + 1).astype(np.float32)
        returning.append(Asked(user=user, log_V=log_V, recent_N3=recent_N3, seen=recent_N3[:, 0], target=bought))
    found = learn_final(about, returning, repeats=True)
    assert found.method == "mixed"
    assert found.weights[NAMES.index("kind")] > 1
    one = returning[0]
    assert int(found.scores(one.log_V, one.recent_N3).argmax()) == one.target


def test_item_knn_forgets_as_fast_as_is_best() -> None:
    """What comes next hangs on the last item alone, so what was before it should count little."""
    histories = pairs()
    neighbours = learn_neighbours(histories, histories.lengths, items=ITEMS)
    past = [
        (histories.items_N[histories.of(user)][:7], int(histories.items_N[histories.of(user)][7])) for user in range(40)
    ]
    chosen = faded(neighbours, past)

    def worth(one: Neighbours) -> float:
        found = [(one.scores(history) > one.scores(history)[target]).sum() for history, target in past]
        return float(np.mean(1 / (1 + np.array(found))))

    assert worth(chosen) >= worth(neighbours)
    assert faded(neighbours, []) is neighbours
    assert neighbours.scores(np.array([ITEMS + 5])).sum() == 0  # an item that came later


def test_counts_of_the_latest_part() -> None:
    histories = pairs(users=2)
    until = np.array([6, 6])
    assert counts(histories, until, items=ITEMS).sum() == 12
    late = counts(histories, until, items=ITEMS, from_U=late_from(histories, until))
    assert 0 < late.sum() < 6
    assert late.sum() == (np.concatenate([histories.times_N[:6], histories.times_N[8:14]]) > 4.9).sum()


def test_a_final_ranking_is_kept_with_the_model_and_knows_new_items(learned: Path) -> None:
    model, again = segue.open_recommender(learned), segue.open_recommender(learned)
    assert model.final is not None
    assert again.final is not None
    for one in (model, again):  # whichever was chosen, a mixture must be able to read what is kept
        assert one.final is not None
        one.final = FinalRanking(
            known=one.final.known, weights=(1.0, 0.5, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1), method="mixed"
        )
    session = model.session()
    model.read(session, [(n, Event(user="u", item=f"red-{n}", time=1e9 + 60 * n)) for n in range(1, 5)])
    other = again.restored(again.saved(session), session.number)
    assert np.array_equal(model.scores(session), again.scores(other))
    before = model.scores(session)
    assert model.add_items([Item(id="red-new", title="A red thing, number 9", tags=("red", "thing"), price=19.0)]) == 1
    scores_V = model.scores(session)
    assert len(scores_V) == len(before) + 1
    assert np.isfinite(scores_V[1:]).all()
    assert scores_V[-1] > np.median(scores_V[1:])  # red, as all that was seen


def test_a_new_item_like_a_popular_one_is_near_it(learned: Path) -> None:
    """Item-kNN knows nothing of a new item, which does not count against it."""
    model = segue.open_recommender(learned)
    assert model.final is not None
    weights = (0.5, 1.5, 0.3, 0.1, 0.0, 0.3, 0.0, 0.0, 0.0)
    model.final = FinalRanking(known=model.final.known, weights=weights, method="mixed")
    session = model.session()
    model.read(session, [(n, Event(user="u", item=f"red-{n}", time=1e9 + 60 * n)) for n in range(1, 5)])
    before = model.scores(session)
    like = model.items[int(before.argmax()) - 1]
    model.add_items([Item(id="red-new", title=like.title, tags=like.tags, price=like.price)])
    scores_V = model.scores(session)
    assert before.max() - scores_V[-1] < 5
    others = [place for place, item in enumerate(model.items, start=1) if "red" not in item.tags]
    assert scores_V[-1] > scores_V[others].max() + 5
    np.testing.assert_allclose(np.diff(scores_V[1:-1]), np.diff(before[1:]), atol=1e-3)  # others stay as they were
    model.count_events({"red-new": 1000, "red-1": 1000})
    assert model.scores(session)[-1] > scores_V[-1]  # now it is popular
    assert model.final.known.popularity_V[model.places["red-new"]] > model.final.known.popularity_V[1:-1].max()


def test_values_for_new_items_are_those_of_items_with_a_similar_score() -> None:
    about = known(pairs())
    more = about.more(np.zeros(2, dtype=np.float32), np.zeros((2, 0), dtype=np.float32))
    log_V = np.linspace(-5, -1, ITEMS + 3, dtype=np.float32)
    log_V[0] = -1e9
    near_V = more.features(log_V, history((1, 1, 0)))[1]
    old_V = about.features(log_V[: ITEMS + 1], history((1, 1, 0)))[1]
    np.testing.assert_array_equal(near_V[: ITEMS + 1], old_V)
    assert near_V[ITEMS + 1 :].tolist() == pytest.approx([old_V[-5:].mean()] * 2)
    log_V[-1] = -100.0
    assert more.features(log_V, history((1, 1, 0)))[1, -1] == pytest.approx(old_V[1:6].mean())
    never = about.neutral(np.arange(ITEMS + 1) == 3)
    assert never.popularity_V[3] == about.middle > about.popularity_V[3]
    assert about.fresh_V is None


def test_a_ranking_learns_how_often_new_items_are_chosen() -> None:
    """The network tells new items apart, but scores all of them too low; users choose them half of the time."""
    draw = np.random.default_rng(0)
    fresh_V = np.arange(ITEMS + 1) > ITEMS - 3
    about = known(pairs()).neutral(fresh_V)

    def events(*, new: bool) -> list[Asked]:
        found = []
        for user in range(80):
            low = ITEMS - 2 if new and user % 4 > 1 else 1  # in both halves of the users
            target = int(draw.integers(low, ITEMS + 1 if low > 1 else ITEMS - 2))
            log_V = draw.normal(size=ITEMS + 1).astype(np.float32) - 8 * fresh_V
            log_V[target] += 3
            found.append(Asked(user=user, log_V=log_V, recent_N3=history(), seen=history()[:, 0], target=target))
        return found

    often, never = (learn_final(about, events(new=new), repeats=True) for new in (True, False))
    assert often.method == "mixed"
    assert often.weights[NAMES.index("new")] > 1
    assert never.weights[NAMES.index("new")] < often.weights[NAMES.index("new")]
    log_V = np.where(fresh_V, -8.0, 0.0).astype(np.float32)
    features = about.features(log_V, history((1, 1, 0)))
    np.testing.assert_array_equal(features[NAMES.index("new")], fresh_V.astype(np.float32))


def test_models_from_before_new_items_had_a_weight_are_read() -> None:
    about = known(pairs())
    weights = (1.0, 0.5, 0.2, 0.1, 0.0, 0.0, 0.0, 0.0)
    tensors = final_tensors(FinalRanking(known=about, weights=(*weights, 0.7), method="mixed"), ITEMS)
    for given, expected in ((weights, (*weights, 0.0)), ((*weights, 0.7), (*weights, 0.7))):
        values = {"method": "mixed", "weights": list(given)}
        found = final_of(values, tensors, tags=0, kind_weights=[1.0, 1.0, 3.0])
        assert found is not None
        assert found.weights == expected
    with pytest.raises(ValueError, match="another final ranking"):
        final_of({"method": "mixed", "weights": [1.0] * 7}, tensors, tags=0, kind_weights=[1.0, 1.0, 3.0])
