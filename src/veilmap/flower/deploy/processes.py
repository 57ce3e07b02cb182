"""A federation's processes on this host, for a trial: start, look, stop."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilmap._util import files
from veilmap.errors import ConfigurationError
from veilmap.flower.deploy.layout import LINK, Federation, is_free, tool

_PATIENCE = 60.0  # seconds for a process to come up
_GRACE = 10.0  # seconds between asking a process to stop and ending it
# Seconds for a node to be let in: Flower takes one that was killed for present until it has not
# heard of it for a minute, and refuses its key until then.
_REJOINING = 120.0

# What a node writes to its log when the server lets it in, and when it does not (yet).
_JOINED = "SuperNode ID:"
_NOT_NOW = "Failed to activate SuperNode"

# Processes outlive the command that starts them; Python must not mind.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Process:
    """One process: its name, its id if it runs, and where it writes."""

    name: str
    pid: int | None
    log: Path

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.pid is not None


def up(federation: Federation, on_step: Callable[[str], None] = lambda step: None) -> list[Process]:
    """Start what does not run yet: SuperLink, SuperExec, nodes; wait until nodes are let in.

    ``on_step`` hears what is being done.
    """
    known = {process.name: process for process in status(federation)}
    new = [node for node in federation.names if not known[node].running]
    for node in new:
        if not federation.key(node).exists():
            raise ConfigurationError(f"{node} has no key: {federation.key(node)} is missing")
    if not known["superlink"].running:
        on_step(f"starting the server on {federation.address}")
        _check_ports(federation)
        _start(federation, "superlink")
    _await_port(federation)
    if not known["superexec"].running:
        _start(federation, "superexec")
    for number, node in enumerate(federation.names, start=1):
        on_step(f"registering {node} ({number} of {federation.nodes})")
        _register(federation, node)
    joining = []
    for number, node in enumerate(new, start=1):
        on_step(f"starting {node} ({number} of {len(new)})")
        joining.append(_start(federation, node))
    for number, started in enumerate(joining, start=1):
        on_step(f"waiting until {started.name} is let in ({number} of {len(new)})")
        _await_joined(federation, started)
    return status(federation)


def _check_ports(federation: Federation) -> None:
    for port in (federation.port, federation.port + 1):
        if not is_free(port):
            raise ConfigurationError(
                f"something else listens on port {port} of this host: end it, or make the"
                " federation anew with another port",
                "port",
            )


def status(federation: Federation) -> list[Process]:
    """Every process of the federation."""
    names = ("superlink", "superexec", *federation.names)
    return [Process(name, _running(federation, name), _log(federation, name)) for name in names]


def as_dict(processes: Sequence[Process]) -> dict[str, Any]:
    """The processes, for JSON."""
    rows = [{"name": one.name, "pid": one.pid, "log": str(one.log)} for one in processes]
    return {"running": all(one.running for one in processes), "processes": rows}


def down(federation: Federation) -> list[Process]:
    """Stop all of them, nodes first; only those that this folder started."""
    for process in reversed(status(federation)):
        if process.pid is not None:
            _stop(process.pid)
        (federation.folder / "state" / f"{process.name}.pid").unlink(missing_ok=True)
    for started in _started:
        started.poll()  # take note of those that are gone
    return status(federation)


def run(federation: Federation) -> int:
    """Start the training and follow it until it ends; Flower's exit code.

    One that is not over is followed instead, as two would write the same folder: a training
    outlives its SuperLink. Where it turns out to be dead, a new one goes on from its checkpoint.
    """
    for number in [number for number, end in _runs(federation).items() if not end]:
        code = _follow(federation, number)
        if code or _runs(federation)[number] == "completed":
            return code
    return _flwr(federation, "run", str(federation.folder / "app"), LINK, "--stream").returncode


def _follow(federation: Federation, number: str) -> int:
    """Show a run's log until Flower calls it ended; Flower's exit code."""
    code = 0
    while not code and not _runs(federation)[number]:
        code = _flwr(federation, "log", number, LINK, "--stream").returncode
    return code


@dataclass(frozen=True)
class _Started:
    """A process that was just started, and where in its log it begins."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    begin: int

    def said(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self.begin)
            return file.read().decode(errors="replace")


def _start(federation: Federation, name: str) -> _Started:
    log = _log(federation, name)
    with files.open_log(log) as out:
        begin = out.tell()
        process = subprocess.Popen(
            federation.command(name), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            env=os.environ | federation.environment, start_new_session=True,
        )  # fmt: skip
    _started.append(process)
    files.write_text(f"{process.pid}\n", federation.folder / "state" / f"{name}.pid")
    time.sleep(0.5)
    if process.poll() is not None:
        raise ConfigurationError(f"{name} did not start; {log} says why")
    return _Started(name, process, log, begin)


def _await_joined(federation: Federation, node: _Started) -> None:
    """Wait until the server lets a node in; start it again while its past life is in the way."""
    until = time.monotonic() + _REJOINING
    while time.monotonic() < until:
        ended = node.process.poll() is not None  # looked at first, so that its last words count
        said = node.said()
        if _JOINED in said:
            return
        if ended:
            with suppress(ProcessLookupError):
                os.killpg(node.process.pid, signal.SIGKILL)  # its child may not have noticed
            if _NOT_NOW not in said:
                raise ConfigurationError(f"{node.name} did not start; {node.log} says why")
            time.sleep(2)
            node = _start(federation, node.name)
        time.sleep(0.2)
    raise ConfigurationError(
        f"{node.name} was not let in after {_REJOINING:g} s; {node.log} says why"
    )


def _await_port(federation: Federation) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((federation.host, federation.port)) == 0:
                return
        if _running(federation, "superlink") is None:
            raise ConfigurationError(
                f"superlink did not start; {_log(federation, 'superlink')} says why"
            )
        time.sleep(0.2)
    raise ConfigurationError(
        f"the SuperLink does not listen on {federation.address} after {_PATIENCE:g} s;"
        f" {_log(federation, 'superlink')} says why"
    )


def _register(federation: Federation, node: str) -> None:
    """Make the node's public key known, once."""
    done = federation.folder / "state" / f"{node}.registered"
    if done.exists():
        return
    public = f"{federation.key(node)}.pub"  # the SuperLink keeps it in its database
    found = _flwr(federation, "supernode", "register", public, LINK, quiet=True)
    if found.returncode:
        said = (found.stdout + found.stderr).strip()
        raise ConfigurationError(f"{node} could not be registered: {said[-300:]}")
    files.write_text("", done)


def _runs(federation: Federation) -> dict[str, str]:
    """How each run that the SuperLink knows has ended; "" for those that have not."""
    found = _flwr(federation, "list", LINK, "--format", "json", quiet=True)
    try:
        runs = json.loads(found.stdout)["runs"]
        return {run["run-id"]: run["status"].partition(":")[2] for run in runs}
    except (ValueError, KeyError, TypeError):
        said = (found.stdout + found.stderr).strip()
        raise ConfigurationError(f"the SuperLink does not say what runs: {said[-300:]}") from None


def _flwr(
    federation: Federation, *arguments: str, quiet: bool = False
) -> subprocess.CompletedProcess[str]:
    command, env = [tool("flwr"), *arguments], os.environ | federation.environment
    return subprocess.run(command, env=env, check=False, text=True, capture_output=quiet)


def _running(federation: Federation, name: str) -> int | None:
    """The id of a process that runs."""
    try:
        pid = int((federation.folder / "state" / f"{name}.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if _is_ours(pid, federation) else None


def _is_ours(pid: int, federation: Federation) -> bool:
    """Whether that process was started from this folder: numbers are given out again."""
    try:
        ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]  # -ww: never cut the line
        command = subprocess.run(ps, capture_output=True, text=True, check=False).stdout
    except OSError:
        return False
    ours = any(name in command for name in ("flower-superexec", "veilmap.flower.deploy."))
    return ours and str(federation.folder) in command


def _stop(pid: int) -> None:
    """Ask a process and its children to stop; end them if they do not."""
    for signal_number, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(pid, signal_number)  # each was started as its own group's leader
        except ProcessLookupError:
            return
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(ChildProcessError):  # started by an earlier command
                os.waitpid(pid, os.WNOHANG)
            try:
                os.killpg(pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)


def _log(federation: Federation, name: str) -> Path:
    return federation.folder / "logs" / f"{name}.log"
