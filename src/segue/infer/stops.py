"""Stop strings: text that is certain is passed on, text that may become a stop string waits.

In: text, a piece at a time. Out: the text before the first stop string. The division into pieces makes no difference:
the stop string that is complete first counts, and of those complete at the same character the longest. The stop string
and everything after it are dropped. The source of the text and the consequences of a stop are up to the caller.
"""

from collections.abc import Sequence

from segue.errors import ConfigError
from segue.text.unicode import without_surrogates


class StopStrings:
    """Watcher of one stream for stop strings. Without any, all text passes."""

    def __init__(self, strings: Sequence[str]) -> None:
        if isinstance(strings, str):
            raise ConfigError(f"stop strings must be a list of texts; got the text {strings!r}. Put it into a list.")
        for string in strings:
            if not string:
                raise ConfigError("a stop string must not be empty; got an empty one. Remove it.")
            if string != without_surrogates(string):
                raise ConfigError(
                    f"a stop string must be text that a model can write; got {string!r} with half a character. "
                    "Write the whole character."
                )
        self._strings = tuple(dict.fromkeys(strings))
        self._waiting = ""
        self._found: str | None = None

    @property
    def found(self) -> str | None:
        """The stop string that ended the stream; None: none has yet."""
        return self._found

    def feed(self, text: str) -> str:
        """Return the text that is certain now: it is before any stop string. After a stop there is none."""
        if self._found is not None:
            return ""
        text = self._waiting + text
        found = [(start + len(string), start, string) for string in self._strings if (start := text.find(string)) >= 0]
        if found:
            # Tuples compare by the end, then by the start: the first that is complete, then the longest.
            _, start, self._found = min(found)
            self._waiting = ""
            return text[:start]
        certain = len(text) - max((_begun(text, string) for string in self._strings), default=0)
        self._waiting = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """Return the text that still waited, at the end of the stream."""
        rest, self._waiting = self._waiting, ""
        return rest


def _begun(text: str, string: str) -> int:
    """Return the number of characters at the end of the text that are a proper prefix of the string."""
    longest = min(len(text), len(string) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(string[:size])), 0)
