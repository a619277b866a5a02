"""A cross-encoder: an embedding model fine-tuned to read a question together with an entry, and to score the pair.

In: questions, and for each the entries ranked first by the other parts. Out: a score for each entry. It is trained on
questions with a correct entry and the wrong ones that the other parts ranked highest. Reading pairs is slow, so only
the first few entries are read; `learn` evaluates the model and decides whether it is used.
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
"""Number of entries read for a question."""
LONGEST = 160
"""Maximum number of characters read of an entry; more would keep visitors waiting."""
MOST = 1200
"""Maximum number of training questions, which take minutes."""
LEAST = 400
"""Minimum number of training questions."""
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
    """A training example: a question with correct and wrong entries."""

    question: str
    right: Sequence[str]
    wrong: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class PairReader:
    """A cross-encoder: a fine-tuned model of the task `rank`."""

    model: FinetunedModel

    def scores(self, questions: Sequence[str], entries: Sequence[Sequence[str]]) -> list[Floats]:
        """Return the scores of the entries of each question, relative to the best, which is 0."""
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
    """Fine-tune a model on training examples."""
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
