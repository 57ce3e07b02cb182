"""Where a run's measurements come from: files, or a synthetic city."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from veilmap._util import files
from veilmap.data.folders import MeasurementFolder, open_crowd
from veilmap.data.measurements import Measurements
from veilmap.errors import RunFolderError
from veilmap.federation.public import Stations, read_stations
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.study import StudyFolder, is_promised, unpublished
from veilmap.federation.training import fingerprint
from veilmap.geometry.grid import Grid
from veilmap.scenes.scene import Scene

_FILE = "source.json"
_MOST_LINKS = 5_000_000
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
            raise RunFolderError("a synthetic city has an area and base stations of its own")

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
    def of_run(cls, run: Path, test: Path | None = None) -> "Source":
        """What a run's folder, or its study, says; ``test`` overrides its test data."""
        path = unpublished(run) / _FILE
        if not path.exists():
            raise RunFolderError(
                f"{run} does not say where its measurements are; name them with --data"
            )
        try:
            content = json.loads(path.read_text())
            paths = {name: Path(content[name]) if content.get(name) else None for name in _PATHS}
            return cls(
                paths["data"], test or paths["test"], int(content["city"]), int(content["users"]),
                float(content["cell_size"]), paths["buildings"],
                _area(content.get("area")), paths["stations"],
            )  # fmt: skip
        except (json.JSONDecodeError, KeyError, TypeError, ValueError):
            raise RunFolderError(f"{path} is damaged; name the measurements with --data") from None


def _area(corners: list[float] | None) -> tuple[float, float, float, float] | None:
    if corners is None:
        return None
    west, south, east, north = map(float, corners)
    return west, south, east, north


def crowd_behind(
    run: Path, data: Path | None, test: Path | None = None
) -> tuple[Measurements | MeasurementFolder, Measurements | None]:
    """The crowd behind a run, and test data where there are any."""
    truth: Measurements | MeasurementFolder
    if data is not None:
        truth, unseen = open_crowd(data), Measurements.load(test) if test else None
    else:
        truth, unseen, _ = Source.of_run(run, test).load()
    if not _may_be_behind(run, truth):
        raise RunFolderError(f"{run} was trained on other measurements; name them with --data")
    return truth, unseen


def is_data_known(run: Path) -> bool:
    """Whether anything tells a run's measurements from others of the same users.

    A run with a guarantee does not say it; its study does.
    """
    return not is_promised(RunFolder(run).config()) or StudyFolder(run).data() is not None


def _may_be_behind(run: Path, truth: Measurements | MeasurementFolder) -> bool:
    """Whether a run was trained on these measurements, as far as it can be known."""
    folder = RunFolder(run)
    config = folder.config()
    if is_data_known(run):
        known = StudyFolder(run).data() if is_promised(config) else config["data"]
        return fingerprint(truth) == known
    took_part = {client for client, _ in folder.load_ledger()["spent"]}
    count = (config["data"] or {}).get("users", len(truth.users))
    return count == len(truth.users) and took_part <= {*truth.users.tolist()}


def measurements_behind(
    run: Path, data: Path | None, test: Path | None = None
) -> tuple[Measurements, Measurements | None]:
    """The same as one table, for what needs single users' links."""
    truth, unseen = crowd_behind(run, data, test)
    if isinstance(truth, Measurements):
        return truth, unseen
    if len(truth) > _MOST_LINKS:
        raise RunFolderError(
            f"{truth.path} holds {len(truth):,} links, more than the {_MOST_LINKS:,} that are read"
            " at once to show single users; `veilmap audit` reads them in parts"
        )
    return truth.load(), unseen
