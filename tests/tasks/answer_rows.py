"""Rows of questions and passages for tests."""

from typing import Any

ENGLISH = "She was born in Paris in 1906 and moved to London with her family. Two young men are playing in the park."
ROWS: list[dict[str, Any]] = [
    {"context": ENGLISH, "question": "When was she born?", "answer": [{"text": "1906", "start": 25}]},
    {"context": "Two men are in the park.", "question": "Where?", "answer": [{"text": "in the park", "start": 12}]},
    {"context": "He wants to buy a new coat.", "question": "What does he buy?", "answer": "a new coat"},
]
