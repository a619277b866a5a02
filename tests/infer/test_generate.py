"""Generation: seeded, from the likeliest tokens, and the same with memory as without."""

import pytest
import torch

from segue.config import changed
from segue.errors import DataError
from segue.infer.generate import generate
from segue.model import Batch
from tests.tiny import MODELS, noisy

XL = changed(MODELS["transformer-xl-enwik8-base"], memory={"length": 40})


def test_greedy_generation_takes_the_likeliest_token() -> None:
    model = noisy(XL)
    tokens = generate(model, [1, 2, 3], count=8, top_k=1)
    text = [1, 2, 3, *tokens]
    with torch.no_grad():
        logits = model.logits(model(Batch(ids_BQ=torch.tensor([text[:-1]]))).output.hidden_BQD[0])
    assert logits.argmax(dim=1)[2:].tolist() == tokens


def test_memory_gives_the_same_text_as_reading_all_again() -> None:
    model = noisy(XL)
    again = model.adjusted(memory=None)
    assert generate(model, [4, 5], count=12, seed=3) == generate(again, [4, 5], count=12, seed=3)
    assert generate(model, [4, 5], count=12, seed=3) != generate(model, [4, 5], count=12, seed=4)


def test_learned_positions_limit_what_is_read() -> None:
    assert len(generate(noisy(MODELS["gpt"]), [1], count=60)) == 60


def test_what_cannot_generate() -> None:
    with pytest.raises(DataError, match="causal"):
        generate(noisy(MODELS["xlnet-base"]), [1], count=1)
    with pytest.raises(DataError, match="at least one token"):
        generate(noisy(XL), [], count=1)
