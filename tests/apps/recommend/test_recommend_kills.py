"""kill -9 at any moment: no event is lost, none is doubled, and lists are as if nothing had happened."""

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import segue
from segue.apps.recommend.store import RECOMMEND, add_events, all_items, history
from segue.apps.recommend.tables import Event
from tests.apps.kills import Sender, ended, killed, ready
from tests.apps.recommend.shop import COLOURS, ROUND, events, items, quick

START = 1.7e9
Lists = dict[str, dict[str, float]]
USERS = ("ann", "bea", "cat")
WISH = {"only_tags": ["thing"]}
"""Items that an event made known have no texts, and all the same score."""


def bodies_of(count: int) -> dict[str, list[dict[str, Any]]]:
    return {user: bodies_of_user(user, count=count) for user in USERS}


def bodies_of_user(user: str, *, count: int) -> list[dict[str, Any]]:
    """Events of a user, one to three at a time, now and then with an item that nobody knows."""
    draw, found, number = random.Random(user), [], 0
    colour = draw.choice(COLOURS)
    for _ in range(count):
        some = []
        for _ in range(draw.randrange(1, 4)):
            number += 1
            item = f"{colour}-{draw.randrange(ROUND)}" if draw.random() < 0.9 else f"{user}-{number}"
            some.append({"user": user, "item": item, "id": f"{user}-{number:06d}", "time": START + 60 * number})
        found.append({"events": some})
    return found


def lists(client: httpx.Client) -> Lists:
    found = {}
    for user in USERS:
        answer = client.post("/v1/recommend", json={"user": user, "count": 24, "wish": WISH})
        assert answer.status_code == 200, answer.text
        found[user] = {one["item"]: one["log_probability"] for one in answer.json()["items"]}
    return found


def replayed(learned: Path, folder: Path, bodies: dict[str, list[dict[str, Any]]]) -> Lists:
    """The lists of a recommender that has the same events, without a server and without kills."""
    segue.copy_recommender(learned, folder / "fresh")
    with RECOMMEND.opened(folder / "fresh") as database:
        for one in (one for some in bodies.values() for body in some for one in body["events"]):
            event = Event(user=one["user"], item=one["item"], time=one["time"])
            database.do(lambda connection, event=event: add_events(connection, [event]))  # type: ignore[misc]
    return {
        user: {one.item.id: one.log_probability for one in segue.recommend(folder / "fresh", user, count=24, wish=WISH)}
        for user in USERS
    }


def checked(rec: Path, bodies: dict[str, list[dict[str, Any]]]) -> None:
    with RECOMMEND.opened(rec) as database:
        items = [item.id for _, item in database.do(all_items)]
        for user, some in bodies.items():
            sent = [one for body in some for one in body["events"]]
            events = database.do(lambda connection, user=user: history(connection, user))  # type: ignore[misc]
            assert [(one.item, one.time) for _, one in events] == [(one["item"], one["time"]) for one in sent]
            assert {one["item"] for one in sent} <= set(items)
    assert len(items) == len(set(items))


@pytest.fixture(scope="session")
def known_by_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recommender without a language model, which starts quickly."""
    out = tmp_path_factory.mktemp("recommend") / "rec"
    segue.learn_recommender(events(), out, items=items(), settings=quick(vectors="ids", epochs=2), progress=False)
    return out


@pytest.fixture(scope="session")
def replay(known_by_ids: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Lists]:
    """The lists after some events of each user; once for all databases."""
    return functools.cache(lambda count: replayed(known_by_ids, tmp_path_factory.mktemp("replayed"), bodies_of(count)))


def killed_often(
    learned: Path, folder: Path, replay: Callable[[int], Lists], *, database: str | None, times: int, count: int
) -> None:
    segue.copy_recommender(learned, folder / "rec", database=database)
    bodies = bodies_of(count)
    with ready("recommend", folder / "rec", folder, "--set", "save_every=3", times=times) as (first, *others):
        server = first.start()
        senders = [Sender(server.url, "/v1/events", some) for some in bodies.values()]
        with server.client() as client:
            lists(client)  # from now on there are sessions, which go on with each event
        for one in senders:
            one.start()
        server = killed(server, others, seed=times, senders=senders)
        ended(senders)
        assert sum(one.tries for one in senders) > 3 * count  # a kill came between
        checked(folder / "rec", bodies)
        with server.client() as client:
            again = client.post("/v1/events", json=bodies["ann"][-1]).json()["events"]
            assert not any(one["new"] for one in again)
            found = lists(client)
        assert server.stop() == 0
    expected = replay(count)
    for user in USERS:
        assert found[user].keys() == expected[user].keys()
        assert all(abs(found[user][item] - value) < 1e-3 for item, value in expected[user].items())


def test_no_event_is_lost_or_doubled(
    known_by_ids: Path, tmp_path: Path, new_database: Callable[[], str | None], replay: Callable[[int], Lists]
) -> None:
    killed_often(known_by_ids, tmp_path, replay, database=new_database(), times=2, count=40)


@pytest.mark.long
def test_no_event_is_lost_or_doubled_in_a_hundred_kills(
    known_by_ids: Path, tmp_path: Path, new_database: Callable[[], str | None], replay: Callable[[int], Lists]
) -> None:
    killed_often(known_by_ids, tmp_path, replay, database=new_database(), times=100, count=300)
