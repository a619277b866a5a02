"""One thread at a time uses a session; a second one is told so, and nothing is mixed or lost."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from segue.errors import DataError, SegueError
from segue.infer.batched import write_batched
from segue.infer.sampling import SamplingSettings
from segue.infer.session import Session
from tests.infer.test_session import TEXT, session

BUSY = "one thread at a time"


def uses(path: Path) -> dict[str, Callable[[Session], object]]:
    return {
        "feed": lambda one: one.feed("ab"),
        "feed_tokens": lambda one: one.feed_tokens([9]),
        "stream": lambda one: one.stream(max_tokens=2),
        "write": lambda one: one.write(max_tokens=2),
        "ready": lambda one: one.ready(),
        "score": lambda one: one.score("ab"),
        "search": lambda one: one.search(max_tokens=2),
        "fork": lambda one: one.fork(),
        "reset": lambda one: one.reset(),
        "save": lambda one: one.save(path / "session"),
        "load": lambda one: one.load(path / "saved"),
        "together": lambda one: write_batched([one]),
    }


def test_a_second_thread_is_refused_while_one_reads(tmp_path: Path) -> None:
    one, alone = session("xl"), session("xl")
    one.save(tmp_path / "saved")
    reading, go_on = threading.Event(), threading.Event()

    def parts() -> Iterator[str]:
        yield "abc"
        reading.set()
        assert go_on.wait(30)
        yield " 天地"

    thread = threading.Thread(target=one.feed, args=[parts()])
    thread.start()
    assert reading.wait(30)
    try:
        for use in uses(tmp_path).values():
            with pytest.raises(DataError, match=BUSY):
                use(one)
    finally:
        go_on.set()
        thread.join()
    alone.feed("abc 天地")
    assert one.tokens_read == alone.tokens_read
    assert one.score("ab").log_probability == pytest.approx(alone.score("ab").log_probability, abs=1e-9)


def test_a_second_thread_is_refused_between_two_tokens(tmp_path: Path) -> None:
    """The thread that writes may use the session in its loop, as it always could."""
    one = session("xl")
    one.save(tmp_path / "saved")
    one.feed(TEXT)
    written = one.write(max_tokens=50, sampling=SamplingSettings(greedy=True))
    next(written)
    errors: list[object] = []

    def use_all() -> None:
        for use in uses(tmp_path).values():
            try:
                errors.append(use(one))
            except DataError as error:
                errors.append(error)

    def in_another_thread() -> list[object]:
        errors.clear()
        thread = threading.Thread(target=use_all)
        thread.start()
        thread.join()
        return errors

    assert all(BUSY in str(error) for error in in_another_thread())
    one.fork()
    one.feed("a")
    next(written)
    written.close()  # type: ignore[attr-defined]  # a generator
    assert not any(isinstance(error, DataError) for error in in_another_thread())


def test_sessions_that_write_together_are_not_used_otherwise(tmp_path: Path) -> None:
    first = session("xl")
    first.save(tmp_path / "saved")
    first.feed(TEXT)
    group = [first.fork(), first.fork()]
    written = write_batched(group, max_tokens=30, sampling=SamplingSettings(greedy=True))
    with pytest.raises(DataError, match="in a batched generation"):
        write_batched(group[1:])  # before the first token, too
    given = [next(written) for _ in range(4)]
    for use in uses(tmp_path).values():
        with pytest.raises(DataError, match="in a batched generation"):
            use(group[0])
    del written
    alone = first.fork()
    for _, _ in zip(range(2), alone.write(sampling=SamplingSettings(greedy=True)), strict=False):
        pass
    assert [one.score("ab").log_probability for one in group] == pytest.approx(
        [alone.score("ab").log_probability] * 2, abs=1e-9
    )
    assert len(given) == 4


def test_one_that_is_busy_leaves_the_others_free() -> None:
    first = session("xl")
    first.feed(TEXT)
    group = [first.fork(), first.fork()]
    busy = write_batched(group[1:], max_tokens=9)
    next(busy)
    with pytest.raises(DataError, match="in a batched generation"):
        write_batched(group)
    group[0].feed("ab")


def test_four_threads_lose_no_token() -> None:
    one = session("xl")
    one.feed("a")
    start, counts, errors = threading.Barrier(4), [], []

    def use() -> None:
        start.wait()
        for _ in range(6):
            try:
                counts.append(len([token for token in one.write("ab", max_tokens=5) if token.id is not None]))
            except SegueError as error:
                errors.append(str(error))
            except BaseException as error:  # what must not come
                errors.append(repr(error))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(BUSY in error for error in errors)
    assert len(counts) + len(errors) == 24
    assert one.tokens_read == 2 + sum(2 + count for count in counts)


def test_forks_may_be_made_and_used_by_many_threads() -> None:
    one = session("xl")
    one.feed(TEXT)
    expected = one.fork().score("abc 中").log_probability
    start, found = threading.Barrier(4), []

    def use() -> None:
        start.wait()
        for _ in range(5):
            found.append(one.fork().score("abc 中").log_probability)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == pytest.approx([expected] * 20, abs=1e-12)
