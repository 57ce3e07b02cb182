"""An aggregator as a process: where it listens, what it logs, how it ends."""

import json
import logging
import signal
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from veilmap._util import files
from veilmap._util.serving import limits
from veilmap._util.sockets import listening
from veilmap.collection.admission import Invitations, Issuer
from veilmap.collection.aggregator import Aggregator, Helper, Leader
from veilmap.collection.connection import connected
from veilmap.collection.folder import AggregatorFolder
from veilmap.collection.metrics import Metrics
from veilmap.collection.service import HttpPeer, Service, create_app, event, log
from veilmap.collection.store import Store
from veilmap.collection.task import Task
from veilmap.errors import ConfigurationError

_STOP_SECONDS = 10


def serve(
    folder: AggregatorFolder,
    task: Task,
    *,
    host: str,
    port: int,
    database: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    authority: Path | None = None,
    seed: int | None = None,
    on_ready: Callable[[str], None],
) -> None:
    """Serve one aggregator until it is told to stop.

    Parameters
    ----------
    folder : AggregatorFolder
        Its keys; also its database, unless ``database`` is the URL of one.
    task : Task
    host, port
        Where it listens; behind a proxy that ends TLS, or with a ``certificate`` and its ``key``.
    authority : path, optional
        The certificate of a private authority, by which the leader knows the helper.
    seed : int, optional
        For tests: the noise protects nobody.
    on_ready : callable
        Called with the address once it answers.
    """
    tls = _tls(certificate, key)
    # The folder's lock is for what is opened; a database that is named has one of its own.
    with files.locked(folder.path / ".lock"), listening(host, [port]) as listener:
        aggregator = made(folder, task, database, seed)
        scheme = "https" if tls else "http"
        on_ready(f"{scheme}://{host}:{listener.getsockname()[1]}")
        with _logged(), connected(authority) as client:
            config = uvicorn.Config(
                create_app(service_of(aggregator, folder, client)), log_config=None, lifespan="on",
                timeout_keep_alive=15, timeout_graceful_shutdown=_STOP_SECONDS, backlog=1024,
                ssl_certfile=certificate, ssl_keyfile=key, **limits(),
            )  # fmt: skip
            event("started", role=aggregator.role, task=task.digest)
            with _ended_by_signals():
                uvicorn.Server(config).run(sockets=[listener])
            event("stopped", role=aggregator.role)


def made(
    folder: AggregatorFolder, task: Task, database: str | None = None, seed: int | None = None
) -> Aggregator:
    """The aggregator of a folder, which must be the one that the task names."""
    key, role = folder.key_for(task), folder.role
    issuer = None
    if role == "leader" and isinstance(task.admission, Invitations):
        issuer = Issuer.load(folder.issuer_pem)
        if issuer.public != task.admission:
            raise ConfigurationError(f"the task has another issuer than {folder.path}", "survey")
    store = Store(database or folder.database, task, role)
    if role == "leader":
        return Leader(task, role, store, key, folder.opening, seed=seed, issuer=issuer)
    return Helper(task, role, store, key, folder.opening, seed=seed)


def service_of(aggregator: Aggregator, folder: AggregatorFolder, client: httpx.Client) -> Service:
    """The service of an aggregator; the leader's reaches the helper by ``client``."""
    peer = HttpPeer(aggregator, client) if isinstance(aggregator, Leader) else None
    return Service(aggregator, Metrics(), folder.metrics_token, peer)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how this ends: uvicorn raises them again when it has stopped."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **facts,
        }
        if record.exc_info:
            line["fault"] = self.formatException(record.exc_info)
        return json.dumps(line)


@contextmanager
def _logged() -> Iterator[None]:
    """Our events, and what uvicorn complains of, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    ours = [(log, logging.INFO), (logging.getLogger("uvicorn"), logging.WARNING)]
    for one, level in ours:
        one.addHandler(handler)
        one.setLevel(level)
    try:
        yield
    finally:
        for one, _ in ours:
            one.removeHandler(handler)


def _tls(certificate: Path | None, key: Path | None) -> bool:
    """Whether TLS ends here; both files must be there, and belong together."""
    if certificate is None and key is None:
        return False
    if certificate is None or key is None:
        raise ConfigurationError("a certificate needs its key, and a key its certificate", "key")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{certificate} and {key} cannot be used for TLS: {error}", "certificate"
        ) from None
    return True
