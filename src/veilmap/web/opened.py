"""One run, ready to be asked: its files as data, read once and again when they change."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.auditing.exposure import Witness
from veilmap.data.measurements import Measurements
from veilmap.errors import DataError, VeilmapError
from veilmap.federation import history
from veilmap.federation.history import HistoryRow
from veilmap.federation.run import transcript_of
from veilmap.federation.run_folder import FORMAT, RunFolder
from veilmap.federation.study import STUDY, StudyFolder, is_promised
from veilmap.federation.transcript import SeenRound, SeenSum
from veilmap.geometry.grid import Grid
from veilmap.layers import Layer
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Ledger
from veilmap.privacy.mechanisms import AggregateGaussian, from_description
from veilmap.runs.source import Source, measurements_behind
from veilmap.scenes.buildings import Building, read_footprints
from veilmap.scenes.scene import Scene

_LAYERS_KEPT = 16
_ROUNDS_KEPT = 4


class OpenRun:
    """A run's folder, and beside it what was made for the page in ``work``.

    Of a run with a guarantee it is only what was published, unless a ``study`` is wanted.
    """

    def __init__(
        self, path: Path, work: Path, buildings: Path | None = None, *, study: bool = False
    ) -> None:
        self.path = path
        self._wants_study = study
        self.work = work
        self._buildings = buildings
        self._folder = RunFolder(path)
        self._lock = threading.RLock()
        self._map: tuple[object, RadioMap] | None = None
        self._history: tuple[object, list[HistoryRow]] = (None, [])
        self._layers: dict[object, Layer] = {}
        self._witness: tuple[bool, Witness] | None = None

    # ---- what its files say

    @cached_property
    def config(self) -> dict[str, Any]:
        """How it is trained."""
        try:
            config = self._folder.config()
            if config.get("format") != FORMAT:
                raise DataError(
                    f"{self.path.name} was written by another version of veilmap; train it anew"
                )
            from_description(config["mechanism"])
            _ = config["seed"]
            numbers = (config["rounds"], config["data"]["users"])
            sound = config["server_sees"] in ("uploads", "sums")
            sound = sound and all(isinstance(number, int) for number in numbers)
        except (AttributeError, KeyError, TypeError, UnicodeDecodeError):
            sound = False
        if not sound:
            raise DataError(f"{self.path.name}/config.json is damaged")
        return config

    @property
    def withheld(self) -> str | None:
        """Why the truth and the study of a run are not shown; None where they may be."""
        if self._wants_study or not is_promised(self.config):
            return None
        return (
            "of a run with a guarantee this page shows only what was published; `veilmap serve"
            " --study` shows the rest, which is not for publication"
        )

    @property
    def study(self) -> str | None:
        """The words that mark what is shown of a run beyond what was published."""
        return STUDY if self._wants_study and is_promised(self.config) else None

    @property
    def finished(self) -> bool:
        """Whether the last round was played."""
        return (self.path / "radio_map.nc").is_file()

    @property
    def version(self) -> tuple[str, int]:
        """What tells one state of its map from another."""
        final = self.path / "radio_map.nc"
        for path in (final, *sorted((self.path / "checkpoints").glob("round-*.npz"), reverse=True)):
            try:
                return path.name, path.stat().st_mtime_ns
            except OSError:
                continue
        return "none", 0

    def history(self) -> list[HistoryRow]:
        """All rounds so far."""
        path = self.path / "history.csv"
        with self._lock:
            try:
                changed = path.stat().st_mtime_ns
            except OSError:
                return []
            if self._history[0] != changed:
                rows = history.load(path)
                if self.study:
                    rows = StudyFolder(self.path).joined(rows)
                self._history = changed, rows
            return self._history[1]

    def spent(self) -> float:
        """ε of the user who spent most; a run that goes on may have opened more than it shows."""
        rows, mechanism = self.history(), from_description(self.config["mechanism"])
        if self.finished or not isinstance(mechanism, AggregateGaussian):
            return rows[-1].epsilon if rows else math.nan
        return Ledger.from_dict(mechanism, self._folder.load_ledger()).epsilon

    def radio_map(self) -> RadioMap:
        """The learned map, or while the run goes on that of its newest checkpoint."""
        with self._lock:
            version = self.version
            if self._map is None or self._map[0] != version:
                found = (
                    RadioMap.load(self.path / "radio_map.nc")
                    if self.finished
                    else self._folder.newest_map()
                )
                if found is None:
                    raise DataError(
                        "no map yet: it is written with the run's first checkpoint; ask again soon"
                    )
                self._map = version, found
            return self._map[1]

    @cached_property
    def stations(self) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """Places (B, 3) and ids of the public base stations."""
        return self._folder.base_stations()

    # ---- the truth, where it is on this host

    @cached_property
    def source(self) -> Source | None:
        """Where its measurements are, if its folder says so."""
        if self.withheld:
            return None
        try:
            return Source.of_run(self.path)
        except (VeilmapError, OSError):
            return None

    @cached_property
    def data(self) -> Measurements | None:
        """The users' measurements, if they are here."""
        if self.withheld:
            return None
        try:
            return measurements_behind(self.path, None)[0]
        except (VeilmapError, OSError):
            return None

    @cached_property
    def scene(self) -> Scene | None:
        """The city itself, if it is a synthetic one."""
        return self.source.scene if self.source else None

    @cached_property
    def buildings(self) -> tuple[Building, ...]:
        """Footprints to draw the map on."""
        if self._buildings is not None:
            return self._footprints(self._buildings)
        if self.source is not None and self.source.buildings is not None:
            try:
                return self._footprints(self.source.buildings)
            except VeilmapError:
                return ()  # the file has moved, or was a surface without footprints
        return tuple(self.scene.buildings) if self.scene else ()

    def _footprints(self, file: Path) -> tuple[Building, ...]:
        # How high they are does not matter for outlines.
        crs = self.radio_map().grid.crs
        return read_footprints(file, crs, default_height=1.0).buildings

    # ---- what takes time is kept

    def layer(self, key: object, make: Callable[[RadioMap], Layer]) -> Layer:
        """The layer of that key, made anew when the map has changed."""
        key = (self.version, key)
        with self._lock:
            if key not in self._layers:
                made = make(self.radio_map())
                for old in list(self._layers)[: 1 - _LAYERS_KEPT]:
                    del self._layers[old]
                self._layers[key] = made
            return self._layers[key]

    def kept_rounds(self) -> list[int]:
        """Rounds that attacks can look at, from 0."""
        last = self.config["rounds"] - self.config["step"].get("rounds", 0)
        return [number for number in self._folder.kept_rounds() if number < last]

    def witness(self) -> Witness:
        """Who looks at kept rounds; the last map, which attackers have too, needs another one."""
        with self._lock:
            finished = self.finished
            if self._witness is None or self._witness[0] != finished:
                radio_map = self.radio_map()
                rounds = _KeptRounds(self, radio_map.grid)
                transcript = transcript_of(self._folder, self.config, radio_map, rounds)
                self._witness = finished, Witness(transcript, self.data)
            return self._witness[1]

    # ---- what was made for the page

    def replica_files(self) -> list[Path]:
        """Maps of resampled users, as far as they are trained; none that is being written."""
        return sorted((self.work / "replicas").glob("[!.]*.nc"))

    def replicas(self) -> list[RadioMap]:
        """Those maps."""
        return [RadioMap.load(path) for path in self.replica_files()]

    def load_round(self, number: int, grid: Grid) -> SeenRound | SeenSum:
        """What the server saw of a round."""
        return self._folder.load_round(number, grid)


class _KeptRounds(Mapping[int, SeenRound | SeenSum]):
    """Kept rounds, read when they are looked at: all of them might not fit into memory."""

    def __init__(self, run: OpenRun, grid: Grid) -> None:
        self._run = run
        self._read = lru_cache(_ROUNDS_KEPT)(lambda number: run.load_round(number, grid))

    def __getitem__(self, number: int) -> SeenRound | SeenSum:
        if number not in self:
            raise KeyError(number)
        return self._read(number)

    def __contains__(self, number: object) -> bool:
        return number in self._run.kept_rounds()

    def __iter__(self) -> Iterator[int]:
        return iter(self._run.kept_rounds())

    def __len__(self) -> int:
        return len(self._run.kept_rounds())
