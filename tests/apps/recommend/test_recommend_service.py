"""A recommender over HTTP: events, lists, what-if, new items, people, kill -9."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from segue.apps.database import Database
from segue.apps.recommend.store import RECOMMEND, STEPS, history
from tests.command import command
from tests.serve.running import Server


def posted(client: httpx.Client, user: str, *items: str, **more: object) -> list[dict[str, Any]]:
    body = {"events": [{"user": user, "item": item, **more} for item in items]}
    response = client.post("/v1/events", json=body)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["events"]
    return found


def asked(client: httpx.Client, user: str, **more: object) -> list[dict[str, Any]]:
    response = client.post("/v1/recommend", json={"user": user, **more})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["items"]
    return found


def ids(found: list[dict[str, Any]]) -> list[object]:
    return [one["item"] for one in found]


def test_a_new_user_is_known_after_one_event(agent: httpx.Client) -> None:
    before = asked(agent, "ann", count=24)
    assert len(before) == 24
    posted(agent, "ann", "red-3")
    after = asked(agent, "ann", count=24)
    assert ids(after) != ids(before)
    red, others = ([n for n, one in enumerate(after) if ("red" in one["tags"]) == own] for own in (True, False))
    assert sum(red) / len(red) < sum(others) / len(others)


def test_the_same_event_again_is_not_written_again(agent: httpx.Client) -> None:
    (first,) = posted(agent, "bea", "red-1", id="event-0001")
    (again,) = posted(agent, "bea", "red-1", id="event-0001")
    assert first["new"]
    assert not again["new"]
    assert first["number"] == again["number"]
    assert len(agent.get("/v1/users/bea").json()["events"]) == 1


def test_what_if_is_a_fork_that_leaves_no_trace(agent: httpx.Client) -> None:
    posted(agent, "cat", "green-1", "green-2")
    before = asked(agent, "cat")
    forked = asked(agent, "cat", then=[{"item": "blue-1"}, {"item": "blue-2"}])
    assert ids(forked) != ids(before)
    assert asked(agent, "cat") == before
    assert len(agent.get("/v1/users/cat").json()["events"]) == 2


def test_wishes_hold(agent: httpx.Client) -> None:
    posted(agent, "dan", "red-1", "red-2")
    wish = {"only_tags": ["blue", "red"], "without_items": ["red-3"], "highest_price": 14, "seen": False}
    found = asked(agent, "dan", count=50, wish=wish)
    assert found
    for one in found:
        assert "green" not in one["tags"]
        assert one["item"] not in ("red-1", "red-2", "red-3")
        assert one["price"] <= 14
    first = asked(agent, "dan", count=3, wish={"first": ["green-7"]})
    assert first[0]["item"] == "green-7"
    assert len(first) == 3
    few = asked(agent, "dan", count=24, wish={"most_of_tag": 2})
    assert len(few) == 6
    boosted = asked(agent, "dan", count=3, wish={"boost": {"green": 20.0}})
    assert all("green" in one["tags"] for one in boosted)


def test_a_new_item_can_be_listed_at_once(agent: httpx.Client, operator: httpx.Client) -> None:
    item = {"id": "red-new", "title": "A red thing, number 100", "tags": ["red", "thing"], "price": 12}
    assert agent.post("/v1/items", json={"items": [item]}).status_code == 403
    assert operator.post("/v1/items", json={"items": [item]}).json() == {"new": 1}
    posted(agent, "eve", "red-1", "red-2")
    places = ids(asked(agent, "eve", count=25))
    assert "red-new" in places
    near = agent.post("/v1/similar", json={"item": "red-new", "count": 7}).json()["items"]
    assert "red-new" not in ids(near)  # it is no neighbour of itself
    assert sum("red" in one["tags"] for one in near) > 3
    posted(agent, "eve", "red-new")
    assert asked(agent, "eve")


def test_fields_that_are_left_out_keep_their_values(agent: httpx.Client, operator: httpx.Client) -> None:
    item = {"id": "mug/1", "title": "A mug", "tags": ["mug"], "price": 12}

    def found() -> dict[str, Any]:
        (one,) = agent.get("/v1/items", params={"words": "mug/1"}).json()["items"]
        return {name: one[name] for name in ("title", "tags", "price")}

    assert operator.post("/v1/items", json={"items": [item]}).json() == {"new": 1}
    assert operator.post("/v1/items", json={"items": [{"id": "mug/1", "price": 99}]}).json() == {"new": 0}
    assert found() == {"title": "A mug", "tags": ["mug"], "price": 99}
    changes = [{"id": "mug/1", "price": None}, {"id": "mug/1", "title": "A cup"}]
    assert operator.post("/v1/items", json={"items": changes}).is_success
    assert found() == {"title": "A cup", "tags": ["mug"], "price": None}
    assert operator.post("/v1/items", json={"items": [{"id": "mug/1", "price": -1}]}).status_code == 400
    assert agent.delete("/v1/items/mug/1").status_code == 403
    assert operator.delete("/v1/items/mug/1").json() == {"item": "mug/1", "withdrawn": True}
    assert agent.get("/v1/items", params={"words": "mug/1"}).json()["items"] == []
    assert operator.delete("/v1/items/nothing").status_code == 404
    assert operator.post("/v1/items", json={"items": [{"id": "mug/1"}]}).is_success
    assert found() == {"title": "A cup", "tags": ["mug"], "price": None}
    assert operator.delete("/v1/items/mug/1").is_success


def test_a_reason_is_one_of_the_events(agent: httpx.Client) -> None:
    seen = ["blue-1", "blue-2", "blue-3", "blue-4"]
    posted(agent, "fay", *seen)
    found = asked(agent, "fay", why=True)
    reasons = [one["because"] for one in found if one["because"] is not None]
    assert reasons
    for one in reasons:
        assert one["item"] in seen
        assert one["fall"] > 0
        assert 0 <= one["attention"] <= 1


def test_people_are_found_and_deleted(agent: httpx.Client, operator: httpx.Client) -> None:
    posted(agent, "shop/gil", "red-1", "red-2")
    asked(agent, "shop/gil")
    path = "/v1/operator/people/shop/gil"
    assert agent.get(path).status_code == 403
    found = operator.get(path).json()
    assert [one["item"] for one in found["events"]] == ["red-1", "red-2"]
    assert found["sessions"]
    assert operator.delete(path).json() == {"person": "shop/gil", "deleted_events": 2, "models": []}
    assert operator.get(path).json() == {"person": "shop/gil", "events": [], "sessions": []}
    assert ids(asked(agent, "shop/gil")) == ids(asked(agent, "nobody"))
    assert operator.delete("/v1/operator/people/user-1").json()["models"] == ["0001"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/events", {"events": []}, 400),
        ("/v1/events", {"events": [{"user": "a"}]}, 400),
        ("/v1/events", {"events": [{"user": "a", "item": "x", "time": "NaN"}]}, 400),
        ("/v1/events", {"events": [{"user": "a", "item": "red-1"}] * 1001}, 400),
        ("/v1/recommend", {"user": "a", "count": 101}, 400),
        ("/v1/recommend", {"user": "a", "wish": {"unknown": 1}}, 400),
        ("/v1/recommend", {"user": "a", "wish": {"only_tags": ["red", "Red"]}}, 400),
        ("/v1/recommend", {"user": "a", "wish": {"boost": {"Red": 1}}}, 400),
        ("/v1/similar", {"item": "red-1", "wish": {"only_tags": ["Red"]}}, 400),
        ("/v1/recommend", {"user": "a", "then": [{"item": "nothing"}]}, 404),
        ("/v1/recommend", {"user": "a", "model": "0009"}, 404),
        ("/v1/recommend", {"user": "a", "model": "../x"}, 400),
        ("/v1/similar", {"item": "nothing"}, 404),
        ("/v1/events", {"events": [{"user": "a\0", "item": "red-1"}]}, 400),
        ("/v1/events", {"events": [{"user": "a\nb", "item": "red-1"}]}, 400),
        ("/v1/events", {"events": [{"user": "a", "item": "red\u2028-1"}]}, 400),
        ("/v1/events", {"events": [{"user": "  ", "item": "red-1"}]}, 400),
    ],
)
def test_what_cannot_be_answered_is_refused(agent: httpx.Client, path: str, body: object, status: int) -> None:
    response = agent.post(path, json=body)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert "/rec" not in response.json()["error"]["message"]  # nobody is told where it is


def test_ids_have_no_spaces_around_them(agent: httpx.Client, operator: httpx.Client) -> None:
    posted(agent, " hal ", " red-1")
    assert [one["item"] for one in agent.get("/v1/users/hal").json()["events"]] == ["red-1"]
    assert ids(asked(agent, "hal ")) == ids(asked(agent, "hal"))
    assert operator.delete("/v1/operator/people/%20hal").json()["deleted_events"] == 1
    refused = agent.post("/v1/events", json={"events": [{"user": "a\nb", "item": "red-1"}]}).json()["error"]
    assert "events[0].user must be a text without control characters" in refused["message"]


def test_a_stranger_is_refused(server: Server) -> None:
    with server.client() as client:
        assert client.post("/v1/recommend", json={"user": "ann"}).status_code == 401


def test_a_recommender_without_its_database_does_not_start(rec: Path) -> None:
    (rec / RECOMMEND.sqlite).unlink()
    done = command("recommend", "run", rec, "--check", "--port", "0")
    assert done.returncode == 2
    assert "must have recommend.sqlite, with all that was written into it; got none" in " ".join(done.stderr.split())


def test_a_database_of_the_first_version_goes_on(tmp_path: Path) -> None:
    old = Database(tmp_path / "a.sqlite", name="segue recommend", steps=STEPS[:1])
    old.open()
    insert = """INSERT INTO events ("user", item, kind, time) VALUES ('ann', 'red-1', 'view', 5)"""
    old.do(lambda connection: connection.execute(insert))
    old.close()
    database = RECOMMEND.database_at(tmp_path / "a.sqlite", alone=True)
    database.open()
    assert [event.item for _, event in database.do(lambda connection: history(connection, "ann"))] == ["red-1"]
    database.close()
