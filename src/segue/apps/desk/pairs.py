"""A cross-encoder: a packaged model that reads a question together with an entry, and says how well they fit.

In: questions, and for each the entries that the other parts put first. Out: a score for each entry. It learns from
questions with an entry that is right and those that the other parts took for right by mistake. Reading is slow, so that
only the first few entries are read; whether it is used at all is for `learn`, which measures it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.api.predict import FinetunedModel
from segue.tasks.predict import answers_in_order
from segue.tasks.task import Example

Floats = NDArray[np.float32]
READ = 4
"""Entries that are read for a question."""
LONGEST = 160
"""Characters of an entry that are read: more would take longer than a visitor should wait."""
MOST = 1200
"""Questions that are learned from: that takes minutes."""
LEAST = 400
"""Questions from which it is tried."""
SETTINGS = {
    "train.epochs": 2,
    "train.batch_size": 16,
    "train.learning_rate": 5e-4,
    "train.restarts": 0,
    "read.max_length": 96,
    "task.documents": READ,
    "task.metric": "mrr",
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A question, with entries that are right and entries that are wrong."""

    question: str
    right: Sequence[str]
    wrong: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class PairReader:
    """A fine-tuned model of the task `rank`."""

    model: FinetunedModel

    def scores(self, questions: Sequence[str], entries: Sequence[Sequence[str]]) -> list[Floats]:
        """For each question one score for each of its entries: the best is 0, the others are below it."""
        examples = [
            Example(number=number, texts=(question, *(one[:LONGEST] for one in some)))
            for number, (question, some) in enumerate(zip(questions, entries, strict=True))
        ]
        found = []
        for one in answers_in_order(self.model.task_model, examples):
            scores = np.asarray(one.value, dtype=np.float32)
            found.append(scores - scores.max())
        return found


def train_pairs(model: str, choices: Sequence[Choice], *, out: Path, told: Callable[[str], object]) -> PairReader:
    """Fine-tunes a model."""
    from segue.api.finetune import finetune  # a desk that only answers need not import what trains
    from segue.train.events import Event, Updated

    rows = [
        {
            "query": one.question,
            "positives": [text[:LONGEST] for text in one.right[:1]],
            "negatives": [text[:LONGEST] for text in one.wrong[: READ - 1]],
        }
        for one in choices
    ]

    def tell(event: Event) -> None:
        if isinstance(event, Updated):
            told(f"fine-tuning {model} to read pairs: step {event.step:,}, loss {event.loss:.3f}")

    result = finetune(
        model, rows, task="rank", out=out, settings=SETTINGS, baselines=False, wide=False, progress=False, on_event=tell
    )
    return PairReader(model=FinetunedModel(folder=result.folder, task=result.task))
