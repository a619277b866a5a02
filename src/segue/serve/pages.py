"""HTML page that documents the routes, generated from the OpenAPI description, without scripts or external files."""

import html
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884; }
summary { cursor: pointer; padding: .3rem 0; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600; }
"""


def describe(openapi: dict[str, Any]) -> str:
    """Return the page as HTML."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{_text(openapi['info']['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{_text(openapi['info']['title'])} {_text(openapi['info']['version'])}</h1>",
        f"<p>{_text(openapi['info'].get('description', ''))} <a href=/openapi.json>openapi.json</a>",
    ]
    by_tag: dict[str, list[str]] = {}
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            tag = (route.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_route(openapi, path, method, route))
    for tag, routes in by_tag.items():
        parts.append(f"<h2>{_text(tag)}</h2>")
        parts += routes
    return "".join(parts)


def _route(openapi: dict[str, Any], path: str, method: str, route: dict[str, Any]) -> str:
    fields = ""
    content = route.get("requestBody", {}).get("content", {})
    for media, one in content.items():
        name = one.get("schema", {}).get("$ref", "").rpartition("/")[2]
        schema = openapi.get("components", {}).get("schemas", {}).get(name, {})
        rows = "".join(
            f"<tr><td><code>{_text(field)}</code>{' (required)' if field in schema.get('required', []) else ''}"
            f"<td>{_text(about.get('description', ''))}"
            for field, about in schema.get("properties", {}).items()
        )
        fields += f"<p>{_text(media)}<table>{rows}</table>"
    for one in route.get("parameters", []):
        fields += f"<p><code>{_text(one['name'])}</code> {_text(one.get('description', ''))}"
    about = _text(route.get("description", route.get("summary", "")))
    head = f"<span class=method>{_text(method.upper())}</span> <code>{_text(path)}</code>"
    return f"<details><summary>{head}</summary><p>{about}{fields}</details>"


def _text(value: str) -> str:
    return html.escape(str(value), quote=True)
