"""A report as a list of blocks, rendered as markdown and as a single self-contained HTML file.

In: blocks of plain text. Out: text. The content of a document stays text: markup in it is escaped, HTML pages also
forbid scripts and outside resources by a content security policy, and characters that UTF-8 cannot encode are replaced.
A line feed in a cell is a line break; all other white space is a space.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

BLANKS = re.compile(r"[^\S\n]+")
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
MARKDOWN = re.compile(r"([\\`*\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")
LIST_MARK = re.compile(r"^(?:([-+])(?=\s)|(\d+)(?=[.)]\s)|([-=])(?=[-=]*$))")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The heading of a section."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A paragraph."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Bullets:
    """A list of short remarks."""

    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Code:
    """A code block."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows below a header; columns of numbers are aligned to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    """Indices of the columns with numbers."""
    shades: Sequence[Sequence[float]] | None = None
    """Shade of each cell, from 0 to 1, for HTML; shorter rows leave their last cells plain."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A chart for HTML; markdown leaves it out, since a table has the numbers."""

    svg: str
    """Output of `charts`, already escaped."""


Block = Heading | Paragraph | Bullets | Code | Table | Picture


def clean(text: str) -> str:
    """Replace characters that would break a line of a page or its encoding."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return BLANKS.sub(" ", CONTROLS.sub(" ", whole))


# ---------------------------------------------------------------------------------------------------- markdown


def to_markdown(title: str, blocks: Sequence[Block]) -> str:
    """Return the report in GitHub's markdown, with tables."""
    parts = [f"# {_plain(title)}", *(_markdown(block) for block in blocks if not isinstance(block, Picture))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading():
            return f"## {_plain(block.text)}"
        case Paragraph():
            return _line(block.text)
        case Bullets():
            return "\n".join(f"- {_line(text)}" for text in block.texts)
        case Code():
            lines = clean(block.text)
            longest = max((len(run) for run in re.findall("`+", lines)), default=0)
            fence = "`" * max(3, longest + 1)
            return f"{fence}\n{lines}\n{fence}"
        case Table():
            rule = ["---:" if column in block.numbers else "---" for column in range(len(block.header))]
            rows = [[_plain(cell) or " " for cell in row] for row in (block.header, *block.rows)]
            lines_of = [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]
            return "\n".join(lines_of)
        case Picture():
            return ""


def _plain(text: str) -> str:
    """Escape text for the inside of a markdown line."""
    escaped = MARKDOWN.sub(r"\\\1", clean(text).strip())
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("\n", "<br>")


def _line(text: str) -> str:
    """Escape text for the start of a markdown line, where lists could begin."""
    return LIST_MARK.sub(lambda found: f"{found[2]}\\" if found[2] else f"\\{found[0]}", _plain(text))


# -------------------------------------------------------------------------------------------------------- html

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --pale: #59636e; --line: #d1d9e0; --back: #ffffff; --soft: #f6f8fa;
  --first: #0969da; --second: #bc4c00; --shade: 9 105 218; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --pale: #9198a1; --line: #3d444d; --back: #0d1117;
  --soft: #151b23; --first: #4493f8; --second: #f0883e; --shade: 68 147 248; } }
body { font: 16px/1.5 system-ui, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; color: var(--ink);
  background: var(--back); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; margin: 0.8rem 0; overflow-wrap: normal; }
th, td { border: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: start; vertical-align: top;
  unicode-bidi: isolate; }
th.text, td.text { min-width: 6rem; } td.text { overflow-wrap: anywhere; }
th { background: var(--soft); font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: var(--soft); padding: 0.8rem; white-space: pre-wrap; font-size: 0.9rem; }
svg { max-width: 100%; height: auto; display: block; margin: 0.8rem 0; }
svg text { fill: var(--ink); font-size: 12px; } svg .pale { fill: var(--pale); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .first { stroke: var(--first); } svg .second { stroke: var(--second); }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; } svg .faint { opacity: 0.35; }
svg .whisker { stroke-width: 1.5; opacity: 0.5; } svg .dot { fill: var(--back); stroke-width: 2; }
svg .first.full { fill: var(--first); } svg .second.full { fill: var(--second); }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """Return a self-contained page: inline style, no script, nothing fetched."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_escaped(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading():
            return f"<h2>{_escaped(block.text)}</h2>"
        case Paragraph():
            return f"<p>{_escaped(block.text)}</p>"
        case Bullets():
            return "<ul>\n" + "\n".join(f"<li>{_escaped(text)}</li>" for text in block.texts) + "\n</ul>"
        case Code():
            return f"<pre>{html.escape(clean(block.text))}</pre>"
        case Table():
            return _html_table(block)
        case Picture():
            return block.svg


def _html_table(table: Table) -> str:
    def kind(column: int) -> str:
        return ' class="number"' if column in table.numbers else ' class="text" dir="auto"'

    header = "".join(f"<th{kind(column)}>{_escaped(cell)}</th>" for column, cell in enumerate(table.header))
    lines = [f"<tr>{header}</tr>"]
    for number, row in enumerate(table.rows):
        shades = table.shades[number] if table.shades is not None else ()
        cells = []
        for column, cell in enumerate(row):
            shade = shades[column] if column < len(shades) else 0.0
            colour = f' style="background: rgb(var(--shade) / {0.6 * shade:.3f})"' if shade > 0 else ""
            cells.append(f"<td{kind(column)}{colour}>{_escaped(cell)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _escaped(text: str) -> str:
    return html.escape(clean(text).strip()).replace("\n", "<br>")
