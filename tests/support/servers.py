"""Servers in threads of a test's process, so that the test can look at them and hurry them."""

import threading
import time
from contextlib import contextmanager

import uvicorn

from veilmap._util.serving import limits


@contextmanager
def serving(app, listener, *, lifespan="on"):
    """An application behind the limits that all servers share, on a socket that listens."""
    config = uvicorn.Config(
        app, log_config=None, log_level="critical", lifespan=lifespan, timeout_graceful_shutdown=5,
        **limits(),
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    end = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(timeout=20)
