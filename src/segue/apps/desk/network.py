"""A classifier of topics: an embedding model fine-tuned on the questions of a desk.

In: questions with their topics. Out: log-probabilities of the topics. `learn` evaluates it on held-out questions and
decides whether it is used.
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
SETTINGS = {
    "train.epochs": 4,
    "train.batch_size": 32,
    "train.learning_rate": 1e-3,
    "train.restarts": 0,
    "read.summary": "mean",
    "read.max_length": 128,
}
"""Settings of the fine-tuning, the best of a few trials on intents of banks and assistants; the best epoch is chosen on
a tenth of the questions, held out once more."""
SMALLEST = 1e-6
"""Lower bound of probabilities, because a network is never that certain."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A fine-tuned classifier whose labels are indices of topics."""

    model: FinetunedModel
    topics: int

    def scores(self, questions: Sequence[str]) -> Floats:
        """Return log-probabilities [N, T]; that of `SMALLEST` for topics without training questions."""
        made = self.model.task_model
        examples = [Example(number=number, texts=(text,)) for number, text in enumerate(questions)]
        places = [int(label) for label in made.task.labels]  # type: ignore[attr-defined]
        found_NT = np.full((len(questions), self.topics), SMALLEST)
        for row, one in enumerate(answers_in_order(made, examples)):
            found_NT[row, places] = np.maximum(one.value, SMALLEST)
        logs: Floats = np.log(found_NT).astype(np.float32)
        return logs


def train_network(
    model: str,
    questions: Sequence[str],
    golds: Sequence[Sequence[int]],
    *,
    topics: int,
    out: Path,
    told: Callable[[str], object],
) -> Network:
    """Fine-tune a model on questions, each labelled with the first of its topics."""
    from segue.api.finetune import finetune  # a desk that only answers need not import what trains
    from segue.train.events import Event, Updated

    rows = [{"text": text, "label": str(gold[0])} for text, gold in zip(questions, golds, strict=True)]

    def tell(event: Event) -> None:
        if isinstance(event, Updated):
            told(f"fine-tuning {model}: step {event.step:,}, loss {event.loss:.3f}")

    result = finetune(
        model, rows, out=out, settings=SETTINGS, baselines=False, wide=False, progress=False, on_event=tell
    )
    return Network(model=FinetunedModel(folder=result.folder, task=result.task), topics=topics)
