"""Servers that share sessions in Redis: a session goes on through any of them, exactly; used through two at a time it
is refused; what Redis loses, damages or refuses gives no wrong answer."""

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from segue.errors import ConfigError
from segue.infer.sampling import SamplingSettings
from segue.infer.session import open_session
from segue.serve.redis_store import RedisStore
from tests.serve.running import Server, running, start
from tests.serve.test_faults import SCORED, isolation, score
from tests.serve.test_text import ENDLESS, TEXT, TOLERANCE, events, new_session, written_by

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
LEASE = 2.0


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.serve.redis_store.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install redis"):
        RedisStore("redis://localhost")


class Redis:
    """A real one, on a free port of this machine, which keeps nothing on disk."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        words = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                if self.client().ping():
                    return
            except Exception:
                time.sleep(0.05)
        raise AssertionError("redis-server must answer")

    def client(self) -> Any:
        import redis

        return redis.Redis(port=self.port)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    pytest.importorskip("redis", reason="the package redis is not installed")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed; on Debian: apt-get install redis-server")
    found = Redis()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def pair(
    redis: Redis, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """Two servers with keys, and so little memory that sessions are read from Redis all the time."""
    folder = tmp_path_factory.mktemp("redis")
    keys = folder / "keys"
    keys.write_text(f"alice {ALICE}\nbob {BOB}\n")
    options = ("--sessions", redis.url, "--keys", str(keys), "--set", f"lease={LEASE}", "--set", "session_memory=60000")
    options += ("--set", "max_sessions=40")
    with running([folders["xl"]], folder, *options) as one, running([folders["xl"]], folder, *options) as other:
        yield one, other


@pytest.fixture
def clients(pair: tuple[Server, Server], redis: Redis) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with pair[0].client(ALICE) as one, pair[1].client(ALICE) as other:
        yield one, other
        for session in one.get("/v1/sessions").json()["data"]:
            one.delete(f"/v1/sessions/{session['id']}")
        assert redis.client().keys("segue:session:*") == []
        assert redis.client().get("segue:bytes:alice") is None


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["error"]["code"]) == (status, code), response.text


def test_a_session_goes_on_through_any_server(
    clients: tuple[httpx.Client, httpx.Client], pair: tuple[Server, Server], folders: dict[str, Path]
) -> None:
    one, other = clients
    mine = open_session(folders["xl"])
    id = new_session(one, text=TEXT * 3)
    mine.feed(TEXT * 3)
    for number in range(6):
        expected = written_by(mine, "And then ", max_tokens=7, seed=number)
        body = {"prompt": "And then ", "max_tokens": 7, "seed": number, "stream": number % 3 > 0}
        client = clients[number % 2]
        if number == 5:
            how = body | {"model": "xl", "session": id, "logprobs": 0}
            with client.stream("POST", "/v1/completions", json=how) as response:
                chunks = [choice["logprobs"] or {} for one in events(response) for choice in one["choices"]]
            values = [value for chunk in chunks for value in chunk.get("token_logprobs", [])]
            assert values == pytest.approx([value for _, value in expected], abs=TOLERANCE)
            continue
        response = client.post(f"/v1/sessions/{id}/write", json=body).raise_for_status()
        found = [one for one in (events(response) if body["stream"] else response.json()["tokens"]) if one.get("id")]
        assert [token["id"] for token in found] == [index for index, _ in expected]
    assert one.get(f"/v1/sessions/{id}").json()["tokens"] == mine.tokens_read
    fork = other.post(f"/v1/sessions/{id}/fork").raise_for_status().json()["id"]
    expected_score = mine.fork().score(str(SCORED["text"])).log_probability
    assert score(one, fork) == score(other, fork) == score(other, id) == pytest.approx(expected_score, abs=TOLERANCE)
    state = one.get(f"/v1/sessions/{id}/state").content
    empty = new_session(other)
    other.put(f"/v1/sessions/{empty}/state", content=state).raise_for_status()  # the key is the same
    assert score(one, empty) == score(one, id)
    listed = [[each["id"] for each in client.get("/v1/sessions").json()["data"]] for client in clients]
    assert listed == [[id, fork, empty]] * 2
    page = one.get("/v1/sessions", params={"limit": 1, "after": id}).json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([fork], True)
    refused(other.get("/v1/sessions", params={"after": "sess-none"}), 400, "invalid_value")
    with pair[1].client(BOB) as bob:
        refused(bob.get(f"/v1/sessions/{id}"), 404, "session_not_found")
        refused(bob.post(f"/v1/sessions/{id}/feed", content=b"a"), 404, "session_not_found")
        assert bob.get("/v1/sessions").json()["data"] == []
    one.delete(f"/v1/sessions/{fork}").raise_for_status()
    refused(other.get(f"/v1/sessions/{fork}"), 404, "session_not_found")


def test_a_client_that_leaves_finds_its_session_on_any_server(
    clients: tuple[httpx.Client, httpx.Client], folders: dict[str, Path]
) -> None:
    one, other = clients
    id = new_session(one, text=TEXT)
    body = {"prompt": "And then ", "max_tokens": 2000, "seed": 7, "logit_bias": ENDLESS}
    with one.stream("POST", f"/v1/sessions/{id}/write", json=body) as response:
        found = events(response)
        seen = [next(found)["id"] for _ in range(3)]
    end = time.monotonic() + 30
    while (session := other.get(f"/v1/sessions/{id}").json())["busy"] and time.monotonic() < end:
        time.sleep(0.01)
    mine = open_session(folders["xl"])
    mine.feed(TEXT)
    trial = mine.fork()
    trial.feed("And then ")
    trial.feed_tokens([])
    written = session["tokens"] - trial.tokens_read
    assert written >= 3
    sampling = SamplingSettings(seed=7, top_k=None, logit_bias={7: float("-inf")})
    tokens = [token.id for token in mine.write("And then ", max_tokens=written, sampling=sampling)]
    assert tokens[:3] == seen
    assert score(other, id) == pytest.approx(mine.score(str(SCORED["text"])).log_probability, abs=TOLERANCE)


def held(server: Server, id: str, go_on: threading.Event, answers: list[httpx.Response]) -> threading.Thread:
    """A client that feeds a session and holds it until it may go on."""

    def parts() -> Iterator[bytes]:
        yield b"The room "
        go_on.wait(60)
        yield b"was clean."

    def feed() -> None:
        with server.client(ALICE) as client:
            answers.append(client.post(f"/v1/sessions/{id}/feed", content=parts()))

    thread = threading.Thread(target=feed)
    thread.start()
    with server.client(ALICE) as client:
        while not client.get(f"/v1/sessions/{id}").json()["busy"]:
            time.sleep(0.01)
    return thread


def test_a_session_that_one_server_uses_is_busy_for_the_other(
    clients: tuple[httpx.Client, httpx.Client], pair: tuple[Server, Server]
) -> None:
    one, other = clients
    id = new_session(one, text=TEXT)
    go_on, answers = threading.Event(), list[httpx.Response]()
    thread = held(pair[0], id, go_on, answers)
    time.sleep(1.5 * LEASE)  # the lease is renewed
    for answer in (
        other.post(f"/v1/sessions/{id}/feed", content=b"a"),
        other.post(f"/v1/sessions/{id}/write", json={}),
        other.post(f"/v1/sessions/{id}/fork"),
        other.get(f"/v1/sessions/{id}/state"),
        other.post("/v1/completions", json={"model": "xl", "prompt": "a", "session": id}),
    ):
        refused(answer, 409, "session_busy")
    go_on.set()
    thread.join()
    assert answers[0].status_code == 200
    fed = new_session(other, text=TEXT)
    other.post(f"/v1/sessions/{fed}/feed", content=b"The room was clean.").raise_for_status()
    assert score(other, id) == score(other, fed)


def test_a_lease_that_was_lost_overwrites_nothing(
    clients: tuple[httpx.Client, httpx.Client], pair: tuple[Server, Server], redis: Redis
) -> None:
    one, other = clients
    id = new_session(one, text=TEXT)
    go_on, answers = threading.Event(), list[httpx.Response]()
    thread = held(pair[0], id, go_on, answers)
    redis.client().delete(f"segue:lease:{id}")  # as if the server had been away for longer than the lease
    other.post(f"/v1/sessions/{id}/feed", content=b"Two young men").raise_for_status()
    after = score(other, id)
    go_on.set()
    thread.join()
    refused(answers[0], 409, "session_lost")
    assert score(one, id) == score(other, id) == after


def test_after_kill_9_of_a_server_its_sessions_are_free_and_as_they_were(
    clients: tuple[httpx.Client, httpx.Client], redis: Redis, folders: dict[str, Path], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {ALICE}\n")
    options = ("--sessions", redis.url, "--keys", str(keys), "--set", f"lease={LEASE}")
    with running([folders["xl"]], tmp_path, *options) as third:
        with third.client(ALICE) as client:
            id = new_session(client, text=TEXT)
            before = score(client, id)
        go_on, answers = threading.Event(), list[httpx.Response]()

        def feed() -> None:
            with third.client(ALICE) as client, contextlib.suppress(httpx.TransportError):
                answers.append(client.post(f"/v1/sessions/{id}/feed", content=parts()))

        def parts() -> Iterator[bytes]:
            yield b"a"
            go_on.wait(60)
            yield b"b"

        thread = threading.Thread(target=feed)
        thread.start()
        while not clients[0].get(f"/v1/sessions/{id}").json()["busy"]:
            time.sleep(0.01)
        third.stop(signal.SIGKILL)
        go_on.set()
        thread.join()
    end = time.monotonic() + 30
    while clients[0].get(f"/v1/sessions/{id}").json()["busy"] and time.monotonic() < end:
        time.sleep(0.1)
    assert score(clients[0], id) == before
    assert not answers


def score_when_free(client: httpx.Client, id: str) -> float:
    """A lease that could not be given back ends by itself, and so does the time in which Redis is not asked."""
    end = time.monotonic() + 10 * LEASE
    while client.post(f"/v1/sessions/{id}/score", json=SCORED).status_code in (409, 503) and time.monotonic() < end:
        time.sleep(0.1)
    return score(client, id)


def test_what_is_damaged_or_too_large_is_refused(clients: tuple[httpx.Client, httpx.Client], redis: Redis) -> None:
    one, other = clients
    id = new_session(one, text=TEXT)
    direct, key = redis.client(), f"segue:session:{id}"
    state = direct.hget(key, "state")
    spoiled = bytearray(state)
    spoiled[len(state) // 2] ^= 4
    for wrong in (bytes(spoiled), state[:-1], b"", b"x" * 30_000_000):
        direct.hset(key, "state", wrong)
        refused(other.post(f"/v1/sessions/{id}/score", json=SCORED), 409, "state_refused")
    direct.hset(key, "state", state)
    score(other, id)


def test_a_full_redis_keeps_what_it_has(clients: tuple[httpx.Client, httpx.Client], redis: Redis) -> None:
    one, other = clients
    id = new_session(one, text=TEXT)
    before = score(one, id)
    direct = redis.client()
    direct.config_set("maxmemory", 1)
    try:
        refused(other.post(f"/v1/sessions/{id}/feed", content=b"more"), 507, "store_full")
        refused(one.post("/v1/sessions", json={"model": "xl"}), 507, "store_full")
        assert one.post("/v1/completions", json={"model": "xl", "prompt": "a"}).status_code == 200
    finally:
        direct.config_set("maxmemory", 0)
    assert score_when_free(other, id) == score_when_free(one, id) == before


def test_limits_are_those_of_all_servers_together(clients: tuple[httpx.Client, httpx.Client]) -> None:
    for number in range(40):
        new_session(clients[number % 2])
    for client in clients:
        refused(client.post("/v1/sessions", json={"model": "xl"}), 429, "too_many_sessions")


def test_sessions_of_two_servers_never_mix(pair: tuple[Server, Server], folders: dict[str, Path]) -> None:
    """Random use, each request through either server."""

    class Either:
        def __init__(self, seed: int) -> None:
            self._chance = random.Random(seed)

        def client(self) -> "Either":
            self._clients = [server.client(ALICE) for server in pair]
            return self

        def __enter__(self) -> "Either":
            return self

        def __exit__(self, *_: object) -> None:
            for client in self._clients:
                client.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._chance.choice(self._clients), name)

    either: Any = Either(1)
    isolation(either, open_session(folders["xl"]), steps=60, sessions=10, seed=3)
    with pair[0].client(ALICE) as client:
        for session in client.get("/v1/sessions").json()["data"]:
            client.delete(f"/v1/sessions/{session['id']}")


def test_redis_that_does_not_answer_is_said_at_once_and_comes_back(
    clients: tuple[httpx.Client, httpx.Client], redis: Redis
) -> None:
    one, other = clients
    id = new_session(one, text=TEXT)
    before = score(one, id)
    redis.process.send_signal(signal.SIGSTOP)
    try:
        for client in clients:
            started = time.monotonic()
            refused(client.post(f"/v1/sessions/{id}/score", json=SCORED), 503, "store_unavailable")
            assert time.monotonic() - started < 3  # of which Redis has 0.8
            assert client.get("/health").status_code == 200
            assert client.post("/v1/completions", json={"model": "xl", "prompt": "a"}).status_code == 200
    finally:
        redis.process.send_signal(signal.SIGCONT)
    assert score_when_free(other, id) == score_when_free(one, id) == before
    redis.stop()
    for client in clients:
        refused(client.get(f"/v1/sessions/{id}"), 503, "store_unavailable")
    redis.start()  # it has lost everything
    for client in clients:
        refused(client.get(f"/v1/sessions/{id}"), 404, "session_not_found")
    fresh = new_session(one, text=TEXT)
    assert score(other, fresh) == before


def test_unused_sessions_end_and_an_absent_redis_is_said(
    redis: Redis, folders: dict[str, Path], tmp_path: Path
) -> None:
    options = ("--sessions", redis.url, "--set", "session_lifetime=0.5")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        id = new_session(client, text=TEXT)
        end = time.monotonic() + 30
        while client.get(f"/v1/sessions/{id}").status_code == 200 and time.monotonic() < end:
            time.sleep(0.8)  # asking is no use of it
        refused(client.get(f"/v1/sessions/{id}"), 404, "session_not_found")
        assert server.stop() == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"redis://:secret@127.0.0.1:{free.getsockname()[1]}/0"
        with pytest.raises(AssertionError, match="must answer and be writable") as caught:
            start([folders["xl"]], tmp_path, "--sessions", url)
        assert "secret" not in str(caught.value)
