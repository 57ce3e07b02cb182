"""Which runs there are: named folders, folders that hold runs, and runs that were started."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path

from veilmap.errors import ConfigurationError, RunFolderError, VeilmapError
from veilmap.federation.study import SUFFIX
from veilmap.layers import Layer
from veilmap.model.radio_map import RadioMap
from veilmap.runs.opened import OpenRun
from veilmap.scenes.buildings import Building, read_footprints

_CACHED_RUNS = 8  # whose maps are held in memory
_CACHED_LAYERS = 16  # of each
_LONGEST = 100  # letters of an id


class NoSuchRunError(RunFolderError):
    """A run that is not there, or not any more."""


class ServedRun(OpenRun):
    """An opened run with what is made of it for the page.

    Audits and replicas go to the folder ``work``; ``buildings`` are footprints to draw it on.
    """

    def __init__(
        self, path: Path, work: Path, buildings: Path | None = None, *, study: bool = False
    ) -> None:
        super().__init__(path, study=study)
        self.work = work
        self._footprints = buildings
        self._layers: dict[object, Layer] = {}

    @cached_property
    def buildings(self) -> tuple[Building, ...]:
        """Footprints to draw the map on."""
        file = self._footprints or (self.source.buildings if self.source else None)
        if file is None:
            return tuple(self.scene.buildings) if self.scene else ()
        try:
            crs = self.radio_map().grid.crs  # of outlines the height does not matter
            return read_footprints(file, crs, default_height=1.0).buildings
        except VeilmapError:
            if self._footprints is not None:
                raise
            return ()  # the file has moved, or was a surface without footprints

    def layer(self, key: object, make: Callable[[RadioMap], Layer]) -> Layer:
        """The layer of that key, made anew when the map has changed."""
        key = (self.version, key)
        with self._lock:
            if key not in self._layers:
                made = make(self.radio_map())
                for old in list(self._layers)[: 1 - _CACHED_LAYERS]:
                    del self._layers[old]
                self._layers[key] = made
            return self._layers[key]

    def replica_files(self) -> list[Path]:
        """Maps of resampled users, as far as they are trained; none that is being written."""
        return sorted((self.work / "replicas").glob("[!.]*.nc"))

    def replicas(self) -> list[RadioMap]:
        """The maps of resampled users."""
        return [RadioMap.load(path) for path in self.replica_files()]


class Library:
    """Runs by id. Nobody can name a path: an id is found here or refused.

    ``places`` are folders of runs, or folders that hold such. Runs are started in ``new_runs``,
    None where none may be; ``work`` is for files that belong to no run's folder. With ``study``,
    what is not for publication of runs with a guarantee is shown as well.
    """

    def __init__(
        self,
        places: Sequence[Path],
        new_runs: Path | None,
        work: Path,
        buildings: Path | None = None,
        *,
        study: bool = False,
    ) -> None:
        self.new_runs = new_runs
        self.work = work
        self._places = [*places, *([new_runs] if new_runs else [])]
        self._buildings = buildings
        self._study = study
        self._ids: dict[Path, str] = {}
        self._open: dict[str, tuple[int, ServedRun]] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[str]:
        """Ids of all runs that are there now, in the order of their folders."""
        return [self.id_of(path) for path in self._found()]

    def id_of(self, path: Path) -> str:
        """A run's id: its folder's name, in characters that an address can hold."""
        path = path.resolve()
        with self._lock:
            if path not in self._ids:
                plain = _plain(path.name)[:_LONGEST].strip(".-") or "run"
                self._ids[path] = _unlike(plain, self._ids.values())
            return self._ids[path]

    def path_of(self, run: str) -> Path:
        """The folder behind an id, whether or not it is there yet."""
        path = self._known(run)
        if path is None:
            self.runs()  # folders that have just appeared get their ids
            path = self._known(run)
        if path is None:
            raise NoSuchRunError(f"there is no run {run!r} here")
        return path

    def _known(self, run: str) -> Path | None:
        with self._lock:
            return next((path for path, name in self._ids.items() if name == run), None)

    def open(self, run: str) -> ServedRun:
        """A run, ready to be asked."""
        path = self.path_of(run)
        try:
            written = (path / "config.json").stat().st_mtime_ns
        except OSError:
            line = f"the folder of run {run} is gone, or has no first round yet"
            raise NoSuchRunError(line) from None
        with self._lock:
            before, opened = self._open.pop(run, (0, None))
            if opened is None or before != written:  # another run may have taken its place
                opened = ServedRun(path, self.work / run, self._buildings, study=self._study)
            self._open[run] = written, opened  # the newest at the end
            for old in list(self._open)[:-_CACHED_RUNS]:
                del self._open[old]
        return opened

    def free_folder(self, name: str) -> Path:
        """A new folder's path for a run to be started."""
        if self.new_runs is None:
            raise ConfigurationError("this page may not start runs")
        return self.new_runs.resolve() / _unlike(_plain(name), self._taken())

    def _taken(self) -> list[str]:
        assert self.new_runs is not None
        there = [path.name for path in self.new_runs.iterdir()] if self.new_runs.is_dir() else []
        with self._lock:
            names = [*there, *(path.name for path in self._ids)]
        return [*names, *(name.removesuffix(SUFFIX) for name in names)]  # a study keeps its name

    def _found(self) -> list[Path]:
        """Folders of runs, each once."""
        paths = (path for place in self._places for path in (place, *_children(place)))
        runs = (path.resolve() for path in paths if (path / "config.json").is_file())
        return list(dict.fromkeys(runs))


def _children(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:
        return []


def _plain(name: str) -> str:
    """The name in characters that an address and a folder can hold."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _unlike(name: str, others: Iterable[str]) -> str:
    """The name, numbered where another has it."""
    taken = set(others)
    numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(one for one in numbered if one not in taken)
