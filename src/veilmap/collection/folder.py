"""An aggregator's folder: keys, database, and the files with which an operator starts it.

``aggregator.key`` signs, ``issuer.pem`` issues tokens (the leader's), ``metrics.token`` is for
Prometheus, ``public.json`` is what the other organisation and the task need to know;
``reports.db`` is the database, unless another is named, and ``opening.json`` the noisy share once
the survey was opened. An operator may add ``authority.crt``, by which the other aggregator is
certified, and ``environment``, with VEILMAP_DATABASE for the unit. Only ``public.json`` may leave
it.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from veilmap._util import certificates, files, reading
from veilmap._util.plain import DAMAGED
from veilmap.collection.admission import Invitations, Issuer
from veilmap.collection.keys import SigningKey
from veilmap.collection.metrics import Metrics
from veilmap.collection.pine.reports import parameters_of
from veilmap.collection.task import ROLES, Role, Task
from veilmap.errors import ConfigurationError, DataError
from veilmap.surveys.design import Survey

_MOST_BYTES = 100_000  # of a public file


@dataclass(frozen=True)
class PublicFile:
    """What an aggregator tells the world of itself."""

    role: Role
    address: str
    key: str
    issuer: Invitations | None  # of the leader

    @classmethod
    def load(cls, path: Path, role: Role) -> "PublicFile":
        """Read the file of an aggregator that must have a role."""
        try:
            content = reading.read_json(path, _MOST_BYTES)
            told, issuer = str(content["role"]), content.get("issuer")
            found = cls(role, str(content["address"]), str(content["key"]),
                        None if issuer is None else Invitations(str(issuer)))  # fmt: skip
        except DAMAGED as error:
            raise DataError(f"{path} is no public.json of an aggregator: {error}") from None
        if told != role:
            raise DataError(f"{path} is of a {told[:20]}, not of the {role}")
        return found


def task_between(
    survey: Survey,
    leader: PublicFile,
    helper: PublicFile,
    collector: SigningKey,
    *,
    proofs: bool = True,
    **more: Any,
) -> Task:
    """The task of a design for two aggregators; ``more`` are a Task's other fields.

    By default it opens now, for those whom the leader invites, ten times the least number at most,
    and contributions are proven to be no longer than C.
    """
    settled: dict[str, Any] = {
        "opens": datetime.now(UTC).isoformat(timespec="seconds"),
        "most_reports": 10 * survey.participants,
        "admission": leader.issuer,
    } | {name: value for name, value in more.items() if value is not None}
    return Task(
        survey=survey,
        leader=leader.address,
        helper=helper.address,
        leader_key=leader.key,
        helper_key=helper.key,
        collector_key=collector.public,
        proofs=parameters_of(survey) if proofs else None,
        **settled,
    )


@dataclass(frozen=True)
class AggregatorFolder:
    """Reads and writes the folder of one aggregator."""

    path: Path

    @classmethod
    def existing(cls, path: Path) -> "AggregatorFolder":
        """A folder that `init` wrote."""
        folder = cls(path)
        if not folder._public.is_file():
            raise ConfigurationError(
                f"{path} is no folder of an aggregator: make one with veilmap aggregator init"
            )
        return folder

    @classmethod
    def init(
        cls,
        path: Path,
        role: Role,
        address: str,
        *,
        host: str = "127.0.0.1",
        port: int = 8443,
        authority: Path | None = None,
        names: Sequence[str] = (),
        days: int = 365,
    ) -> "AggregatorFolder":
        """Make keys and start files; with ``names``, also a certificate of an own authority.

        ``authority`` is the folder of that authority, which is made if it is not there.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigurationError(f"{path} is not empty: name a new folder for the aggregator")
        files.make_folder(path, secret=True)
        path.chmod(0o700)  # also one that was there, before any key is in it
        folder = cls(path)
        key = SigningKey.new()
        key.save(path / "aggregator.key")
        files.write_text(Metrics.new_token() + "\n", path / "metrics.token", secret=True)
        public: dict[str, Any] = {"role": role, "address": address, "key": key.public}
        if role == "leader":
            issuer = Issuer.new()
            files.write_text(issuer.pem.decode(), path / "issuer.pem", secret=True)
            public["issuer"] = issuer.public.key
        if authority is not None:
            certify(path / "tls", authority, names, days)
        start = _Start(folder, role, host, port, tls=authority is not None)
        start.write()
        files.write_json(public, folder._public)  # last: a folder without it is not finished
        return folder

    @property
    def _public(self) -> Path:
        return self.path / "public.json"

    @property
    def role(self) -> Role:
        """Leader or helper."""
        try:
            told = reading.read_json(self._public, _MOST_BYTES)["role"]
        except DAMAGED as error:
            raise DataError(f"{self._public} cannot be read: {error}") from None
        for role in ROLES:
            if told == role:
                return role
        raise DataError(f"{self._public} names no role")

    @property
    def key(self) -> SigningKey:
        """By which the other aggregator knows this one."""
        return SigningKey.load(self.path / "aggregator.key")

    def key_for(self, task: Task) -> SigningKey:
        """The key, if it is the one that a task names for this aggregator's role."""
        key, role = self.key, self.role
        if key.public != task.key(role):
            raise ConfigurationError(
                f"the task has another key for the {role} than {self.path}: it was made for"
                " another aggregator",
                "survey",
            )
        return key

    @property
    def issuer_pem(self) -> bytes:
        """The leader's key for tokens."""
        try:
            return (self.path / "issuer.pem").read_bytes()
        except OSError as error:
            raise DataError(f"{self.path / 'issuer.pem'} cannot be read: {error}") from None

    @property
    def metrics_token(self) -> str:
        """What Prometheus shows."""
        try:
            return (self.path / "metrics.token").read_text(encoding="utf-8").strip()
        except OSError as error:
            raise DataError(f"{self.path / 'metrics.token'} cannot be read: {error}") from None

    @property
    def database(self) -> str:
        """The database in this folder."""
        return f"sqlite:///{(self.path / 'reports.db').absolute()}"

    @property
    def authority(self) -> Path:
        """The certificate of a private authority, if the other aggregator has one."""
        return self.path / "authority.crt"

    @property
    def opening(self) -> Path:
        """The noisy share that was opened, whatever becomes of the database."""
        return self.path / "opening.json"


def certify(folder: Path, authority: Path, names: Sequence[str], days: int) -> None:
    """A key and a certificate for a server, by an authority of one's own."""
    if not (authority / "ca.key").exists():
        certificates.write_authority(authority)
    certificates.write_server(authority, list(names), days, out=folder)


@dataclass(frozen=True)
class _Start:
    """The files with which an operator starts an aggregator: systemd, or a container."""

    folder: AggregatorFolder
    role: Role
    host: str
    port: int
    tls: bool

    def write(self) -> None:
        """Write them."""
        path = self.folder.path
        files.write_text(self._unit(), path / f"veilmap-{self.role}.service")
        files.write_text(self._containerfile(), path / "Containerfile")

    def _options(self, home: str) -> list[str]:
        tls = ["--certificate", f"{home}/tls/server.pem", "--key", f"{home}/tls/server.key"]
        return ["--survey", f"{home}/task.json", "--role", self.role, "--folder", home,
                "--port", str(self.port), *(tls if self.tls else [])]  # fmt: skip

    def _unit(self) -> str:
        home = f"/var/lib/veilmap/{self.role}"
        command = shlex.join(["aggregator", "serve", *self._options(home), "--host", self.host])
        return f"""\
# Copy this folder to {home}, put task.json into it, and give it to the user veilmap:
#   chown -R veilmap: {home}
[Unit]
Description=veilmap aggregator: {self.role}
After=network-online.target
Wants=network-online.target

[Service]
EnvironmentFile=-{home}/environment
ExecStart=/usr/bin/env veilmap {command}
Restart=on-failure
RestartSec=5
TimeoutStopSec=30
User=veilmap
UMask=0077
NoNewPrivileges=true
PrivateTmp=true
PrivateDevices=true
ProtectSystem=strict
ProtectHome=true
ReadWritePaths={home}
MemoryMax=2G

[Install]
WantedBy=multi-user.target
"""

    def _containerfile(self) -> str:
        # In a container it must listen on all of its own addresses.
        command = json.dumps(
            ["veilmap", "aggregator", "serve", *self._options("/data"), "--host", "0.0.0.0"]
        )
        return f"""\
# Build beside veilmap's wheel, and run with this folder, task.json in it, as /data:
#   podman build --tag veilmap-{self.role} --file {self.role}/Containerfile .
#   podman run -v ./{self.role}:/data:Z,U -p {self.port}:{self.port} veilmap-{self.role}
FROM docker.io/library/python:3.13-slim
COPY veilmap-*.whl /tmp/
RUN wheel=$(echo /tmp/veilmap-*.whl) && pip install --no-cache-dir "$wheel[collect,postgres]" \\
    && rm "$wheel" && useradd --system veilmap
USER veilmap
VOLUME /data
EXPOSE {self.port}
STOPSIGNAL SIGTERM
CMD {command}
"""
