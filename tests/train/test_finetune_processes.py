"""Fine-tuning with two processes is that with one: the same losses, answers and weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from segue.tasks.table import task_kind
from segue.train.finetune import Request, finetune, finetune_settings
from tests.tasks.models import write_model
from tests.train.test_distributed import launch

# Unequal parts: batches of odd size, a last batch of one, texts of different length.
RUNS = {
    "classify": ["train.batch_size=5", "train.class_weights=true"],
    "tag": ["train.batch_size=5"],
    "rank": ["train.batch_size=3", "task.loss=pointwise"],  # pairs leave a bias without gradient, which Adam moves
}


def rows(task: str, count: int) -> list[dict[str, object]]:
    random = np.random.default_rng(0)
    words = ["the", "film", "was", "clean", "room", "dull", "and", "park"]
    found: list[dict[str, object]] = []
    for number in range(count):
        text = random.choice(words, 3 + number % 7).tolist()
        match task:
            case "classify":
                found.append({"text": " ".join(text), "label": "ab"[number % 3 == 0]})
            case "tag":
                found.append({"tokens": text, "tags": ["B-WORD" if word == "film" else "O" for word in text]})
            case _:
                found.append({"query": text[0], "positives": [" ".join(text)], "negatives": text[1:]})
    return found


@pytest.mark.parametrize("task", RUNS)
def test_two_processes_are_one(task: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    for name, count in (("train", 16), ("valid", 7), ("test", 9)):
        lines = (json.dumps(row) + "\n" for row in rows(task, count))
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "valid", "test")}
    settings = ["train.epochs=2", "train.dropout=0", "train.learning_rate=1e-3", *RUNS[task]]
    kind = task_kind(task)
    request = Request(model=str(model), kind=kind, settings=finetune_settings(kind, {}, settings), **files)
    list(finetune(request, tmp_path / "run1"))
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    out = ["--task", task, *options, "--out", str(tmp_path / "run2")]
    shown = launch(2, "finetune", str(model), *settings, *out)
    one, two = (load_file(tmp_path / f"run{count}" / "best" / "model.safetensors") for count in (1, 2))
    assert one.keys() == two.keys()
    assert max(abs(one[key] - two[key]).max() for key in one) < 1e-4
    logs = [
        [json.loads(line) for line in (tmp_path / f"run{count}" / "metrics.jsonl").read_text().splitlines()]
        for count in (1, 2)
    ]
    assert len(logs[0]) == len(logs[1]) > 6
    for first, second in zip(*logs, strict=True):
        assert first.keys() == second.keys()
        if "loss" in first:
            assert first["loss"] == pytest.approx(second["loss"], abs=1e-4)
    results = [json.loads((tmp_path / f"run{count}" / "results.json").read_text()) for count in (1, 2)]
    assert results[0] == results[1]
    assert (tmp_path / "run2" / "report.html").is_file()
    assert shown.count("Ended: all epochs are done") == 1
