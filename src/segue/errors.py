"""The errors a user can cause. Each message names the thing, the rule, the value and the remedy."""


class SegueError(Exception):
    """Something the user gave cannot be used; the command line prints the message alone and exits with 2."""

    exit_at_once = False
    """Whether the command line must end the process without freeing what it holds."""

    def __init__(self, message: str = "", *, remedy: str = "", option: str = "") -> None:
        """`remedy` ends the message for callers of the library, `option` ends it on the command line: where an argument
        of a function would help the one, and an option of a command the other."""
        super().__init__(f"{message} {remedy}".rstrip())
        self.on_command_line = f"{message} {option or remedy}".rstrip()


class SegueWarning(UserWarning):
    """Something to know that stops nothing; the command line prints it as a note."""


class ConfigError(SegueError):
    """A setting is unknown, out of range, or does not fit another one."""


class DataError(SegueError):
    """A batch, a memory or a text does not fit the model or the rules for it."""


class CheckpointError(SegueError):
    """A model folder is missing, broken, or not of this project's format."""
