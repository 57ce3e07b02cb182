"""Whose a connection over loopback is."""

import os
import socket
import sys
from contextlib import closing, contextmanager

import pytest

from veilmap._util import owners
from veilmap._util.owners import is_of_another_user
from veilmap._util.sockets import listening
from veilmap.errors import ConfigurationError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells")


@contextmanager
def connected(host="127.0.0.1"):
    """Both ends of a connection."""
    try:
        listener = listening(host, [0])
    except ConfigurationError:
        pytest.skip(f"no {host} here")
    with closing(listener), closing(socket.create_connection(listener.getsockname()[:2])) as client:
        server, _ = listener.accept()
        with closing(server):
            if owners._asked(server.getsockname()[:2], client.getsockname()[:2]) is None:
                pytest.skip("this system does not tell")
            yield client, server


def another(client, server):
    return is_of_another_user(client.getsockname()[:2], server.getsockname()[:2])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_ones_own_connection_is_ones_own(host):
    with connected(host) as (client, server):
        assert not another(client, server)


@pytest.mark.parametrize(("user", "told"), [(4321, True), (1000, False), (0, False)])
def test_another_users_connection_is_told_from_ones_own_and_roots(monkeypatch, user, told):
    with connected() as (client, server):
        monkeypatch.setattr(os, "getuid", lambda: 1000)
        monkeypatch.setattr(owners, "_asked", lambda *_: owners._Socket(user, 77))
        assert another(client, server) is told


def test_who_has_hung_up_is_nobody():
    """Linux calls what is left of the connection root's."""
    with connected() as (client, server):
        ends = client.getsockname()[:2], server.getsockname()[:2]
        client.close()
        assert is_of_another_user(*ends)


def test_where_the_system_does_not_tell_nobody_is_refused(monkeypatch):
    with connected() as (client, server):
        monkeypatch.setattr(owners, "_asked", lambda *_: None)
        assert not another(client, server)
