"""Real questions and answers for the demo, from what comes with Python: HTTP status codes, system errors, and topics of
the language. No data set is needed, and nothing is downloaded.
"""

import errno
import os
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

LONGEST = 600
"""Maximum number of characters of an answer."""


def demo_rows() -> list[dict[str, Any]]:
    """Return rows with question, answer and intent."""
    return [*_http(), *_errors(), *_language(), *_outside()]


def _http() -> Iterator[dict[str, Any]]:
    for status in HTTPStatus:
        answer = f"{status.value} {status.phrase}. {status.description}".strip()
        for question in (
            f"What does HTTP status {status.value} mean?",
            f"The server answers {status.value}",
            f"I get the error {status.phrase}",
            f"my browser says {status.value} {status.phrase.lower()}",
        ):
            yield {"question": question, "answer": answer, "intent": f"HTTP {status.value}"}


def _errors() -> Iterator[dict[str, Any]]:
    for number, name in sorted(errno.errorcode.items()):
        said = os.strerror(number)
        for question in (
            f"What does {name} mean?",
            f"My program fails: {said}",
            f"{said.lower()}, what is that",
            f"errno {number}",
        ):
            yield {"question": question, "answer": f"{name} ({number}): {said}.", "intent": name}


def _language() -> Iterator[dict[str, Any]]:
    from pydoc_data.topics import topics

    for name, text in topics.items():
        lines = [part for part in re.split(r"\n\s*\n", str(text)) if re.search(r"[a-z]{3}", part) and "***" not in part]
        answer = " ".join(" ".join(lines[:2]).split())[:LONGEST] if lines else ""
        words = re.sub(r"[-_]", " ", name)
        if answer:
            for question in (
                f"How does {words} work in Python?",
                f"Explain {words}",
                f"python {words} syntax",
                f"help with {words}",
            ):
                yield {"question": question, "answer": answer, "intent": f"Python {words}"}


def _outside() -> Iterator[dict[str, Any]]:
    for question in (
        "What is the weather like tomorrow?",
        "Tell me a joke",
        "Book me a table for two",
        "Who won the match last night?",
        "How do I cook rice?",
        "What is the price of gold?",
        "Sing a song for me",
        "When is the next train to Paris?",
    ):
        yield {"question": question, "answer": None, "intent": None}
