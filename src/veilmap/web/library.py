"""Which runs and surveys there are: named folders, folders that hold some, and started runs."""

import re
import threading
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from veilmap.errors import ConfigurationError, RunFolderError
from veilmap.federation.config import RunConfig
from veilmap.federation.study import SUFFIX
from veilmap.runs.folders import results_in
from veilmap.surveys.folder import SurveyFolder
from veilmap.web.served import ServedRun, ServedSurvey

_CACHED_RUNS = 8  # whose maps are held in memory
_LONGEST = 100  # letters of an id


class NoSuchRunError(RunFolderError):
    """A run that is not there, or not any more."""


class Library:
    """Runs and surveys by id. Nobody can name a path: an id is found here or refused.

    ``places`` are their folders, or folders that hold such. Runs are started in ``new_runs``,
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
        self._open: dict[str, tuple[object, ServedRun | ServedSurvey]] = {}
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

    def open(self, run: str) -> ServedRun | ServedSurvey:
        """A run or a survey, ready to be asked."""
        path = self.path_of(run)
        found = _served_as(path)
        if found is None:
            line = f"the folder of run {run} is gone, or has no first round yet"
            raise NoSuchRunError(line)
        kind, _ = found
        with self._lock:
            before, opened = self._open.pop(run, (None, None))
            if opened is None or before != found:  # another run may have taken its place
                opened = kind(path, self.work / run, self._buildings, study=self._study)
            self._open[run] = found, opened  # the newest at the end
            for old in list(self._open)[:-_CACHED_RUNS]:
                del self._open[old]
        return opened

    def open_run(self, run: str) -> ServedRun:
        """A run; a survey is refused."""
        opened = self.open(run)
        if isinstance(opened, ServedRun):
            return opened
        raise RunFolderError(f"{run} is a survey: it has one sum, and no rounds")

    def open_survey(self, run: str) -> ServedSurvey:
        """A survey; a run is refused."""
        opened = self.open(run)
        if isinstance(opened, ServedSurvey):
            return opened
        raise RunFolderError(f"{run} is no survey")

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
        """Folders of runs and surveys, each once."""
        found = (path.resolve() for place in self._places for path in results_in(place))
        return list(dict.fromkeys(found))


def _served_as(path: Path) -> tuple[type[ServedRun | ServedSurvey], int] | None:
    """As what a folder is served, and when it was begun; None where nothing is there."""
    try:
        if RunConfig.exists(path):
            return ServedRun, (path / "config.json").stat().st_mtime_ns
        if SurveyFolder(path).exists:
            return ServedSurvey, (path / "ledger.json").stat().st_mtime_ns
        return None
    except OSError:
        return None


def _plain(name: str) -> str:
    """The name in characters that an address and a folder can hold."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _unlike(name: str, others: Iterable[str]) -> str:
    """The name, numbered where another has it."""
    taken = set(others)
    numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(one for one in numbered if one not in taken)
