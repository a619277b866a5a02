"""What is not of the right type ends at the door, with a rule and not with an attribute that is missing deep inside."""

from collections.abc import Callable

import pytest
import torch

import segue
from segue.errors import ConfigError, SegueError
from segue.model.heads import TokenTagger
from tests.tiny import MODELS, noisy, random_ids

CONFIG = MODELS["transformer-xl-enwik8-base"]
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "ids to a model": (lambda: segue.LanguageModel(CONFIG)(random_ids(1, 3)), "a model reads a Batch; got a Tensor"),
    "ids to a head": (lambda: TokenTagger(CONFIG, num_tags=2)(random_ids(1, 3)), "a model reads a Batch; got a Tensor"),
    "a tensor as memory": (
        lambda: segue.LanguageModel(CONFIG)(segue.Batch(ids_BQ=random_ids(1, 3)), torch.zeros(3)),
        "a memory must be the output memory",
    ),
    "lists in a batch": (lambda: segue.Batch(ids_BQ=[[1, 2]]), "batch.ids_BQ must be a tensor; got a list"),
    "a list as targets": (
        lambda: segue.Batch(ids_BQ=random_ids(1, 2), targets=[[1, 2]]),
        "batch.targets must be a tensor; got a list",
    ),
    "a dict as config": (lambda: segue.LanguageModel({"width": 8}), "is made of a ModelConfig; got a dict"),
    "a number to load": (lambda: segue.load(5), "must be a path or a name; got an int"),
    "nothing to open": (lambda: segue.open(None), "must be a path, a name, or a loaded model; got None"),
    "a number as name": (lambda: segue.named(5), "a named model must be one of"),
    "a text as number": (lambda: segue.SamplingSettings(temperature="hot"), "temperature must be a number; got 'hot'"),
    "a path as session": (lambda: segue.Session("run"), "source must be a TextModel; got a str"),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types(name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises(SegueError, match=message):
        call()


@pytest.mark.parametrize(
    ("name", "positions", "shapes"),
    [
        ("learned-relative", {"max_distance": 8}, r"\(9, 8\) instead of \(5, 8\)"),
        ("shaw", {"clip_distance": 8}, r"instead of"),
        ("transformer-xl-enwik8-base", {"kind": "rotary"}, "the shape None instead of"),
    ],
)
def test_adjusted_keeps_the_weights(name: str, positions: dict[str, object], shapes: str) -> None:
    with pytest.raises(
        ConfigError, match=f"adjusted may change only settings that do not change the shapes of weights.*{shapes}"
    ):
        noisy(MODELS[name]).adjusted(positions=positions)
