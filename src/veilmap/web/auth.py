"""Who may ask, and what every answer carries.

Runs say where people were. On loopback any program of this user may ask, but no other page of
the browser may: its requests carry a foreign Host or lack our header. Other users of this host
are not even heard (`_util.serving.OwnUserProtocol`). Beyond loopback a token is needed, always.
"""

import asyncio
import hmac
import logging
import re

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veilmap._util import serving
from veilmap.web import files

COOKIE = "veilmap"
MOST_BYTES = 10_000  # of a request's body: no honest one comes near

_LOOPBACK = re.compile(r"(127(\.\d{1,3}){3}|\[::1\]|localhost)(:\d+)?")
_LENGTH = re.compile(r"\d{1,9}")
_READS = ("GET", "HEAD")

_HEADERS = files.headers(files.policy())

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
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            request = Request(scope)
            answer = self._own_answer(request)
            if answer is None and request.method not in _READS:
                receive, answer = await _with_body(receive)
            await (answer or self._app)(scope, receive, send_guarded)
        except Exception as fault:
            if started:
                raise  # nothing but the end of the connection can tell
            _log.error("%s %s failed", scope["method"], scope["path"], exc_info=fault)
            answer = _refusal(500, "veilmap made a mistake here; its terminal says more")
            await answer(scope, receive, send_guarded)

    def _own_answer(self, request: Request) -> Response | None:
        """What is answered before the application is asked: a cookie, or a refusal."""
        headers = request.headers
        if self._token is None:
            # A foreign name that leads here is another page's trick (DNS rebinding).
            if not _LOOPBACK.fullmatch(headers.get("host", "")):
                line = "this server answers on loopback only: open it as http://127.0.0.1"
                return _refusal(403, line)
        elif self._shows_token(request):
            swapped = RedirectResponse("/", 303)
            swapped.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            return swapped
        elif not self._knows_token(request):
            line = "a token is needed: open the address that veilmap serve has printed"
            return _refusal(401, line)
        if request.method not in _READS:
            if headers.get("x-veilmap") != "page":
                line = "requests that start or stop something need the header X-Veilmap: page"
                return _refusal(403, line)
            length = headers.get("content-length", "0")
            if "transfer-encoding" in headers:
                return _refusal(411, "send the body with its length")
            if not _LENGTH.fullmatch(length) or int(length) > MOST_BYTES:
                return _refusal(413, f"the body is larger than {MOST_BYTES} bytes")
        return None

    def _shows_token(self, request: Request) -> bool:
        """Whether this is the address that was printed: it is swapped for a cookie."""
        at_home = request.method == "GET" and request.scope["path"] == "/"
        return at_home and any(map(self._is_token, request.query_params.getlist("token")))

    def _knows_token(self, request: Request) -> bool:
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        return self._is_token(sent) or self._is_token(request.cookies.get(COOKIE, ""))

    def _is_token(self, text: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())


async def _with_body(receive: Receive) -> tuple[Receive, Response | None]:
    """What gives the request's body, which is here by now, or the refusal if it did not come."""
    try:
        async with asyncio.timeout(serving.BODY_SECONDS):
            replay = await serving.whole_body(receive, MOST_BYTES)
    except TimeoutError:
        return receive, _refusal(408, "the body did not come in time")
    if replay is None:
        return receive, _refusal(413, f"the body is larger than {MOST_BYTES} bytes")
    return replay, None


def _refusal(status: int, line: str) -> JSONResponse:
    return JSONResponse({"error": line}, status)
