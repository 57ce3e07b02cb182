"""Where servers listen."""

import ipaddress
import socket
from collections.abc import Sequence

from veilmap.errors import ConfigurationError


def listening(host: str, ports: Sequence[int]) -> socket.socket:
    """A socket that listens on the first free port, or one line that says why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            problem = error
            continue
        listener.listen(1024)
        return listener
    raise ConfigurationError(
        f"cannot listen on {host}:{ports[0]}: {problem.strerror}; name another port"
        " (0 takes a free one)",
        "port",
    )


def on_loopback(host: str) -> bool:
    """Whether only this host can reach what listens there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
