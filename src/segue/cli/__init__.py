"""The command line: arguments, output and exit codes. The only package that prints or exits."""

import atexit
import io
import os
import signal
import sys
import warnings
from typing import Any


def main() -> None:
    """Run the console script. Every outcome is a message and an exit code, never a traceback (`cli.errors`).

    Until the commands are imported, and again while Python shuts down, an interrupt ends the process with the system's
    default action: there is nothing to clean up, and an exception raised inside an import may come out of it as another
    one, or abort the process. `cli.errors` handles the imports of a command itself.
    """
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job may ignore SIGINT
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _mend_streams()
    _show_notes()
    from segue.cli.app import app
    from segue.cli.errors import ended

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = ended(app)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
    raise SystemExit(code)


def _mend_streams() -> None:
    """Make output work in every locale: a character that its encoding lacks becomes an escape. A stream that is closed
    is replaced: input is empty, errors are discarded, and writing a result fails, as in other programs."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        opener = _opened_for_reading if name == "stdout" else None
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8", opener=opener))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _opened_for_reading(path: str, _: int) -> int:
    return os.open(path, os.O_RDONLY)


def _show_notes() -> None:
    """Show warnings of segue itself as notes for users; all others are shown as Python shows them."""
    from segue.errors import SegueWarning

    show = warnings.showwarning

    def show_note(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
        if issubclass(category, SegueWarning):
            print(f"segue: note: {message}", file=sys.stderr)
        else:
            show(message, category, *place, **options)

    warnings.showwarning = show_note
    warnings.simplefilter("always", SegueWarning)
