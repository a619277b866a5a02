"""The server ends, is killed, is overloaded, has no room on its disk, gets requests that raise: nothing is wrong, and
nothing is lost that was promised."""

import json
import random
import re
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from segue.infer.session import Session, open_session
from tests.serve.running import SOAK, Server, running, soaked, start
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
            time.sleep(0.1)
            try:  # while it drains it says so; it may have ended already
                assert client.get("/ready").status_code == 503
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


def test_after_kill_9_every_session_is_as_it_was_written(folders: dict[str, Path], tmp_path: Path) -> None:
    store = tmp_path / "sessions.sqlite"
    chance = random.Random(0)
    alone = open_session(folders["xl"])
    kept: dict[str, dict[int, float]] = {}
    """For each session, the likelihood of a text by the number of tokens read before it."""
    for _ in range(3):
        server = start([folders["xl"]], tmp_path, "--sessions", str(store), "--set", "save_after=0.05")
        with server.client() as client:
            for one in client.get("/v1/sessions").json()["data"]:
                assert score(client, one["id"]) == pytest.approx(kept[one["id"]][one["tokens"]], abs=TOLERANCE)
            for _ in range(4):
                id = new_session(client)
                kept[id] = {0: score(client, id)}
            end = time.monotonic() + chance.uniform(0.2, 0.5)
            while time.monotonic() < end:
                id = chance.choice([one["id"] for one in client.get("/v1/sessions").json()["data"]])
                client.post(
                    f"/v1/sessions/{id}/feed", content=TEXT[: chance.randint(1, 50)].encode()
                ).raise_for_status()
                kept[id][client.get(f"/v1/sessions/{id}").json()["tokens"]] = score(client, id)
        server.stop(signal.SIGKILL)
    with closing(sqlite3.connect(store)) as connection, connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM sessions").fetchone()[0] > 0
    assert alone.tokens_read == 0


# ------------------------------------------------------------------------------------------------- memory and disk


def test_idle_sessions_go_to_disk_and_come_back_to_the_bit(folders: dict[str, Path], tmp_path: Path) -> None:
    options = ("--set", "session_memory=100000", "--set", "save_after=0.05")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        ids = [new_session(client, text=f"{number} {TEXT * 4}") for number in range(30)]
        fresh = {id: score(client, id) for id in ids}
        end = time.monotonic() + 20
        while client.get("/load").json()["session_bytes"] > 100_000 and time.monotonic() < end:
            time.sleep(0.05)
        load = client.get("/load").json()
        assert load["session_bytes"] <= 100_000
        assert load["sessions"] == 30
        assert load["sessions_in_memory"] < 10
        places = {one["place"] for one in client.get("/v1/sessions").json()["data"]}
        assert places == {"memory", "disk"}
        assert {id: score(client, id) for id in ids} == fresh  # to the bit
        assert "segue_session_restores_total" in client.get("/metrics").text
        for id in ids:
            client.delete(f"/v1/sessions/{id}").raise_for_status()
        assert client.get("/load").json()["session_bytes"] == 0


def test_a_full_disk_loses_nothing_that_is_in_memory(folders: dict[str, Path], tmp_path: Path) -> None:
    """The file of sessions may not grow beyond a limit, as on a full disk."""
    options = ("--sessions", str(tmp_path / "sessions.sqlite"), "--set", "save_after=0.05")
    options += ("--set", "session_memory=300000")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (200_000, 200_000))
        ids: list[str] = []
        refusal = None
        for number in range(60):
            answer = client.post("/v1/sessions", json={"model": "xl"})
            if answer.status_code != 201:
                refusal = answer
                break
            id = answer.json()["id"]
            fed = client.post(f"/v1/sessions/{id}/feed", content=f"{number} {TEXT * 4}".encode())
            if fed.status_code != 200:
                refusal = fed
                break
            ids.append(id)
            time.sleep(0.1)
        assert refusal is not None
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (507, "store_full")
        assert client.get("/health").status_code == 200
        assert "segue_session_save_failures_total" in client.get("/metrics").text
        fresh = open_session(folders["xl"])
        for number, id in enumerate(ids):
            mine = fresh.fork()
            mine.feed(f"{number} {TEXT * 4}")
            mine = mine.fork()
            assert score(client, id) == pytest.approx(mine.score(str(SCORED["text"])).log_probability, abs=TOLERANCE)
        assert client.post("/v1/completions", json={"model": "xl", "prompt": "a"}).status_code == 200
        assert server.stop() == 2
        assert re.search(r"[1-9]\d* of [1-9]\d* could not be", " ".join(server.log.read_text().split()))


def test_room_on_the_disk_ends_the_refusals(folders: dict[str, Path], tmp_path: Path) -> None:
    options = ("--sessions", str(tmp_path / "sessions.sqlite"), "--set", "save_after=0.05")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        id = new_session(client, text=TEXT)
        time.sleep(0.5)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        while (answer := client.post(f"/v1/sessions/{id}/feed", content=TEXT.encode())).status_code == 200:
            time.sleep(0.1)
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "store_full")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        while client.post(f"/v1/sessions/{id}/feed", content=TEXT.encode()).status_code == 507:
            time.sleep(0.1)
        assert server.stop() == 0


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_of_sessions_that_is_gone_is_told(replaced: bool, folders: dict[str, Path], tmp_path: Path) -> None:
    store = tmp_path / "sessions.sqlite"
    options = ("--sessions", str(store), "--set", "save_after=0.05")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        id = new_session(client, text=TEXT)
        time.sleep(0.5)
        store.unlink()
        if replaced:
            store.write_bytes(b"")
        while (answer := client.post(f"/v1/sessions/{id}/feed", content=TEXT.encode())).status_code == 200:
            time.sleep(0.1)
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "store_full")
        assert client.delete(f"/v1/sessions/{id}").status_code == 503
        assert server.stop() == 2
        assert "was deleted or replaced while it was in use" in " ".join(server.log.read_text().split())


def test_what_was_deleted_stays_so_after_kill_9(folders: dict[str, Path], tmp_path: Path) -> None:
    options = ("--sessions", str(tmp_path / "sessions.sqlite"), "--set", "save_after=0.05")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        ids = [new_session(client, text=TEXT) for _ in range(3)]
        time.sleep(0.5)
        for id in ids[:2]:
            client.delete(f"/v1/sessions/{id}").raise_for_status()
        server.stop(signal.SIGKILL)
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        assert [one["id"] for one in client.get("/v1/sessions").json()["data"]] == ids[2:]


def test_a_row_that_is_damaged_keeps_no_server_from_starting(folders: dict[str, Path], tmp_path: Path) -> None:
    store = tmp_path / "sessions.sqlite"
    with running([folders["xl"]], tmp_path, "--sessions", str(store)) as server, server.client() as client:
        ids = [new_session(client, text=TEXT) for _ in range(3)]
        server.stop()
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE sessions SET idle = 'x' WHERE id = ?", (ids[0],))
        connection.execute("UPDATE sessions SET tokens = -5 WHERE id = ?", (ids[1],))
    with running([folders["xl"]], tmp_path, "--sessions", str(store)) as server, server.client() as client:
        assert [one["id"] for one in client.get("/v1/sessions").json()["data"]] == ids[2:]


def test_a_damaged_file_of_sessions_gives_no_wrong_answer(folders: dict[str, Path], tmp_path: Path) -> None:
    store = tmp_path / "sessions.sqlite"
    with running([folders["xl"]], tmp_path, "--sessions", str(store)) as server, server.client() as client:
        id, other = new_session(client, text=TEXT), new_session(client, text=TEXT)
        expected = score(client, other)
        server.stop()
    with closing(sqlite3.connect(store)) as connection, connection:
        (state,) = connection.execute("SELECT state FROM sessions WHERE id = ?", (id,)).fetchone()
        spoiled = bytearray(state)
        spoiled[len(state) // 2] ^= 4
        connection.execute("UPDATE sessions SET state = ? WHERE id = ?", (bytes(spoiled), id))
    with running([folders["xl"]], tmp_path, "--sessions", str(store)) as server, server.client() as client:
        answer = client.post(f"/v1/sessions/{id}/score", json=SCORED)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "state_refused")
        assert score(client, other) == expected
        assert client.delete(f"/v1/sessions/{id}").status_code == 200
    with running([folders["xlnet"]], tmp_path, "--sessions", str(store)) as server, server.client() as client:
        answer = client.post(f"/v1/sessions/{other}/score", json=SCORED)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "model_not_served")
    store.write_bytes(b"no database" * 1000)
    with pytest.raises(AssertionError, match="must be a SQLite file of sessions"):
        start([folders["xl"]], tmp_path, "--sessions", str(store))


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
        _isolated(server, folders["xl"], steps=40, sessions=12)


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
def test_ten_thousand_idle_sessions_and_fifty_active(folders: dict[str, Path], tmp_path: Path) -> None:
    many = soaked(10_000, least=200)
    memory = 2_000 * many  # of 10,000 sessions: 20 MB
    options = ("--set", f"session_memory={memory}", "--set", "save_after=0.05", "--set", "max_sessions=20000")
    alone = open_session(folders["xl"])
    with running([folders["xl"]], tmp_path, *options) as server:
        with server.client() as client:
            first = new_session(client, text=TEXT * 4)
            ids = [client.post(f"/v1/sessions/{first}/fork").raise_for_status().json()["id"] for _ in range(many)]
        before = server.resident()
        mine = alone.fork()
        mine.feed(TEXT * 4)
        expected = {seed: written_by(mine.fork(), "", max_tokens=60, seed=seed) for seed in range(50)}
        found: dict[int, list[int]] = {}

        def write(seed: int) -> None:
            with server.client() as client:
                body = {"max_tokens": 60, "seed": seed}
                answer = client.post(f"/v1/sessions/{ids[seed * (many // 50)]}/write", json=body).raise_for_status()
                found[seed] = [one["id"] for one in events(answer) if one.get("id") is not None]

        threads = [threading.Thread(target=write, args=(seed,)) for seed in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for seed, tokens in expected.items():
            assert found[seed] == [index for index, _ in tokens]
        assert server.resident() - before < 200_000_000
        with server.client() as client:
            value = score(client, ids[1])
            assert all(score(client, ids[place]) == value for place in range(2, many, many // 10 - 3))
            assert client.get("/load").json()["session_bytes"] <= memory + 1_000_000


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
