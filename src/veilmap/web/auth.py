"""Who may ask, and what every answer carries.

Runs say where people were. On loopback any program of this host may ask, but no other page of
the browser may: its requests carry a foreign Host or lack our header. Beyond loopback a token
is needed, always.
"""

import hmac
import json
import logging
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "veilmap"
MOST_BYTES = 10_000  # of a request's body: no honest one comes near

_LOOPBACK = re.compile(r"(127(\.\d{1,3}){3}|\[::1\]|localhost)(:\d+)?")
_LENGTH = re.compile(rb"\d{1,9}")
_READS = ("GET", "HEAD")

# What the page may load and where from: itself, nothing else, and no text becomes code.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:;"
    " connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)

_log = logging.getLogger("veilmap.web")


class Guard:
    """Lets a request through to ``app``, or refuses it in one line."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = [(name, value) for name, value in message["headers"] if name not in _NAMES]
                message = {**message, "headers": [*own, *_HEADERS]}
            await send(message)

        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        if self._shows_token(scope):
            await _redirect(send_guarded, self._token or "", scope["path"])
            return
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(send_guarded, *refusal)
            return
        try:
            await self._app(scope, receive, send_guarded)
        except Exception as fault:
            if started:
                raise  # nothing but the end of the connection can tell
            _log.error("%s %s failed", scope["method"], scope["path"], exc_info=fault)
            line = "veilmap made a mistake here; its terminal says more"
            await _refuse(send_guarded, 500, line)

    def _refusal(self, scope: Scope, headers: dict[str, bytes]) -> tuple[int, str] | None:
        if self._token is None:
            # A foreign name that leads here is another page's trick (DNS rebinding).
            if not _LOOPBACK.fullmatch(headers.get("host", b"").decode("latin-1")):
                return 403, "this server answers on loopback only: open it as http://127.0.0.1"
        elif not self._knows_token(headers):
            return 401, "a token is needed: open the address that veilmap serve has printed"
        if scope["method"] not in _READS:
            if headers.get("x-veilmap") != b"page":
                return 403, "requests that start or stop something need the header X-Veilmap: page"
            length = headers.get("content-length", b"0")
            if "transfer-encoding" in headers:
                return 411, "send the body with its length"
            if not _LENGTH.fullmatch(length) or int(length) > MOST_BYTES:
                return 413, f"the body is larger than {MOST_BYTES} bytes"
        return None

    def _shows_token(self, scope: Scope) -> bool:
        """Whether this is the address that was printed: it is swapped for a cookie."""
        if self._token is None or scope["path"] != "/" or scope["method"] != "GET":
            return False
        shown = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return any(_same(text, self._token) for text in shown)

    def _knows_token(self, headers: dict[str, bytes]) -> bool:
        assert self._token is not None
        sent = headers.get("authorization", b"").decode("latin-1").removeprefix("Bearer ")
        try:
            cookie = SimpleCookie(headers.get("cookie", b"").decode("latin-1")).get(COOKIE)
        except CookieError:
            cookie = None
        return _same(sent, self._token) or (cookie is not None and _same(cookie.value, self._token))


_NAMES = {name for name, _ in _HEADERS}


def _same(text: str, token: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), token.encode())


async def _refuse(send: Send, status: int, line: str) -> None:
    await _respond(
        send, status, [(b"content-type", b"application/json")], json.dumps({"error": line}).encode()
    )


async def _redirect(send: Send, token: str, path: str) -> None:
    cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
    headers = [(b"location", path.encode()), (b"set-cookie", cookie.encode())]
    await _respond(send, 303, headers, b"")


async def _respond(
    send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
