"""Do sessions mix? Random concurrent use of many of them, compared with the same use of each alone.

segue: processes that each own some of the sessions create, delete, feed, fork, write, score, download and restore
states, and disconnect in the middle of a stream; the server has so little memory that sessions move to disk and back
all the time. Every log-probability in a response is compared with that of a Session in the client, which reads the
tokens that the server generated. It also samples them again with the same seed: if a text was read in other parts,
values differ by rounding, and a sample at the border between two tokens may give the other one, so these are counted
separately.

llama.cpp: the same with slots: texts are generated in slots that are saved, restored into others, erased and abandoned
in the middle of a stream; the output of a slot is compared with a server that reads the whole text anew for each
request.
"""

import asyncio
import hashlib
import multiprocessing
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load

from benchmarks.serving_client import Stream, ask, stream
from benchmarks.serving_parts import Row, row
from benchmarks.serving_servers import ENDLESS, LLAMA, SMALL, llama_server, segue_server, text, version, write_model
from segue.infer.sampling import SamplingSettings
from segue.infer.session import Session, open_session
from segue.serve.states import MAGIC

TOLERANCE = 1e-4
CLIENTS, SLOTS = 4, 8
_MEMORY = 5_000
"""Bytes of memory per session: room for about a quarter of the sessions."""


class Compared:
    """Log-probabilities compared with those of the same session alone."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.values, self.beyond, self.largest = 0, 0, 0.0
        self.drawn, self.drawn_again = 0, 0
        """Number of tokens that the server generated, and of those at which the Session with the same seed sampled
        another one."""
        self.without = 0
        """Number of responses of llama.cpp without log-probabilities."""
        self.contrast: list[float] = []
        """Differences between the numbers of two different sessions, by which a mix-up would be noticed."""

    def add(self, found: list[float], expected: list[float]) -> None:
        if len(found) != len(expected):
            self.beyond += abs(len(found) - len(expected))
        for ours, theirs in zip(found, expected, strict=False):
            difference = abs(ours - theirs)
            self.values += 1
            self.beyond += not difference <= TOLERANCE
            self.largest = max(self.largest, difference)

    def merge(self, other: "Compared") -> None:
        self.steps += other.steps
        self.values, self.beyond = self.values + other.values, self.beyond + other.beyond
        self.largest = max(self.largest, other.largest)
        self.drawn, self.drawn_again = self.drawn + other.drawn, self.drawn_again + other.drawn_again
        self.contrast += other.contrast


def isolation(folder: Path, *, quick: bool) -> list[Row]:
    """100,000 steps over 200 sessions."""
    steps, sessions = (200, 20) if quick else (100_000, 200)
    model = write_model(folder / "small", SMALL)
    settings = (
        f"session_memory={_MEMORY * sessions}",
        "save_after=2.0",
        "max_rows=3",
        "turn_tokens=3",
        "slice_tokens=16",
    )
    with segue_server([model], folder, *settings) as server:
        jobs = [(server.url, model, steps // CLIENTS, sessions // CLIENTS, seed) for seed in range(CLIENTS)]
        with multiprocessing.get_context("spawn").Pool(CLIENTS) as pool:
            found = _together(pool.starmap(use_segue, jobs))
        metrics = asyncio.run(ask(server.url, "GET", "/metrics")).right().body.decode()
    evicted, restored = (_figure(metrics, f"segue_session_{name}_total") for name in ("evictions", "restores"))
    kinds = ", ".join(f"{count:,} {name}" for name, count in sorted(found.steps.items()))
    contrast = sorted(found.contrast)[len(found.contrast) // 2]
    beside = (
        f"{found.values:,} log-probabilities, the largest difference {found.largest:.1e}; {kinds}; sessions went to "
    )
    beside += (
        f"disk {evicted:,} times and came back {restored:,}; two different sessions differ by {contrast:.1e} (median); "
        f"of {found.drawn:,} tokens written, {found.drawn_again} were drawn otherwise by rounding"
    )
    total = sum(found.steps.values())
    return [
        row(
            f"{total:,} steps over {sessions} sessions: beyond {TOLERANCE:g}",
            found.beyond,
            unit="",
            goal=0.0,
            most=True,
            beside=beside,
        ),
    ]


def isolation_llama(folder: Path, *, quick: bool) -> list[Row]:
    """The same probe on llama.cpp: 3,000 steps over 8 slots."""
    found = _llama(folder, steps=40 if quick else 3_000)
    kinds = ", ".join(f"{count:,} {name}" for name, count in sorted(found.steps.items()))
    beside = f"{found.values:,} log-probabilities, the largest difference {found.largest:.1e}; {kinds}; "
    if found.without:
        beside += f"{found.without} answers came without log-probabilities and are not compared; "
    beside += f"cache of float32, xllamacpp {version(LLAMA, 'xllamacpp')}"
    work = f"llama.cpp, {sum(found.steps.values()):,} steps over {SLOTS} slots: beyond {TOLERANCE:g}"
    return [row(work, found.beyond, unit="", goal=None, most=True, beside=beside)]


def _together(found: list[Compared]) -> Compared:
    whole = Compared()
    for one in found:
        whole.merge(one)
    return whole


def _figure(metrics: str, name: str) -> int:
    found = re.search(rf"^{name} (\S+)$", metrics, flags=re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


# ------------------------------------------------------------------------------------------------------------- segue


def use_segue(url: str, model: Path, steps: int, sessions: int, seed: int) -> Compared:
    """Run one client, with sessions of its own."""
    import torch

    torch.set_num_threads(1)
    return asyncio.run(_Client(url, open_session(model), sessions=sessions, seed=seed, tells=seed == 0).use(steps))


class _Client:
    """Its sessions by id, each with the same session alone."""

    def __init__(self, url: str, alone: Session, *, sessions: int, seed: int, tells: bool) -> None:
        self._url, self._alone, self._most, self._tells = url, alone, sessions, tells
        self._chance = random.Random(seed)
        self._words = text(seed=10 + seed, count=3000)
        self._mine: dict[str, Session] = {}
        self._compared = Compared()

    async def use(self, steps: int) -> Compared:
        chance = self._chance
        actions = {
            "delete": 3,
            "fork": 5,
            "restore": 6,
            "feed": 25,
            "write": 22,
            "cancel": 14,
            "score": 25,
        }
        while sum(self._compared.steps.values()) < steps:
            if len(self._mine) < 2 or (len(self._mine) < self._most and chance.random() < 0.3):
                await self._create()
                continue
            (what,) = chance.choices(list(actions), list(actions.values()))
            if what == "fork" and len(self._mine) >= self._most:
                continue
            self._compared.steps[what] += 1
            await getattr(self, f"_{what}")(chance.choice(list(self._mine)))
            done = sum(self._compared.steps.values())
            if self._tells and done % 1000 == 0:
                print(f"   {done:,} of {steps:,} steps of each client", flush=True)
        return self._compared

    async def _ask(self, method: str, path: str, body: dict[str, Any] | bytes | None = None) -> Any:
        answer = (await ask(self._url, method, f"/v1/sessions{path}", body)).right()
        return answer.body if path.endswith("/state") and method == "GET" else answer.json()

    def _text(self) -> str:
        start = self._chance.randrange(len(self._words) - 30)
        return self._words[start : start + self._chance.randint(1, 30)]

    async def _create(self) -> None:
        self._compared.steps["create"] += 1
        self._mine[(await self._ask("POST", "", {"model": "small"}))["id"]] = self._alone.fork()

    async def _delete(self, id: str) -> None:
        await self._ask("DELETE", f"/{id}")
        del self._mine[id]

    async def _fork(self, id: str) -> None:
        self._mine[(await self._ask("POST", f"/{id}/fork"))["id"]] = self._mine[id].fork()

    async def _restore(self, id: str) -> None:
        """Restore the state of one session into another one."""
        target = self._chance.choice(list(self._mine))
        await self._ask("PUT", f"/{target}/state", await self._ask("GET", f"/{id}/state"))
        self._mine[target] = self._mine[id].fork()

    async def _feed(self, id: str) -> None:
        words = self._text()
        await self._ask("POST", f"/{id}/feed", words.encode())
        self._mine[id].feed(words)

    async def _score(self, id: str) -> None:
        words, keep = self._text(), self._chance.random() < 0.5
        found = await self._ask("POST", f"/{id}/score", {"text": words, "keep": keep})
        own = self._mine[id] if keep else self._mine[id].fork()
        expected = _values(own, words)
        self._compared.add([one["logprob"] for one in found["tokens"] if one["logprob"] is not None], expected)
        other = self._chance.choice(list(self._mine))
        if other != id and not keep:
            apart = [abs(a - b) for a, b in zip(_values(self._mine[other].fork(), words), expected, strict=True)]
            self._compared.contrast.append(max(apart))

    async def _write(self, id: str) -> None:
        how = self._how()
        found = await stream(self._url, f"/v1/sessions/{id}/write", how)
        self._follow(id, how, found, written=[one["id"] for one in found.events])

    async def _cancel(self, id: str) -> None:
        """Disconnect after some tokens: the session continues after the last event that was sent."""
        how, own = self._how(), self._mine[id]
        before = own.tokens_read
        found = await stream(
            self._url,
            f"/v1/sessions/{id}/write",
            {**how, "max_tokens": 50},
            leave_after=self._chance.randint(1, how["max_tokens"]),
        )
        while (session := await self._ask("GET", f"/{id}"))["busy"]:
            await asyncio.sleep(0.002)
        if session["tokens"] == before:
            self._compared.beyond += len(found.events)  # tokens that were seen are lost
            return
        trial = own.fork()
        trial.feed(how["prompt"])
        trial.feed_tokens([])  # like a generation request, it reads the text held back
        ids = _last_ids(await self._ask("GET", f"/{id}/state"))
        self._follow(id, how, found, written=ids[len(ids) - (session["tokens"] - trial.tokens_read) :])

    def _how(self) -> dict[str, Any]:
        chance = self._chance
        return {
            "prompt": self._text(),
            "max_tokens": chance.randint(1, 4),
            "seed": chance.randrange(10**6),
            "logit_bias": ENDLESS,
        }

    def _follow(self, id: str, how: dict[str, Any], found: Stream, *, written: list[int]) -> None:
        """Let the session alone read the prompt and the generated tokens; those that were received are compared."""
        compared, own, seen = self._compared, self._mine[id], found.events
        own.feed(how["prompt"])
        ready = own.ready()
        bias = {int(index): float("-inf") for index in ENDLESS}
        sampling = SamplingSettings(seed=how["seed"], top_k=None, logit_bias=bias)
        drawn = [one.id for one in own.fork().write(max_tokens=max(1, len(written)), sampling=sampling)]
        compared.drawn += len(written)
        compared.drawn_again += drawn[: len(written)] != written
        compared.beyond += [one["id"] for one in seen] != written[: len(seen)]
        compared.add([one["logprob"] for one in seen], ready.score(np.array(written)).tolist()[: len(seen)])


def _last_ids(state: bytes) -> list[int]:
    """Return the ids at the end of what a session has read and generated, from its state."""
    tensors = load(state[len(MAGIC) + hashlib.sha256().digest_size :])
    return [*tensors["recent"].tolist(), *tensors["unread"].tolist()]


def _values(session: Session, words: str) -> list[float]:
    return [one.log_probability for one in session.score(words).tokens if one.log_probability is not None]


# --------------------------------------------------------------------------------------------------------- llama.cpp


def _llama(folder: Path, *, steps: int) -> Compared:
    options = ("--layers", str(SMALL.layers), "--width", str(SMALL.width), "--heads", str(SMALL.heads))
    options += ("--inner-width", str(SMALL.inner_width), "--vocabulary", str(SMALL.vocabulary))
    options += ("--spread", str(SMALL.spread), "--whole-cache", "--context", "1024", "--threads", "1")
    with (
        llama_server(folder / "llama-many", *options, "--slots", str(SLOTS)) as many,
        llama_server(folder / "llama-alone", *options, "--slots", "1") as alone,
    ):
        return asyncio.run(_use_llama(many.url, alone.url, steps=steps))


async def _use_llama(url: str, alone: str, *, steps: int) -> Compared:
    """Run clients that each own two slots."""
    compared = Compared()
    each = SLOTS // CLIENTS
    await asyncio.gather(
        *(
            _llama_client(
                url, alone, compared, slots=range(each * seed, each * (seed + 1)), steps=steps // CLIENTS, seed=seed
            )
            for seed in range(CLIENTS)
        )
    )
    return compared


async def _llama_client(url: str, alone: str, compared: Compared, *, slots: range, steps: int, seed: int) -> None:
    chance = random.Random(seed)
    texts: dict[int, list[int]] = {slot: [] for slot in slots}
    saved: dict[str, list[int]] = {}
    for _ in range(steps):
        slot = chance.choice(list(slots))
        what = chance.choices(["write", "cancel", "save", "restore", "erase"], [50, 15, 15, 15, 5])[0]
        if what == "restore" and not saved:
            what = "write"
        compared.steps[what] += 1
        if what == "save" and texts[slot]:
            name = f"{seed}-{chance.randrange(6)}"
            (await ask(url, "POST", f"/slots/{slot}?action=save", {"filename": name})).right()
            saved[name] = list(texts[slot])
        elif what == "restore":
            name = chance.choice(list(saved))
            (await ask(url, "POST", f"/slots/{slot}?action=restore", {"filename": name})).right()
            texts[slot] = list(saved[name])
        elif what == "erase":
            (await ask(url, "POST", f"/slots/{slot}?action=erase", {})).right()
            texts[slot] = []
        elif what in ("write", "cancel"):
            await _llama_write(url, alone, compared, texts, slot, chance, leaves=what == "cancel")


async def _llama_write(
    url: str,
    alone: str,
    compared: Compared,
    texts: dict[int, list[int]],
    slot: int,
    chance: random.Random,
    *,
    leaves: bool,
) -> None:
    """Add some ids to the text of a slot, and generate a token; the most likely ones must be as likely as on the server
    that reads the text anew."""
    prompt = [*texts[slot], *(chance.randrange(300, 1900) for _ in range(chance.randint(1, 20)))]
    if len(prompt) > 900:
        prompt = prompt[-20:]
    body = {"prompt": prompt, "n_predict": 1, "n_probs": 5, "temperature": 0, "ignore_eos": True}
    if leaves:
        await stream(url, "/completion", {**body, "n_predict": 30, "id_slot": slot, "stream": True}, leave_after=3)
        texts[slot] = prompt
        return
    found = (await ask(url, "POST", "/completion", {**body, "id_slot": slot, "cache_prompt": True})).right().json()
    right = (await ask(alone, "POST", "/completion", {**body, "cache_prompt": False})).right().json()
    if not all("completion_probabilities" in answer for answer in (found, right)):
        compared.without += 1
        texts[slot] = prompt
        return
    tops = [
        {one["id"]: one["logprob"] for one in answer["completion_probabilities"][0]["top_logprobs"]}
        for answer in (found, right)
    ]
    common = sorted(tops[0].keys() & tops[1].keys())
    compared.add([tops[0][index] for index in common], [tops[1][index] for index in common])
    if len(common) < 4:  # entirely different tokens
        compared.beyond += 1
    texts[slot] = prompt
