"""Real deployments for tests: making, running, watching, killing and clearing them away."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from veilmap.federation import history
from veilmap.flower.deploy import layout, processes
from veilmap.flower.deploy.layout import Federation


def veilmap(*arguments, timeout=120):
    command = [sys.executable, "-m", "veilmap.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def flwr(federation, *arguments, home=None, timeout=120):
    """One of Flower's commands, as the operator or with another's configuration."""
    theirs = {} if home is None else {"FLWR_HOME": str(home)}
    return subprocess.run(
        [layout.tool("flwr"), *map(str, arguments)], capture_output=True, text=True, check=False,
        timeout=timeout, env=os.environ | federation.environment | theirs,
    )  # fmt: skip


def listed(federation, *command):
    """What the SuperLink tells the operator of runs (`list`) or nodes (`supernode list`)."""
    done = flwr(federation, *command, layout.LINK, "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def made(folder, *arguments, **settings):
    """A new federation whose run has these settings in place of what init chose."""
    done = veilmap("federation", "init", folder, "--seed", 5, *arguments)
    assert done.returncode == 0, done.stderr
    app = folder / "app" / "pyproject.toml"
    lines = app.read_text().splitlines()
    for name, value in settings.items():
        key = name.replace("_", "-")
        (at,) = (number for number, line in enumerate(lines) if line.startswith(f"{key} = "))
        lines[at] = f"{key} = {value}"
    app.write_text("\n".join(lines) + "\n")
    return Federation.load(folder)


@contextmanager
def running(federation):
    """The federation's processes, all of which are gone afterwards."""
    before = len(processes._started)
    try:
        processes.up(federation)
        yield federation
    finally:
        processes.down(federation)
        for process in processes._started[before:]:
            end(process)  # one that down could not know of
    wait_until(lambda: not _left(federation), "nothing is left running", federation, 20)


@contextmanager
def command(federation, name, arguments):
    """A command in a process group of its own, whose output goes to the federation's logs."""
    log = federation.folder / "logs" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=os.environ | federation.environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def training(federation, name="run"):
    """`veilmap federation run` in the background."""
    return command(
        federation,
        name,
        [sys.executable, "-m", "veilmap.cli", "federation", "run", federation.folder],
    )


def kill(federation, name):
    """End a process of the federation and its children as a power cut would."""
    (found,) = (process for process in processes.status(federation) if process.name == name)
    assert found.running, logs(federation)
    (process,) = (process for process in processes._started if process.pid == found.pid)
    end(process)


def end(process):
    """Kill what lives of a process and its group."""
    # A number whose process was waited for may be somebody else's by now.
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


def rows(federation):
    """The history of the federation's run so far."""
    file = federation.folder / "run" / "history.csv"
    return history.load(file) if file.exists() else []


def trainings(federation, node):
    """How many rounds a node was asked to take part in."""
    return log_of(federation, node).count("Receiving: train message")


def wait_until(condition, what, federation, seconds=180):
    """Look until something holds; fail with all logs if it does not in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"not in {seconds} s: {what}\n{logs(federation)}")
        time.sleep(0.2)


def log_of(federation, name):
    log = federation.folder / "logs" / f"{name}.log"
    return log.read_text(errors="replace") if log.exists() else ""


def logs(federation):
    """The ends of all logs, for a test that failed."""
    names = sorted(log.stem for log in (federation.folder / "logs").glob("*.log"))
    played = "\n".join(map(str, rows(federation)))
    return played + "".join(f"\n== {name}\n{log_of(federation, name)[-2000:]}" for name in names)


def _left(federation):
    """Command lines that mention the federation's folder or one of its ports."""
    found = subprocess.run(
        ["ps", "-eww", "-o", "command="], capture_output=True, text=True, check=True, timeout=20
    ).stdout
    ours = (f"{federation.folder}/", federation.address, federation.control)
    return [line for line in found.splitlines() if any(name in line for name in ours)]
