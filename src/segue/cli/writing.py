"""Shared parts of the commands that generate text: settings from options, prompts of any size, output, Ctrl-C.

In: options as the user gave them, and a Session. Generation itself is left to the commands.
"""

import io
import math
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.api.generate import token_id
from segue.api.models import Session, path_of
from segue.api.texts import Problems, decoded_stream
from segue.cli.console import say
from segue.cli.errors import first_line, is_memory
from segue.cli.options import SamplingOptions
from segue.cli.reporting import reporting
from segue.data.problems import MEANING
from segue.errors import ConfigError
from segue.files import check_file
from segue.infer.sampling import SamplingSettings
from segue.text.tokenizer import Tokenizer
from segue.text.unicode import REPLACEMENT, without_surrogates

STANDARD_INPUT = "-"
ALTERNATIVES = 3
"""Default number of most likely tokens beside each token in a table."""
_UNSEEN = {code: REPLACEMENT for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}
"""Control characters of terminals, which a model may generate, and their replacement."""


# ---------------------------------------------------------------------------------------------------------- settings


def sampling_settings(options: SamplingOptions, *, show_alternatives: bool) -> SamplingSettings:
    """Return the settings of the given options; all problems are reported at once. With `show_alternatives`,
    alternatives are included even if their number is not given."""
    alternatives = options.alternatives
    if alternatives is None and show_alternatives:
        alternatives = ALTERNATIVES
    given: dict[str, object] = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "typical": options.typical,
        "repetition_penalty": options.repetition_penalty,
        "seed": options.seed,
        "greedy": options.greedy,
        "top_log_probabilities": alternatives,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if options.top_k is not None:
        values["top_k"] = _top_k(options.top_k)
    return replace(SamplingSettings(), **values)  # type: ignore[arg-type]  # their names are those of its fields


def biased(settings: SamplingSettings, bias: Sequence[str] | None, tokenizer: Tokenizer) -> SamplingSettings:
    """Return the settings with --bias, whose tokens are looked up in the tokeniser."""
    pairs = [_bias(one) for one in bias or ()]
    return replace(settings, logit_bias={token_id(token, tokenizer): number for token, number in pairs})


def _top_k(text: str) -> int | None:
    if text == "all":
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise ConfigError(
            f"--top-k must be a positive whole number, or all; got {text!r}. Use --top-k 40, or --top-k all to sample "
            "from the whole vocabulary."
        )
    return number


def _bias(text: str) -> tuple[str, float]:
    """Return the token and the number of TOKEN=NUMBER."""
    token, sign, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        sign = ""
    if not sign or not token:
        raise ConfigError(
            f"--bias must have the form TOKEN=NUMBER; got {text!r}. Write --bias the=-5, for example; -inf forbids a "
            "token."
        )
    return token, number


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise out-of-memory errors as ConfigError: the settings need more than the machine has."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_memory(error):
            raise
        raise ConfigError(
            f"the model must fit into memory with these settings; got {first_line(error) or 'an allocation failure'}. "
            "Use a shorter --memory-length or a smaller --beam."
        ) from None


# ----------------------------------------------------------------------------------------------------------- prompts


def prompt_pieces(prompt: str, *, encoding: str) -> Iterator[str]:
    """Yield the prompt, or standard input as it arrives."""
    if prompt != STANDARD_INPUT:
        yield without_surrogates(prompt)
        return
    problems = Problems()
    yield from decoded_stream(sys.stdin.buffer, name="standard input", encoding=encoding, problems=problems)
    console = Console(stderr=True, highlight=False, emoji=False)
    for kind, number in problems.counts.items():
        say(console, f"{number:,} {MEANING[kind]}; first: {problems.first[kind]}", hang=2, style="yellow")


def feed(session: Session, pieces: Iterable[str]) -> None:
    """Read a prompt; show progress if that takes long, and report how many tokens were skipped because they cannot
    matter."""
    before = session.tokens_read
    with reporting("reading the prompt, tokens") as report:
        skipped = session.feed(pieces, progress=report)
    if skipped:
        total = session.tokens_read - before
        say(
            Console(stderr=True, highlight=False, emoji=False),
            f"Skipped the first {skipped:,} of {total:,} tokens of the prompt: the output of this model can depend on "
            f"at most the last {session.reach:,}.",
            style="dim",
        )


# ------------------------------------------------------------------------------------------------- files of sessions


def load_session(session: Session, path: Path | None) -> None:
    """Load a saved session, if a file was given."""
    if path is not None:
        session.load(path)


def check_place(path: Path | None, *, replace: bool, loaded: Path | None, model: str) -> None:
    """Raise an error, before the work, for a path where the session cannot be saved. The file that it was loaded from
    may be overwritten."""
    if path is not None:
        goes_on = loaded is not None and path.is_file() and loaded.is_file() and path.samefile(loaded)
        check_file(path, replace=replace or goes_on, inputs=[path_of(model)], folder_made=True)


def save_session(session: Session, path: Path | None) -> None:
    """Save the session, if a file was given."""
    if path is not None:
        session.save(path)


# ------------------------------------------------------------------------------------------------------------ screen


class Screen:
    """Streams text to standard output."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a terminal may lack characters
        self._safe = sys.stdout.isatty()
        self._fresh = True

    def show(self, text: str) -> None:
        """Write text at once."""
        if text:
            sys.stdout.write(text.translate(_UNSEEN) if self._safe else text)
            sys.stdout.flush()
            self._fresh = text.endswith("\n")

    def end_line(self) -> None:
        """Ensure that further output begins on a new line."""
        if not self._fresh:
            self.show("\n")


def visible(token: str) -> str:
    """Return a token in a form for tables."""
    return token if token.isprintable() else repr(token)[1:-1]


def show_table(rows: Sequence[tuple[str, float, Sequence[tuple[str, float]]]]) -> None:
    """Print tokens with their log-probabilities and the most likely alternatives."""
    console = Console(highlight=False, emoji=False)
    table = Table("token", box=None, pad_edge=False)
    table.add_column("log p", justify="right")
    table.add_column("likeliest")
    for token, value, alternatives in rows:
        others = "  ".join(f"{visible(name)} {other:.2f}" for name, other in alternatives)
        table.add_row(Text(visible(token)), f"{value:.3f}", Text(others))
    console.print()
    console.print(table)
    total = math.fsum(value for _, value, _ in rows)
    console.print(f"{len(rows):,} tokens, log-probability {total:.3f}, perplexity {_perplexity(total, len(rows))}")


def _perplexity(total: float, count: int) -> str:
    return f"{math.exp(-total / count):,.2f}" if count else "none"


# ------------------------------------------------------------------------------------------------------------ Ctrl-C


class Interrupt:
    """Flag that Ctrl-C sets."""

    def __init__(self) -> None:
        self.asked = False


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """Record Ctrl-C, so that generation stops between two tokens and not within one. A second Ctrl-C is raised."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield interrupt
        return

    def handle(_: int, __: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
