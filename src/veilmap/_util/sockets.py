"""Where servers listen, and who connects."""

import ipaddress
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

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


_TABLES: Mapping[int, Path] = {
    socket.AF_INET: Path("/proc/net/tcp"),
    socket.AF_INET6: Path("/proc/net/tcp6"),
}
_TIME_WAIT, _NO_SOCKET = "06", "0"


def is_of_another_user(client: tuple[str, int], tables: Mapping[int, Path] = _TABLES) -> bool:
    """Whether another user of this host is at the other end of a connection over loopback.

    Root may read everything anyway. Linux tells whose connections are; elsewhere this is False.
    """
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    if not tables[family].exists():
        return False
    end = _as_listed(family, *client)
    for _ in range(3):  # a table that changes while it is read can leave out a row
        rows = map(str.split, tables[family].read_text().splitlines()[1:])
        for _, local, _, state, _, _, _, user, _, inode, *_ in rows:
            if local == end and state != _TIME_WAIT and inode != _NO_SOCKET:
                return int(user) not in (0, os.getuid())
    return True  # it has hung up


def _as_listed(family: int, host: str, port: int) -> str:
    """An address as Linux lists it: in words of the host's byte order."""
    packed = socket.inet_pton(family, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
