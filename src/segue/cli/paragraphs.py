"""Text for a terminal of any width: paragraphs with an indent, wrapped where the terminal ends."""

import textwrap

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str, *, indent: int = 0, hang: int = 0, style: str = "") -> None:
    """Prints one paragraph; all lines after the first hang by `hang` more columns."""
    lines = textwrap.wrap(
        text,
        width=max(console.width, indent + hang + 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,  # names of options stay whole
    )
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)


def finding(console: Console, passed: bool | None, text: str) -> None:
    """One checked thing: a mark, then what was found."""
    mark, style = {True: ("ok", "green"), False: ("FAILED", "bold red"), None: ("--", "dim")}[passed]
    console.print(Text(f"{mark:>6}  ", style=style), end="")
    lines = textwrap.wrap(text, width=max(console.width - 8, 20))
    console.print(Text(("\n" + " " * 8).join(lines)), soft_wrap=True)


def duration(seconds: float) -> str:
    """As a person would say it: 4.2 s, 35 s, 7 min 5 s, 2 h 10 min."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
