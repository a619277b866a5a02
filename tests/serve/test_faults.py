"""The server ends, is killed, is overloaded, has no room on its disk, gets requests that raise: nothing is wrong, and
nothing is lost that was promised."""

import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from segue.infer.session import Session, open_session
from tests.serve.running import SOAK, Server, running, soaked
from tests.serve.test_text import ENDLESS, TEXT, TOLERANCE, events, new_session, written_by

SCORED = {"text": "The staff were kind", "keep": False}


def score(client: httpx.Client, id: str) -> float:
    value: float = client.post(f"/v1/sessions/{id}/score", json=SCORED).raise_for_status().json()["logprob"]
    return value


# ------------------------------------------------------------------------------------------------------ the end


def test_sigterm_lets_streams_end_and_keeps_all_sessions(folders: dict[str, Path], tmp_path: Path) -> None:
    store = tmp_path / "sessions.sqlite"
    with running([folders["xl"]], tmp_path, "--sessions", str(store), "--set", "drain=300.0") as server:
        with server.client() as client:
            ids = [new_session(client, text=TEXT * (1 + number)) for number in range(5)]
            ids.append(new_session(client))
            before = [client.get(f"/v1/sessions/{id}").json() for id in ids]
            state = client.get(f"/v1/sessions/{ids[0]}/state").content
            scores = [score(client, id) for id in ids]
        found: dict[int, list[dict[str, Any]]] = {}
        begun = threading.Barrier(5)

        def stream(number: int) -> None:
            with server.client() as client:
                body = {"model": "xl", "prompt": TEXT, "max_tokens": 600, "stream": True, "logit_bias": ENDLESS}
                with client.stream("POST", "/v1/completions", json=body) as response:
                    own = events(response)
                    found[number] = [next(own)]
                    begun.wait()
                    found[number] += own

        threads = [threading.Thread(target=stream, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        server.process.send_signal(signal.SIGTERM)
        with server.client() as client:
            try:  # while it drains it says so; it may have ended already
                end = time.monotonic() + 10
                while (ready := client.get("/ready").status_code) == 200 and time.monotonic() < end:
                    time.sleep(0.01)
                assert ready == 503
                assert client.get("/health").status_code == 200
                refusal = client.post("/v1/completions", json={"model": "xl", "prompt": "a"})
                assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "shutting_down")
                assert refusal.headers["retry-after"]
            except httpx.TransportError:
                assert server.process.poll() is not None
        for thread in threads:
            thread.join()
        assert server.process.wait(300) == 0
        for chunks in found.values():
            assert chunks[-1]["choices"][0]["finish_reason"] == "length"
            assert len(chunks) >= 600
    with running([folders["xl"]], tmp_path, "--sessions", str(store)) as server, server.client() as client:
        after = {one["id"]: one for one in client.get("/v1/sessions").json()["data"]}
        for old in before:
            assert after[old["id"]]["tokens"] == old["tokens"]
            assert after[old["id"]]["place"] == "disk"
        assert [score(client, id) for id in ids] == scores  # to the bit
        client.put(f"/v1/sessions/{ids[1]}/state", content=state).raise_for_status()  # the key is the same
        assert server.stop(signal.SIGINT) == 0


def test_a_stream_that_does_not_end_in_time_ends_with_an_error(folders: dict[str, Path], tmp_path: Path) -> None:
    options = ("--set", "drain=0.3", "--set", "max_tokens=1000000")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        body = {"model": "xl", "prompt": TEXT, "max_tokens": 10**6, "stream": True, "logit_bias": ENDLESS}
        with client.stream("POST", "/v1/completions", json=body) as response:
            own = events(response)
            next(own)
            server.process.send_signal(signal.SIGTERM)
            last = list(own)[-1]
        assert last["error"]["code"] == "shutting_down"
        assert server.process.wait(60) == 0


# ------------------------------------------------------------------------------------------ requests that raise, load


def test_a_request_that_raises_ends_alone(server: Server, client: httpx.Client) -> None:
    size = next(one for one in client.get("/v1/models").json()["data"] if one["id"] == "xl")["vocabulary_size"]
    poison = {"model": "xl", "prompt": TEXT, "logit_bias": {str(index): -100 for index in range(size)}}
    body = {"model": "xl", "prompt": TEXT, "max_tokens": 400, "seed": 1, "logit_bias": ENDLESS}
    expected = client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]["text"]
    found: list[str] = []

    def ask() -> None:
        with server.client() as other:
            found.append(other.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]["text"])

    thread = threading.Thread(target=ask)
    thread.start()
    for number in range(8):
        answer = client.post("/v1/completions", json=poison | {"stream": bool(number % 2)})
        if number % 2:
            error = list(events(answer))[-1]["error"]
        else:
            assert answer.status_code == 400
            error = answer.json()["error"]
        assert "must leave a token to choose" in error["message"]
    thread.join()
    assert found == [expected]
    assert "segue_faults_total 0.0" in client.get("/metrics").text


def test_overload_is_refused_and_what_is_accepted_is_right(folders: dict[str, Path], tmp_path: Path) -> None:
    options = ("--set", "max_queue=6", "--set", "max_queue_per_tenant=6", "--set", "max_rows=3")
    options += ("--set", "turn_tokens=5")
    alone = open_session(folders["xl"])
    with running([folders["xl"]], tmp_path, *options) as server:
        answers: list[tuple[int, httpx.Response]] = []

        def ask(number: int) -> None:
            with server.client() as client:
                body = {"model": "xl", "prompt": TEXT, "max_tokens": 40, "seed": number, "logprobs": 0}
                for _ in range(4):
                    answers.append((number, client.post("/v1/completions", json=body)))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        statuses = {answer.status_code for _, answer in answers}
        assert statuses == {200, 429}
        expected: dict[int, list[str]] = {}
        for number, answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["code"] == "queue_full"
                continue
            if number not in expected:
                tokens = written_by(alone.fork(), TEXT, max_tokens=40, seed=number)
                expected[number] = [alone.tokenizer.token(index) for index, _ in tokens if index is not None]
            assert answer.json()["choices"][0]["logprobs"]["tokens"] == expected[number]
        with server.client() as client:
            assert client.get("/load").json()["requests"] == 0
            assert client.post("/v1/completions", json={"model": "xl", "prompt": "a"}).status_code == 200


def test_nobody_waits_for_a_long_text_of_another(server: Server, client: httpx.Client) -> None:
    id = new_session(client)
    fed: list[dict[str, Any]] = []

    def feed() -> None:
        with server.client() as other:
            text = (TEXT * 40_000).encode()  # 2 MB
            fed.append(other.post(f"/v1/sessions/{id}/feed", content=text).raise_for_status().json())

    thread = threading.Thread(target=feed)
    thread.start()
    done = 0
    while thread.is_alive():
        client.post("/v1/completions", json={"model": "xl", "prompt": "a", "max_tokens": 3}).raise_for_status()
        done += 1
    thread.join()
    assert done >= 3  # while the text was read, others were served
    assert fed[0]["characters"] == len(TEXT) * 40_000
    assert client.post(f"/v1/sessions/{id}/feed", content=b"x").status_code == 200
    busy = client.get(f"/v1/sessions/{id}").json()
    assert busy["bytes"] < 100_000  # whatever it has read


@pytest.mark.long
def test_memory_does_not_grow_with_a_text_that_is_fed(server: Server, client: httpx.Client) -> None:
    id = new_session(client, text=TEXT * 1000)
    before, megabytes = server.resident(), soaked(100, least=5)
    part = (TEXT * 2000).encode()
    parts = (part for _ in range(megabytes * 10**6 // len(part)))
    client.post(f"/v1/sessions/{id}/feed", content=parts, timeout=3600).raise_for_status()
    assert server.resident() - before < 20_000_000


def test_one_request_at_a_time_uses_a_session(server: Server, client: httpx.Client) -> None:
    id = new_session(client, text=TEXT)
    asked = threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"The room "
        asked.wait(30)
        yield b"was clean."

    def feed() -> None:
        with server.client() as other:
            other.post(f"/v1/sessions/{id}/feed", content=parts()).raise_for_status()

    thread = threading.Thread(target=feed)
    thread.start()
    while not client.get(f"/v1/sessions/{id}").json()["busy"]:
        time.sleep(0.01)
    for answer in (
        client.post(f"/v1/sessions/{id}/feed", content=b"a"),
        client.post(f"/v1/sessions/{id}/write", json={}),
        client.post(f"/v1/sessions/{id}/fork"),
        client.get(f"/v1/sessions/{id}/state"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "session_busy")
    asked.set()
    thread.join()
    assert client.get(f"/v1/sessions/{id}").json()["busy"] is False
    client.delete(f"/v1/sessions/{id}").raise_for_status()
    assert client.get(f"/v1/sessions/{id}").status_code == 404


def test_a_session_is_where_the_client_saw_it_end(
    server: Server, client: httpx.Client, folders: dict[str, Path]
) -> None:
    alone = open_session(folders["xl"])
    body = {"prompt": "And then ", "max_tokens": 3000, "seed": 7, "logit_bias": ENDLESS}
    for count in (0, 1, 2, 9):
        id = new_session(client, text=TEXT)
        before = client.get(f"/v1/sessions/{id}").json()["tokens"]
        ids = []
        with server.client() as other, other.stream("POST", f"/v1/sessions/{id}/write", json=body) as response:
            found = events(response)
            ids = [next(found)["id"] for _ in range(count)]
        session = _when_free(client, id)
        mine = alone.fork()
        mine.feed(TEXT)
        prompt = session["tokens"] - before
        if prompt:
            whole = client.post(
                "/v1/completions",
                json={"model": "xl", "session": _copy(client, TEXT), **body, "max_tokens": 200, "logprobs": 0},
            ).json()
            mine.feed("And then ")
            mine.feed_tokens([])
            written = session["tokens"] - mine.tokens_read
            assert written >= count
            pieces = whole["choices"][0]["logprobs"]["tokens"][:written]
            known = {mine.tokenizer.token(index): index for index in range(mine.tokenizer.size)}
            tokens = [known[piece] for piece in pieces]
            assert tokens[:count] == ids
            mine.feed_tokens(tokens)
        else:
            assert count == 0
        assert session["tokens"] == mine.tokens_read
        expected = mine.score(str(SCORED["text"])).log_probability
        assert score(client, id) == pytest.approx(expected, abs=TOLERANCE)


def _copy(client: httpx.Client, text: str) -> str:
    return new_session(client, text=text)


def _when_free(client: httpx.Client, id: str) -> dict[str, Any]:
    end = time.monotonic() + 10
    while True:
        session: dict[str, Any] = client.get(f"/v1/sessions/{id}").json()
        if not session["busy"] or time.monotonic() > end:
            assert not session["busy"]
            return session
        time.sleep(0.01)


# ---------------------------------------------------------------------------------------------------- random use


def isolation(server: Server, alone: Session, *, steps: int, sessions: int, seed: int) -> None:
    """Random use of many sessions over HTTP beside the same use of sessions alone: the likelihoods must agree."""
    chance = random.Random(seed)
    mine: dict[str, Session] = {}
    with server.client() as client:
        for _ in range(steps):
            what = chance.random()
            if len(mine) < 2 or (what < 0.1 and len(mine) < sessions):
                id = new_session(client, text="The ")
                mine[id] = alone.fork()
                mine[id].feed("The ")
                continue
            id = chance.choice(list(mine))
            own = mine[id]
            start = chance.randrange(40)
            text = TEXT[start : start + chance.randint(1, 60)]
            if what < 0.35:
                client.post(f"/v1/sessions/{id}/feed", content=text.encode()).raise_for_status()
                own.feed(text)
            elif what < 0.6:
                number, stream = chance.randrange(1000), chance.random() < 0.5
                body = {"prompt": text, "max_tokens": chance.randint(1, 12), "seed": number, "stream": stream}
                answer = client.post(f"/v1/sessions/{id}/write", json=body).raise_for_status()
                found = list(events(answer)) if stream else answer.json()["tokens"]
                expected = written_by(own, text, max_tokens=body["max_tokens"], seed=number)  # type: ignore[arg-type]
                assert [one["id"] for one in found if one.get("id") is not None] == [index for index, _ in expected]
            elif what < 0.7 and len(mine) < sessions:
                other = client.post(f"/v1/sessions/{id}/fork").raise_for_status().json()["id"]
                mine[other] = own.fork()
            elif what < 0.78:
                target = chance.choice(list(mine))
                state = client.get(f"/v1/sessions/{id}/state").raise_for_status().content
                client.put(f"/v1/sessions/{target}/state", content=state).raise_for_status()
                mine[target] = own.fork()
            elif what < 0.83:
                client.delete(f"/v1/sessions/{id}").raise_for_status()
                del mine[id]
            else:
                expected_score = own.fork().score(text).log_probability
                body = {"text": text, "keep": False}
                found_score = client.post(f"/v1/sessions/{id}/score", json=body).raise_for_status().json()["tokens"]
                values = [one["logprob"] for one in found_score if one["logprob"] is not None]
                assert sum(values) == pytest.approx(expected_score, abs=TOLERANCE * max(1, len(values)))
        for id, own in mine.items():
            assert client.get(f"/v1/sessions/{id}").json()["tokens"] == own.tokens_read


OPTIONS = (
    "--set",
    "session_memory=100000",
    "--set",
    "save_after=0.05",
    "--set",
    "max_rows=4",
    "--set",
    "turn_tokens=3",
)


def test_sessions_never_mix(folders: dict[str, Path], tmp_path: Path) -> None:
    """Four at a time, with so little memory that sessions go to disk and come back all the time."""
    with running([folders["xl"]], tmp_path, *OPTIONS) as server:
        _isolated(server, folders["xl"], steps=25, sessions=12)


@pytest.mark.long
def test_sessions_never_mix_for_long(folders: dict[str, Path], tmp_path: Path) -> None:
    with running([folders["xl"]], tmp_path, *OPTIONS) as server:
        _isolated(server, folders["xl"], steps=soaked(5000), sessions=50)


def _isolated(server: Server, folder: Path, *, steps: int, sessions: int) -> None:
    errors: list[BaseException] = []

    def use(seed: int) -> None:
        try:
            isolation(server, open_session(folder), steps=steps, sessions=sessions, seed=seed)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


@pytest.mark.long
def test_overload_for_minutes_grows_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    """SOAK_SECONDS chooses how long."""
    seconds = SOAK
    options = ("--set", "max_queue=8", "--set", "max_queue_per_tenant=8")
    with running([folders["xl"]], tmp_path, *options) as server:
        stop = threading.Event()
        wrong: list[str] = []

        def ask(number: int) -> None:
            with server.client() as client:
                while not stop.is_set():
                    body = {"model": "xl", "prompt": TEXT, "max_tokens": 30, "seed": number}
                    answer = client.post("/v1/completions", json=body)
                    if answer.status_code not in (200, 429):
                        wrong.append(answer.text)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        time.sleep(min(30.0, seconds / 3))
        files = Path(f"/proc/{server.process.pid}/fd")
        memory, opened = server.resident(), len(list(files.iterdir()))
        time.sleep(seconds)
        assert server.resident() - memory < 10_000_000
        assert abs(len(list(files.iterdir())) - opened) < 10
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong
        started = time.monotonic()
        with server.client() as client:
            assert client.post("/v1/completions", json={"model": "xl", "prompt": "a"}).status_code == 200
        assert time.monotonic() - started < 10


def test_json_of_events_has_no_numbers_that_json_lacks() -> None:
    from segue.serve.sse import event
    from segue.serve.writing import finite

    assert json.loads(event({"a": finite(float("-inf"))})[6:]) == {"a": -9999.0}
    with pytest.raises(ValueError, match="Out of range float"):
        event({"a": float("nan")})


def test_tokens_that_were_read_are_counted(server: Server, client: httpx.Client) -> None:
    before = client.get("/load").json()["tokens_read"]
    usage = client.post(f"/v1/sessions/{new_session(client)}/feed", content=(TEXT * 3).encode()).json()["usage"]
    read = usage["prompt_tokens_details"]["read_tokens"]
    assert read > 10
    assert client.get("/load").json()["tokens_read"] - before == read
