"""The literature's attack on federated signal maps, so that results compare."""

from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks.any_model.base import GradientAttack, SeenGradients, answered
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.base import Estimates

_STEP = 1e-5  # of the area and of the targets' range: for slopes of the cosine


@dataclass(frozen=True)
class DeepLeakage(GradientAttack):
    """Descend from random places to one record whose gradient points as the upload does.

    Bakopoulou, Yang, Zhang, Psounis and Markopoulou, "Location leakage in federated signal maps"
    (arXiv 2112.03452): the server knows the network and its parameters, and moves one dummy
    location and target until the cosine distance of gradients is least. For a batch of several
    records what it finds is near their average location. Of several starts the closest match
    counts. There are no beliefs beyond that place.
    """

    starts: int = 4
    seed: int = 0  # of the starts

    name = "deep leakage"

    def __post_init__(self) -> None:
        checks.whole("starts", self.starts, least=1)

    def locate(self, seen: SeenGradients, places: Places) -> Estimates:
        """The places of least cosine distance."""
        rng = np.random.default_rng(self.seed)
        # One corner is (0, 0, −1) and the opposite one (1, 1, 1): x, y, and shifts of the target.
        starts = rng.uniform([0, 0, -1], [1, 1, 1], (self.starts, 3))
        xy = np.array([_found(upload, starts, places) for upload in seen.uploads])
        return answered(self, seen, xy)


def _found(upload: Floats, starts: Floats, places: Places) -> Floats:
    """The best end of all descents, (2,)."""
    from scipy.optimize import minimize

    west, east, south, north = places.grid.extent
    corner, size = np.array([west, south]), np.array([east - west, north - south])
    length = max(float(np.linalg.norm(upload)), 1e-300)

    def apart(dummy: Floats) -> float:
        made = places.gradient(corner + dummy[:2] * size, dummy[2])
        return 1 - float(made @ upload) / (max(float(np.linalg.norm(made)), 1e-300) * length)

    ends = [
        minimize(
            apart, start, method="L-BFGS-B", bounds=[(0, 1), (0, 1), (-1, 1)],
            options={"eps": _STEP, "maxiter": 40, "maxfun": 200},
        )
        for start in starts
    ]  # fmt: skip
    best = min(ends, key=lambda end: float(end.fun))
    return corner + best.x[:2] * size
