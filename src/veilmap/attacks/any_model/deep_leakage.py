"""The literature's attack on federated signal maps, so that results compare."""

from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks.any_model.base import GradientAttack, SeenGradients, answered
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.base import Estimates

# A dummy record: x and y as shares of the area's sides, and shifts of the target.
_LOW, _HIGH = np.array([0.0, 0.0, -1.0]), np.array([1.0, 1.0, 1.0])
_NEAR = 1e-4  # for slopes of the cosine
_FIRST, _SHRINK = 0.1, 0.93  # length of the first step, and how fast it shrinks


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
    steps: int = 100
    seed: int = 0  # of the starts

    name = "deep leakage"

    def __post_init__(self) -> None:
        for name in ("starts", "steps"):
            checks.whole(name, getattr(self, name), least=1)

    def locate(self, seen: SeenGradients, places: Places) -> Estimates:
        """The places of least cosine distance."""
        rng = np.random.default_rng(self.seed)
        west, east, south, north = places.grid.extent
        starts = rng.uniform(_LOW, _HIGH, (self.starts, 3))
        ends = [self._descended(seen.uploads, start, places) for start in starts]
        chosen = np.argmin([apart for _, apart in ends], axis=0)
        dummy = np.array([end for end, _ in ends])[chosen, np.arange(len(chosen))]
        xy = [west, south] + dummy[:, :2] * [east - west, north - south]
        return answered(self, seen, xy)

    def _descended(self, uploads: Floats, start: Floats, places: Places) -> tuple[Floats, Floats]:
        """Where descents of all uploads from one start end (n, 3), and the distances there (n,).

        By Adam (Kingma and Ba, ICLR 2015), with steps that shrink.
        """
        dummy = np.tile(start, (len(uploads), 1))
        mean, square = np.zeros_like(dummy), np.zeros_like(dummy)
        for number in range(1, self.steps + 1):
            slope = _slopes(uploads, dummy, places)
            mean += 0.1 * (slope - mean)
            square += 0.01 * (slope**2 - square)
            step = mean / (1 - 0.9**number) / (np.sqrt(square / (1 - 0.99**number)) + 1e-12)
            dummy = np.clip(dummy - _FIRST * _SHRINK**number * step, _LOW, _HIGH)
        return dummy, _apart(uploads, dummy, places)


def _slopes(uploads: Floats, dummy: Floats, places: Places) -> Floats:
    """∂(cosine distance)/∂(x, y, target) by finite differences, (n, 3)."""
    moved = dummy[:, None] + _NEAR * np.vstack([np.zeros(3), np.eye(3)])
    apart = _apart(np.repeat(uploads, 4, axis=0), moved.reshape(-1, 3), places).reshape(-1, 4)
    return (apart[:, 1:] - apart[:, :1]) / _NEAR


def _apart(uploads: Floats, dummy: Floats, places: Places) -> Floats:
    """1 − the cosine of uploads with what users at the dummy places would send, (n,)."""
    west, east, south, north = places.grid.extent
    xy = [west, south] + dummy[:, :2] * [east - west, north - south]
    made = places.gradients(xy, dummy[:, 2])
    lengths = np.linalg.norm(made, axis=1) * np.linalg.norm(uploads, axis=1)
    return 1 - np.einsum("nm,nm->n", made, uploads) / np.maximum(lengths, 1e-300)
