"""The server of a deployment: Flower's SuperLink behind two doors.

    python -m veilmap.flower.deploy.superlink --public HOST:PORT --operator-token-file FILE …

The other arguments are those of ``flower-superlink``. Flower serves all of its APIs on one port
and authenticates only the nodes. Here the port that the network reaches answers the calls of
registered nodes and nothing else. Control and runtime APIs are on ``--host`` and ``--port``, which
must be of this host alone, and the Control API asks for the operator's token.
"""

import argparse
import asyncio
import hmac
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app

from veilmap._util.serving import Receive, limits, whole_body

# What a registered node calls. Flower's fleet API can also register nodes, which is the
# operator's to do.
NODE_CALLS = frozenset(
    f"/v1/fleet/{call}"
    for call in (
        "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages",
        "push-messages", "get-run", "get-fab", "push-object", "pull-object",
        "confirm-message-received",
    )
)  # fmt: skip

# Bytes of a call's body: Flower sends arrays in pieces of 5 MiB; a record is one piece.
MOST_BYTES = 64 * 2**20
MOST_SECONDS = 120.0  # for a call, its body included

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass
class Doors:
    """The SuperLink's app, of whose calls the public port lets only those of nodes in.

    Connections to the ``private`` address reach all of it. What a connection's own end is called
    comes from the operating system; a request cannot choose it.
    """

    app: App
    private: tuple[str, int]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that there is nothing here."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        # Some of Flower's checks read the path from a URL that begins with the Host header.
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"host"]
        if tuple(scope.get("server") or ()) == self.private:
            return await self.app(scope, receive, send)
        if not _is_node_call(scope):
            return await _refuse(send, 404)
        return await self._bounded(scope, receive, send)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a call whose body is read here: strangers may send anything."""
        try:
            async with asyncio.timeout(MOST_SECONDS):
                replay = await whole_body(receive, MOST_BYTES)
        except TimeoutError:
            return await _refuse(send, 408)
        if replay is None:
            return await _refuse(send, 413)
        return await self.app(scope, replay, send)


def _is_node_call(scope: Scope) -> bool:
    """Whether the path is exactly one of those: no other spelling, nothing to decode."""
    path = scope["path"]
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and path in NODE_CALLS
        and scope["raw_path"] == path.encode()
    )


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class OperatorOnly(NoOpControlAuthnPlugin):
    """Flower's account authentication with one account, whose token never changes."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode()

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        """Whether the request brings the operator's token."""
        given = dict(metadata).get(ACCESS_TOKEN_KEY, b"")
        given = given.encode() if isinstance(given, str) else given
        if not hmac.compare_digest(given, self._token):
            return False, None
        return super().validate_tokens_in_metadata(metadata)

    def refresh_tokens(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[Sequence[tuple[str, str | bytes]] | None, AccountInfo | None]:
        """No new token for an old one."""
        return None, None


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--public", required=True, metavar="HOST:PORT")
    parser.add_argument("--operator-token-file", required=True, type=Path)
    own, flowers = parser.parse_known_args()
    sys.argv = ["flower-superlink", *flowers]  # its parser reads no other list
    config = _parse_superlink_lifespan_config()
    private = (config.host, config.port)
    if config.host not in ("127.0.0.1", "::1"):
        parser.error(f"--host {config.host} is not of this host alone: take 127.0.0.1")
    token = own.operator_token_file.read_text().strip()
    if not token:
        parser.error(f"{own.operator_token_file} holds no token")
    app = create_app(replace(config, authn_plugin=OperatorOnly(token)), SuperLinkLifespan)
    server = uvicorn.Server(
        uvicorn.Config(
            Doors(app, private), ssl_certfile=config.ssl_certfile, ssl_keyfile=config.ssl_keyfile,
            log_config=get_uvicorn_log_config(console_handler.level), lifespan="on", **limits(),
        )
    )  # fmt: skip
    host, _, port = own.public.rpartition(":")
    server.run(sockets=[_bound(*private), _bound(host.strip("[]"), int(port))])


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound


if __name__ == "__main__":
    main()
