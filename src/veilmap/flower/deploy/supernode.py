"""Flower's SuperNode, whose local API only its own user reaches.

    python -m veilmap.flower.deploy.supernode --socket PATH …

The other arguments are those of ``flower-supernode``. Flower serves the API by which a node's
client gets its messages on a port of loopback, where every local user may connect. Here it is on a
socket in the file system that its owner alone may open.
"""

import argparse
import os
import socket
import sys
import threading
from pathlib import Path

import uvicorn
from flwr.supercore.constant import HTTP_SERVER_SHUTDOWN_TIMEOUT
from flwr.supercore.exit import add_exit_handler
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.cli.flower_supernode import (
    SuperNodeLifespanConfig,
    _parse_supernode_lifespan_config,
)
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import start_client_internal


def main() -> None:
    """Carry messages until told to stop."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--socket", required=True, type=Path)
    own, flowers = parser.parse_known_args()
    sys.argv = ["flower-supernode", *flowers]  # its parser reads no other list
    config = _parse_supernode_lifespan_config()
    states = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    _serve(states, private_socket(own.socket))
    _carry(config, states)


def private_socket(path: Path) -> socket.socket:
    """A socket at a path, for its owner alone from the moment that it is there."""
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        bound.bind(str(path))
    finally:
        os.umask(before)
    return bound


def _serve(states: NodeStateFactory, bound: socket.socket) -> None:
    """Answer the node's client in a thread, until the process ends."""
    config = uvicorn.Config(create_app(state_factory=states), access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join(HTTP_SERVER_SHUTDOWN_TIMEOUT)

    add_exit_handler(stop)


def _carry(config: SuperNodeLifespanConfig, states: NodeStateFactory) -> None:
    """Carry messages between the server and the node's client."""
    start_client_internal(
        state_factory=states,
        server_address=config.server_address,
        root_certificates=config.root_certificates,
        insecure=config.insecure,
        authentication_keys=config.authentication_keys,
        max_retries=config.max_retries,
        max_wait_time=config.max_wait_time,
        node_config=config.node_config,
        isolation=config.isolation,
        trusted_entities=config.trusted_entities,
    )


if __name__ == "__main__":
    main()
