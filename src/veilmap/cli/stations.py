"""What `veilmap export` is about: a map, and base stations by id or by place."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilmap.errors import ConfigurationError, VeilmapError
from veilmap.layers.predictions import such_as
from veilmap.model.radio_map import RadioMap

if TYPE_CHECKING:
    from veilmap.runs.opened import OpenRun


@dataclass(frozen=True)
class ChosenStations:
    """Base stations, (B, 3) in the map's metres, and their ids; named by place they have none."""

    xyz: NDArray[np.float64]
    ids: tuple[str, ...] | None = None

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

    def stations(self) -> ChosenStations:
        """The base stations of the run; none for a mere map."""
        return ChosenStations(*self.run.stations) if self.run else ChosenStations(np.empty((0, 3)))


def named(
    subject: NamedMap, ids: Sequence[str], bs: Sequence[str], bs_latlon: Sequence[str]
) -> ChosenStations:
    """The base stations that options name."""
    if ids and (bs or bs_latlon):
        raise ConfigurationError(
            "--station knows an offset and a pattern, --bs does not: name all base stations by id,"
            " or all by place"
        )
    if ids:
        return _by_id(subject, ids)
    return ChosenStations(_places(subject.radio_map.grid.crs, bs, bs_latlon))


def only_one(subject: NamedMap, layer: str, stations: ChosenStations) -> ChosenStations:
    """The one base station of ``layer``, or how to name it."""
    if len(stations) == 1:
        return stations
    known = subject.stations()
    if len(stations) == 0 and len(known) == 1:
        return known
    if len(stations) == 0 and layer == "los" and len(np.unique(known.xyz, axis=0)) == 1:
        return ChosenStations(known.xyz[:1])  # the place alone decides
    way, such = "--bs x,y,z", ""
    if known.ids:
        way, such = f"--station ID or {way}", f"; the run has {len(known)}, such as {known.ids[0]}"
    raise ConfigurationError(f"{layer} needs one base station: name it with {way}{such}")


def _by_id(subject: NamedMap, ids: Sequence[str]) -> ChosenStations:
    if not subject.run:
        raise ConfigurationError(
            f"{subject.path} is a map, which does not say where its base stations are: name the"
            " run's folder instead, or the place with --bs x,y,z"
        )
    known = subject.stations()
    if not known.ids:
        raise ConfigurationError(
            f"the run in {subject.path} was not told where base stations are: name the place with"
            " --bs x,y,z"
        )
    rows = []
    for wanted in ids:
        own = [row for row, one in enumerate(known.ids) if one == wanted]
        if not own:
            raise ConfigurationError(
                f"the run in {subject.path} has no base station {wanted!r};"
                f" {such_as([*dict.fromkeys(known.ids)])}"
            )
        if len(own) > 1:
            raise ConfigurationError(
                f"base station {wanted!r} of {subject.path} is at {len(own)} places: name one with"
                f" --bs, such as {_text(known.xyz[own[0]])}"
            )
        rows += own
    return ChosenStations(known.xyz[rows], tuple(ids))


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


def numbers(option: str, text: str, count: int | None = None) -> list[float]:
    """Numbers out of a text such as 1,2,3."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not np.isfinite(found).all() or count not in (None, len(found)):
        wanted = f"{count} numbers" if count else "numbers"
        raise ConfigurationError(f"{option} takes {wanted} with commas between, not {text!r}")
    return found


def _text(xyz: NDArray[np.float64]) -> str:
    return ",".join(f"{round(value, 2):.12g}" for value in xyz.tolist())
