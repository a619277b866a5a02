"""Models with a task and a new head on rows of a table, and whole runs on them."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
import torch

from segue.checkpoint.folder import load
from segue.checkpoint.heads import build
from segue.config import ReadConfig
from segue.data.tables import Row, open_table
from segue.model import LanguageModel
from segue.tasks.examples import Examples, gathered, understand
from segue.tasks.folder import TaskModel, summary_of
from segue.tasks.task import TaskKind
from segue.text.files import load_tokenizer
from segue.train.finetune import Ended, Request, finetune, finetune_settings


def task_model(kind: TaskKind, folder: Path, rows: Sequence[Row], **settings: Any) -> TaskModel:
    """The task as the rows (with roles as keys) show it, on the trunk of the folder; segments of 16 tokens."""
    task = kind.learn(gathered(kind, enumerate(rows, 1)), kind.settings(**settings))
    source = load(folder)
    assert isinstance(source, LanguageModel)
    read = ReadConfig(gradient_segments=1)
    torch.manual_seed(1)
    model = build(source.config, task.head(read, summary_of(read, source.config)))
    with torch.no_grad():  # new weights are so small that all texts look alike
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return TaskModel(
        kind=kind, task=task, model=model, tokenizer=load_tokenizer(folder / "tokenizer"), read=read, segment_length=16
    )


def examples_of(made: TaskModel, rows: Sequence[Row], tmp_path: Path) -> Examples:
    """The rows as labelled examples of a table, with what was wrong."""
    table = open_table(write_rows(tmp_path / "rows.jsonl", rows))
    return understand(made.task, table, gathered(made.kind, enumerate(rows, 1)), labelled=True)


def write_rows(path: Path, rows: Sequence[Row]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def saved_and_restored(made: TaskModel) -> Any:
    """The task as it comes back from `task.toml`."""
    return made.kind.restore(tomllib.loads(tomli_w.dumps(made.task.to_values())))


def run(kind: TaskKind, model: Path, folder: Path, *overrides: str, train: str, test: str | None = None) -> Ended:
    """A whole fine-tuning run into `folder`; its end."""
    fast = ["train.batch_size=8", "train.learning_rate=1e-2", "read.summary=mean", "train.early_stopping=50"]
    settings = finetune_settings(kind, {}, [*fast, *overrides])
    request = Request(model=str(model), kind=kind, train=train, test=test, settings=settings, wide=False)
    *_, last = finetune(request, folder)
    assert isinstance(last, Ended)
    return last
