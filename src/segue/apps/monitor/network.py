"""A network for sentiment that reads texts to their end with memory: a packaged XLNet, or any other model.

In: labelled texts, on which it is fine-tuned. Out: log-probabilities of the sentiments. A packaged model reads only
texts of its own language. `joining` decides on held-out rows whether a network is used, and with which weight.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.api.configs import check_has_weights
from segue.api.predict import FinetunedModel
from segue.apps.monitor.labelled import SENTIMENTS
from segue.checkpoint.find import find
from segue.tasks.classify import Classify
from segue.tasks.predict import answers_in_order
from segue.tasks.task import Example
from segue.text.unicode import is_chinese

ENGLISH, CHINESE = "xlnet-mini-en", "xlnet-mini-zh"
"""Packaged models."""
NO_MODEL, PACKAGED = "none", "auto"
SETTINGS = {"read.summary": "mean"}
"""Settings that differ from those of `segue finetune`, which classifies by the last token of a text."""
LOOKED_AT = 400
"""Number of characters that determine the language of a text."""
TOGETHER = 32
"""Maximum number of texts in a batch."""
MOST_CHARACTERS = 100_000
"""Maximum number of characters in a batch, with padding; a longer text is read alone."""
SMALLEST = 1e-6
"""Lower bound of probabilities: a network is never more certain than this."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A fine-tuned classifier whose labels are sentiments."""

    model: FinetunedModel
    chinese: bool | None
    """True if it reads only Chinese, False if all but Chinese; None if it reads all texts."""

    def reads(self, text: str) -> bool:
        """Return True if it reads a text."""
        return in_language(text, self.chinese) and self._has_tokens(text)

    def scores(self, texts: Sequence[str]) -> Floats:
        """Return log-probabilities [N, C]; the lower bound for sentiments that it was not trained on. Texts of similar
        length are batched."""
        found_NC = np.full((len(texts), len(SENTIMENTS)), SMALLEST)
        for some in _together([len(text) for text in texts]):
            examples = [Example(number=number, texts=(texts[number],)) for number in some]
            answers = answers_in_order(self.model.task_model, examples, batch_size=TOGETHER)
            for number, one in zip(some, answers, strict=True):
                found_NC[number, self.places] = np.maximum(one.value, SMALLEST)
        logs_NC: Floats = np.log(found_NC)
        return logs_NC

    @cached_property
    def places(self) -> list[int]:
        """Indices of its labels in SENTIMENTS; raises ValueError if they are other labels."""
        task = self.model.task_model.task
        if not isinstance(task, Classify):
            raise ValueError("a network for another task")
        return [SENTIMENTS.index(label) for label in task.labels]

    def _has_tokens(self, text: str) -> bool:
        made = self.model.task_model
        return bool(made.layout().special_tokens(1)) or len(made.tokenizer.encode(text)) > 0


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A network to be fine-tuned, with everything but its rows."""

    name: str
    """Name or folder of the model."""
    chinese: bool | None
    folder: Path
    """Folder of the fine-tuning run; the network stays there until it is written elsewhere."""
    seed: int
    told: Callable[[str], object]

    def reads(self, text: str) -> bool:
        """Return True if the network reads a text."""
        return in_language(text, self.chinese) and bool(text.strip())

    def train(self, texts: Sequence[str], labels: Sequence[int]) -> Network:
        """Fine-tune on texts and the indices of their sentiments."""
        from segue.api.finetune import finetune  # a monitor that only reads need not import what trains
        from segue.train.events import Event, Updated

        rows = [{"text": text, "label": SENTIMENTS[one]} for text, one in zip(texts, labels, strict=True)]

        def tell(event: Event) -> None:
            if isinstance(event, Updated):
                self.told(f"fine-tuning {self.name}: step {event.step:,}, loss {event.loss:.3f}")

        result = finetune(
            self.name,
            rows,
            out=self.folder / "run",
            settings={**SETTINGS, "train.seed": self.seed},
            baselines=False,
            wide=False,
            progress=False,
            on_event=tell,
        )
        if result.stopped_by is not None:  # half a network is none
            raise KeyboardInterrupt
        return Network(model=FinetunedModel(folder=result.folder, task=result.task), chinese=self.chinese)


def choose_trainer(
    model: str, texts: Sequence[str], *, folder: Path, seed: int, told: Callable[[str], object]
) -> Trainer | None:
    """Return None for "none", the packaged model of the language of most texts for "auto", and otherwise the model with
    this name or folder, which reads all texts."""
    if model == NO_MODEL:
        return None
    chinese = None
    if model == PACKAGED:
        chinese = 2 * sum(in_language(text, True) for text in texts) > len(texts)
        model = CHINESE if chinese else ENGLISH
    check_has_weights(model)
    find(model)  # now, and not after minutes of other work
    return Trainer(name=model, chinese=chinese, folder=folder, seed=seed, told=told)


def in_language(text: str, chinese: bool | None) -> bool:
    """Return True if a text is Chinese (True) or not (False); always for None."""
    return chinese is None or is_chinese(text[:LOOKED_AT]) == chinese


def _together(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of indices of texts of similar length, the shortest first."""
    some: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda one: lengths[one]):
        if some and (len(some) == TOGETHER or lengths[number] * (len(some) + 1) > MOST_CHARACTERS):
            yield some
            some = []
        some.append(number)
    if some:
        yield some
