"""Output for terminals of any width: wrapped paragraphs with an indent, and a status line.

Results go to standard output; progress goes to standard error (`progress_console`), so that `segue ... | head` shows
the result and interrupts nothing.
"""

import textwrap

from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

_LONGEST_BAR, _SHORTEST_BAR = 30, 6


def progress_console() -> Console:
    """Return the console for progress."""
    return Console(stderr=True, highlight=False, emoji=False)


class _Line(ProgressColumn):
    """Share of the work done, `line` of the task, and a bar if there is room for one."""

    max_refresh = 0.1

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def render(self, task: Task) -> Text:
        share = task.percentage / 100 if task.total else 0.0
        text = Text(f"{share:>4.0%}  {task.fields['line']}" if task.total else f"{task.fields['line']}", no_wrap=True)
        room = min(self.console.width - cell_len(text.plain) - 3, _LONGEST_BAR)
        if task.total and room >= _SHORTEST_BAR:
            done, rest = ("#", "-") if self.console.options.ascii_only else ("━", "─")
            full = round(share * room)
            text.append("  ").append(done * full, style="cyan").append(rest * (room - full), style="dim")
        text.truncate(self.console.width - 1, overflow="ellipsis")
        return text


def moving_line(console: Console) -> Progress:
    """Return a status line that is updated during the work and removed afterwards. Tasks have the field `line`; its
    most important parts come first, since a narrow terminal cuts the end."""
    return Progress(_Line(console), console=console, transient=True, disable=not console.is_terminal)


def finish(progress: Progress) -> None:
    """Remove the status line, if it was shown; otherwise an empty line would be printed."""
    if progress.live.is_started:
        progress.stop()


def say(console: Console, text: str, *, indent: int = 0, hang: int = 0, style: str = "") -> None:
    """Print one paragraph; all lines after the first are indented by `hang` more columns."""
    lines = textwrap.wrap(
        text,
        width=max(console.width, indent + hang + 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,  # names of options are not split
    )
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)


def finding(console: Console, passed: bool | None, text: str) -> None:
    """Print the result of a check: a mark, then the text."""
    mark, style = {True: ("ok", "green"), False: ("FAILED", "bold red"), None: ("--", "dim")}[passed]
    console.print(Text(f"{mark:>6}  ", style=style), end="")
    lines = textwrap.wrap(text, width=max(console.width - 8, 20))
    console.print(Text(("\n" + " " * 8).join(lines)), soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a duration in readable form: 4.2 s, 35 s, 7 min 5 s, 2 h 10 min."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
