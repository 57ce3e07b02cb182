"""What a run and a survey have in common for whoever looks at them: a folder with a radio map."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from veilmap.errors import RunFolderError
from veilmap.federation.history import HistoryRow
from veilmap.federation.study import STUDY
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Promise
from veilmap.scenes.scene import Scene

Kind = Literal["run", "survey"]

_WITHHELD = (
    "of a {} with a guarantee only what was published is shown; a study (`--study`) shows the"
    " rest, which is not for publication"
)


class OpenResult(ABC):
    """A folder as data, read once and again when its files change.

    Any thread may ask, also while the folder is being written. A ``study`` includes what the
    guarantee does not cover; without a guarantee everything is included.
    """

    kind: ClassVar[Kind]

    def __init__(self, path: Path, *, study: bool = False) -> None:
        self.path = path
        self._wants_study = study
        self._lock = threading.RLock()
        self._cache: dict[str, tuple[object, Any]] = {}

    # ---- what each kind knows in its own way

    @property
    @abstractmethod
    def label(self) -> str:
        """What made the map, in a few words."""

    @property
    @abstractmethod
    def promised(self) -> bool:
        """Whether there is a guarantee."""

    @property
    @abstractmethod
    def promise(self) -> Promise:
        """What is promised to those who measured, or why nothing is."""

    @property
    @abstractmethod
    def users(self) -> int | None:
        """How many measured; None where nobody here knows."""

    @property
    @abstractmethod
    def version(self) -> tuple[str, int]:
        """The newest file of the map, and when it was written."""

    @abstractmethod
    def radio_map(self) -> RadioMap:
        """The map as far as it is known."""

    @property
    @abstractmethod
    def stations(self) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """Places (B, 3) and ids of the public base stations."""

    @property
    def station_errors(self) -> dict[str, float]:
        """Errors in metres of base stations whose positions are estimates, by id."""
        return {}

    @property
    @abstractmethod
    def unpublished(self) -> Path:
        """The folder for what is known beyond the result's own publishing."""

    @property
    @abstractmethod
    def _unfinished(self) -> str:
        """What to do where the map is not finished."""

    # ---- rounds and the truth, which only runs have

    @property
    def rounds(self) -> int:
        """Rounds asked for."""
        return 0

    def history(self) -> list[HistoryRow]:
        """All rounds so far."""
        return []

    @property
    def scene(self) -> Scene | None:
        """The synthetic city, where the map is of one."""
        return None

    # ---- the same for all

    @property
    def finished(self) -> bool:
        """Whether the map is there."""
        return (self.path / "radio_map.nc").is_file()

    def finished_map(self) -> RadioMap:
        """The learned map; an error where it is not finished."""
        _ = self.promised  # a folder that is damaged is an error of its own
        if not self.finished:
            raise RunFolderError(self._unfinished)
        return self.radio_map()

    @property
    def withheld(self) -> str:
        """Why what is not covered by the guarantee is not shown; empty where it may be."""
        return _WITHHELD.format(self.kind) if self.promised and not self._wants_study else ""

    @property
    def study(self) -> str:
        """The words that mark what is shown beyond what was published; else empty."""
        return STUDY if self.promised and self._wants_study else ""

    def _cached(self, name: str, version: object, make: Callable[[], Any]) -> Any:
        """What was made under a name, made anew when its version has changed."""
        with self._lock:
            if name not in self._cache or self._cache[name][0] != version:
                self._cache[name] = version, make()
            return self._cache[name][1]
