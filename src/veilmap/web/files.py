"""The page's files, and the headers under which servers give them to browsers."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATIC = Path(__file__).parent / "static"

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def _read(folder: Path) -> dict[str, tuple[bytes, str]]:
    """All files, read once: an address names one of them or nothing."""
    return {
        str(path.relative_to(folder).as_posix()): (path.read_bytes(), _KINDS[path.suffix])
        for path in folder.rglob("*")
        if path.suffix in _KINDS
    }


def page_file(name: str) -> Response:
    """One of the page's files."""
    files = _read(STATIC)
    if name not in files:
        raise HTTPException(404, "the page has no such file")
    content, kind = files[name]
    return Response(content, media_type=kind)


def policy(connect: str = "") -> str:
    """What a page may load and where from: itself, nothing else, and no text becomes code.

    ``connect`` is another address that it may send requests to.
    """
    allowed = " ".join(["'self'", connect]).strip()
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:;"
        f" connect-src {allowed}; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )


def headers(content_policy: str) -> dict[str, str]:
    """What every answer carries."""
    return {
        "content-security-policy": content_policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-cache",
    }


def sealed(content_policy: str) -> Callable[[ASGIApp], ASGIApp]:
    """Middleware that adds those headers to every answer."""
    own = headers(content_policy)

    def around(app: ASGIApp) -> ASGIApp:
        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_sealed(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message).update(own)
                await send(message)

            await app(scope, receive, send_sealed if scope["type"] == "http" else send)

        return call

    return around
