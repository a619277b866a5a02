"""`segue generate --chat`: a reply to each line of input, in one session.

In: lines from a terminal or a pipe. Each is read with its newline; the reply ends at a newline of the model, the end of
a document or the maximum number of tokens. A reply that ends otherwise gets a newline, so that every turn is a line to
the model.
"""

import contextlib
import dataclasses
import io
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from segue.api.models import Session
from segue.cli.writing import Screen, check_place, feed, interrupts, save_session
from segue.errors import SegueError
from segue.infer.sampling import SamplingSettings
from segue.text.unicode import without_surrogates

LONGEST_LINE = 2**20  # characters from a pipe; a longer line is read as several
HELP = """\
The model replies to every line with a line of its own.
/reset      forget everything
/save FILE  save the session
/load FILE  continue a saved session
/help       show this help
A line that begins with // is sent with one slash. Ctrl-C stops a reply, Ctrl-D ends the chat.
"""


def run_chat(
    session: Session,
    *,
    max_tokens: int,
    sampling: SamplingSettings,
    stop: Sequence[str],
    choices: Sequence[str],
    encoding: str,
    replace: bool,
    loaded: Path | None,
    model: str,
) -> None:
    """Chat until the input ends. In a terminal an error is printed and the chat continues; in a pipe it ends the
    command."""
    terminal = sys.stdin.isatty()
    replies = 0
    file = loaded
    for line in _lines(terminal=terminal, encoding=encoding):
        try:
            if line.startswith("/") and not line.startswith("//"):
                file = _obey(line, session, file, replace=replace, model=model)
                continue
            # Every reply has its own seed; the same lines with the same seed give the same replies.
            settings = dataclasses.replace(sampling, seed=(sampling.seed + replies) % 2**64)
            replies += 1
            _reply(
                session, line.removeprefix("/"), max_tokens=max_tokens, sampling=settings, stop=stop, choices=choices
            )
        except SegueError as error:
            if not terminal:
                raise
            print(f"segue: {error}", file=sys.stderr)


def _reply(
    session: Session,
    line: str,
    *,
    max_tokens: int,
    sampling: SamplingSettings,
    stop: Sequence[str],
    choices: Sequence[str],
) -> None:
    screen = Screen()
    ended = False
    with interrupts() as interrupt:
        feed(session, [line + "\n"])
        for one in session.write(max_tokens=max_tokens, sampling=sampling, stop=["\n", *stop], choices=choices):
            screen.show(one.text)
            ended = one.id is not None and "\n" in session.tokenizer.decode([one.id])
            if interrupt.asked:
                break
    screen.show("\n")
    if not ended:
        session.feed("\n")


def _obey(line: str, session: Session, file: Path | None, *, replace: bool, model: str) -> Path | None:
    """Execute a command of the chat; return the file of the session, which may be overwritten by a later save."""
    command, _, rest = line.partition(" ")
    path = Path(rest.strip()) if rest.strip() else None
    match command:
        case "/reset" if path is None:
            forgotten = session.tokens_read
            session.reset()
            print(f"Session reset, {forgotten:,} tokens forgotten.", file=sys.stderr)
        case "/save" if path is not None:
            check_place(path, replace=replace, loaded=file, model=model)
            save_session(session, path)
            print(f"Saved the session, {session.tokens_read:,} tokens, in {path}.", file=sys.stderr)
            return path
        case "/load" if path is not None:
            session.load(path)
            print(f"Loaded the session from {path}, {session.tokens_read:,} tokens.", file=sys.stderr)
            return path
        case "/help":
            print(HELP, end="", file=sys.stderr)
        case _:
            print(f"segue: {line!r} is not a command.\n{HELP}", end="", file=sys.stderr)
    return file


def _lines(*, terminal: bool, encoding: str) -> Iterator[str]:
    """Yield the lines without their ends. Bytes that cannot be decoded become U+FFFD."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding=None if terminal else encoding, errors="replace")
    if not terminal:
        for line in iter(partial(sys.stdin.readline, LONGEST_LINE), ""):
            yield without_surrogates(line.removesuffix("\n"))
        return
    with contextlib.suppress(ImportError):  # line editing and history, if Python has them
        import_module("readline")
    print("Ctrl-D to end, /help for help.", file=sys.stderr)
    while True:
        try:
            yield without_surrogates(input("> "))
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
