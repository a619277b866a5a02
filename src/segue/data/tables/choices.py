"""Flattening of multiple-choice data: a text with several questions becomes a row for each of them.

In: the values of a JSON table. Out: the same, except for two kinds, in which texts are not repeated:

- RACE, and ExpMRC after it: an object with the lists questions, options and answers (and evidences), and an article.
- C3: a list of the lines of a text, its questions (objects with question, choice and answer), and an id.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from segue.data.tables.reader import TableReader

SINGULAR = {"questions": "question", "options": "options", "answers": "answer", "evidences": "evidence"}


def questions_apart(reading: TableReader, values: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield a row for each question, with the number of its text, for use in messages. Unread values are passed on."""
    for number, value in values:
        if _is_race(value):
            lists = {name: value[name] for name in SINGULAR if isinstance(value.get(name), list)}
            if len(set(map(len, lists.values()))) > 1:
                got = ", ".join(f"{len(entries)} {name}" for name, entries in lists.items())
                yield number, reading.bad(number, f"a text needs as many of each list; got {got}")
                continue
            whole = {name: entry for name, entry in value.items() if name not in lists}
            for place in range(len(value["questions"])):
                yield number, whole | {SINGULAR[name]: entries[place] for name, entries in lists.items()}
        elif _is_c3(value):
            lines, questions, key = value
            context = "\n".join(map(str, lines))
            for question in questions:
                asked = {"question": question.get("question"), "options": question["choice"]}
                yield number, {"id": key, "context": context, **asked, "answer": question.get("answer")}
        else:
            yield number, value


def _is_race(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    questions, options = value.get("questions"), value.get("options")
    if not isinstance(questions, list) or not isinstance(options, list) or not options:
        return False
    return all(isinstance(entry, str) for entry in questions) and all(isinstance(entry, list) for entry in options)


def _is_c3(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[0], list):
        return False
    questions = value[1]
    return isinstance(questions, list) and all(
        isinstance(q, dict) and isinstance(q.get("choice"), list) for q in questions
    )
