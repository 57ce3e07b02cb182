"""The server: where it listens, who may come, and how it ends."""

import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from veilmap._util.extras import require
from veilmap._util.sockets import listening, on_loopback
from veilmap.auditing.exposure import Knobs
from veilmap.runs.command import NewTraining
from veilmap.runs.source import Source

if TYPE_CHECKING:
    from veilmap.web.jobs import Jobs

DEFAULT_PORT = 8765


def serve(
    places: Sequence[Path],
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    *,
    new_runs: Path,
    buildings: Path | None = None,
    study: bool = False,
    on_ready: Callable[[str], None],
) -> None:
    """Serve the page until it is interrupted; parameters as in `Library`.

    The port is by default the usual one, or another where that is taken; 0 takes any. A token is
    generated where one is required and none is given. If there is no run in all places, a demo
    run is started. ``on_ready`` is called with the page's address once it can be opened.
    """
    require_server()
    import uvicorn

    from veilmap._util.serving import limits
    from veilmap.web.app import create_app
    from veilmap.web.jobs import Jobs
    from veilmap.web.library import Library
    from veilmap.web.service import Service

    token = token or (None if on_loopback(host) else secrets.token_urlsafe(24))
    ports = [DEFAULT_PORT, 0] if port is None else [port]
    with listening(host, ports) as listener, tempfile.TemporaryDirectory(prefix="veilmap-") as name:
        work = Path(name)
        service = Service(Library(places, new_runs, work, buildings, study=study), Jobs(work))
        config = uvicorn.Config(
            create_app(service, token), log_level="warning", lifespan="on", timeout_keep_alive=30,
            timeout_graceful_shutdown=2, backlog=1024, **limits(own_user=token is None),
        )  # fmt: skip
        with _ended_by_signals(service.jobs):
            if not service.library.runs():
                service.start(_demo())
            on_ready(_url(host, listener.getsockname()[1], token))
            uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def _ended_by_signals(jobs: "Jobs") -> Iterator[None]:
    """Ctrl-C or SIGTERM, at whatever moment, end what was started and leave no files."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        jobs.close()


def require_server() -> None:
    """Say what to install where the server's libraries are missing."""
    for library in ("fastapi", "uvicorn"):
        require(library, "the page", "web")


def _demo() -> NewTraining:
    """The run that is shown where there is none: the paper's strongest setting."""
    return NewTraining(
        Source(None, None, city=0, users=100, cell_size=3.0),
        "aligned", {"noise_budget": Knobs.noise_budget, "tradeoff": Knobs.tradeoff},
        rounds=200, seed=0,
    )  # fmt: skip


def _url(host: str, port: int, token: str | None) -> str:
    named = socket.gethostname() if host in ("0.0.0.0", "::") else host
    shown = f"[{named}]" if ":" in named else named
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
