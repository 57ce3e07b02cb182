"""What `veilmap export` is about: a map, and base stations by id or by place."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilmap.cli.options import numbers
from veilmap.errors import ConfigurationError, VeilmapError
from veilmap.layers.predictions import such_as
from veilmap.model.radio_map import RadioMap

if TYPE_CHECKING:
    from veilmap.runs.opened import OpenRun


@dataclass(frozen=True)
class ChosenStations:
    """Base stations, (B, 3) in the map's metres, with their ids.

    Those that are named by place have none, and perhaps azimuths and beam widths in degrees.
    """

    xyz: NDArray[np.float64]
    ids: tuple[str, ...] | None = None
    azimuths: Sequence[float] = ()
    beam_widths: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.xyz)

    @property
    def by_place(self) -> int:
        """How many the map does not know."""
        return len(self) if self.ids is None else 0

    @property
    def first(self) -> tuple[NDArray[np.float64], str | None]:
        """Where the first one is, and its id."""
        return self.xyz[0], None if self.ids is None else self.ids[0]

    def looking(
        self, azimuths: Sequence[float] | None, beam_widths: Sequence[float] | None
    ) -> "ChosenStations":
        """The same stations with antennas, one for each that is named by place, or none."""
        for flag, given in (("--azimuth", azimuths), ("--beam-width", beam_widths)):
            if len(given or ()) not in (0, self.by_place):
                raise ConfigurationError(
                    f"{flag} is given {len(given or ())} times for {self.by_place} base stations"
                    " named by place; give it once for each (nan where it is not known)"
                )
        if beam_widths and not azimuths:
            raise ConfigurationError("--beam-width needs --azimuth: where the beam looks")
        return replace(self, azimuths=azimuths or (), beam_widths=beam_widths or ())


@dataclass(frozen=True)
class NamedMap:
    """A map by its path, and its run where the path is a run's folder."""

    path: Path
    radio_map: RadioMap
    run: "OpenRun | None" = None

    @classmethod
    def opened(cls, path: Path, data: Path | None = None) -> "NamedMap":
        """The map of a file or of a finished run, on ``data`` if they are named."""
        from veilmap.runs.opened import OpenRun

        if not path.is_dir():
            return cls(path, RadioMap.load(path))
        run = OpenRun(path, data=data, study=True)
        return cls(path, run.finished_map(), run)

    @property
    def stations(self) -> ChosenStations:
        """The base stations of the run; none for a mere map."""
        return ChosenStations(*self.run.stations) if self.run else ChosenStations(np.empty((0, 3)))

    def named(
        self, ids: Sequence[str] | None, bs: Sequence[str] | None, bs_latlon: Sequence[str] | None
    ) -> ChosenStations:
        """The base stations that options name."""
        if not ids:
            return ChosenStations(_places(self.radio_map.grid.crs, bs or (), bs_latlon or ()))
        if bs or bs_latlon:
            raise ConfigurationError(
                "--station knows an offset and a pattern, --bs does not: name all base stations by"
                " id, or all by place"
            )
        if not self.run:
            raise ConfigurationError(
                f"{self.path} is a map, which does not say where its base stations are: name the"
                " run's folder instead, or the place with --bs x,y,z"
            )
        if not self.stations.ids:
            raise ConfigurationError(
                f"the run in {self.path} was not told where base stations are: name the place with"
                " --bs x,y,z"
            )
        return ChosenStations(self.stations.xyz[[self._row(one) for one in ids]], tuple(ids))

    def _row(self, wanted: str) -> int:
        """Which of the run's base stations has that id."""
        known = self.stations
        ids = known.ids or ()
        rows = [row for row, one in enumerate(ids) if one == wanted]
        if not rows:
            raise ConfigurationError(
                f"the run in {self.path} has no base station {wanted!r};"
                f" {such_as([*dict.fromkeys(ids)])}"
            )
        if len(rows) > 1:
            place = ",".join(f"{round(value, 2):.12g}" for value in known.xyz[rows[0]].tolist())
            raise ConfigurationError(
                f"base station {wanted!r} of {self.path} is at {len(rows)} places: name one with"
                f" --bs, such as {place}"
            )
        return rows[0]

    def only_one(self, layer: str, stations: ChosenStations) -> ChosenStations:
        """The one base station of ``layer``, or how to name it."""
        known = self.stations
        if len(stations) == 1:
            return stations
        if len(stations) == 0 and len(known) == 1:
            return known
        if len(stations) == 0 and layer == "los" and len(np.unique(known.xyz, axis=0)) == 1:
            return ChosenStations(known.xyz[:1])  # the place alone decides
        way, such = "--bs x,y,z", ""
        if known.ids:
            way, such = (
                f"--station ID or {way}",
                f"; the run has {len(known)}, such as {known.ids[0]}",
            )
        raise ConfigurationError(f"{layer} needs one base station: name it with {way}{such}")


def _places(crs: str | None, bs: Sequence[str], bs_latlon: Sequence[str]) -> NDArray[np.float64]:
    from veilmap.geometry.coordinates import from_latitude_longitude

    stations = [numbers("--bs", text, 3) for text in bs]
    for text in bs_latlon:
        latitude, longitude, z = numbers("--bs-latlon", text, 3)
        try:
            xy = from_latitude_longitude(crs, [latitude, longitude])
        except VeilmapError as error:
            raise ConfigurationError(f"--bs-latlon: {error}") from None
        stations.append([*xy.tolist(), z])
    return np.array(stations, dtype=np.float64).reshape(-1, 3)
