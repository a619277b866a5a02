import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the commands that tests start; before torch reads it

import pytest
import torch

from segue.data import samples

torch.set_num_threads(1)  # the models of the tests are so small that a second thread only waits


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The English samples are made from a part of the standard library, with which training takes seconds."""
    kept = ("pydoc_data", "email", "asyncio")
    library = [(inside, texts[:40]) for inside, texts in samples._library() if inside[0] in kept]
    monkeypatch.setattr(samples, "_library", lambda: library)
