"""What every HTTP server of ours holds against slow, silent and endless clients."""

import asyncio
import resource
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from veilmap._util.owners import is_of_another_user

HEAD_SECONDS = 10.0  # until a request's headers must be there
BODY_SECONDS = 10.0  # until a short body must be there
READ_SECONDS = 20.0  # until a client must have read some of its answer

_HEAD_BYTES = 16_384
_CONNECTIONS = 2000
_OTHER_FILES = 64  # database, sockets, logs

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


def limits(*, own_user: bool = False) -> dict[str, Any]:
    """Settings of uvicorn that bound connections, headers and the time that requests take.

    With ``own_user`` other users of this host are not answered.
    """
    return {
        "http": OwnUserProtocol if own_user else ImpatientProtocol,
        "h11_max_incomplete_event_size": _HEAD_BYTES,
        "limit_concurrency": _most_connections(),
        "access_log": False, "server_header": False, "proxy_headers": False, "ws": "none",
    }  # fmt: skip


class ImpatientProtocol(H11Protocol):
    """Uvicorn's, which ends connections whose requests do not get on, or whose answers do not.

    By h11, which bounds what headers may take; uvicorn's faster protocol does not.
    """

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a request, not for ever."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting unless the headers are complete."""
        if self._timer is None and self._between_requests():
            self._wait()
        super().data_received(data)
        if not self._between_requests():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client has not read what was sent so far."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It has read some."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def shutdown(self) -> None:
        """End idle connections at once: peers that are not reading would not say goodbye."""
        if self._between_requests():
            self.transport.abort()
        else:
            super().shutdown()

    def _watch(self, unread: int) -> None:
        """End the connection unless less is unread after a while: who is slow reads on."""

        def look() -> None:
            left = self.transport.get_write_buffer_size()
            if left < unread:
                self._watch(left)
            else:
                self.transport.abort()

        self._unread = asyncio.get_running_loop().call_later(READ_SECONDS, look)

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._end)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        if self._between_requests() and self.transport is not None:
            self.transport.abort()


class OwnUserProtocol(ImpatientProtocol):
    """The same on loopback, without a token: connections of other users of this host are ended."""

    def connection_made(self, transport: Any) -> None:
        """Hear no other user."""
        super().connection_made(transport)
        client, server = map(transport.get_extra_info, ("peername", "sockname"))
        if is_of_another_user(client[:2], server[:2]):
            transport.abort()


async def whole_body(receive: Receive, most_bytes: int) -> Receive | None:
    """What gives a body again that was read here; None where it is larger than ``most_bytes``.

    The caller bounds the time. Who hangs up before the end is not a body: that is passed on.
    """
    body, message = bytearray(), await receive()
    while message["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > most_bytes:
            return None
        if not message.get("more_body", False):
            message = {"type": "http.request", "body": bytes(body), "more_body": False}
            break
        message = await receive()
    waiting = [message]

    async def replay() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return replay


def _most_connections() -> int:
    """As many as the system lets this process have open, up to a bound."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _OTHER_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed - _OTHER_FILES
