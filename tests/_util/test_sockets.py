"""Which addresses only this host can reach."""

import pytest

from veilmap._util.sockets import on_loopback


@pytest.mark.parametrize(
    ("host", "whether"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("localhost", True), ("::1", True),
     ("0.0.0.0", False), ("10.0.0.1", False), ("radio.example", False), ("", False)],
)  # fmt: skip
def test_loopback_is_told_from_networks(host, whether):
    assert on_loopback(host) is whether
