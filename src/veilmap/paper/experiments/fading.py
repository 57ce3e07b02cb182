"""E{G²} along rays from users, for maps that meet the attenuation theorem's condition or not."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilmap.federation.steps import StepRule
from veilmap.model.radio_map import Propagation, RadioMap
from veilmap.paper import theory
from veilmap.paper.experiments.tasks import Outcome, Task
from veilmap.paper.experiments.trials import DEFAULT, FLOOR_0, Snapshot, city

_NOISE_DB = 3.0
_REACH = 150.0  # metres of a ray that are shown
_LEAST = 1e-9  # a step between cells of less than this share of the largest energy says nothing
_LOW, _ABOVE = 4.0, 6.0  # metres: all of a low city lies below a flat map of 6 m
_APART = 4.0  # metres between the believed and the true map

# Case → whether the theorem's condition holds, and whether the map is level besides.
CASES = {
    "flat map above a low city": "met, map level",
    "city + 4 m": "met",
    "city − 4 m": "met",
    "flat start, 4 m": "not met, map level",
    "learned, default": "not met",
    "learned, floor 0": "not met",
}
LEARNED: dict[str, StepRule] = {"learned, default": DEFAULT, "learned, floor 0": FLOOR_0}


@dataclass(frozen=True)
class Fading(Task):
    """E{G²} along eight rays from each of some users.

    Its outcome: ``share`` (bins,), the mean energy by distance over the user's largest;
    ``rises`` and ``steps``, how often a cell holds more than its nearer neighbour, of how many.
    """

    seed: int
    case: str
    users: int
    rounds: int
    trained_users: int

    def run(self) -> Outcome:
        """Walk the rays of every user."""
        scene = city(self.seed, self.users).scene
        truth, believed = self._maps()
        bins = int(_REACH / scene.grid.cell_size)
        total, count, rises, steps = np.zeros(bins), np.zeros(bins), 0, 0
        for user, stations in self._links():
            gains = truth.predict(user, stations)
            energy = theory.expected_energy(believed, gains, user, stations, _NOISE_DB)
            largest = energy.max()
            if largest == 0:
                continue
            for ray in theory.rays(scene.grid, user[:2]):
                own = energy[ray]
                rises += int(theory.rises(own, _LEAST * largest).sum())
                steps += int((np.maximum(own[:-1], own[1:]) > _LEAST * largest).sum())
                away = np.linalg.norm(scene.grid.centres[ray] - user[:2], axis=1)
                place = (away / scene.grid.cell_size).round().astype(int)
                inside = place < bins
                np.add.at(total, place[inside], own[inside] / largest)
                np.add.at(count, place[inside], 1)
        share = total / np.maximum(count, 1)
        return {"share": share, "rises": np.array(rises), "steps": np.array(steps)}

    def _maps(self) -> tuple[RadioMap, RadioMap]:
        """The true map h* and the believed one h, both with the true θ unless learned."""
        scene = city(self.seed, self.users).scene
        grid, heights = scene.grid, scene.heights
        true = RadioMap(grid, heights, Propagation())
        if self.case in LEARNED:
            snapshot = Snapshot(
                self.seed, LEARNED[self.case], self.rounds // 2, self.rounds, self.trained_users
            )
            return true, snapshot.map(snapshot.run())
        if self.case == "flat map above a low city":
            low = replace(true, heights=np.minimum(heights, _LOW))
            return low, replace(true, heights=np.full(grid.shape, _ABOVE))
        believed = {
            "city + 4 m": heights + _APART,
            "city − 4 m": heights - _APART,
            "flat start, 4 m": np.full(grid.shape, 4.0),
        }[self.case]
        return true, replace(true, heights=believed)

    def _links(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Users, moved to the middle of their cell as the theorem has them, and their stations."""
        own = city(self.seed, self.users)
        grid, links = own.scene.grid, own.data.links
        found = []
        for i, xy in enumerate(links.mean_positions()):
            centre = grid.centres[grid.cell_of(xy)]
            height = links.user_xyz[links.offsets[i], 2]
            own_links = slice(links.offsets[i], links.offsets[i + 1])
            found.append((np.append(centre, height), links.bs_xyz[own_links]))
        return found

    @property
    def weight(self) -> float:
        """A training where the map is learned."""
        learned = 3e-4 * self.rounds * self.trained_users if self.case in LEARNED else 0
        return 1 + 0.1 * self.users + learned

    @property
    def label(self) -> str:
        """The case and the city."""
        return f"rays, {self.case}, city {self.seed}"
