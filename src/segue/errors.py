"""The errors a user can cause. Each message names the thing, the rule, the value and the remedy."""


class SegueError(Exception):
    """Something the user gave cannot be used; the command line prints the message alone and exits with 2."""


class ConfigError(SegueError):
    """A setting is unknown, out of range, or does not fit another one."""


class DataError(SegueError):
    """A batch, a memory or a text does not fit the model or the rules for it."""


class CheckpointError(SegueError):
    """A model folder is missing, broken, or not of this project's format."""
