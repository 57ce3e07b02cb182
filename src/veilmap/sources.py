"""Where a run's measurements come from: files, or a synthetic city."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from veilmap import _files
from veilmap.errors import VeilmapError
from veilmap.federation.folder import RunFolder
from veilmap.federation.training import fingerprint
from veilmap.geometry import Grid
from veilmap.measurements import Measurements
from veilmap.scene import Scene

_FILE = "source.json"
_PATHS = ("data", "test", "buildings")


@dataclass(frozen=True)
class Source:
    """What to train and test on.

    Attributes
    ----------
    data, test : Path or None
        Files of measurements; without ``data``, a synthetic city.
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

    def load(self) -> tuple[Measurements, Measurements | None, Grid]:
        """The users' links, links to test on, and the grid."""
        unseen = Measurements.load(self.test) if self.test else None
        if self.data is not None:
            links = Measurements.load(self.data)
            ends = np.vstack([links.user_xyz[:, :2], links.bs_xyz[:, :2]])
            return links, unseen, Grid.covering(ends, self.cell_size, crs=links.crs)
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


def measurements_behind(
    run: Path, data: Path | None, test: Path | None = None
) -> tuple[Measurements, Measurements | None]:
    """The measurements behind a run, and test data where there are any."""
    if data is not None:
        truth, unseen = Measurements.load(data), Measurements.load(test) if test else None
    else:
        truth, unseen, _ = Source.of_run(run, test).load()
    if fingerprint(truth) != RunFolder(run).config()["data"]:
        raise VeilmapError(f"{run} was trained on other measurements; name them with --data")
    return truth, unseen
