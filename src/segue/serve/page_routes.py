"""The web page at /: files that are part of segue, and nothing else."""

from collections.abc import Mapping
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

from segue.serve.errors import ApiError, shown

START = "/"
PREFIX = "/page/"
"""Paths that begin so need no key: the page itself asks for it."""
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors {embedded_by}; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy: nothing from elsewhere, nothing inline, and no text that becomes markup."""
_FRAME = "explain.html"
_FRAME_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Policy for the tab of an explanation, whose scripts are inline. It is shown in a frame that can access nothing
outside it."""


def page_router(*packages: str, starts: Mapping[str, str] | None = None, embedded_by: str = "'none'") -> APIRouter:
    """Return a router for the files in `page/` of some packages; a later package overrides files of the same name. The
    files are read once, here: a request names one of them, never a path. `starts` are the paths of whole pages, by
    default / for index.html; `embedded_by` are the sites that may show them in a frame."""
    router = APIRouter(include_in_schema=False)
    policy = _POLICY.format(embedded_by=embedded_by)
    found = {
        one.name: Response(
            one.read_bytes(),
            media_type=_TYPES[one.name.rpartition(".")[2]],
            headers={
                "content-security-policy": _FRAME_POLICY if one.name == _FRAME else policy,
                "cache-control": "no-cache",
            },
        )
        for package in packages
        for one in files(package).joinpath("page").iterdir()
        if one.name.rpartition(".")[2] in _TYPES
    }

    def start(path: str, name: str) -> None:
        @router.get(path)
        async def page(request: Request) -> Response:
            return found[name]

    for path, file in ({START: "index.html"} if starts is None else starts).items():
        start(path, file)

    @router.get(PREFIX + "{name}")
    async def part(name: str, request: Request) -> Response:
        if name not in found:
            raise ApiError(404, f"a file of the page must be one that it has; got {shown(name)}.", code="not_found")
        return found[name]

    return router
