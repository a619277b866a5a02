"""The cost of serving: tokens after long texts, forks, many clients, the first token beside a long prompt, HTTP itself.

Each part takes a work folder and returns its rows: what was measured, the value, the goal, and a comparison. Compared
sides take turns.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.serving_client import Stream, ask, median, share, stream
from benchmarks.serving_servers import (
    ENDLESS,
    LARGE,
    LLAMA,
    MIDDLE,
    TRANSFORMERS,
    Shape,
    llama_server,
    segue_server,
    text,
    text_of,
    transformers_server,
    version,
    write_for_transformers,
    write_model,
)
from segue.infer.sampling import SamplingSettings
from segue.infer.saved_session import unpacked
from segue.infer.session import Session, open_session
from segue.serve.models import load_all
from segue.serve.serving import Serving
from segue.serve.settings import ServeSettings

Row = dict[str, Any]
TINY = Shape(layers=2, width=32, heads=2, memory=32, vocabulary=2_000)
"""Shape with `--quick`: whether it runs, not how fast."""


def row(work: str, figure: float, *, unit: str = "times", goal: float | None, most: bool, beside: str = "") -> Row:
    """Return a row of the table. The goal is a maximum with `most`, otherwise a minimum."""
    reached = goal is not None and (figure <= goal if most else figure >= goal)
    return {
        "work": work,
        "figure": figure,
        "unit": unit,
        "goal": goal,
        "most": most,
        "reached": reached,
        "beside": beside,
    }


def shape_of(shape: Shape, *, quick: bool) -> Shape:
    return TINY if quick else shape


async def session_with(url: str, model: str, words: str) -> str:
    """Create a session that has read a text."""
    id: str = (await ask(url, "POST", "/v1/sessions", {"model": model})).right().json()["id"]
    (await ask(url, "POST", f"/v1/sessions/{id}/feed", words.encode())).right()
    return id


async def fork_of(url: str, id: str) -> str:
    found: str = (await ask(url, "POST", f"/v1/sessions/{id}/fork")).right().json()["id"]
    return found


async def write_on(url: str, id: str, *, tokens: int, seed: int = 1) -> Stream:
    """Let the session generate, token by token."""
    body = {"max_tokens": tokens, "seed": seed, "logit_bias": ENDLESS, "logprobs": 1}
    return await stream(url, f"/v1/sessions/{id}/write", body)


async def write_on_fork(url: str, id: str, *, tokens: int) -> Stream:
    """Generate from a fork, so that the session stays where it is."""
    other = await fork_of(url, id)
    found = await write_on(url, other, tokens=tokens)
    await ask(url, "DELETE", f"/v1/sessions/{other}")
    return found


# ------------------------------------------------------------------------------------------------------ long texts


def length(folder: Path, *, quick: bool) -> list[Row]:
    """After 64,000 tokens against after 1,000: the time per token, and the size of a session; beside llama.cpp."""
    short, long, tokens, rounds = (100, 600, 8, 2) if quick else (1_000, 64_000, 48, 7)
    rows: list[Row] = []
    for name, shape in (("middle", MIDDLE), ("large", LARGE)):
        shape = shape_of(shape, quick=quick)
        model = write_model(folder / name, shape)
        with segue_server([model], folder) as server:
            texts = {"short": text_of(model, seed=2, tokens=short), "long": text_of(model, seed=3, tokens=long)}
            found = asyncio.run(_segue_length(server.url, name, texts, tokens=tokens, rounds=rounds))
        beside = f"{shape.layers} layers, width {shape.width}: {_ms(found['short'])} and {_ms(found['long'])} a token"
        ratio = found["long"] / found["short"]
        rows.append(
            row(f"a token after {long:,} tokens, to after {short:,}", ratio, goal=1.05, most=True, beside=beside)
        )
        if name == "middle":
            rows += _beside_llama(folder, shape, found, short=short, long=long, tokens=tokens, rounds=rounds)
        restored = "the state taken away and brought back writes the same, to the bit"
        rows.append(
            row(
                f"{restored} ({shape.layers} layers, width {shape.width})",
                float(found["restored"]),
                unit="of 1",
                goal=1.0,
                most=False,
                beside=f"{found['bytes']:,} bytes after {found['tokens']:,} tokens",
            )
        )
    return rows


async def _segue_length(url: str, model: str, texts: dict[str, str], *, tokens: int, rounds: int) -> dict[str, Any]:
    base = {name: await session_with(url, model, words) for name, words in texts.items()}
    times: dict[str, list[float]] = {"short": [], "long": []}
    for number in range(rounds + 1):
        for name, id in base.items():
            found = await write_on_fork(url, id, tokens=tokens)
            if number:
                times[name].append(found.seconds_a_token())
    state = (await ask(url, "GET", f"/v1/sessions/{base['long']}/state")).right().body
    other = (await ask(url, "POST", "/v1/sessions", {"model": model})).right().json()["id"]
    (await ask(url, "PUT", f"/v1/sessions/{other}/state", state)).right()
    first, second = [(await write_on(url, id, tokens=tokens)).events for id in (base["long"], other)]
    read = (await ask(url, "GET", f"/v1/sessions/{other}")).right().json()["tokens"] - tokens
    return {
        **{name: median(values) for name, values in times.items()},
        "bytes": len(state),
        "tokens": read,
        "restored": first == second,
    }


def _beside_llama(
    folder: Path, shape: Shape, ours: dict[str, Any], *, short: int, long: int, tokens: int, rounds: int
) -> list[Row]:
    options = ("--layers", str(shape.layers), "--width", str(shape.width), "--heads", str(shape.heads))
    options += ("--inner-width", str(shape.inner_width), "--vocabulary", str(shape.vocabulary))
    options += ("--context", str(long + 64 * tokens), "--slots", "2")
    with llama_server(folder / "llama", *options) as server:
        theirs = asyncio.run(_llama_length(server.url, short=short, long=long, tokens=tokens, rounds=rounds))
        about = f"xllamacpp {version(LLAMA, 'xllamacpp')}, {int(server.facts['parameters']):,} weights"
    ratio = theirs["long"] / theirs["short"]
    beside = f"{about}, cache of float16: {_ms(theirs['short'])} and {_ms(theirs['long'])} a token"
    part = theirs["bytes"] / ours["bytes"]
    equal = "writes the same" if theirs["restored"] else "writes something else"
    return [
        row(f"the same, llama.cpp ({long:,} tokens)", ratio, goal=None, most=True, beside=beside),
        row(
            f"its slot after {long:,} tokens, to a session's state",
            part,
            goal=20.0,
            most=False,
            beside=f"{theirs['bytes']:,} to {ours['bytes']:,} bytes; restored into another slot it {equal}",
        ),
    ]


async def _llama_length(url: str, *, short: int, long: int, tokens: int, rounds: int) -> dict[str, Any]:
    prompts = {
        name: [300 + (7 * place) % 900 for place in range(size)] for name, size in (("short", short), ("long", long))
    }
    slots = {"short": 0, "long": 1}

    async def write(name: str, slot: int) -> tuple[float, Any]:
        body = {"prompt": prompts[name], "n_predict": tokens, "id_slot": slot, "cache_prompt": True, "temperature": 0}
        found = (await ask(url, "POST", "/completion", {**body, "ignore_eos": True})).right().json()
        return found["timings"]["predicted_per_token_ms"] / 1e3, found["content"]

    times: dict[str, list[float]] = {"short": [], "long": []}
    for number in range(rounds + 1):
        for name, slot in slots.items():
            seconds, written = await write(name, slot)
            if number:
                times[name].append(seconds)
    saved = (await ask(url, "POST", "/slots/1?action=save", {"filename": "long"})).right().json()
    (await ask(url, "POST", "/slots/0?action=restore", {"filename": "long"})).right()
    _, again = await write("long", 0)
    return {
        **{name: median(values) for name, values in times.items()},
        "bytes": saved["n_written"],
        "restored": again == written,
    }


# ------------------------------------------------------------------------------------------------------------- forks


def fork(folder: Path, *, quick: bool) -> list[Row]:
    """A fork of a session with a full memory."""
    shape, times = shape_of(LARGE, quick=quick), 20 if quick else 300
    model = write_model(folder / "large", shape)
    alone = asyncio.run(_forks(model, times=times))
    with segue_server([model], folder) as server:
        http, health = asyncio.run(_forks_by_http(server.url, times=times))
    beside = f"over HTTP {_ms(http)}, where a request that does nothing takes {_ms(health)}"
    figure = round(alone * 1e3, 4)
    return [row("a fork", figure, unit="ms", goal=1.0, most=True, beside=beside)]


async def _forks(model: Path, *, times: int) -> float:
    """Measure forks without HTTP."""
    models = load_all([str(model)], slice_tokens=128)
    serving = Serving(models, ServeSettings())
    await serving.start()
    try:
        alone = open_session(model)
        alone.feed(text(seed=2, count=1000))
        path = model.with_name("session")
        alone.save(path)
        session = await serving.sessions.create("a", "large")
        how = models["large"].streaming()
        found = unpacked(
            "a session",
            path.read_bytes(),
            how.streamer,
            models["large"].tokenizer,
            fingerprints=how.fingerprints,
            window=how.window,
        )
        await serving.sessions.take(session)
        await serving.sessions.give(session, found)
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            await serving.sessions.fork(session)
            seconds.append(time.perf_counter() - started)
        return median(seconds)
    finally:
        await serving.stop()


async def _forks_by_http(url: str, *, times: int) -> tuple[float, float]:
    id = await session_with(url, "large", text(seed=2, count=1000))
    forks, nothing = [], []
    for _ in range(times):
        forks.append((await ask(url, "POST", f"/v1/sessions/{id}/fork")).right().seconds)
        nothing.append((await ask(url, "GET", "/health")).right().seconds)
    return median(forks), median(nothing)


# ------------------------------------------------------------------------------------------------------ many clients


def clients(folder: Path, *, quick: bool) -> list[Row]:
    """16 streams at a time against one; and against `transformers serve`, with the same XLNet."""
    shape = shape_of(LARGE, quick=quick)
    tokens, rounds, many = (6, 1, 3) if quick else (96, 5, 16)
    models = [write_model(folder / "large", shape), write_model(folder / "xlnet", shape, objective="permutation")]
    with segue_server(models, folder) as server:
        one, all_of_them = asyncio.run(_interleaved(server.url, "large", many=many, tokens=tokens, rounds=rounds))
        tokens = 4 if quick else 32
        ours_one, ours = asyncio.run(_interleaved(server.url, "xlnet", many=many, tokens=tokens, rounds=rounds))
    written = write_for_transformers(folder / "transformers", models[1])
    with transformers_server(written, folder) as server:
        rounds = 1 if quick else 2
        theirs_one, theirs = asyncio.run(
            _interleaved(server.url, str(written), many=many, tokens=tokens, rounds=rounds)
        )
    return [
        row(
            f"{many} clients that stream, to one, tokens/s",
            all_of_them / one,
            goal=4.0,
            most=False,
            beside=f"{all_of_them:.0f} to {one:.0f} tokens/s through HTTP, Transformer-XL",
        ),
        row(
            f"{many} clients of an XLNet, to `transformers serve`, tokens/s",
            ours / theirs,
            goal=10.0,
            most=False,
            beside=f"{ours:.0f} to {theirs:.1f} tokens/s; one client: {ours_one:.0f} to {theirs_one:.1f}; transformers "
            + version(TRANSFORMERS, "transformers"),
        ),
    ]


async def _interleaved(url: str, model: str, *, many: int, tokens: int, rounds: int) -> tuple[float, float]:
    """Return tokens per second of one client, and of many together; medians of some rounds."""
    await _rate(url, model, count=1, tokens=tokens)
    found = [
        (await _rate(url, model, count=1, tokens=tokens), await _rate(url, model, count=many, tokens=tokens))
        for _ in range(rounds)
    ]
    return median([one for one, _ in found]), median([all_of_them for _, all_of_them in found])


async def _rate(url: str, model: str, *, count: int, tokens: int) -> float:
    """Return tokens per second of `count` concurrent clients, from the first request to the last token, including
    prompts. A text counts as if it had all requested tokens: with segue it has, the peer may end one earlier."""
    segue = not model.startswith("/")
    bodies = [
        {"model": model, "prompt": text(seed=100 + number, count=48), "max_tokens": tokens, "stream": True}
        | ({"seed": number, "logit_bias": ENDLESS} if segue else {})
        for number in range(count)
    ]
    started = time.perf_counter()
    await asyncio.gather(*(stream(url, "/v1/completions", body) for body in bodies))
    return count * tokens / (time.perf_counter() - started)


# -------------------------------------------------------------------------------------------------------- first token


def first_token(folder: Path, *, quick: bool) -> list[Row]:
    """The time to the first token of a small request, while another client feeds 10 MB."""
    model = write_model(folder / "large", shape_of(LARGE, quick=quick))
    size, times = (200_000, 6) if quick else (10_000_000, 40)
    long = text(seed=5, count=size // 6)[:size]
    while len(long) < size:
        long += long[: size - len(long)]
    with segue_server([model], folder) as server:
        quiet, loaded, seconds = asyncio.run(_first_tokens(server.url, long.encode(), times=times))
    beside = f"{_ms(median(quiet))} and {_ms(median(loaded))}; 9 of 10 within {_ms(share(quiet, 0.9))} and "
    beside += f"{_ms(share(loaded, 0.9))}; {len(loaded)} requests beside {size / 1e6:g} MB that took {seconds:.1f} s"
    work = f"the first token while another feeds {size / 1e6:g} MB, to nobody else"
    return [row(work, median(loaded) / median(quiet), goal=3.0, most=True, beside=beside)]


async def _first_tokens(url: str, long: bytes, *, times: int) -> tuple[list[float], list[float], float]:
    body = {"model": "large", "prompt": text(seed=6, count=16), "max_tokens": 1, "stream": True, "logit_bias": ENDLESS}

    async def first() -> float:
        return (await stream(url, "/v1/completions", body)).times[0]

    for _ in range(3):
        await first()
    quiet = [await first() for _ in range(times)]
    id = (await ask(url, "POST", "/v1/sessions", {"model": "large"})).right().json()["id"]
    loaded: list[float] = []
    took = 0.0
    while len(loaded) < times:  # a text may be read before there were enough requests: then it is fed again
        feeding = asyncio.create_task(ask(url, "POST", f"/v1/sessions/{id}/feed", long))
        await asyncio.sleep(0.05)
        while not feeding.done():
            seconds = await first()
            if not feeding.done():
                loaded.append(seconds)
        took = (await feeding).right().seconds
    return quiet, loaded, took


# ------------------------------------------------------------------------------------------------- one stream, alone


def overhead(folder: Path, *, quick: bool) -> list[Row]:
    """A token of one stream over HTTP against one of a Session in a process of its own."""
    model = write_model(folder / "large", shape_of(LARGE, quick=quick))
    rows = []
    for threads, how, goal in ((None, "", 1.1), (1, ", one thread each", None)):
        ours, theirs = _over_http_and_alone(model, folder, threads=threads, quick=quick)
        work = f"a token over HTTP, to a Session alone{how}"
        beside = f"{_ms(ours)} and {_ms(theirs)} a token"
        rows.append(row(work, ours / theirs, goal=goal, most=True, beside=beside))
    return rows


def _over_http_and_alone(model: Path, folder: Path, *, threads: int | None, quick: bool) -> tuple[float, float]:
    tokens, rounds = (8, 2) if quick else (96, 9)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    alone = open_session(model)
    alone.feed(text(seed=2, count=1000))
    ours, theirs = [], []
    try:
        with segue_server([model], folder, threads=threads) as server:
            id = asyncio.run(session_with(server.url, "large", text(seed=2, count=1000)))
            for number in range(rounds + 1):
                over_http = asyncio.run(write_on_fork(server.url, id, tokens=tokens)).seconds_a_token()
                by_itself = _seconds_alone(alone.fork(), tokens=tokens)
                if number:
                    ours.append(over_http)
                    theirs.append(by_itself)
    finally:
        torch.set_num_threads(before)
    return median(ours), median(theirs)


def _seconds_alone(session: Session, *, tokens: int) -> float:
    sampling = SamplingSettings(seed=1, top_k=None, logit_bias={7: float("-inf")}, top_log_probabilities=1)
    times = [time.perf_counter() for _ in session.write(max_tokens=tokens, sampling=sampling)]
    return (times[-1] - times[0]) / (len(times) - 1)


def busy(folder: Path, *, quick: bool) -> list[Row]:
    """A token of one stream while another process uses one of the cores."""
    model = write_model(folder / "large", shape_of(LARGE, quick=quick))
    tokens, rounds = (8, 2) if quick else (128, 6)
    found: dict[str, list[float]] = {"quiet": [], "busy": []}
    with segue_server([model], folder) as server:
        id = asyncio.run(session_with(server.url, "large", text(seed=2, count=1000)))

        def turn() -> float:
            return asyncio.run(write_on_fork(server.url, id, tokens=tokens)).seconds_a_token()

        turn()
        for _ in range(rounds):
            found["quiet"].append(turn())
            with another_process():
                found["busy"].append(turn())
    quiet, beside_another = median(found["quiet"]), median(found["busy"])
    beside = f"{_ms(quiet)} and {_ms(beside_another)} a token, at worst {_ms(max(found['busy']))}"
    work = "a token while another process uses a core, to a quiet machine"
    return [row(work, beside_another / quiet, goal=2.0, most=True, beside=beside)]


@contextmanager
def another_process() -> Iterator[None]:
    """Run a process that only computes."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    time.sleep(0.3)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


Part = Callable[..., list[Row]]
