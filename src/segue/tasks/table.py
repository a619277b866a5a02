"""The tasks by name. A new task is added here."""

from difflib import get_close_matches

from segue.errors import ConfigError
from segue.tasks.answer import ANSWER
from segue.tasks.choose import CHOOSE
from segue.tasks.classify import CLASSIFY, PAIR
from segue.tasks.generate import GENERATE
from segue.tasks.rank import RANK
from segue.tasks.regress import REGRESS
from segue.tasks.similarity import SIMILARITY
from segue.tasks.tag import TAG
from segue.tasks.task import TaskKind

TASKS = {kind.name: kind for kind in (CLASSIFY, PAIR, TAG, ANSWER, REGRESS, CHOOSE, RANK, SIMILARITY, GENERATE)}


def task_kind(name: str) -> TaskKind:
    """Return the task of a name; raise ConfigError if there is none."""
    if name not in TASKS:
        near = get_close_matches(name, TASKS, n=1)
        advice = f"Did you mean {near[0]!r}?" if near else "Check the name."
        raise ConfigError(f"a task must be one of {', '.join(TASKS)}; got {name!r}. {advice}")
    return TASKS[name]
