"""Errors that user input can cause. Each message names the thing, the rule, the value and the remedy."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from numbers import Integral


class SegueError(Exception):
    """Base class of errors caused by user input. The command line prints only the message and exits with status 2."""

    exit_at_once = False
    """True if the command line must exit the process at once, without cleaning up."""

    def __init__(self, message: str = "", *, remedy: str = "", option: str = "") -> None:
        """`remedy` ends the message in Python, `option` ends it on the command line, where the fix is an argument in
        one and an option in the other."""
        super().__init__(f"{message} {remedy}".rstrip())
        self.on_command_line = f"{message} {option or remedy}".rstrip()


class SegueWarning(UserWarning):
    """A warning about something that does not stop the work; the command line prints it as a note."""


class ConfigError(SegueError):
    """A setting is unknown, out of range, or inconsistent with another."""


class DataError(SegueError):
    """A batch, memory, text, table or store is invalid, or does not fit the model."""


class CheckpointError(SegueError):
    """A checkpoint is missing, damaged, or in an unsupported format."""


def similar_names(name: str, names: Iterable[str], *, least: float = 0.6) -> list[str]:
    """Return up to three names that are most like a mistyped one, equally like ones together; a name that begins with
    it counts as very like it, and one that contains it nearly so.

    >>> similar_names("sentiment", ["entities-zh", "sentiment-en", "sentiment-zh"])
    ['sentiment-en', 'sentiment-zh']
    """
    given = name.casefold()
    found = {one: SequenceMatcher(None, given, one.casefold()).ratio() for one in names}
    for one, likeness in found.items():
        if len(given) >= 3 and given in one.casefold():
            found[one] = max(0.95 if one.casefold().startswith(given) else 0.9, likeness)
    best = max(found.values(), default=0.0)
    return [one for one, likeness in found.items() if likeness >= max(least, best - 0.01)][:3]


def kind_of(value: object) -> str:
    """Return the type of a value in words, for messages.

    >>> kind_of(3), kind_of([]), kind_of(None)
    ('an int', 'a list', 'None')
    """
    return "None" if value is None else with_article(type(value).__name__)


def with_article(name: str) -> str:
    """Return a name after "a" or "an"."""
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def check_positive(name: str, value: object) -> None:
    """Raise ConfigError if a value is not a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ConfigError(f"{name} must be a whole number; got {value!r:.80}. Use 1, for example.")
    if value < 1:
        raise ConfigError(f"{name} must be at least 1; got {value}. Use 1 or more.")
