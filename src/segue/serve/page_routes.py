"""The page at /: files that come with segue, and nothing else."""

from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

from segue.serve.errors import ApiError, shown

START = "/"
PREFIX = "/page/"
"""These paths need no key: the page itself asks for it."""
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing from elsewhere, nothing inline, and no text that becomes markup."""
_FRAME = "explain.html"
_FRAME_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""For the tab of an explanation, whose scripts are inline. It is shown in a frame that can reach nothing outside it."""


def page_router() -> APIRouter:
    """Its files are read once, here: a request names one of them, never a path."""
    router = APIRouter(include_in_schema=False)
    found = {
        one.name: Response(
            one.read_bytes(),
            media_type=_TYPES[one.name.rpartition(".")[2]],
            headers={
                "content-security-policy": _FRAME_POLICY if one.name == _FRAME else _POLICY,
                "cache-control": "no-cache",
            },
        )
        for one in files("segue.serve").joinpath("page").iterdir()
        if one.name.rpartition(".")[2] in _TYPES
    }

    @router.get(START)
    async def page(request: Request) -> Response:
        return found["index.html"]

    @router.get(PREFIX + "{name}")
    async def part(name: str, request: Request) -> Response:
        if name not in found:
            raise ApiError(404, f"a file of the page must be one that it has; got {shown(name)}.", code="not_found")
        return found[name]

    return router
