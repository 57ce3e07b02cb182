"""Where a run's measurements come from: files, or a synthetic city."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from veilmap import _files
from veilmap.crowds import MeasurementFolder, open_crowd
from veilmap.errors import VeilmapError
from veilmap.federation.folder import RunFolder
from veilmap.federation.training import fingerprint
from veilmap.geometry import Grid
from veilmap.measurements import Measurements
from veilmap.scene import Scene

_FILE = "source.json"
_MOST_LINKS = 5_000_000
_PATHS = ("data", "test", "buildings")


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
    """

    data: Path | None
    test: Path | None
    city: int
    users: int
    cell_size: float
    buildings: Path | None = None

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
            return links, unseen, Grid.covering(links.corners, self.cell_size, crs=links.crs)
        scene = self.scene
        assert scene is not None  # there is no file
        if unseen is None:
            unseen = scene.measure(users=200, seed=2 * self.city + 1)
        return scene.measure(users=self.users, seed=2 * self.city), unseen, scene.grid

    def save(self, folder: Path) -> None:
        """Note in a run's folder where its measurements are."""
        paths = {name: getattr(self, name) for name in _PATHS}
        absolute = {name: path and str(path.absolute()) for name, path in paths.items()}
        _files.write_json(asdict(self) | absolute, folder / _FILE)

    @classmethod
    def of_run(cls, folder: Path, test: Path | None = None) -> "Source":
        """What a run's folder says; ``test`` overrides its test data."""
        path = folder / _FILE
        if not path.exists():
            raise VeilmapError(
                f"{folder} does not say where its measurements are; name them with --data"
            )
        try:
            content = json.loads(path.read_text())
            files = {name: Path(content[name]) if content.get(name) else None for name in _PATHS}
            return cls(
                files["data"], test or files["test"], int(content["city"]), int(content["users"]),
                float(content["cell_size"]), files["buildings"],
            )  # fmt: skip
        except (json.JSONDecodeError, KeyError, TypeError, ValueError):
            raise VeilmapError(f"{path} is damaged; name the measurements with --data") from None


def crowd_behind(
    run: Path, data: Path | None, test: Path | None = None
) -> tuple[Measurements | MeasurementFolder, Measurements | None]:
    """The crowd behind a run, and test data where there are any."""
    truth: Measurements | MeasurementFolder
    if data is not None:
        truth, unseen = open_crowd(data), Measurements.load(test) if test else None
    else:
        truth, unseen, _ = Source.of_run(run, test).load()
    if fingerprint(truth) != RunFolder(run).config()["data"]:
        raise VeilmapError(f"{run} was trained on other measurements; name them with --data")
    return truth, unseen


def measurements_behind(
    run: Path, data: Path | None, test: Path | None = None
) -> tuple[Measurements, Measurements | None]:
    """The same as one table, for what needs single users' links."""
    truth, unseen = crowd_behind(run, data, test)
    if isinstance(truth, Measurements):
        return truth, unseen
    if len(truth) > _MOST_LINKS:
        raise VeilmapError(
            f"{truth.path} holds {len(truth):,} links, more than the {_MOST_LINKS:,} that are read"
            " at once to show single users; `veilmap audit` reads them in parts"
        )
    return truth.load(), unseen
