"""Fine-tuning learns from long documents with its defaults: evidence far from the end, in segments of 64 characters."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from segue.checkpoint.folder import save
from segue.config import model_config
from segue.model import LanguageModel
from segue.tasks.folder import load_task_model
from segue.tasks.table import TASKS
from segue.text.files import save_tokenizer
from segue.text.symbols import CharacterTokenizer
from segue.train.finetune import Ended, Prepared, Request, finetune, finetune_settings

LETTERS = "abcdefghijklmnopqrst"
LENGTH, FIRST = 250, 10
"""Characters of a document, and those in which the evidence stands."""


def character_model(folder: Path, *, width: int) -> Path:
    """As a short pretraining leaves it: segments of 64 with a memory of 32."""
    tokenizer = CharacterTokenizer(LETTERS)
    save_tokenizer(tokenizer, folder.with_name("tokenizer"))
    config = model_config(
        objective="permutation",
        segments="relative",
        vocabulary={"size": tokenizer.size},
        positions={"kind": "xl", "shared_biases": False},
        memory={"length": 32},
        num_layers=2,
        width=width,
        num_heads=2,
        inner_width=2 * width,
        norm_first=True,
        final_norm=True,
        init_std=0.08,
        dropout=0.0,
    )
    torch.manual_seed(0)
    save(LanguageModel(config), folder, tokenizer=folder.with_name("tokenizer"))
    return folder


def planted(path: Path, count: int, *, seed: int) -> str:
    """Random letters; one of two words of letters that occur everywhere else too stands among the first ones."""
    random = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            letters = random.choice(list(LETTERS), LENGTH)
            word = ("poor", "good")[number % 2]
            at = int(random.integers(FIRST - len(word) + 1))
            letters[at : at + len(word)] = list(word)
            file.write(json.dumps({"text": "".join(letters), "label": word}) + "\n")
    return str(path)


def accuracy_with_defaults(tmp_path: Path, *, examples: int, others: int, width: int, new_weights: bool) -> float:
    """That of the model alone: n-grams find such evidence too."""
    kind = TASKS["classify"]
    request = Request(
        model=str(character_model(tmp_path / "model", width=width)),
        kind=kind,
        train=planted(tmp_path / "train.jsonl", examples, seed=0),
        valid=planted(tmp_path / "valid.jsonl", others, seed=1),
        test=planted(tmp_path / "test.jsonl", others, seed=2),
        settings=finetune_settings(kind, {}, ["read.segment_length=64"]),
        new_weights=new_weights,
    )
    events = list(finetune(request, tmp_path / "run"))
    assert isinstance(events[0], Prepared)
    assert any("chosen: read.memory_length=192" in note for note in events[0].notes)
    made = load_task_model(tmp_path / "run")
    assert made.config.memory is not None
    assert made.config.memory.length == 192
    assert made.read.gradient_segments == 4
    end = events[-1]
    assert isinstance(end, Ended)
    assert end.judged[1].metrics["accuracy"].value > 0.95
    return (end.alone or end.judged)[1].metrics["accuracy"].value


@pytest.mark.long
def test_evidence_at_the_beginning_of_long_documents_is_found_with_the_defaults(tmp_path: Path) -> None:
    assert accuracy_with_defaults(tmp_path, examples=400, others=60, width=64, new_weights=False) > 0.95


@pytest.mark.long
@pytest.mark.parametrize("new_weights", [False, True])
def test_the_same_with_more_examples_and_a_larger_model(new_weights: bool, tmp_path: Path) -> None:
    assert accuracy_with_defaults(tmp_path, examples=1600, others=600, width=64, new_weights=new_weights) > 0.95
