"""What a federated runtime costs: seconds a round and a client, simulated and deployed.

    python benchmarks/federation.py              # about a quarter of an hour on two cores
    python benchmarks/federation.py --json F     # and as a file

Every run is a command that a user would type. A round ends when its row appears in the run's
history: times themselves are not published of runs with a guarantee.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

_SUMS = ["--mechanism", "aggregate", "--delta", "1e-3"]


@dataclass(frozen=True)
class Cost:
    """One way to train, and its time."""

    way: str
    clients: int
    start_s: float
    round_s: float

    @property
    def client_ms(self) -> float:
        """Milliseconds a client and round."""
        return 1e3 * self.round_s / self.clients


def main() -> None:
    """Measure, print a table, write the file that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of a run (default 6)")
    options = parser.parse_args()
    print(f"{'':34}{'clients':>8}{'start':>9}{'round':>9}{'a client':>11}")
    costs = []
    for cost in _costs(options.rounds):
        costs.append(cost)
        print(
            f"{cost.way:34}{cost.clients:8}{cost.start_s:7.1f} s{cost.round_s:7.2f} s"
            f"{cost.client_ms:8.1f} ms",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1))


def _costs(rounds: int) -> Iterator[Cost]:
    for users in (10, 100):
        yield _trained("in process", users, rounds)
        yield _trained("Flower, simulated", users, rounds, "--engine", "flower")
    for users in (20, 100):
        yield _trained("Flower, simulated, sums", users, rounds, "--engine", "flower", *_SUMS)
    yield _deployed("Flower, deployed on one host", 3, rounds)
    yield _deployed("Flower, deployed on one host, sums", 3, rounds, *_SUMS)


def _trained(way: str, users: int, rounds: int, *options: str) -> Cost:
    with tempfile.TemporaryDirectory(prefix="veilmap-") as folder:
        out, started = Path(folder) / "run", time.monotonic()
        size = ["--users", users, "--rounds", rounds, "--checkpoint-every", 1]
        ends = _watched(out / "history.csv", "train", *size, "--out", out, *options)
        return _cost(way, users, started, ends)


def _deployed(way: str, nodes: int, rounds: int, *options: str) -> Cost:
    with tempfile.TemporaryDirectory(prefix="veilmap-") as folder:
        home = Path(folder) / "fed"
        _veilmap("federation", "init", home, "--nodes", nodes, "--rounds", rounds, *options)
        try:
            started = time.monotonic()
            _veilmap("federation", "up", home)
            ends = _watched(home / "run" / "history.csv", "federation", "run", home)
            return _cost(way, nodes, started, ends)
        finally:
            _veilmap("federation", "down", home)


def _cost(way: str, clients: int, started: float, ends: list[float]) -> Cost:
    # The first round also waits for nodes and compilers; all that is not a later round is start.
    typical = statistics.median(after - before for before, after in pairwise(ends))
    return Cost(way, clients, time.monotonic() - started - typical * len(ends), typical)


def _watched(history: Path, *arguments: object) -> list[float]:
    """Run a command of veilmap's; when each row of a history was there."""
    process, ends = _started(*arguments), []
    while process.poll() is None:
        rows = len(history.read_bytes().splitlines()) - 1 if history.exists() else 0
        ends += [time.monotonic()] * (rows - len(ends))
        time.sleep(0.002)
    _ended(process)
    return ends


def _veilmap(*arguments: object) -> None:
    _ended(_started(*arguments))


def _started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "veilmap.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)


def _ended(process: subprocess.Popen[str]) -> None:
    if process.wait():
        sys.exit(f"veilmap {' '.join(process.args[3:])} failed with code {process.returncode}")


if __name__ == "__main__":
    main()
