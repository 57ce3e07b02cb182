"""An aggregator as a process: where it listens, what it logs, how it ends."""

import asyncio
import json
import logging
import resource
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
from uvicorn.protocols.http.h11_impl import H11Protocol

from veilmap._util import files
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

HEAD_SECONDS = 10.0  # until a request's headers must be there
READ_SECONDS = 20.0  # until a client must have read some of its answer
_HEAD_BYTES = 16_384
_CONNECTIONS = 2000
_OTHER_FILES = 64  # database, sockets, logs
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
                create_app(service_of(aggregator, folder, client)), http=ImpatientProtocol,
                log_config=None, access_log=False, server_header=False, lifespan="on", ws="none",
                proxy_headers=False, limit_concurrency=_most_connections(),
                timeout_keep_alive=15, timeout_graceful_shutdown=_STOP_SECONDS, backlog=1024,
                h11_max_incomplete_event_size=_HEAD_BYTES,
                ssl_certfile=certificate, ssl_keyfile=key,
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


class ImpatientProtocol(H11Protocol):
    """Uvicorn's, which ends connections whose requests do not get on, or whose answers do not.

    By h11, which bounds what headers may take; uvicorn's faster protocol does not.
    """

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a request, not for ever."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting unless the headers are complete."""
        if self._timer is None and self._between_requests():
            self._wait()
        super().data_received(data)
        if not self._between_requests():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client has not read what was sent so far."""
        super().pause_writing()
        self._unread = asyncio.get_running_loop().call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read some."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def shutdown(self) -> None:
        """End idle connections at once: peers that are not reading would not say goodbye."""
        if self._between_requests():
            self.transport.abort()
        else:
            super().shutdown()

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._end)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        if self._between_requests() and self.transport is not None:
            self.transport.abort()


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


def _most_connections() -> int:
    """As many as the system lets this process have open, up to a bound."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _OTHER_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed - _OTHER_FILES
