"""Where a run's measurements come from: files, or a synthetic city."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from veilmap import ingest
from veilmap._util import checks, limits
from veilmap._util.plain import from_plain, plain, to_plain
from veilmap.data.folders import MeasurementFolder
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, RunFolderError, VeilmapError
from veilmap.federation.config import RunConfig
from veilmap.federation.public import Stations, read_station_errors, read_stations
from veilmap.geometry.grid import Grid
from veilmap.scenes.scene import Scene

_LINKS_EACH = 200  # of the users of a synthetic city
_PATHS = ("data", "test", "buildings", "stations")


@plain
@dataclass(frozen=True)
class Source:
    """What to train and test on: files of measurements, or a folder of them, or a synthetic city.

    ``users`` measure in the ``city`` of that seed, which has an area and base stations of its
    own. Otherwise ``area`` is (west, south, east, north) of the map in metres, None for the ground
    that the files cover, and ``stations`` a file of public base stations, None for those that
    were measured. The map started from the public heights in ``buildings``.
    """

    data: Path | None
    test: Path | None
    city: int
    users: int
    cell_size: float
    buildings: Path | None = None
    area: tuple[float, float, float, float] | None = None
    stations: Path | None = None

    def __post_init__(self) -> None:
        for name in _PATHS:
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value))
        for name in ("city", "users"):
            most = limits.SYNTHETIC_USERS if name == "users" else math.inf
            value = checks.whole(name, getattr(self, name), least=0, most=most)
            object.__setattr__(self, name, value)
        checks.number("cell_size", self.cell_size, above=0)
        if self.area is not None:
            checks.points("area", self.area, columns=4)
        if self.data is None and (self.area or self.stations):
            raise ConfigurationError("a synthetic city has an area and base stations of its own")

    @property
    def synthetic_links(self) -> int:
        """How many links would be measured in a synthetic city; 0 where there is a file."""
        return 0 if self.data else self.users * _LINKS_EACH

    @property
    def scene(self) -> Scene | None:
        """The synthetic city, or None where measurements come from a file."""
        return None if self.data else Scene.synthetic(self.city, cell_size=self.cell_size)

    def load(
        self,
        on_part: Callable[[int, int], None] | None = None,
        told: ingest.loading.Told | None = None,
    ) -> tuple[Measurements | MeasurementFolder, Measurements | None, Grid]:
        """The users' links, links to test on, and the grid.

        ``on_part`` follows the first reading of a folder; ``told`` is called with the account of a
        raw file.
        """
        unseen = ingest.load(self.test) if self.test else None
        if self.data is not None:
            links = ingest.load_crowd(self.data, on_part=on_part, told=told)
            ground = links.corners if self.area is None else (self.area[:2], self.area[2:])
            return links, unseen, Grid.covering(ground, self.cell_size, crs=links.crs)
        scene = self.scene
        assert scene is not None  # there is no file
        if unseen is None:
            unseen = scene.measure(users=200, seed=2 * self.city + 1)
        crowd = scene.measure(users=self.users, links_per_user=_LINKS_EACH, seed=2 * self.city)
        return crowd, unseen, scene.grid

    def public_stations(self) -> Stations | None:
        """Base stations that are public facts; None where only measurements tell of them."""
        if self.stations is not None:
            return read_stations(self.stations)
        scene = self.scene
        if scene is None:
            return None
        return scene.base_stations, tuple(range(len(scene.base_stations)))

    def station_errors(self) -> dict[str, float]:
        """Errors of public base stations whose positions are estimates, by id."""
        return {} if self.stations is None else read_station_errors(self.stations)

    def described(self) -> dict[str, Any]:
        """What a run's configuration says of it; paths are absolute."""
        paths = {name: getattr(self, name) for name in _PATHS}
        absolute = {name: path and path.absolute() for name, path in paths.items()}
        return cast("dict[str, Any]", to_plain(replace(self, **absolute)))

    @classmethod
    def of(cls, config: RunConfig) -> "Source":
        """What the configuration of a run says, or that of its study."""
        if config.source is None:
            raise ConfigurationError(
                "the run does not say where its measurements are; name them with data", "data"
            )
        try:
            return from_plain(config.source, cls)
        except VeilmapError as error:
            raise RunFolderError(
                f"where the run's measurements are is unreadable ({error}); name them with data"
            ) from error
