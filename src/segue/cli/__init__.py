"""The command line: what is typed, what is shown, how it ends. The only place that prints or exits."""

import sys
import warnings
from typing import Any


def main() -> None:
    """The console script: errors of the user end with their message and exit code 2, without a traceback."""
    from segue.cli.app import app
    from segue.errors import SegueError, SegueWarning

    show = warnings.showwarning

    def show_note(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
        if issubclass(category, SegueWarning):
            print(f"segue: note: {message}", file=sys.stderr)
        else:
            show(message, category, *place, **options)

    warnings.showwarning = show_note
    warnings.simplefilter("always", SegueWarning)
    try:
        app()
    except SegueError as error:
        print(f"segue: {error.on_command_line}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("segue: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # `segue models | head`
        sys.stderr.close()
        raise SystemExit(141) from None
