"""The store of sessions: killed, full, damaged or gone; sessions that go to disk and come back. Nothing is wrong, and
nothing is lost that was promised."""

import random
import re
import resource
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from segue.infer.session import open_session
from tests.serve.running import running, soaked, start
from tests.serve.test_faults import SCORED, score
from tests.serve.test_text import TEXT, TOLERANCE, events, new_session, written_by


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
    store = tmp_path / "sessions.sqlite"
    options = ("--sessions", str(store), "--set", "save_after=0.05")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        ids = [new_session(client, text=TEXT) for _ in range(3)]
        end = time.monotonic() + 30
        with closing(sqlite3.connect(store)) as connection:
            while connection.execute("SELECT count(*) FROM sessions").fetchone() != (3,) and time.monotonic() < end:
                time.sleep(0.05)
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
