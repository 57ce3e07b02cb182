"""The folder of a federation: what `veilmap federation init` writes."""

import json
import secrets
import shlex
import socket
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from veilmap import __version__
from veilmap._util import certificates, files
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.transcript import ServerSees
from veilmap.flower.deploy import templates
from veilmap.flower.secagg.enrolment import enrol, write_roster
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms import Mechanism

_FILE = "federation.json"
Settings = dict[str, Any]

LINK = "dep"  # what Flower's configuration calls the server


@dataclass(frozen=True)
class Federation:
    """A federation's folder and what it was made with.

    The SuperLink listens for nodes on ``host`` and ``port``. The operator's commands reach it on
    the port after it, and nodes' own processes on those that follow, all on loopback.
    """

    folder: Path
    host: str
    port: int
    nodes: int

    @classmethod
    def load(cls, folder: Path) -> "Federation":
        """The federation in a folder."""
        if not (folder / _FILE).exists():
            raise ConfigurationError(
                f"{folder} holds no federation; make one with veilmap federation init"
            )
        try:
            content = json.loads((folder / _FILE).read_text())
            return cls(folder.resolve(), content["host"], content["port"], content["nodes"])
        except (KeyError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"{folder / _FILE} is damaged: make the federation anew"
            ) from error

    @property
    def names(self) -> list[str]:
        """The nodes' names."""
        return [f"node-{number + 1}" for number in range(self.nodes)]

    @property
    def address(self) -> str:
        """Where nodes reach the SuperLink."""
        return f"{self.host}:{self.port}"

    @property
    def control(self) -> str:
        """Where the operator's commands reach it, and its own apps: on its host alone."""
        return f"127.0.0.1:{self.port + 1}"

    @property
    def environment(self) -> dict[str, str]:
        """What Flower's commands must find set: nothing phones home or installs anything."""
        return {
            # Flower starts its other commands by name.
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        }

    def key(self, node: str) -> Path:
        """A node's private key."""
        return self.folder / "keys" / node

    @property
    def roster(self) -> Path:
        """All nodes' public keys, by which they know each other."""
        return self.folder / "keys" / "roster"

    def account(self, node: str) -> Path:
        """What a node has spent of its ε; it belongs to the node's key."""
        return self.folder / "accounts" / f"{node}.json"

    def command(self, process: str) -> list[str]:
        """The command line of the SuperLink, the SuperExec or a node."""
        tls, secret = self.folder / "certificates", self.folder / "superexec.secret"
        ca = str(tls / "ca.crt")
        if process == "superlink":
            return [
                *_module("superlink"), "--public", self.address,
                "--operator-token-file", str(self.folder / "operator.token"),
                "--host", "127.0.0.1", "--port", str(self.port + 1),
                "--ssl-certfile", str(tls / "server.pem"), "--ssl-keyfile", str(tls / "server.key"),
                "--ssl-ca-certfile", ca, "--enable-supernode-auth", "--isolation", "process",
                "--superexec-auth-secret-file", str(secret), "--database",
                str(self.folder / "state" / "superlink.db"),
                "--disable-runtime-dependency-installation",
            ]  # fmt: skip
        if process == "superexec":
            return [
                tool("flower-superexec"), "--runtime-api-address", self.control,
                "--root-certificates", ca, "--superexec-auth-secret-file", str(secret),
            ]  # fmt: skip
        number = self.names.index(process)
        return [
            *_module("node"), "--superlink", self.address, "--root-certificates", ca,
            "--auth-supernode-private-key", str(self.key(process)),
            "--port", str(self.port + 2 + number),
            "--node-config", (self.folder / "nodes" / f"{process}.config").read_text().strip(),
        ]  # fmt: skip


def init(
    folder: Path,
    *,
    nodes: int,
    host: str,
    port: int,
    data: Measurements,
    grid: Grid,
    mechanism: Mechanism,
    server_sees: ServerSees,
    rounds: int,
    days: int = 365,
    seed: int | None = None,
) -> Federation:
    """Write all that a federation needs, with TLS and node authentication on.

    The users of ``data`` are dealt out to the nodes' files; replace them by real ones.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"{folder} is not empty; name a new folder for the federation")
    users = data.users.tolist()
    if len(users) < nodes:
        raise ConfigurationError(
            f"{nodes} nodes need measurements of as many users, not {len(users)}", "nodes"
        )
    if server_sees == "sums" and len(users) != nodes:
        raise ConfigurationError(
            f"in a sum every user has a node of their own: {len(users)} users need as many nodes,"
            f" not {nodes}",
            "nodes",
        )
    made = Federation(folder.resolve(), host, port or _free_port(nodes), nodes)
    files.make_folder(folder, secret=True)
    folder.chmod(0o700)  # also one that was there, before any key is in it
    tls = folder / "certificates"
    certificates.write_authority(tls)
    certificates.write_server(tls, _names(host), days)
    _write_secrets(made)
    public = {node: enrol(made.key(node), made.account(node)) for node in made.names}
    write_roster(public, made.roster)
    common = _settings(mechanism, server_sees) | ({} if seed is None else {"seed": seed})
    if server_sees == "sums":
        common["roster"] = str(made.roster)
    for number, node in enumerate(made.names):
        own = data.select([user in users[number::nodes] for user in data.user.tolist()])
        _write_node(made, node, own, common)
    (rows, columns), (west, south) = grid.shape, grid.origin
    run: Settings = {"rounds": rounds, "out": str(made.folder / "run"), "least-users": nodes}
    run |= {"cell-size": grid.cell_size, "rows": rows, "columns": columns}
    run |= {"west": west, "south": south, "crs": grid.crs or "", "deadline": 60.0} | common
    config = templates.flower_config(LINK, made.control, tls.resolve() / "ca.crt")
    files.write_text(templates.app(run, __version__), folder / "app" / "pyproject.toml")
    files.write_text(config, folder / "flwr" / "config.toml")
    _write_start_files(made)
    about = asdict(made) | {"folder": None, "veilmap": __version__}
    files.write_json(about, folder / _FILE)  # last: a folder without it is not finished
    return made


def _write_node(made: Federation, node: str, data: Measurements, common: Settings) -> None:
    """A node's measurements and its configuration."""
    file = made.folder / "data" / f"{node}.parquet"
    data.save(file)
    settings = {"data": str(file)} | common
    if "roster" in common:  # the server sees only sums
        settings |= {"key": str(made.key(node)), "account": str(made.account(node))}
    config = templates.node_config(settings)
    files.write_text(config, made.folder / "nodes" / f"{node}.config")


def _write_secrets(made: Federation) -> None:
    """What the SuperExec and the operator's commands show the SuperLink, for their eyes only."""
    token = secrets.token_urlsafe(32)
    shown = templates.credentials(made.control, token)
    for name, content in {
        "superexec.secret": secrets.token_urlsafe(32),
        "operator.token": token,
        "flwr/credentials.yaml": json.dumps(shown),  # JSON is YAML
    }.items():
        files.write_text(content, made.folder / name, secret=True)


def _write_start_files(made: Federation) -> None:
    """A start script and a systemd unit for every process."""
    for process in ("superlink", "superexec", *made.names):
        command = shlex.join(made.command(process))
        script = made.folder / "start" / f"{process}.sh"
        files.write_text(templates.script(made.environment, command), script)
        script.chmod(0o755)
        unit = made.folder / "systemd" / f"veilmap-{process}.service"
        files.write_text(templates.unit(process, script), unit)


def renew(federation: Federation, days: int) -> None:
    """A new key and certificate for the server; the authority, and so the nodes, stay."""
    tls = federation.folder / "certificates"
    for needed in ("ca.key", "ca.crt"):
        if not (tls / needed).exists():
            raise ConfigurationError(
                f"{tls / needed} is missing: renew where the authority's key is"
            )
    certificates.write_server(tls, _names(federation.host), days)


def _names(host: str) -> list[str]:
    """What the server's certificate is for."""
    return list(dict.fromkeys([host, "127.0.0.1", "localhost"]))


def _settings(mechanism: Mechanism, server_sees: ServerSees) -> Settings:
    """A mechanism as configurations spell it; nodes and the server get the same."""
    given = {field.name: getattr(mechanism, field.name) for field in fields(mechanism)}
    known = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
    return {"mechanism": mechanism.name, "server-sees": server_sees, **known}


def tool(name: str) -> str:
    """A command of Flower's, from the environment this runs in."""
    return str(Path(sys.executable).with_name(name))


def _module(name: str) -> list[str]:
    """A program of this package; -P: nothing is imported from the folder it is started in."""
    return [sys.executable, "-P", "-m", f"veilmap.flower.deploy.{name}"]


def _free_port(nodes: int) -> int:
    """A port such that it, the operator's and the nodes' after it are free now."""
    for _ in range(50):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + nodes + 1 < 65536 and all(_is_free(first + k) for k in range(nodes + 2)):
            return first
    raise ConfigurationError("no free ports found; name one", "port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
