"""Exit codes of commands, and a single error message on standard error.

| code | meaning |
|---|---|
| 0 | success |
| 1 | a check failed |
| 2 | an argument, a file or the system must be changed: the message says what |
| 70 | a bug in segue; the traceback is in a file |
| 130, 143 | interrupted by SIGINT or SIGTERM |
| 141 | the reader of the output closed it, as in `segue models | head -1`; no message |

`SEGUE_TRACEBACK=1` shows the traceback of the error that ended the command.
"""

import errno
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from segue.errors import SegueError

WRONG, BROKEN_PIPE, FAULT, INTERRUPTED = 2, 141, 70, 130
SHOW = "SEGUE_TRACEBACK"
_REMEDIES = {
    errno.ENOSPC: "Free some space, or choose another path.",
    errno.EDQUOT: "Free some space, or choose another path.",
    errno.EFBIG: "Choose a file system that allows larger files.",
    errno.EACCES: "Check its permissions, or choose another path.",
    errno.EPERM: "Check its permissions, or choose another path.",
    errno.EROFS: "Choose another place.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path.",
    errno.EISDIR: "Name a file.",
    errno.EEXIST: "Choose another name.",
    errno.ENOTEMPTY: "Choose another name.",
    errno.ENAMETOOLONG: "Use a shorter name.",
    errno.ELOOP: "Remove the link that leads to itself.",
    errno.EMLINK: "Choose another place.",
    errno.EMFILE: "Allow more open files: ulimit -n 4096.",
    errno.ENFILE: "Close other programs.",
    errno.ENOMEM: "Close other programs, or use smaller sizes.",
    errno.EAGAIN: "Allow more processes: ulimit -u.",
    errno.EIO: "Check the disk.",
    errno.EBADF: "Open it, or redirect it to a file; standard output may be closed.",
}


def ended(app: Callable[[], object]) -> int:
    """Run the command, print the error message if there is one, and return the exit code."""
    try:
        try:
            with _interrupts_between_imports():
                app()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else WRONG
            code = BROKEN_PIPE if _was(BrokenPipeError, end) else code  # which rich and typer turn into an exit
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # `segue models | head`
        _let_go()
        return BROKEN_PIPE
    except BaseException as error:
        if _was(KeyboardInterrupt, error):
            _say("interrupted")
            return INTERRUPTED
        message = explained(error)
        if os.environ.get(SHOW):
            _say("".join(traceback.format_exception(error)).rstrip())
        _say(_fault(error) if message is None else message)
        _let_go()
        if isinstance(error, SegueError) and error.exit_at_once:
            os._exit(WRONG)
        return FAULT if message is None else WRONG


@contextmanager
def _interrupts_between_imports() -> Iterator[None]:
    """If SIGINT raises KeyboardInterrupt, make it end the process instead while torch is imported: Python code that C++
    calls while torch starts must not raise, or C++ aborts the process."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_OF_TORCH = f"{os.sep}torch{os.sep}"


def _interrupted(_: int, frame: FrameType | None) -> None:
    of_torch = False
    while frame is not None:
        file = frame.f_code.co_filename
        if of_torch and file.startswith("<frozen importlib._bootstrap"):
            _end_at_once()
        of_torch = of_torch or _OF_TORCH in file
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_at_once() -> NoReturn:
    """End the process like an interrupted command; nothing is raised, and no exit handler runs."""
    with suppress(Exception):  # it may be written to right now
        sys.stdout.flush()
    with suppress(OSError):
        wiped = b"\r\x1b[2K\x1b[?25h" if os.isatty(2) else b""  # a status line, which hides the cursor
        os.write(2, wiped + b"segue: interrupted\n")
    os._exit(INTERRUPTED)


def explained(error: BaseException) -> str | None:
    """Return the message for an error that the user or the system caused; None for a bug in segue."""
    if isinstance(error, SegueError):
        return error.on_command_line
    if isinstance(error, OSError) and error.errno is not None:
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        what = " and ".join(names) or "a file or a stream"
        remedy = _REMEDIES.get(error.errno, "Check the path and the disk.")
        return f"{what} must be usable; got {os.strerror(error.errno)}. {remedy}"
    if isinstance(error, OSError):  # from a library that gives no details
        return f"a system call failed: {first_line(error)}. Check the disk and the free memory."
    if is_memory(error):
        return (
            f"the work must fit into memory; got {first_line(error) or 'an allocation failure'}. Use a smaller model, "
            "batch, segment or memory: `segue plan` shows what a run needs."
        )
    if isinstance(error, RecursionError):
        return (
            "the inputs must not be nested so deeply; Python's recursion limit was reached. Check how they were made."
        )
    if isinstance(error, UnicodeEncodeError):
        return f"names and texts must be valid Unicode; got {error.object[error.start : error.end]!a}. Correct it."
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "the name of a file must have no NUL character; one has. Check the paths that were given."
    return None


def is_memory(error: BaseException) -> bool:
    """Return True for an out-of-memory error; torch has errors of its own."""
    text = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (
            type(error).__name__ == "OutOfMemoryError"
            or "DefaultCPUAllocator" in text
            or "can't allocate memory" in text
        )
    )


def _was(kind: type[BaseException], error: BaseException | None) -> bool:
    """Return True if an error of this kind caused the error: an interrupt inside an import or a callback of C code
    comes out as another one."""
    for _ in range(20):
        if error is None:
            return False
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fault(error: BaseException) -> str:
    """Save the traceback to a file, and return a message with its path."""
    short = f"{type(error).__name__}: {first_line(error)}"
    where = "Run the command again with SEGUE_TRACEBACK=1 to see the traceback"
    with suppress(OSError, ValueError):
        descriptor, name = tempfile.mkstemp(prefix="segue-fault-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{sys.argv!r}\n{''.join(traceback.format_exception(error))}")
        where = f"The traceback is in {name}"
    return f"this is a bug in segue ({short}). {where}; please report it, with the command that you ran."


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error; empty if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # standard error may be full or closed too
        print(f"segue: {text}", file=sys.stderr, flush=True)


def _let_go() -> None:
    """Discard the rest of the output: writing it at exit would fail again."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
