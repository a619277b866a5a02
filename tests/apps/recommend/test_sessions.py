"""Sessions of a running recommender: they have read every stored event, in order of time, and nothing deleted."""

import shutil
import time
from pathlib import Path
from typing import Any

import httpx

import segue
from segue.apps.recommend import store
from segue.apps.recommend.ranking import Wish
from segue.apps.recommend.service import RecommendService
from segue.apps.recommend.store import RECOMMEND
from segue.apps.recommend.tables import Event
from tests.apps.recommend.test_catalogue import service_of
from tests.apps.running import running

DAMAGED = "UPDATE sessions SET state = ?"


def took(service: RecommendService, user: str, *items: str, start: float = 1e9) -> None:
    service.take_events([(None, Event(user=user, item=item, time=start + n)) for n, item in enumerate(items)])


def listed(service: RecommendService, user: str, model: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.suggest(user, wish=Wish(), count=24, then=[], why=False, model=model)["items"]
    return found


def alike(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> bool:
    """Whether two lists have the same items with the same scores, but for rounding."""
    one, other = ({item["item"]: item["log_probability"] for item in some} for some in (first, second))
    return one.keys() == other.keys() and all(abs(one[item] - other[item]) < 2e-3 for item in one)


def test_lists_of_another_model_have_read_all_events(rec: Path) -> None:
    shutil.copytree(rec / "models" / "0001", rec / "models" / "0002")
    service = service_of(rec)
    took(service, "ann", "red-1", "red-2")
    before = listed(service, "ann", "0002")
    took(service, "ann", "blue-5", start=1e9 + 60)
    after = listed(service, "ann", "0002")
    assert not alike(before, after)
    assert alike(after, listed(service, "ann"))
    service.database.close()


def test_the_history_of_a_deleted_person_is_not_saved_again(rec: Path) -> None:
    """Another program deletes a person, who comes back, while a session is not saved yet."""
    shutil.copytree(rec / "models" / "0001", rec / "models" / "0002")
    service = service_of(rec)
    for model in (None, "0002"):
        took(service, "ann", "red-1", "red-2")
        listed(service, "ann", model)
        took(service, "ann", "red-3", start=1e9 + 60)
        listed(service, "ann", model)
    assert service.other is not None
    assert "ann" in service.current.unsaved
    assert "ann" in service.other.unsaved
    segue.person_in_recommender(rec, "ann", delete=True)
    with RECOMMEND.opened(rec) as database:
        database.do(lambda connection: store.add_events(connection, [Event(user="ann", item="blue-1", time=1e9)]))
    service._save_all()
    assert segue.person_in_recommender(rec, "ann")["sessions"] == []
    took(service, "bea", "blue-1")
    for model in (None, "0002"):
        assert alike(listed(service, "ann", model), listed(service, "bea", model))
    service.database.close()


def test_nothing_of_a_deleted_person_stays_in_any_file(rec: Path, tmp_path: Path) -> None:
    with running("recommend", rec, tmp_path) as server, server.client() as client:
        body = {"events": [{"user": "somebody-to-forget", "item": "red-1"}]}
        assert client.post("/v1/events", json=body).status_code == 200
        assert client.post("/v1/recommend", json={"user": "somebody-to-forget"}).status_code == 200
        assert client.delete("/v1/operator/people/somebody-to-forget").json()["deleted_events"] == 1
        files = [path for path in rec.iterdir() if path.name.startswith("recommend.sqlite")]
        assert len(files) > 1  # a log beside the file
        assert not any(b"somebody-to-forget" in path.read_bytes() for path in files)


def test_a_damaged_session_is_made_again(rec: Path) -> None:
    service = service_of(rec)
    took(service, "ann", "red-1", "red-2")
    before = listed(service, "ann")
    service.database.close()
    for state in (b"\x00\x11\x22\x33", b"", b"\x02\0\0\0\0\0\0\0{}"):
        with RECOMMEND.opened(rec) as database:
            database.do(lambda connection, state=state: connection.execute(DAMAGED, (state,)))  # type: ignore[misc]
        service = service_of(rec)
        assert alike(listed(service, "ann"), before)
        saved = service.database.do(lambda connection: store.saved_session(connection, "ann", "0001"))
        assert saved is not None
        assert len(saved[1]) > 100
        service.database.close()


def test_events_count_in_order_of_time(rec: Path) -> None:
    service = service_of(rec)
    took(service, "ann", "red-1", "blue-2", "green-3")
    for n, item in ((2, "green-3"), (0, "red-1"), (1, "blue-2")):
        took(service, "bea", item, start=1e9 + n)
        listed(service, "bea")  # so that there is a session, which the late event makes anew
    assert alike(listed(service, "ann"), listed(service, "bea"))
    assert [one.item.id for one in segue.recommend(rec, "ann")] == [one.item.id for one in segue.recommend(rec, "bea")]
    took(service, "bea", "red-4", start=1e9 + 3)
    took(service, "ann", "red-4", start=1e9 + 3)
    assert alike(listed(service, "ann"), listed(service, "bea"))
    service.database.close()
    again = service_of(rec)
    assert alike(listed(again, "ann"), listed(again, "bea"))
    again.database.close()


def test_the_latest_event_is_first_and_none_is_in_the_future(agent: httpx.Client) -> None:
    now = time.time()
    for item, when in (("red-2", now - 10), ("red-1", now - 20)):
        assert agent.post("/v1/events", json={"events": [{"user": "ida", "item": item, "time": when}]}).is_success
    assert [one["item"] for one in agent.get("/v1/users/ida").json()["events"]] == ["red-2", "red-1"]
    assert [one["item"] for one in agent.get("/v1/users/ida?limit=1").json()["events"]] == ["red-2"]
    for when in (now + 2 * 86_400, -1.0):
        refused = agent.post("/v1/events", json={"events": [{"user": "ida", "item": "red-1", "time": when}]})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "events[0].time"
