"""A batch cut into parts has the same loss: that of each part counts by the weight of its items, for every task."""

from pathlib import Path
from typing import Any

import pytest
import torch

from segue.tasks.table import TASKS
from tests.tasks.made import examples_of, task_model

TEXTS = ["The room was clean.", "A dull film with a weak story, and long", "kind staff", "He wants to buy a new coat."]
CONTEXT = "She was born in Paris in 1906 and moved to London."
ROWS: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": text, "label": label} for text, label in zip(TEXTS, "aabc", strict=True)],
    "regress": [{"text": text, "number": number} for number, text in enumerate(TEXTS)],
    "pair": [{"first": text, "second": TEXTS[0], "label": label} for text, label in zip(TEXTS, "yynn", strict=True)],
    "tag": [
        {"tokens": ["She", "moved", "to", "Paris"], "tags": ["O", "O", "O", "B-LOC"]},
        {"tokens": ["London"], "tags": ["B-LOC"]},
        {"tokens": ["The", "staff"], "tags": ["O", "O"]},
    ],
    "answer": [
        {"context": CONTEXT, "question": "Where?", "answer": ["Paris"]},
        {"context": CONTEXT, "question": "When?", "answer": ["1906"]},
        {"context": CONTEXT * 2, "question": "Who?", "answer": ["She"]},
    ],
    "choose": [
        {"context": CONTEXT, "question": "What?", "options": ["a coat", "a room"], "answer": 0},
        {
            "context": TEXTS[0],
            "question": "Who is kind?",
            "options": ["the staff of the room", "a film", "he"],
            "answer": 2,
        },
        {"context": TEXTS[1], "question": "Why?", "options": ["asleep", "new"], "answer": 1},
    ],
    "rank": [
        {"query": "kind staff", "documents": TEXTS[:3], "relevance": [0, 0, 1]},
        {"query": "coat", "documents": TEXTS[2:], "relevance": [0, 1]},
        {"query": "film", "documents": TEXTS, "relevance": [0, 1, 0, 0]},
    ],
    "generate": [{"source": text, "target": other} for text, other in zip(TEXTS, reversed(TEXTS), strict=True)],
}


# The pairs of a part are told apart from each other alone, so the loss of similarity is not a sum over parts.
@pytest.mark.parametrize("name", [name for name in TASKS if name != "similarity"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_of_a_batch_is_that_of_its_parts(
    english_model: Path, tmp_path: Path, name: str, weighted: bool
) -> None:
    rows = ROWS[name]
    made = task_model(TASKS[name], english_model, rows)
    examples = examples_of(made, rows, tmp_path).examples
    assert len(examples) == len(rows)
    weights = made.task.class_weights(examples) if weighted else None
    if weighted and weights is None:
        pytest.skip("a task without classes")
    model, layout = made.model.double().eval(), made.layout()
    weights = None if weights is None else weights.double()
    items = [item for example in examples for item in made.task.items(example, layout)]
    with torch.no_grad():
        whole = made.task.loss(model, items, made.reader(), class_weights=weights)
        total = sum(item.weight for item in items)
        parts = [
            made.task.loss(model, part, made.reader(), class_weights=weights) * sum(item.weight for item in part)
            for part in (items[0::2], items[1::2])
        ]
    assert float(whole) > 0.01
    assert float(sum(parts)) / total == pytest.approx(float(whole), abs=1e-9)
