"""Knowledge of a desk: topics with their answers, and known questions of each, read from tables.

In: tables with the columns question and answer, and optionally intent, dialogue, turns and source. Out: a `Knowledge`.
A topic is an intent, or, for a row without one, its answer. A column named category, label or topic counts as the
intent only if each of its values has a single answer: otherwise it is a wider heading, and answers are topics. A row
may lack

- the answer: its intent is a topic answered by another row of the same intent, or else by a person;
- the question: the answer is searched by its own words (a manual, a list of articles);
- both answer and intent (or the answer, with an intent in `OUTSIDE`): a question that the desk must not answer.

`turns` is a dialogue in one row: a list of texts in which visitor and desk alternate, or of objects with `speaker` and
`text`. Each text of the visitor followed by one of the desk is a question with its answer.
"""

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from segue.apps.cells import open_given, rows_given
from segue.apps.desk.terms import words_of
from segue.data.tables import Row, Table
from segue.errors import DataError
from segue.text.unicode import without_surrogates

OUTSIDE = ("oos", "out_of_scope", "out-of-scope", "outside", "none")
"""Intents of out-of-scope questions."""
COLUMNS = {
    "question": ("question", "questions", "query", "queries", "text", "utterance", "q", "问题"),
    "answer": ("answer", "answers", "response", "responses", "reply", "replies", "a", "回答", "答案"),
    "intent": ("intent", "intents", "category", "label", "topic", "意图"),
    "dialogue": ("dialogue", "conversation", "dialogue_id", "conversation_id", "session"),
    "turns": ("turns", "messages", "dialog"),
    "source": ("source", "来源", "出处"),
}
HEADINGS = ("category", "label", "topic")
"""Columns that may be wider headings rather than intents."""
VISITORS = ("visitor", "user", "customer", "client", "human", "顾客", "用户")
LONGEST_QUESTION = 4000
"""Maximum number of characters of a question, and of an intent; longer texts are cut and counted."""
LONGEST_ANSWER = 20_000
"""The same for an answer."""
LONGEST_SOURCE = 300
"""The same for a source."""
NAME = 80
"""Maximum number of characters of the name of a topic."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic: what a question can be about."""

    name: str
    answer: str | None
    """Answer; None if a person must answer."""
    source: str
    """Name of the file that it came from; for agents only."""
    cited: str | None = None
    """Source of the answer that visitors see, from the column source; None if its rows have none."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A known question."""

    text: str
    topics: tuple[int, ...]
    """Indices of its topics; empty for an out-of-scope question."""
    group: str
    """Questions of one group (a dialogue) are held out together."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Topics and questions of a desk."""

    topics: tuple[Topic, ...]
    asked: tuple[Asked, ...]
    left_out: dict[str, int] = field(default_factory=dict)
    """Numbers of rows left out and of texts cut, by reason."""
    notes: tuple[str, ...] = ()
    """Warnings for the operator: answers that are not used, questions with several answers, missing columns."""
    columns: tuple[str, ...] = ()
    """Description of the columns read, one for each table."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Out-of-scope questions."""
        return tuple(one.text for one in self.asked if not one.topics)


@dataclass
class _Pair:
    question: str | None
    answer: str | None
    intent: str | None
    group: str
    source: str
    cited: str | None = None


def read_knowledge(sources: Sequence[str | Path | Table], *, encoding: str = "utf-8") -> Knowledge:
    """Read knowledge from tables."""
    problems: Counter[str] = Counter()
    notes: list[str] = []
    columns: list[str] = []
    pairs = [pair for source in sources for pair in _pairs(source, encoding, problems, notes, columns)]
    return replace(gather(pairs, problems, notes), columns=tuple(columns))


def gather(pairs: Iterable[_Pair], problems: Counter[str], notes: Sequence[str] = ()) -> Knowledge:
    """Merge rows into topics, and repeated questions into one with several topics."""
    names: dict[str, int] = {}
    answers: dict[int, Counter[str]] = {}
    sources: dict[int, str] = {}
    cited: dict[tuple[int, str], str] = {}
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
                if pair.cited is not None:
                    cited.setdefault((place, pair.answer), pair.cited)
            places = {place: None}
        if pair.question is not None:
            known, _ = asked.setdefault(pair.question, ({}, pair.group))
            known |= places
    if not names:
        raise DataError(
            "a desk needs answers; got no row with an answer or an intent. Give a table with the columns question and "
            "answer, or question and intent."
        )
    texts = (*asked, *(text for some in answers.values() for text in some))
    if not any(words_of(text) for text in texts):
        raise DataError(
            "a desk needs words to learn from; got questions and answers of punctuation and emoji only. Give a table "
            "with words in its columns question and answer."
        )
    topics: list[Topic] = []
    taken: set[str] = set()
    for key, place in names.items():
        name = new_name(key.partition(" ")[2], taken)
        taken.add(name)
        answer = answers[place].most_common(1)[0][0] if place in answers else None
        shown = None if answer is None else cited.get((place, answer))
        topics.append(Topic(name=name, answer=answer, source=sources[place], cited=shown))
    found = tuple(Asked(text=text, topics=tuple(some), group=group) for text, (some, group) in asked.items())
    return Knowledge(
        topics=tuple(topics),
        asked=found,
        left_out=dict(problems),
        notes=(*notes, *_unused_answers(topics, answers), *_several_answers(topics, found)),
    )


def _unused_answers(topics: Sequence[Topic], answers: Mapping[int, Counter[str]]) -> Iterator[str]:
    """Yield a warning if rows of one topic have several answers, of which only one is used."""
    several = [place for place, some in answers.items() if len(some) > 1]
    if several:
        count = sum(len(answers[place]) - 1 for place in several)
        yield (
            f"{count:,} answers are not given, because rows of one intent have several: only the most frequent is. "
            f"Intents: {_some([topics[place].name for place in several])}. Give each answer an intent of its own, or "
            "leave the column intent out."
        )


def _several_answers(topics: Sequence[Topic], asked: Sequence[Asked]) -> Iterator[str]:
    several = [one.text for one in asked if len({topics[topic].answer for topic in one.topics}) > 1]
    if several:
        yield (
            f"{len(several):,} questions have several different answers, and get the more likely one: {_some(several)}"
            ". Keep one answer for each."
        )


def _some(texts: Sequence[str]) -> str:
    """Return the first three of some texts, shortened, for a message."""
    shown = ", ".join(repr(short_name(text)) for text in texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3:,} more"


def _pairs(
    source: str | Path | Table, encoding: str, problems: Counter[str], notes: list[str], taken: list[str]
) -> Iterator[_Pair]:
    table = open_given(source, encoding=encoding)
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
            f"{table.source} must have a column answer or intent; got {', '.join(table.columns)[:200]}. Rename a "
            "column, or give out-of-scope questions the intent oos."
        )
    name = Path(table.source).name
    taken.append(
        f"{name}: " + ", ".join(f"{role} from the column {column}" for role, column in columns.items() if column)
    )
    if columns["turns"] is None and columns["question"] is None:
        notes.append(
            f"{name} has no column question: its answers are searched by their own words. Its columns: "
            f"{', '.join(table.columns)[:200]}. If one of them holds questions, name it question."
        )
    pairs = list(_rows(table, name, columns, problems))
    heading = (columns["intent"] or "").strip().casefold()
    if heading in HEADINGS and _is_wider(pairs):
        notes.append(
            f"The column {heading} of {name} has several answers for one value, so it is not taken for the intent, "
            "and each answer is a topic. If rows with the same value should share an answer, name the column intent."
        )
        for pair in pairs:
            pair.intent = pair.intent if pair.answer is None else None
    yield from pairs


def _is_wider(pairs: Iterable[_Pair]) -> bool:
    """Return True if any intent has several answers."""
    answers: dict[str, str] = {}
    return any(
        answers.setdefault(pair.intent, pair.answer) != pair.answer
        for pair in pairs
        if pair.intent is not None and pair.answer is not None
    )


def _rows(table: Table, name: str, columns: Mapping[str, str | None], problems: Counter[str]) -> Iterator[_Pair]:
    for number, row in rows_given(table):
        cell = {role: None if column is None else row.get(column) for role, column in columns.items()}
        group = f"{name}, {cell['dialogue'] if cell['dialogue'] is not None else number}"
        intent = _text(cell["intent"], LONGEST_QUESTION, problems)
        cited = _text(cell["source"], LONGEST_SOURCE, problems)
        if cell["turns"] not in (None, ""):
            for said, replied in _turns(cell["turns"], problems):
                yield _Pair(said, replied, None, group, name, cited)
            continue
        question = _text(cell["question"], LONGEST_QUESTION, problems)
        answer = _text(cell["answer"], LONGEST_ANSWER, problems)
        yield _Pair(question, answer, intent, group, name, cited)
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
    """Yield the questions and answers of a dialogue in one row."""
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
    """Return the beginning of a text in one line, at most `NAME` characters."""
    line = " ".join(text.split())
    return line if len(line) <= NAME else f"{line[: NAME - 1]}…"


def new_name(text: str, taken: Container[str]) -> str:
    """Return a unique name for a topic: the beginning of its intent or answer, numbered if it is taken.

    >>> new_name("On its way.", ()), new_name("On its way.", ("On its way.",))
    ('On its way.', 'On its way. (2)')
    """
    name, number = short_name(text), 2
    while name in taken:
        end = f" ({number})"
        name, number = f"{short_name(text)[: NAME - len(end)]}{end}", number + 1
    return name
