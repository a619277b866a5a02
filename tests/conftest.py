import gc
import os
import shutil
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path
from zlib import crc32

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the commands that tests start; before torch reads it

import pytest

IN_MEMORY = "/dev/shm"
ROOM = 4 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):  # not the one that starts workers
        import torch

        from segue.evaluation import cost

        torch.set_num_threads(1)  # the models of the tests are so small that a second thread only waits
        cost.PEAK_SECONDS = 0.02  # every pretraining run through the command measures the machine
        gc.disable()  # until all tests are collected: what is imported stays
    if has_room(IN_MEMORY):  # where syncing takes no time: tests save thousands of small folders
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)


def has_room(place: str) -> bool:
    """Whether the folders of tests can be there; programs must be allowed in them."""
    if sys.platform != "linux" or not os.access(place, os.W_OK):
        return False
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark two thirds of the variants of a test with `@pytest.mark.one_in(3)` as long. Which third stays depends on the
    test, so that all models of a list are tried, each by some of the tests; `make test-long` tries all by all."""
    variants: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("one_in") is not None:
            variants[item.path, getattr(item, "originalname", item.name)].append(item)
    for (_, name), some in variants.items():
        for number, item in enumerate(some):
            mark = item.get_closest_marker("one_in")
            assert mark is not None
            (count,) = mark.args
            turn = number + number // count  # not the same place of each round, where variants have two parameters
            if len(some) >= count and (turn + crc32(name.encode())) % count:
                item.add_marker(pytest.mark.long)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    gc.freeze()  # modules and tests stay; what the tests make is looked through without them
    gc.enable()


@pytest.hookimpl(trylast=True)  # after the fixtures, which must end whatever is found here
def pytest_runtest_teardown(item: pytest.Item) -> None:
    import torch

    found = torch.get_num_threads()
    torch.set_num_threads(1)
    assert found == 1, f"{item.nodeid} left {found} threads: all tests after it would wait for each other's"


@pytest.fixture(scope="session")
def few_modules(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[tuple[str, ...], list[str]]]:
    """What the English samples are made from, of a part of the standard library: to read all of it takes seconds."""
    from segue.data import samples

    library, part = Path(sysconfig.get_path("stdlib")), tmp_path_factory.mktemp("library")
    for name in ("asyncio", "email", "pydoc_data"):
        shutil.copytree(library / name, part / name, ignore=shutil.ignore_patterns("__pycache__"))
    return [(inside, texts[:15]) for inside, texts in samples._texts_of(part)]


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch, few_modules: list[tuple[tuple[str, ...], list[str]]]) -> None:
    """The English samples are small, so that training takes seconds."""
    from segue.data import samples

    monkeypatch.setattr(samples, "_library", lambda: few_modules)
