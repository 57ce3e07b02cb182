"""Whose a connection over loopback is."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from veilmap._util.sockets import is_of_another_user, listening, on_loopback
from veilmap.errors import ConfigurationError

_HEAD = (
    "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n"
)


def listed(tmp_path, state="01", user=None, inode=77):
    """Linux's table with one connection, from 127.0.0.1:1000."""
    whose = os.getuid() + 1 if user is None else user
    ends, queues = "0100007F:03E8 0100007F:1F90", "00000000:00000000 00:00000000 00000000"
    row = f"   0: {ends} {state} {queues} {whose} 0 {inode} 1 0"
    (tmp_path / "tcp").write_text(_HEAD + row + "\n")
    return {socket.AF_INET: tmp_path / "tcp"}


def test_another_users_connection_is_told_from_ones_own_and_roots(tmp_path):
    client = ("127.0.0.1", 1000)
    assert is_of_another_user(client, listed(tmp_path))
    assert not is_of_another_user(client, listed(tmp_path, user=os.getuid()))
    assert not is_of_another_user(client, listed(tmp_path, user=0))


def test_a_connection_whose_owner_is_gone_is_nobodys(tmp_path):
    """Linux lists it as root's."""
    client = ("127.0.0.1", 1000)
    assert is_of_another_user(client, listed(tmp_path, user=0, state="06", inode=0))
    assert is_of_another_user(client, listed(tmp_path, user=0, inode=0))
    assert is_of_another_user(("127.0.0.1", 1001), listed(tmp_path, user=0))


def test_where_the_system_does_not_tell_nobody_is_refused(tmp_path):
    assert not is_of_another_user(("127.0.0.1", 1000), {socket.AF_INET: tmp_path / "none"})


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_ones_own_connection_is_found(host):
    try:
        listener = listening(host, [0])
    except ConfigurationError:
        pytest.skip(f"no {host} here")
    with closing(listener), closing(socket.create_connection(listener.getsockname()[:2])):
        taken, client = listener.accept()
        with closing(taken):
            assert not is_of_another_user(client[:2])


@pytest.mark.parametrize(
    ("host", "whether"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("localhost", True), ("::1", True),
     ("0.0.0.0", False), ("10.0.0.1", False), ("radio.example", False), ("", False)],
)  # fmt: skip
def test_loopback_is_told_from_networks(host, whether):
    assert on_loopback(host) is whether
