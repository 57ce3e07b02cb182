"""Whose a connection over loopback is, as Linux tells it (sock_diag(7))."""

import os
import socket
import struct
import sys
from dataclasses import dataclass

Address = tuple[str, int]

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, number, sender
_WANTED = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extensions, states
_ENDS = struct.Struct("!HH16s16s")  # inet_diag_sockid: ports and addresses of both ends
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # whatever interface and cookie
_FOUND = struct.Struct("=BB2x48xIIIII")  # inet_diag_msg: family, state, …, user, inode


@dataclass(frozen=True)
class _Socket:
    """A socket that Linux knows: its user, and its inode, 0 where no process has it any more."""

    user: int
    inode: int


def is_of_another_user(client: Address, server: Address) -> bool:
    """Whether another user of this host is at the client's end of a connection over loopback.

    Root may read everything anyway. False where the system does not tell.
    """
    if not sys.platform.startswith("linux") or _asked(server, client) is None:
        return False  # it does not even know our own end
    found = _asked(client, server)
    return found is None or not found.inode or found.user not in (0, os.getuid())


def _asked(own: Address, other: Address) -> _Socket | None:
    """The socket of a connection that is at ``own`` address; None if there is none."""
    family = socket.AF_INET6 if ":" in own[0] else socket.AF_INET
    ends = _ENDS.pack(
        own[1], other[1], socket.inet_pton(family, own[0]), socket.inet_pton(family, other[0])
    )
    wanted = _WANTED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + _ANY
    header = _HEADER.pack(_HEADER.size + len(wanted), _BY_FAMILY, _REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(header + wanted)
            answer = kernel.recv(4096)
    except OSError:
        return None
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _BY_FAMILY:
        return None
    *_, user, inode = _FOUND.unpack_from(answer, _HEADER.size)
    return _Socket(user, inode)
