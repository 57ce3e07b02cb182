"""One opened run or survey with what is made of it for the page."""

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from numpy.typing import ArrayLike

from veilmap import layers
from veilmap._util import reading
from veilmap._util.ids import Id
from veilmap._util.plain import DAMAGED
from veilmap.auditing.verdict import Verdict
from veilmap.errors import VeilmapError
from veilmap.geometry.grid import Grid
from veilmap.layers import Layer
from veilmap.model.radio_map import RadioMap
from veilmap.runs.opened import OpenRun
from veilmap.runs.result import OpenResult
from veilmap.runs.survey import OpenSurvey
from veilmap.scenes.buildings import Building, read_footprints
from veilmap.web import schema
from veilmap.web.schema import known

_CACHED_LAYERS = 16  # of each
_LEAST_REPLICAS = 2

NO_TRANSCRIPT = "this run has no transcript: train with --keep-uploads to see attacks"


class Served(OpenResult):
    """An opened run or survey with what is made of it for the page.

    Audits and replicas go to the folder ``work``; ``buildings`` are footprints to draw it on.
    """

    layers: ClassVar[tuple[schema.LayerName, ...]]
    placeable: ClassVar[tuple[schema.LayerName, ...]]  # also of a base station at a new place

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
        if self._footprints is None:
            return self._own_buildings()
        return self._read_footprints(self._footprints)

    def _own_buildings(self) -> tuple[Building, ...]:
        """Footprints that the folder tells of."""
        return ()

    def _read_footprints(self, file: Path) -> tuple[Building, ...]:
        crs = self.radio_map().grid.crs  # of outlines the height does not matter
        return read_footprints(file, crs, default_height=1.0).buildings

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

    @property
    def stuck(self) -> str | None:
        """Why there will be no map unless somebody does something; None where there may be."""
        return None

    @property
    @abstractmethod
    def why_no_uncertainty(self) -> str | None:
        """Why nobody can say how sure the map is; None where it can be said."""

    @abstractmethod
    def uncertainty(
        self, radio_map: RadioMap, place: ArrayLike, altitude: float, station: Id | None, grid: Grid
    ) -> Layer:
        """How sure the map is, where it can be said; parameters as of the layers."""

    @property
    @abstractmethod
    def why_no_audit(self) -> str | None:
        """Why the page cannot attack it; None where it can."""

    @abstractmethod
    def point(self, run: str) -> schema.AuditedRun | None:
        """What the newest audit says of it, by its id ``run``; None where there is none."""


class ServedRun(Served, OpenRun):
    """A served run."""

    layers = ("gain", "los", "best-server", "heights", "uncertainty")
    placeable = ("gain", "los", "uncertainty")

    def _own_buildings(self) -> tuple[Building, ...]:
        file = self.source.buildings if self.source else None
        if file is None:
            return tuple(self.scene.buildings) if self.scene else ()
        try:
            return self._read_footprints(file)
        except VeilmapError:
            return ()  # the file has moved, or was a surface without footprints

    @property
    def why_no_uncertainty(self) -> str | None:
        """Why there are no maps of resampled users, or too few."""
        if self.withheld:
            return self.withheld
        if self.data is None:
            return "the measurements are not on this host, and uncertainty is made from them"
        if not self.finished:
            return "the run is not finished"
        if len(self.replica_files()) < _LEAST_REPLICAS:
            return (
                "it takes maps of resampled users, trained as this one was: that uses their"
                " measurements anew, beyond what the run promised them"
            )
        return None

    def uncertainty(
        self, radio_map: RadioMap, place: ArrayLike, altitude: float, station: Id | None, grid: Grid
    ) -> Layer:
        """How far maps of resampled users disagree."""
        replicas = [RadioMap.load(path) for path in self.replica_files()]
        return layers.spread(replicas, place, altitude, station=station, grid=grid)

    @property
    def why_no_audit(self) -> str | None:
        """Why the run cannot be attacked; None where it can."""
        if not self.finished:
            return "the run is not finished"
        if not self.attackable_rounds():
            return NO_TRANSCRIPT
        if self.withheld:
            return self.withheld
        if self.data is None:
            return "the users' measurements, which say where they are, are not on this host"
        return None

    def point(self, run: str) -> schema.AuditedRun | None:
        """From an audit of the run as it is now, made for the page or beside the run."""
        if self.withheld:
            return None
        for folder in (self.work, self.unpublished):
            path = folder / "audit" / "audit.json"
            try:
                if path.stat().st_mtime_ns > self.version[1]:
                    content = reading.read_json(path, follow=False)
                    verdict, mae_db = Verdict.read(content["verdict"]), known(content["map_mae_db"])
                    return _point(run, self.label, mae_db, verdict, self.study)
            except DAMAGED:
                continue  # there is none, or somebody has changed it
        return None


class ServedSurvey(Served, OpenSurvey):
    """A served survey, whose map knows by itself how sure it is."""

    layers = ("gain", "best-server", "uncertainty")
    placeable = ("gain",)

    @property
    def stuck(self) -> str | None:
        """How to make the map of an opened sum."""
        return None if self.finished else self._unfinished

    @property
    def why_no_uncertainty(self) -> None:
        """The map always tells it."""

    def uncertainty(
        self, radio_map: RadioMap, place: ArrayLike, altitude: float, station: Id | None, grid: Grid
    ) -> Layer:
        """Standard deviation of a reading around the map."""
        return layers.deviation(radio_map, place, altitude, station=station, grid=grid)

    @property
    def why_no_audit(self) -> str:
        """Surveys do not say where measurements are, so that the page cannot attack them."""
        if self.audit is not None:
            return "a survey: what its audit found stands under what the server sees"
        return self.withheld or "a survey: `veilmap audit` attacks it, given its measurements"

    def point(self, run: str) -> schema.AuditedRun | None:
        """From the audit beside the survey; nobody tests its map."""
        found = self.audit
        if found is None or found.verdict is None:
            return None
        return _point(run, self.label, None, found.verdict, self.study)


def _point(
    run: str, label: str, mae_db: float | None, verdict: Verdict, study: str
) -> schema.AuditedRun:
    median = verdict.median
    return schema.AuditedRun(
        run, label, mae_db, verdict.attack, verdict.knows, median.value, median.low, median.high,
        verdict.near.value, verdict.guess_median.value, [*verdict.lines], study or None,
    )  # fmt: skip
