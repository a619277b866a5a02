"""Overload for ten minutes, and many sessions: responses must stay fast and correct, and memory small."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

from benchmarks.serving_client import ask, median, share
from benchmarks.serving_parts import Row, fork_of, row, session_with, shape_of, write_on
from benchmarks.serving_servers import ENDLESS, LARGE, Running, Shape, segue_server, text, write_model

QUEUE = 4
"""Number of requests that the server accepts at a time under overload."""
KINDS = 20
"""Number of different requests."""
TIMES = 5
"""Ratio of requests sent to those that can be answered."""
IDLE = Shape(layers=2, width=64, heads=2, memory=64, vocabulary=2_000)
CAP = 50_000_000
"""Bytes of sessions in memory."""


# ------------------------------------------------------------------------------------------------------------ overload


def overload(folder: Path, *, quick: bool) -> list[Row]:
    """5 times as many requests as can be answered, for 10 minutes."""
    model = write_model(folder / "large", shape_of(LARGE, quick=quick))
    seconds = 4.0 if quick else 600.0
    settings = (f"max_queue={QUEUE}", f"max_queue_per_tenant={QUEUE}")
    with segue_server([model], folder, *settings) as server:
        return asyncio.run(_overload(server, seconds=seconds, quick=quick))


def request(kind: int) -> dict[str, Any]:
    return {
        "model": "large",
        "prompt": text(seed=200 + kind, count=24),
        "max_tokens": 32,
        "seed": kind,
        "logit_bias": ENDLESS,
    }


async def _overload(server: Running, *, seconds: float, quick: bool) -> list[Row]:
    url = server.url

    async def one(kind: int) -> tuple[int, float, str]:
        answer = await ask(url, "POST", "/v1/completions", request(kind))
        found = answer.json()["choices"][0]["text"] if answer.status == 200 else ""
        return answer.status, answer.seconds, found

    right = {kind: (await one(kind))[2] for kind in range(KINDS)}
    alone = [(await one(number % KINDS))[1] for number in range(10 if quick else 100)]
    capacity = await _capacity(one, seconds=1.0 if quick else 15.0)
    accepted: list[float] = []
    counts: dict[str, int] = {"accepted": 0, "refused": 0, "other": 0, "wrong": 0}
    sizes: list[tuple[int, int]] = []

    async def count(kind: int) -> None:
        status, took, found = await one(kind)
        counts["accepted" if status == 200 else "refused" if status == 429 else "other"] += 1
        if status == 200:
            accepted.append(took)
            counts["wrong"] += found != right[kind]

    chance, tasks = random.Random(0), set()
    started = time.perf_counter()
    sent = 0
    while (now := time.perf_counter() - started) < seconds:
        while sent < now * TIMES * capacity:
            task = asyncio.create_task(count(chance.randrange(KINDS)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        if now > 0.1 * seconds * (1 + len(sizes)):
            sizes.append((server.resident(), server.opened()))
        await asyncio.sleep(0.005)
    ended = time.perf_counter()
    limit = 2 * share(alone, 0.99)
    while True:
        status, took, _ = await one(0)
        if status == 200 and took <= limit:
            break
    recovery = time.perf_counter() - ended
    await asyncio.gather(*tasks)
    beside = f"{share(accepted, 0.99) * 1e3:.0f} and {share(alone, 0.99) * 1e3:.0f} ms (medians "
    beside += f"{median(accepted) * 1e3:.0f} and {median(alone) * 1e3:.0f}); {sent / seconds:.0f} requests/s where "
    beside += f"{capacity:.1f} can be answered"
    spread = f"{counts['accepted']:,} accepted, {counts['refused']:,} refused with 429, {counts['other']} other answers"
    first, last = sizes[0], sizes[-1]
    files = f"open files and sockets {first[1]} and {last[1]}"
    minutes = f"{seconds / 60:.0f} minutes" if seconds >= 60 else f"{seconds:.0f} s"
    ratio = share(accepted, 0.99) / share(alone, 0.99)
    work = f"{TIMES} times overload for {minutes}"
    return [
        row(f"{work}: p99 of accepted requests, to one client alone", ratio, goal=2.0, most=True, beside=beside),
        row(f"{work}: wrong answers", counts["wrong"] + counts["other"], unit="", goal=0.0, most=True, beside=spread),
        row(
            f"{work}: resident size at the end, to that after a tenth",
            last[0] / first[0],
            goal=1.02,
            most=True,
            beside=f"{first[0] / 1e6:,.0f} and {last[0] / 1e6:,.0f} MB; {files}",
        ),
        row(f"{work}: until a request is as quick as before", recovery, unit="s", goal=10.0, most=True),
    ]


async def _capacity(one: Any, *, seconds: float) -> float:
    """Return the requests per second that can be answered by as many clients as the server accepts. A refused one,
    because the place of an answered request is not free yet, waits a little: retrying at once would take time from the
    others."""
    end = time.perf_counter() + seconds
    done = 0

    async def client(kind: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            answered = (await one(kind))[0] == 200
            done += answered
            if not answered:
                await asyncio.sleep(0.02)

    started = time.perf_counter()
    await asyncio.gather(*(client(kind) for kind in range(QUEUE)))
    return done / (time.perf_counter() - started)


# ---------------------------------------------------------------------------------------------------- idle sessions


def idle(folder: Path, *, quick: bool) -> list[Row]:
    """10,000 sessions that have read different texts, 50 of which generate."""
    many, active, looked_at = (60, 5, 10) if quick else (10_000, 50, 500)
    model = write_model(folder / "idle", IDLE)
    cap = 1_000_000 if quick else CAP
    settings = (f"session_memory={cap}", "save_after=0.2", f"max_sessions={many + active + 10}", "max_queue=256")
    with segue_server([model], folder, *settings) as server:
        return asyncio.run(_idle(server, many=many, active=active, looked_at=looked_at, cap=cap))


async def _idle(server: Running, *, many: int, active: int, looked_at: int, cap: int) -> list[Row]:
    url = server.url
    await session_with(url, "idle", text(seed=1, count=100))
    before = server.resident()
    ids: list[str] = []
    first: dict[str, float] = {}
    """Output of some sessions when they are new: later ones evict them from memory."""
    for number in range(many):
        ids.append(await session_with(url, "idle", text(seed=1000 + number, count=40)))
        if number % max(1, many // looked_at) == 0:
            first[ids[-1]] = await _score(url, ids[-1])
    chosen = list(first)
    while await _bytes_in_memory(url) > cap:
        await asyncio.sleep(0.2)
    writers = ids[1 :: max(1, many // active)][:active]
    alone = {id: (await write_on(url, await fork_of(url, id), tokens=20)).events for id in writers}
    together = await asyncio.gather(*(write_on(url, id, tokens=20) for id in writers))
    worst, same = 0.0, 0
    for id, found in zip(writers, together, strict=True):
        same += [one["id"] for one in found.events] == [one["id"] for one in alone[id]]
        pairs = zip(found.events, alone[id], strict=True)
        worst = max([worst, *(abs(a["logprob"] - b["logprob"]) for a, b in pairs)])
    places = [(await ask(url, "GET", f"/v1/sessions/{id}")).right().json()["place"] for id in chosen]
    again = {id: await _score(url, id) for id in chosen}
    equal = sum(first[id] == again[id] for id in chosen)
    while await _bytes_in_memory(url) > cap:
        await asyncio.sleep(0.2)
    load = (await ask(url, "GET", "/load")).right().json()
    grown = server.resident() - before
    beside = f"{load['sessions']:,} sessions, {load['sessions_in_memory']:,} of them in memory, "
    beside += f"{load['session_bytes']:,} bytes; the process grew by {grown / 1e6:.0f} MB"
    return [
        row(
            f"{many:,} sessions: bytes in memory, to the cap",
            load["session_bytes"] / cap,
            goal=1.0,
            most=True,
            beside=beside,
        ),
        row(
            "those that were looked at again are the same, to the bit",
            equal / len(chosen),
            unit="of all",
            goal=1.0,
            most=False,
            beside=f"{len(chosen)} sessions, {places.count('disk')} of them on disk",
        ),
        row(
            f"{active} that write at a time: the largest difference to each alone",
            worst,
            unit="",
            goal=1e-4,
            most=True,
            beside=f"{same} of {active} wrote the same tokens",
        ),
    ]


async def _score(url: str, id: str) -> float:
    body = {"text": "banana ", "keep": False}
    found: float = (await ask(url, "POST", f"/v1/sessions/{id}/score", body)).right().json()["logprob"]
    return found


async def _bytes_in_memory(url: str) -> int:
    found: int = (await ask(url, "GET", "/load")).right().json()["session_bytes"]
    return found
