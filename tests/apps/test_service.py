"""A desk that runs: visitors, hand-over, agents, operators, webhooks, limits."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from segue.apps.desk.phrases import follow_up
from segue.apps.keys import read_role_keys
from segue.apps.web import Rate, forwarded
from segue.apps.webhooks import check_webhook
from segue.errors import ConfigError
from tests.apps.receiver import Receiver
from tests.apps.running import running
from tests.serve.running import Server

Say = Callable[..., dict[str, Any]]


def test_a_question_is_answered_with_its_source_and_confidence(say: Say) -> None:
    found = say("please track the parcel")
    question, answer = found["messages"]
    assert question["author"] == "visitor"
    assert answer["text"] == "Your parcel is shown under Orders."
    assert answer["about"]["kind"] == "answer"
    assert answer["about"]["topic"] == "parcel"
    assert 0.3 < answer["about"]["confidence"] <= 1
    assert "candidates" not in answer["about"]
    assert found["state"] == "desk"
    assert say("快递查一下")["messages"][1]["text"] == "请在订单页面查看物流。"


def test_the_same_message_again_gives_the_same_reply(visitor: httpx.Client) -> None:
    id = visitor.post("/v1/conversations", json={}).json()["id"]
    body = {"text": "where is my parcel", "id": "message-0001"}
    first, second = (visitor.post(f"/v1/conversations/{id}/messages", json=body).json() for _ in range(2))
    assert first == second
    assert len(visitor.get(f"/v1/conversations/{id}").json()["messages"]) == 2


def test_slots_are_asked_for_and_remembered(say: Say) -> None:
    assert say("where is order 1234567 please")["messages"][1]["text"] == "Order 1234567 is on its way."
    found = say("where is order now please")
    assert found["messages"][1]["about"]["kind"] == "follow_up"
    assert found["messages"][1]["text"] == follow_up("en", "order")
    assert say("it is 99.", found["id"])["messages"][1]["text"] == "Order 99 is on its way."
    other = say("where is order now please")
    assert say("I forgot my password, what now", other["id"])["messages"][1]["about"]["topic"] == "password"


def test_an_answer_is_not_repeated_for_another_question(say: Say) -> None:
    found = say("where is order 1234567 please")
    again = say("怎么做红烧肉", found["id"])
    assert again["messages"][1]["about"]["kind"] != "answer"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I want to talk to a real person", "asked_for_person"),
        ("This is ridiculous, where is my parcel", "anger"),
        ("can penguins fly over the moon", "out_of_scope"),
        ("complaint about your colleague", "no_answer"),
    ],
)
def test_a_person_takes_over(say: Say, agent: httpx.Client, text: str, reason: str) -> None:
    found = say(text)
    assert found["state"] == "waiting"
    assert found["messages"][1]["about"]["kind"] == "handed_over"
    record = agent.get(f"/v1/agent/conversations/{found['id']}").json()
    assert record["reason"] == reason
    assert record["messages"][0]["text"] == text
    assert bool(record["candidates"]) == (reason not in ("asked_for_person", "anger"))
    assert len(say("hello?", found["id"])["messages"]) == 1  # the desk is silent now


def test_did_you_mean_then_repeated_failure(say: Say) -> None:
    for text in (
        "the card or the refund",
        "parcel or invoice",
        "money order hours",
        "open refund card",
        "my order password",
    ):
        found = say(text)
        about = found["messages"][1]["about"]
        if about["kind"] == "suggestion":
            break
    else:
        pytest.fail("nothing was unclear")
    assert 1 <= len(about["suggestions"]) <= 3
    offered = about["suggestions"][0]
    assert offered["question"] != offered["topic"]
    chosen = say(offered["question"], found["id"], topic=offered["topic"])
    assert chosen["messages"][1]["about"]["kind"] == "answer"
    twice = [say(text)["id"]]
    again = say(text, twice[0])
    assert again["state"] == "waiting"
    assert again["messages"][1]["about"]["reason"] == "repeated_failure"


def test_an_agent_answers_live_and_the_desk_goes_on(
    say: Say, visitor: httpx.Client, agent: httpx.Client, receiver: Receiver
) -> None:
    id = say("agent")["id"]
    listed = agent.get("/v1/agent/conversations", params={"state": "waiting"}).json()["data"]
    assert id in [one["id"] for one in listed]
    with visitor.stream("GET", f"/v1/conversations/{id}/events", params={"after": 0}) as stream:
        lines = stream.iter_lines()
        first = json.loads(next(line for line in lines if line.startswith("data:"))[5:])
        assert [one["author"] for one in first["messages"]] == ["visitor", "desk"]
        body = {"text": "I am Alice. <b>Hello</b>", "id": "message-of-alice"}
        for method in ("post", "put"):  # sent again, it is the same message
            assert agent.request(method, f"/v1/agent/conversations/{id}/messages", json=body).status_code == 200
        live = json.loads(next(line for line in lines if line.startswith("data:"))[5:])
    assert [(one["author"], one["name"], one["text"]) for one in live["messages"]] == [
        ("agent", "alice", "I am Alice. <b>Hello</b>")
    ]
    assert live["state"] == "agent"
    end = time.monotonic() + 10
    while agent.get("/v1/agent/statistics").json()["streams"]:  # whoever left is not waited for
        assert time.monotonic() < end
        time.sleep(0.02)
    assert agent.post(f"/v1/agent/conversations/{id}/release").json()["state"] == "desk"
    assert say("I lost my card", id)["messages"][1]["text"] == "Block the card in the app."
    assert agent.post(f"/v1/agent/conversations/{id}/resolve").json()["state"] == "resolved"
    assert say("I lost my card", id)["state"] == "desk"
    said = "message_created"
    names = ["conversation_opened", said, said, "handed_over", said, said, said, said, "resolved", said, said]
    receiver.wait_for(id, names)
    told = [one for one in receiver.events.values() if one["conversation"] == id]
    handed = next(one for one in told if one["event"] == "handed_over")
    assert handed["reason"] == "asked_for_person"
    assert handed["transcript"][0]["text"] == "agent"
    assert receiver.unsigned == 0


def test_a_webhook_that_is_refused_comes_again_with_the_same_id(say: Say, receiver: Receiver) -> None:
    receiver.refuse = 1
    before = receiver.deliveries
    id = say("reset password")["id"]
    receiver.wait_for(id, ["conversation_opened", "message_created", "message_created"])
    assert receiver.deliveries >= before + 4
    assert not receiver.repeats_differ


def test_feedback_and_statistics(say: Say, visitor: httpx.Client, agent: httpx.Client, operator: httpx.Client) -> None:
    found = say("reset password")
    path, number = f"/v1/conversations/{found['id']}/feedback", found["messages"][1]["number"]
    assert visitor.post(path, json={"message": number, "good": False}).status_code == 200
    assert visitor.post(path, json={"message": number, "good": True}).status_code == 200
    assert visitor.post(path, json={"message": found["messages"][0]["number"], "good": True}).status_code == 404
    numbers = agent.get("/v1/agent/statistics").json()
    assert numbers["feedback"]["good"] >= 1
    assert 0 < numbers["share_answered"] <= 1
    assert numbers["topics"][0]["count"] >= 1
    before = numbers["decision"]
    assert agent.put("/v1/operator/error", json={"error": 0.001}).status_code == 403
    strict = operator.put("/v1/operator/error", json={"error": 0.001}).json()
    assert strict["threshold"] > before["threshold"]
    assert 0 < strict["expected_answered"] < before["expected_answered"]
    assert operator.put("/v1/operator/error", json={"error": 0.05}).json()["threshold"] == pytest.approx(
        before["threshold"], abs=1e-4
    )


def test_only_answers_are_rated(say: Say, visitor: httpx.Client, agent: httpx.Client) -> None:
    def rate(found: dict[str, Any], number: int) -> httpx.Response:
        return visitor.post(f"/v1/conversations/{found['id']}/feedback", json={"message": number, "good": False})

    for text in ("can penguins fly over the moon", "hello", "where is order now please"):
        found = say(text)
        refused = rate(found, found["messages"][1]["number"])
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_an_answer"), text
        assert "Choose an answer" in refused.text
    agent.post(f"/v1/agent/conversations/{found['id']}/messages", json={"text": "Under Orders."})
    said = visitor.get(f"/v1/conversations/{found['id']}").json()["messages"]
    assert rate(found, said[-1]["number"]).status_code == 200
    assert [one["good"] for one in said[:-1]] == [None] * (len(said) - 1)


def test_personal_data_is_found_and_deleted(visitor: httpx.Client, agent: httpx.Client, operator: httpx.Client) -> None:
    id = visitor.post("/v1/conversations", json={"person": "user-17"}).json()["id"]
    visitor.post(f"/v1/conversations/{id}/messages", json={"text": "my secret is 4711", "id": "secret-01"})
    assert agent.get("/v1/operator/people/user-17").status_code == 403
    kept = operator.get("/v1/operator/people/user-17").json()
    assert kept["conversations"][0]["messages"][0]["text"] == "my secret is 4711"
    assert operator.delete("/v1/operator/people/user-17").json()["deleted_conversations"] == 1
    assert operator.get("/v1/operator/people/user-17").json()["conversations"] == []
    assert visitor.get(f"/v1/conversations/{id}").status_code == 404
    assert agent.get("/v1/agent/conversations", params={"search": "4711"}).json()["data"] == []


def test_roles_and_limits(visitor: httpx.Client, agent: httpx.Client, server: Server) -> None:
    description = visitor.get("/openapi.json")
    assert description.status_code == 200
    for path, methods in description.json()["paths"].items():
        for method in methods:
            place = (
                path.replace("{id}", "x").replace("{action}", "take").replace("{message}", "1").replace("{person}", "x")
            )
            answer = visitor.request(method, place)
            if "/agent/" in path or "/operator/" in path:
                assert answer.status_code == 401, (method, path)
            if "/operator/" in path:
                assert agent.request(method, place).status_code == 403, (method, path)
    with server.client("a wrong key of some length") as stranger:
        assert stranger.post("/v1/conversations", json={}).status_code == 401
    id = visitor.post("/v1/conversations", json={"person": "limited"}).json()["id"]
    path = f"/v1/conversations/{id}/messages"
    for body, status in (
        ({"text": "x" * 2001, "id": "12345678"}, 400),
        ({"text": "  ", "id": "12345678"}, 400),
        ({"text": "hello", "id": "short"}, 400),
        ({"text": "hello", "id": "12345678", "more": 1}, 400),
        ({"text": "x" * 200_000, "id": "12345678"}, 413),
    ):
        assert visitor.post(path, json=body).status_code == status, str(body)[:60]
    for bad in ("/v1/conversations/..%2f..%2fetc", "/page/..%2f..%2f", "/v1/conversations/nobody"):
        assert visitor.get(bad).status_code == 404
    for text in ("\ud800".encode("utf-8", "surrogatepass"), b"\xff"):
        assert visitor.post(path, content=b'{"text": "' + text + b'", "id": "12345678"}').status_code == 400
    for odd in ("\u202e abc", "\x1b[31m", "a\u0301" * 500, "{order} {0} %s", "'; DROP TABLE messages; --", "🏴‍☠️"):
        assert visitor.post(path, json={"text": odd, "id": os.urandom(8).hex()}).status_code == 200
    for number in (2**63, 10**30):
        assert visitor.get(f"/v1/conversations/{id}", params={"after": number}).status_code == 200
        assert visitor.get(f"/v1/conversations/{id}/events", params={"after": number}).status_code == 400
        feedback = {"message": number, "good": True}
        assert visitor.post(f"/v1/conversations/{id}/feedback", json=feedback).status_code == 400
        assert agent.put(f"/v1/agent/reviews/{number}", json={"accepted": True}).status_code == 400
    assert agent.get("/v1/agent/conversations", params={"search": "hel\0lo"}).status_code == 200
    for _ in range(19):
        assert visitor.post("/v1/conversations", json={"person": "limited"}).status_code == 201
    assert visitor.post("/v1/conversations", json={"person": "limited"}).status_code == 429


def test_streams_of_clients_that_left_are_given_back(tmp_path: Path, desk: Path) -> None:
    limits = ("max_streams=2", "max_streams_of_address=2", "max_agent_streams=1", "rate=1000", "burst=1000")
    options = [part for limit in limits for part in ("--set", limit)]
    with running("desk", desk, tmp_path, *options) as server, server.client() as client:
        path = f"/v1/conversations/{client.post('/v1/conversations', json={}).json()['id']}/events"
        for _ in range(3):
            with client.stream("GET", path) as one, client.stream("GET", path) as two:
                assert (one.status_code, two.status_code) == (200, 200)
                assert client.get(path).status_code == 429
                with client.stream("GET", "/v1/agent/events") as three:  # visitors do not shut agents out
                    assert three.status_code == 200
                    assert client.get("/v1/agent/events").status_code == 429
            end = time.monotonic() + 10
            while client.get("/v1/agent/statistics").json()["streams"]:
                assert time.monotonic() < end
                time.sleep(0.02)


def test_pages_come_without_a_key(visitor: httpx.Client) -> None:
    for path in (
        "/",
        "/agent",
        "/widget.js",
        "/page/visitor.js",
        "/page/dom.js",
        "/page/application.css",
        "/health",
        "/ready",
    ):
        answer = visitor.get(path)
        assert answer.status_code == 200, path
        if path in ("/", "/agent"):
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:99999/x", "http://shop.example/路", "http://ex..ample/", "ftp://a/", "http://", "http://a/ b"],
)
def test_addresses_of_webhooks_are_checked(url: str) -> None:
    with pytest.raises(ConfigError, match="a webhook URL must begin with"):
        check_webhook(url, "a secret of sixteen")
    assert check_webhook("https://shop.example:8443/hook?a=1", "a secret of sixteen").port == 8443


def test_an_address_has_its_rate() -> None:
    now = 0.0
    rate = Rate(rate=2.0, most=3, clock=lambda: now)
    assert [rate.take("a") for _ in range(4)] == [None, None, None, 0.5]
    assert rate.take("b") is None
    now = 0.5
    assert [rate.take("a"), rate.take("a")] == [None, 0.5]


def test_only_the_proxy_that_is_trusted_says_where_a_request_comes_from() -> None:
    headers = Headers({"x-forwarded-for": "9.9.9.9, 7.7.7.7"})
    assert forwarded(headers, ("10.0.0.1", 5), proxy="10.0.0.1") == "7.7.7.7"
    assert forwarded(headers, ("10.0.0.2", 5), proxy="10.0.0.1") == "10.0.0.2"
    assert forwarded(headers, ("10.0.0.2", 5), proxy="") == "10.0.0.2"
    assert forwarded(Headers({}), ("10.0.0.1", 5), proxy="10.0.0.1") == "10.0.0.1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alice 0123456789abcdef", "must be a role"),
        ("boss alice 0123456789abcdef", "must be a role"),
        ("agent alice short", "at least 16 characters"),
        ("agent a 0123456789abcdef\nagent b 0123456789abcdef", "a key of its own"),
        ("# nobody", "must have a key; got none"),
    ],
)
def test_keys_have_roles(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_role_keys(tmp_path / "keys")
    (tmp_path / "keys").write_text("visitor site 0123456789abcdef\nagent alice fedcba9876543210")
    keys = read_role_keys(tmp_path / "keys")
    assert not keys.open_to_visitors
    assert keys.caller(None) is None
    found = keys.caller("Bearer fedcba9876543210")
    assert found is not None
    assert (found.role, found.name, found.may("visitor"), found.may("operator")) == ("agent", "alice", True, False)
