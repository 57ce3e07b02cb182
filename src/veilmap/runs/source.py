"""Where a run's measurements come from: files, or a synthetic city."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from veilmap._util import files
from veilmap.data.folders import MeasurementFolder, open_crowd
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, RunFolderError
from veilmap.federation.public import Stations, read_stations
from veilmap.federation.study import unpublished
from veilmap.geometry.grid import Grid
from veilmap.scenes.scene import Scene

_FILE = "source.json"
_PATHS = ("data", "test", "buildings", "stations")


@dataclass(frozen=True)
class Source:
    """What to train and test on.

    Attributes
    ----------
    data, test : Path or None
        Files of measurements, or for ``data`` a folder of them; without ``data``, a synthetic city.
    city, users : int
        The city's seed and how many measure there.
    cell_size : float
        Side of the map's cells, in metres.
    buildings : Path or None
        File of public heights that the map started from.
    area : (west, south, east, north) or None
        Of the map, in metres; None for the ground that files of measurements cover.
    stations : Path or None
        File of public base stations; None for those that were measured. A synthetic city has its
        own of both.
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
        if self.data is None and (self.area or self.stations):
            raise ConfigurationError("a synthetic city has an area and base stations of its own")

    @property
    def scene(self) -> Scene | None:
        """The synthetic city, or None where measurements come from a file."""
        return None if self.data else Scene.synthetic(self.city, cell_size=self.cell_size)

    def load(
        self, on_part: Callable[[int, int], None] | None = None
    ) -> tuple[Measurements | MeasurementFolder, Measurements | None, Grid]:
        """The users' links, links to test on, and the grid.

        ``on_part`` follows the first reading of a folder.
        """
        unseen = Measurements.load(self.test) if self.test else None
        if self.data is not None:
            links = open_crowd(self.data, on_part=on_part)
            ground = links.corners if self.area is None else (self.area[:2], self.area[2:])
            return links, unseen, Grid.covering(ground, self.cell_size, crs=links.crs)
        scene = self.scene
        assert scene is not None  # there is no file
        if unseen is None:
            unseen = scene.measure(users=200, seed=2 * self.city + 1)
        return scene.measure(users=self.users, seed=2 * self.city), unseen, scene.grid

    def public_stations(self) -> Stations | None:
        """Base stations that are public facts; None where only measurements tell of them."""
        if self.stations is not None:
            return read_stations(self.stations)
        scene = self.scene
        if scene is None:
            return None
        return scene.base_stations, tuple(range(len(scene.base_stations)))

    def save(self, run: Path) -> None:
        """Note beside a run where its measurements are; in its folder, if it has no study."""
        paths = {name: getattr(self, name) for name in _PATHS}
        absolute = {name: path and str(path.absolute()) for name, path in paths.items()}
        files.write_json(asdict(self) | absolute, unpublished(run) / _FILE)

    @classmethod
    def of_run(cls, run: Path) -> "Source":
        """What a run's folder, or its study, says."""
        path = unpublished(run) / _FILE
        if not path.exists():
            raise ConfigurationError(
                f"{run} does not say where its measurements are; name them with data", "data"
            )
        try:
            content = json.loads(path.read_text())
            paths = {name: Path(content[name]) if content.get(name) else None for name in _PATHS}
            return cls(
                paths["data"], paths["test"], int(content["city"]), int(content["users"]),
                float(content["cell_size"]), paths["buildings"],
                _area(content.get("area")), paths["stations"],
            )  # fmt: skip
        except (json.JSONDecodeError, KeyError, TypeError, ValueError):
            raise RunFolderError(f"{path} is damaged; name the measurements with data") from None


def _area(corners: list[float] | None) -> tuple[float, float, float, float] | None:
    if corners is None:
        return None
    west, south, east, north = map(float, corners)
    return west, south, east, north
