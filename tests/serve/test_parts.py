"""The parts of the server that need no server to be tried."""

import asyncio
import socket
import time
from pathlib import Path

import pytest
import torch

from segue.errors import CheckpointError, ConfigError
from segue.infer.sampling import SamplingSettings
from segue.infer.session import open_session
from segue.infer.token_stream import TokenStream
from segue.serve.errors import ApiError
from segue.serve.jobs import Done, Event, Feed, HowToWrite, Job, Token, Write
from segue.serve.keys import read_keys
from segue.serve.models import load_all, load_served
from segue.serve.pace import Pace
from segue.serve.run import Run
from segue.serve.server import listen
from segue.serve.serving import Serving
from segue.serve.settings import ServeSettings
from segue.serve.slots import Slots
from segue.serve.store import SqliteStore
from segue.serve.turns import Turns
from segue.serve.writer import Writer


def test_tenants_take_turns() -> None:
    turns: Turns[str] = Turns()
    for one in ("a1", "a2", "a3", "b1", "c1", "c2"):
        turns.add(one[0], one)
    assert len(turns) == 6
    assert [turns.pop() for _ in range(4)] == ["a1", "b1", "c1", "a2"]
    turns.add("b", "b2")
    assert turns.take(lambda one: one == "c2") == ["c2"]
    assert sorted(turns.pop() for _ in range(len(turns))) == ["a3", "b2"]


def test_rows_that_come_and_go_give_what_each_gives_alone(folders: dict[str, Path]) -> None:
    """Bit by bit, where one token a row goes through the kernel of single tokens."""
    model = load_served(str(folders["xl"]), slice_tokens=128).streaming()
    ids = [[1 + (7 * row + place) % 300 for place in range(20 + 13 * row)] for row in range(5)]

    def begun(row: int) -> TokenStream:
        stream = TokenStream(model.streamer, window=None)
        stream.read(ids[row])
        return stream

    alone = [begun(row) for row in range(5)]
    together = [begun(row) for row in range(5)]
    slots = Slots(model.streamer)
    tensors = {}
    here: set[int] = set()
    plan = ["+0", "1", "+3", "+1", "2", "-0", "1", "+4", "+2", "60", "-3", "-1", "3", "+0", "+3", "5", "-2", "-4", "4"]
    for what in plan:
        if what.startswith("+"):
            row = int(what[1:])
            slots.join(together[row], tensors.pop(row, None))
            here.add(row)
        elif what.startswith("-"):
            row = int(what[1:])
            tensors[row] = slots.leave(together[row])
            here.discard(row)
        else:
            for place in range(int(what)):
                for row in here:
                    token = 5 + (11 * row + place) % 200
                    together[row].unread = [token]
                    alone[row].read([token])
                slots.read()
            logits = slots.logits()
            for stream, found in zip(slots.streams, logits, strict=True):
                row = together.index(stream)
                assert (found - alone[row].logits()).abs().max() < 1e-5
                assert stream.count == alone[row].count


def test_the_quickest_number_of_threads_is_taken() -> None:
    pace = Pace(most=4)
    seconds = {4: 1.0, 1: 2.0}
    taken: list[int] = []

    def steps(count: int) -> list[int]:
        taken.clear()
        for _ in range(count):
            taken.append(pace.choose(1))
            pace.note(1, taken[-1], seconds[taken[-1]])
        return taken

    assert steps(200).count(4) > 180
    seconds[4] = 6.0  # another program takes a core
    assert steps(200).count(1) > 180
    seconds[4] = 1.0
    assert steps(120)[-50:].count(4) > 45  # the first trial of all threads shows it
    assert Pace(most=1).choose(3) == 1


def test_a_step_that_fails_ends_its_jobs_and_the_engine_goes_on(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of a whole step is counted, and the next request is answered within seconds."""
    models = load_all([str(folders["xl"])], slice_tokens=128)

    async def use() -> None:
        serving = Serving(models, ServeSettings())
        await serving.start()
        writer = serving.engine.writers["xl"]
        how = HowToWrite(max_tokens=3, sampling=SamplingSettings(seed=1))

        async def write() -> list[int]:
            run = Run(serving.engine, asyncio.Event().wait, serving.runs)
            task = Write(models["xl"], None, "The room", how)
            job = Job("a", task)
            try:
                run.submit({job: writer})
                await run.done(job)
            finally:
                run.close()
            return task.tokens[0]

        try:
            expected = await write()
            original = writer.step
            monkeypatch.setattr(writer, "step", lambda: 1 / 0)
            with pytest.raises(ApiError) as caught:
                await write()
            assert caught.value.status_code == 500
            monkeypatch.setattr(writer, "step", original)
            started = time.monotonic()
            assert await write() == expected
            assert time.monotonic() - started < 5
            assert serving.engine.faults == 1
            assert b"segue_faults_total 1.0" in serving.metrics.text()
            assert serving.engine.waiting == 0
        finally:
            await serving.stop()

    asyncio.run(use())


def test_a_tenant_with_many_requests_does_not_keep_another_waiting(folders: dict[str, Path]) -> None:
    """Two places in the batch, twelve texts of one tenant, then one of another: it is not the last to end."""
    models = load_all([str(folders["xl"])], slice_tokens=128)

    async def use() -> list[str]:
        serving = Serving(models, ServeSettings(max_rows=2, turn_tokens=4))
        await serving.start()
        run = Run(serving.engine, asyncio.Event().wait, serving.runs)
        how = HowToWrite(max_tokens=40, sampling=SamplingSettings(seed=1, logit_bias={7: float("-inf")}))
        jobs = [Job(tenant, Write(models["xl"], None, "The room", how)) for tenant in [*["many"] * 12, "one"]]
        ended: list[str] = []
        try:
            run.submit(dict.fromkeys(jobs, serving.engine.writers["xl"]))
            while len(ended) < len(jobs):
                job, event = await run.next()
                if isinstance(event, Done):
                    ended.append(job.tenant)
        finally:
            run.close()
            await serving.stop()
        return ended

    assert "one" in asyncio.run(use())[:4]


@torch.no_grad()
def test_a_short_prompt_waits_for_one_stretch_of_a_long_one_at_most(folders: dict[str, Path]) -> None:
    """And the long one gets on, however many short ones come."""
    settings = ServeSettings(slice_tokens=16)
    served = load_served(str(folders["xl"]), slice_tokens=16)
    writer = Writer(served.streaming(), settings)
    how = HowToWrite(max_tokens=2, sampling=SamplingSettings(seed=1, logit_bias={7: float("-inf")}))
    task = Feed(served, None)
    task.parts.append("The room was clean and the staff were very kind to us. " * 10_000)
    task.complete = True
    long = Job("a", task)
    ended: list[Event] = []
    long.emit = ended.append
    writer.accept(long)
    writer.step()
    waited: list[int] = []
    for _ in range(200):
        events: list[Event] = []
        short = Job("a", Write(served, None, "The room", how))
        short.emit = events.append
        writer.accept(short)
        steps = 0
        while not any(isinstance(event, Token) for event in events):
            writer.step()
            steps += 1
        waited.append(steps)
        if any(isinstance(event, Done) for event in ended):
            break
    assert any(isinstance(event, Done) for event in ended)
    assert len(waited) > 5
    assert max(waited) <= 3


def test_a_key_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# mine\n\nalice 0123456789abcdef\nalice fedcba9876543210\nbob 0000111122223333\n")
    keys = read_keys(path)
    assert keys.tenant("Bearer 0123456789abcdef") == "alice"
    assert keys.tenant("bearer fedcba9876543210") == "alice"
    assert keys.tenant("Bearer 0000111122223333") == "bob"
    for wrong in (None, "", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer 0123456789abcde", "Bearer "):
        assert keys.tenant(wrong) is None
    for text in ("", "alice", "alice short", "a/b 0123456789abcdef", "a 0123456789abcdef b", "a\x00 0123456789abcdef"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="must"):
            read_keys(path)


def test_models_have_different_names(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="twice"):
        load_all([str(folders["xl"]), f"xl={folders['xlnet']}"], slice_tokens=128)


def test_the_age_of_a_session_is_not_that_of_the_clock(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock jumps by years in both directions; the server sleeps; a session that is not used ends."""
    models = load_all([str(folders["xl"])], slice_tokens=128)
    path = tmp_path / "sessions.sqlite"
    settings = ServeSettings(session_lifetime=2.0, save_after=0.01)
    wall = time.time

    async def use(jump: float, expected: int) -> list[str]:
        monkeypatch.setattr("time.time", lambda: wall() + jump)
        serving = Serving(models, settings, sessions=path)
        await serving.start()
        try:
            assert len(serving.sessions) == expected
            if not expected:
                await serving.sessions.create("a", "xl")
            await asyncio.sleep(0.6)
            found, _ = await serving.sessions.page("a", after=None, limit=10)
            return [session.id for session in found]
        finally:
            await serving.stop()

    first = asyncio.run(use(0.0, 0))
    assert len(first) == 1
    assert asyncio.run(use(10.0**9, 1)) == first
    assert asyncio.run(use(-(10.0**9), 1)) == first

    async def wait() -> int:
        serving = Serving(models, settings, sessions=path)
        await serving.start()
        try:
            await asyncio.sleep(2.5)
            return len(serving.sessions)
        finally:
            await serving.stop()

    assert asyncio.run(wait()) == 0


def test_one_server_at_a_time_has_a_file_of_sessions(tmp_path: Path) -> None:
    first, second = (SqliteStore(tmp_path / "sessions.sqlite") for _ in range(2))
    first.open()
    with pytest.raises(CheckpointError, match="one server at a time"):
        second.open()
    first.close()
    assert second.open() == []
    second.close()


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    with pytest.raises(CheckpointError, match="another program"):
        SqliteStore(path).open()


def test_a_saved_session_of_the_library_and_of_the_server_are_alike(folders: dict[str, Path], tmp_path: Path) -> None:
    """What a server keeps is what `Session.save` writes."""
    from segue.infer.saved_session import unpacked

    served = load_served(str(folders["xl"]), slice_tokens=128)
    how = served.streaming()
    session = open_session(folders["xl"])
    session.feed("The room was clean")
    session.save(tmp_path / "session")
    kept = unpacked(
        "a session",
        (tmp_path / "session").read_bytes(),
        how.streamer,
        served.tokenizer,
        fingerprints=how.fingerprints,
        window=how.window,
    )
    assert kept.tokens == session.tokens_read
    assert kept.text.text[kept.text.read :] == session.waiting


def test_small_parts_of_an_answer_are_sent_at_once() -> None:
    """Without TCP_NODELAY each answer on a kept connection takes 40 ms more."""
    with listen("127.0.0.1", 0) as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
