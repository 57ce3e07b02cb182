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
`study.py`.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from veilmap._util import files
from veilmap._util.arrays import Floats
from veilmap.errors import RunFolderError
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

_KEPT_CHECKPOINTS = 2


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
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # there is a run in it now, or something else
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
        return read_stations(self.path / "base_stations.csv")

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

    def save_checkpoint(self, state: ServerState, rows: Sequence[HistoryRow]) -> None:
        """Write a checkpoint and the history, then drop checkpoints that are too old."""
        with files.replacing(self._of_round("checkpoints", state.round)) as temporary:
            np.savez(
                temporary,
                round=state.round,
                **state.radio_map.as_arrays(),
                history=json.dumps([asdict(row) for row in rows]),
                **{f"memory_{name}": values for name, values in state.memory.items()},  # type: ignore[arg-type]
            )
        history.save(rows, self.path / "history.csv")
        for old in self._checkpoints()[:-_KEPT_CHECKPOINTS]:
            old.unlink()

    def load_checkpoint(self, grid: Grid) -> tuple[ServerState, list[HistoryRow]] | None:
        """The newest checkpoint, or None where there is none yet."""
        for rest in (*self.path.glob(".*-*"), *self.path.glob("*/.*-*")):
            rest.unlink()  # half a file of a run that was killed
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        newest = checkpoints[-1]
        try:
            with np.load(newest) as file:
                arrays = {name: file[name] for name in file.files}
            radio_map = RadioMap.from_arrays(grid, arrays)
            kept = [name for name in arrays if name.startswith("memory_")]
            memory = {name.removeprefix("memory_"): arrays[name] for name in kept}
            rows = [HistoryRow(**row) for row in json.loads(str(arrays["history"]))]
            return ServerState(radio_map, int(arrays["round"]), memory), rows
        except (*files.BROKEN_ARCHIVE, TypeError) as error:
            earlier = checkpoints[-2].name if len(checkpoints) > 1 else "the start"
            raise RunFolderError(
                f"the checkpoint {newest} is damaged; delete it to go on from {earlier}"
            ) from error

    def newest_map(self) -> RadioMap | None:
        """The map of the newest checkpoint; nothing is touched, so that a run can be watched."""
        grid = self.config().grid
        for path in reversed(self._checkpoints()):
            # It may be dropped in the meantime.
            with contextlib.suppress(*files.BROKEN_ARCHIVE), np.load(path) as file:
                return RadioMap.from_arrays(grid, {name: file[name] for name in file.files})
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
        with files.replacing(self._of_round("transcript", seen.broadcast.round)) as temporary:
            np.savez_compressed(
                temporary,
                clients=json.dumps(seen.clients),
                propagation=seen.theta_gradient,
                links=seen.weight,
                cohort=seen.broadcast.cohort,
                filter_width=seen.broadcast.filter_width,
                **seen.broadcast.radio_map.as_arrays(),
                **received,
            )

    def load_rounds(self, grid: Grid) -> dict[int, SeenRound | SeenSum]:
        """All rounds that were kept."""
        return {number: self.load_round(number, grid) for number in self.kept_rounds()}

    def load_round(self, number: int, grid: Grid) -> SeenRound | SeenSum:
        """One kept round."""
        path = self._of_round("transcript", number)
        try:
            with np.load(path) as file:
                return _seen(number, grid, file)
        except files.BROKEN_ARCHIVE as error:
            raise RunFolderError(f"the kept uploads in {path} are damaged") from error

    def save_ledger(self, content: Mapping[str, Any]) -> None:
        """Write what users have spent."""
        files.write_json(content, self.path / "ledger.json", indent=None)

    def load_ledger(self) -> dict[str, Any]:
        """What users have spent; without it nobody knows."""
        path = self.path / "ledger.json"
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError):
            content = None
        if not isinstance(content, dict) or not {"opened", "spent"} <= content.keys():
            raise RunFolderError(
                f"{path} is missing or damaged: what users have spent is unknown, so this run"
                " cannot go on"
            )
        return content

    def finish(self, radio_map: RadioMap) -> None:
        """Write the learned map."""
        radio_map.save(self.path / "radio_map.nc")

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("round-*.npz"))

    def _of_round(self, kind: str, number: int) -> Path:
        return self.path / kind / f"round-{number:06d}.npz"


def _seen(number: int, grid: Grid, file: Mapping[str, Any]) -> SeenRound | SeenSum:
    """One kept round out of its file."""
    width = float(file["filter_width"]) if "filter_width" in file else 0.0  # of older versions
    broadcast = Broadcast(number, RadioMap.from_arrays(grid, file), int(file["cohort"]), width)
    clients = tuple(json.loads(str(file["clients"])))
    if "sum" in file:
        return SeenSum(broadcast, clients, file["sum"], file["propagation"], int(file["links"]))
    return SeenRound(broadcast, clients, file["uploads"], file["propagation"], file["links"])
