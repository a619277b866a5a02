"""What a desk knows: topics with their answers, and the questions that were asked about each.

In: tables with the columns question, answer, and if there are any intent, dialogue, turns. Out: a `Knowledge`. A topic
is an intent; where a row has none, it is its answer. A row may lack

- the answer: its intent is a topic that must be answered by a person, or by another row of the same intent;
- the question: an answer that is searched by its own words (a manual, a list of articles);
- both answer and intent, or have an intent of OUTSIDE: a question that the desk must not answer.

`turns` is a dialogue in one row: texts of the visitor and of the desk in turn, as a list, or objects with `speaker` and
`text`. Every text of the visitor before one of the desk is a question with its answer.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from segue.apps.desk.terms import words_of
from segue.data.tables import Row, Table, TableSettings, open_table
from segue.errors import DataError
from segue.text.unicode import without_surrogates

OUTSIDE = ("oos", "out_of_scope", "out-of-scope", "outside", "none")
"""Intents of questions that the desk must not answer."""
COLUMNS = {
    "question": ("question", "query", "text", "utterance", "q", "问题"),
    "answer": ("answer", "response", "reply", "a", "回答", "答案"),
    "intent": ("intent", "category", "label", "topic", "意图"),
    "dialogue": ("dialogue", "conversation", "dialogue_id", "conversation_id", "session"),
    "turns": ("turns", "messages", "dialog"),
}
VISITORS = ("visitor", "user", "customer", "client", "human", "顾客", "用户")
LONGEST_QUESTION = 4000
LONGEST_ANSWER = 20_000
"""Characters; what is longer is cut and counted."""
NAME = 80
"""Characters of an answer that name its topic."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """What a question can be about."""

    name: str
    answer: str | None
    """None where a person must answer."""
    source: str
    """The file that it came from."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question that is known."""

    text: str
    topics: tuple[int, ...]
    """Those that answer it; none for a question outside."""
    group: str
    """Questions of one dialogue are held back together."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """All of it."""

    topics: tuple[Topic, ...]
    asked: tuple[Asked, ...]
    left_out: dict[str, int] = field(default_factory=dict)
    """Rows that could not serve, by the reason, and texts that were cut."""
    columns: tuple[str, ...] = ()
    """What was read from which column, for each table."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Questions that must not be answered."""
        return tuple(one.text for one in self.asked if not one.topics)


@dataclass
class _Pair:
    question: str | None
    answer: str | None
    intent: str | None
    group: str
    source: str


def read_knowledge(sources: Sequence[str | Path | Table], *, encoding: str = "utf-8") -> Knowledge:
    """Reads all tables."""
    problems: Counter[str] = Counter()
    columns: list[str] = []
    pairs = [pair for source in sources for pair in _pairs(source, encoding, problems, columns)]
    return replace(gather(pairs, problems), columns=tuple(columns))


def gather(pairs: Iterable[_Pair], problems: Counter[str]) -> Knowledge:
    """Rows of one topic, and the topics of one question, put together."""
    names: dict[str, int] = {}
    answers: dict[int, Counter[str]] = {}
    sources: dict[int, str] = {}
    asked: dict[str, tuple[dict[int, None], str]] = {}
    for pair in pairs:
        if pair.question is None and pair.answer is None:
            problems["rows without question and answer"] += 1
            continue
        outside = pair.answer is None and (pair.intent is None or pair.intent.lower() in OUTSIDE)
        places: dict[int, None] = {}
        if not outside:
            key = f"intent {pair.intent}" if pair.intent is not None else f"answer {pair.answer}"
            place = names.setdefault(key, len(names))
            sources.setdefault(place, pair.source)
            if pair.answer is not None:
                answers.setdefault(place, Counter())[pair.answer] += 1
            places = {place: None}
        if pair.question is not None:
            known, _ = asked.setdefault(pair.question, ({}, pair.group))
            known |= places
    if not names:
        raise DataError(
            "a desk must have something to answer; got no row with an answer or an intent. Give a table with the "
            "columns question and answer, or question and intent."
        )
    texts = (*asked, *(text for some in answers.values() for text in some))
    if not any(words_of(text) for text in texts):
        raise DataError(
            "a desk must have words to go by; got questions and answers of punctuation and pictures alone. Give a "
            "table with words in its columns question and answer."
        )
    topics = tuple(
        Topic(
            name=key.partition(" ")[2] if key.startswith("intent ") else short_name(key.partition(" ")[2]),
            answer=answers[place].most_common(1)[0][0] if place in answers else None,
            source=sources[place],
        )
        for key, place in names.items()
    )
    return Knowledge(
        topics=topics,
        asked=tuple(Asked(text=text, topics=tuple(found), group=group) for text, (found, group) in asked.items()),
        left_out=dict(problems),
    )


def _pairs(source: str | Path | Table, encoding: str, problems: Counter[str], taken: list[str]) -> Iterator[_Pair]:
    table = open_table(source, TableSettings(encoding=encoding))
    columns = {role: _column(table, names) for role, names in COLUMNS.items()}
    if columns["answer"] is not None and _plain(columns["answer"]) == "a" and columns["question"] is None:
        columns["answer"] = None  # a letter alone may mean anything
    if columns["turns"] is None and columns["question"] is None and columns["answer"] is None:
        raise DataError(
            f"{table.source} must have a column question, answer or turns; got {', '.join(table.columns)[:200]}. "
            "Rename one of them."
        )
    if columns["turns"] is None and columns["answer"] is None and columns["intent"] is None:
        raise DataError(
            f"{table.source} must have something to answer, in a column answer or intent; got "
            f"{', '.join(table.columns)[:200]}. Rename a column, or give questions outside the intent oos."
        )
    name = Path(table.source).name
    taken.append(
        f"{name}: " + ", ".join(f"{role} from the column {column}" for role, column in columns.items() if column)
    )
    for number, row in table:
        cell = {role: None if column is None else row.get(column) for role, column in columns.items()}
        group = f"{name}, {cell['dialogue'] if cell['dialogue'] is not None else number}"
        intent = _text(cell["intent"], NAME, problems)
        if cell["turns"] not in (None, ""):
            for said, replied in _turns(cell["turns"], problems):
                yield _Pair(said, replied, None, group, name)
            continue
        question = _text(cell["question"], LONGEST_QUESTION, problems)
        answer = _text(cell["answer"], LONGEST_ANSWER, problems)
        yield _Pair(question, answer, intent, group, name)
    for kind, count in table.problems.counts.items():
        problems[kind.replace("_", " ")] += count


def _column(table: Table, names: Sequence[str]) -> str | None:
    by_name = {_plain(column): column for column in reversed(table.columns)}
    return next((by_name[name] for name in names if name in by_name), None)


def _plain(column: str) -> str:
    return column.strip().casefold()


def _text(value: Any, longest: int, problems: Counter[str]) -> str | None:
    if value is None or isinstance(value, list | dict):
        return None
    text = without_surrogates(str(value)).replace("\0", "").strip()
    if len(text) > longest:
        problems["texts that were cut"] += 1
        text = text[:longest]
    return text or None


def _turns(value: Any, problems: Counter[str]) -> Iterator[tuple[str, str]]:
    """Questions and answers of a dialogue in one row."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        problems["dialogues that are no list of turns"] += 1
        return
    said: list[tuple[bool, str]] = []
    for number, turn in enumerate(value):
        speaker, content = ("", turn) if isinstance(turn, str) else _speaker(turn)
        text = _text(content, LONGEST_QUESTION, problems)
        if text is not None:
            said.append((speaker in VISITORS if speaker else number % 2 == 0, text))
    for (asks, question), (asks_again, answer) in pairwise(said):
        if asks and not asks_again:
            yield question, answer


def _speaker(turn: Row | Any) -> tuple[str, Any]:
    if not isinstance(turn, dict):
        return "", None
    speaker = next((turn[name] for name in ("speaker", "role", "from") if turn.get(name)), "")
    return str(speaker).lower(), next((turn[name] for name in ("text", "content", "message") if turn.get(name)), None)


def short_name(text: str) -> str:
    """The beginning of an answer, as the name of its topic."""
    line = " ".join(text.split())
    return line if len(line) <= NAME else f"{line[: NAME - 1]}…"
