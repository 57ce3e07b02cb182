"""A run on disk: configuration, history, checkpoints, uploads and the map.

    RUN/config.json
        base_stations.csv                 ids and places, as the server was told
        history.csv
        ledger.json                       what users have spent, where there is a guarantee
        checkpoints/round-000120.npz      the last two
        transcript/round-000050.npz       rounds whose uploads were kept
        radio_map.nc                      when the run has ended
        .lock                             held by the process that writes

Every file is written whole or not at all; a run killed at any moment goes on from its last
checkpoint. One process writes at a time, and any number may read meanwhile. Under a guarantee
all of it is made of noisy sums, public facts and who took part; the rest is a study, see
`study.py`. The folder is its owner's alone, who may publish what is in it.

What a checkpoint has of the history is in `history.csv` before it is written, so that no row is
lost between the two. A checkpoint names the mark by which the ledger knew its last spending:
beside a ledger without it, which is older or another run's, the run does not go on.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from veilmap._util import archives, files, limits, reading
from veilmap._util.arrays import Array, Floats
from veilmap._util.plain import DAMAGED
from veilmap.errors import DataError, RunFolderError
from veilmap.federation import history
from veilmap.federation.config import RunConfig
from veilmap.federation.history import HistoryRow
from veilmap.federation.messages import Broadcast
from veilmap.federation.public import (
    Stations,
    read_station_errors,
    read_stations,
    write_stations,
)
from veilmap.federation.steps import ServerState
from veilmap.federation.transcript import SeenRound, SeenSum
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Ledger
from veilmap.privacy.mechanisms import PrivateMechanism

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class Checkpoint:
    """Where a run goes on: what the server knows, and what happened so far."""

    state: ServerState
    rows: list[HistoryRow]
    ledger: str = ""  # mark of its last spending, where there is a guarantee


class RunFolder:
    """Reads and writes one run's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out; where no run came of it, no folder is left either."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; name a folder for the run")
        lock = self.path / ".lock"
        with files.locked(lock):
            for kind in ("checkpoints", "transcript"):
                reading.unlinked(self.path / kind)
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # there is a run in it now, or something else
                    lock.unlink(missing_ok=True)
                    self.path.rmdir()

    def check_free(self) -> None:
        """Refuse a place that holds a run already, before any work is done."""
        if RunConfig.exists(self.path):
            raise RunFolderError(
                f"{self.path} holds a run already; go on with it (resume) or name another folder"
            )

    def save_stations(self, stations: Stations, errors: Mapping[str, float] | None = None) -> None:
        """Write the public base stations, and the errors of positions that are estimates."""
        write_stations(stations, self.path / "base_stations.csv", errors)

    def base_stations(self) -> tuple[Floats, tuple[str, ...]]:
        """The public base stations, (B, 3), in metres, and their ids; several may share a mast."""
        return read_stations(reading.unlinked(self.path / "base_stations.csv"))

    def station_errors(self) -> dict[str, float]:
        """Errors in metres of base stations whose positions are estimates, by id."""
        return read_station_errors(self.path / "base_stations.csv")

    def config(self) -> RunConfig:
        """The configuration the run was started with."""
        return RunConfig.load(self.path)

    def check(self, config: RunConfig) -> None:
        """Refuse to go on under another configuration."""
        changed = self.config().differences(config)
        if changed:
            raise RunFolderError(
                f"{self.path} was started with another configuration ({'; '.join(changed[:3])});"
                " resume with the same one or start a new folder"
            )

    def save_checkpoint(self, point: Checkpoint) -> None:
        """Write the history and a checkpoint, then drop checkpoints that are too old."""
        history.save(point.rows, self._history)
        arrays = {
            "round": point.state.round,
            **point.state.radio_map.as_arrays(),
            "history": json.dumps([asdict(row) for row in point.rows]),
            "ledger": point.ledger,
            **{f"memory_{name}": values for name, values in point.state.memory.items()},
        }
        archives.save(self._of_round("checkpoints", point.state.round), arrays)
        for old in self._checkpoints()[:-_KEPT_CHECKPOINTS]:
            with contextlib.suppress(OSError):  # the new one is what counts
                old.unlink()

    def load_checkpoint(self, grid: Grid) -> Checkpoint | None:
        """The newest checkpoint, or None where there is none yet; for who holds the lock."""
        for folder in (self.path, self.path / "checkpoints", self.path / "transcript"):
            files.remove_unfinished(folder)
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        newest = checkpoints[-1]
        try:
            point = _checkpoint(grid, archives.load(newest, follow=False))
        except DAMAGED as error:
            earlier = checkpoints[-2].name if len(checkpoints) > 1 else "the start"
            raise RunFolderError(
                f"the checkpoint {newest} is damaged; delete it to go on from {earlier}"
            ) from error
        self._complete_history(point.rows)
        return point

    def _complete_history(self, rows: Sequence[HistoryRow]) -> None:
        """Write the history of a checkpoint where somebody has taken it away, or damaged it."""
        try:
            known = len(history.load(self._history))
        except DataError:
            known = 0
        if known < len(rows):
            history.save(rows, self._history)

    def newest_map(self) -> RadioMap | None:
        """The map of the newest checkpoint; nothing is touched, so that a run can be watched."""
        grid = self.config().grid
        for path in reversed(self._checkpoints()):
            with contextlib.suppress(*DAMAGED):  # it may be dropped in the meantime
                return RadioMap.from_arrays(grid, archives.load(path, follow=False))
        return None

    def kept_rounds(self) -> list[int]:
        """Rounds that were kept, from 0."""
        kept = (self.path / "transcript").glob("round-*.npz")
        return sorted(int(path.stem.removeprefix("round-")) for path in kept)

    def save_round(self, seen: SeenRound | SeenSum) -> None:
        """Write what the server saw of one round, compressed."""
        if isinstance(seen, SeenRound):
            received: dict[str, Any] = {"uploads": seen.uploads}
        else:
            received = {"sum": seen.height_gradient}
        arrays = {
            "clients": json.dumps(seen.clients),
            "propagation": seen.theta_gradient,
            "links": seen.weight,
            "cohort": seen.broadcast.cohort,
            "filter_width": seen.broadcast.filter_width,
            **seen.broadcast.radio_map.as_arrays(),
            **received,
        }
        archives.save(self._of_round("transcript", seen.broadcast.round), arrays, compressed=True)

    def load_rounds(self, grid: Grid) -> dict[int, SeenRound | SeenSum]:
        """All rounds that were kept."""
        return {number: self.load_round(number, grid) for number in self.kept_rounds()}

    def load_round(self, number: int, grid: Grid) -> SeenRound | SeenSum:
        """One kept round."""
        path = self._of_round("transcript", number)
        try:
            return _seen(number, grid, archives.load(path, follow=False))
        except DAMAGED as error:
            raise RunFolderError(f"the kept uploads in {path} are damaged") from error

    def save_ledger(self, ledger: Ledger) -> None:
        """Write what users have spent."""
        path = self.path / "ledger.json"
        files.write_json(ledger.as_dict(), path, indent=None, secret=True, sealed=True)

    def load_ledger(self, mechanism: PrivateMechanism) -> Ledger:
        """What users have spent; without it nobody knows."""
        path = self.path / "ledger.json"
        try:
            content = reading.read_json(path, limits.JSON_BYTES, follow=False, sealed=True)
            return Ledger.from_dict(mechanism, content)
        except DAMAGED as error:
            raise RunFolderError(
                f"{path} is missing or damaged: what users have spent is unknown, so this run"
                " cannot go on"
            ) from error

    def finish(self, radio_map: RadioMap) -> None:
        """Write the learned map."""
        radio_map.save(self.path / "radio_map.nc")

    @property
    def _history(self) -> Path:
        return self.path / "history.csv"

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("round-*.npz"))

    def _of_round(self, kind: str, number: int) -> Path:
        return self.path / kind / f"round-{number:06d}.npz"


def _checkpoint(grid: Grid, arrays: Mapping[str, Array]) -> Checkpoint:
    """A checkpoint out of its file."""
    radio_map = RadioMap.from_arrays(grid, arrays)
    memory = {
        name.removeprefix("memory_"): values
        for name, values in arrays.items()
        if name.startswith("memory_")
    }
    rows = [HistoryRow(**row) for row in json.loads(str(arrays["history"]))]
    state = ServerState(radio_map, int(arrays["round"]), memory)
    return Checkpoint(state, rows, str(arrays["ledger"]))


def _seen(number: int, grid: Grid, file: Mapping[str, Any]) -> SeenRound | SeenSum:
    """One kept round out of its file."""
    radio_map, cohort = RadioMap.from_arrays(grid, file), int(file["cohort"])
    broadcast = Broadcast(number, radio_map, cohort, float(file["filter_width"]))
    clients = tuple(json.loads(str(file["clients"])))
    if "sum" in file:
        return SeenSum(broadcast, clients, file["sum"], file["propagation"], int(file["links"]))
    return SeenRound(broadcast, clients, file["uploads"], file["propagation"], file["links"])
