"""Explanations as one HTML file: scripts, style and data inside, nothing fetched, text shown as text."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files

from segue.errors import ConfigError
from segue.explain.report import Explanation, page_values

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
SCRIPTS = ("words.js", "data.js", "scores.js", "map.js", "charts.js", "attention.js", "answers.js", "main.js")


def explanation_page(sides: Sequence[Explanation]) -> str:
    """Return the page of one explanation, or of two side by side."""
    if not 1 <= len(sides) <= 2:
        raise ConfigError(f"a page shows one or two explanations; got {len(sides)}. Give one or two.")
    title = " | ".join(side.name for side in sides)
    blocks = [
        f'<script type="text/plain" id="block-{number}-{name}">{block}</script>'
        for number, side in enumerate(sides)
        if side.maps is not None
        for name, block in side.maps.blocks.items()
    ]
    values = json.dumps([page_values(side) for side in sides], ensure_ascii=False, allow_nan=False)
    scripts = "\n".join(_file(name) for name in SCRIPTS)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)} · segue explain</title>",
            f"<style>\n{_file('style.css')}</style>\n</head>\n<body>",
            _file("body.html"),
            f'<script type="application/json" id="values">{_safe(values)}</script>',
            *blocks,
            f"<script>\n'use strict';\n{scripts}\n</script>\n</body>\n</html>\n",
        ]
    )


def _safe(values: str) -> str:
    """Escape JSON so that no tag can begin in it."""
    return values.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _file(name: str) -> str:
    return files("segue.explain").joinpath("page", name).read_text(encoding="utf-8")
