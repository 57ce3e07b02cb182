"""Several places of every user, and what attacks that look for them share."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Floats
from veilmap.attacks.base import Attack, Estimates, Placed
from veilmap.attacks.candidates import Candidates
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import Transcript
from veilmap.geometry.grid import Grid

PLACES = 5  # that attacks look for, per user
APART = 25.0  # metres: nearer places count as one
# Places of users who move are hundreds of metres apart, and every round has to be searched.
MOST_CANDIDATES = 2500


@dataclass(frozen=True)
class FoundPlaces:
    """Where an attack believes users to be at times: S places of each, the foremost first."""

    clients: tuple[ClientId, ...]
    xy: Floats = field(repr=False)  # (n, S, 2), in metres

    @property
    def home(self) -> Floats:
        """Where most of their data are from, (n, 2)."""
        return self.xy[:, 0]

    @property
    def work(self) -> Floats:
        """Where most of the rest are from, (n, 2)."""
        return self.xy[:, 1]


class PlacesAttack(Attack):
    """An attack that finds several places of every user; the first of them is home."""

    @abstractmethod
    def places(self, transcript: Transcript) -> FoundPlaces:
        """The places of everybody in the kept rounds."""

    def locate(self, transcript: Transcript) -> Estimates:
        """Everybody's home."""
        found = self.places(transcript)
        return Estimates(self.name, {"all": Placed(found.clients, found.home)})


def candidates_of(transcript: Transcript, altitude: float) -> Candidates:
    """Candidate places as far apart as attacks on users who move need them."""
    return Candidates.of(transcript, altitude, MOST_CANDIDATES)


def around(grid: Grid, xy: Floats) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """For each of some places its number and which of the grid's cells it stands for."""
    for number, place in enumerate(xy):
        yield number, np.linalg.norm(grid.centres - place, axis=1) < APART


def peaks_of(density: Floats, grid: Grid, places: int) -> Floats:
    """The heaviest places of densities (n, K) over a grid, (n, S, 2), the heaviest first.

    A place is the centre of mass of what lies around the highest point of the smoothed density;
    it is taken away before the next one is looked for.
    """
    from scipy.ndimage import gaussian_filter

    left = density.astype(np.float64) + 1e-300  # where nothing is left, a place is its middle
    found = np.empty((len(left), places, 2))
    width = APART / 3 / grid.cell_size
    for rank in range(places):
        smooth = gaussian_filter(left.reshape(-1, *grid.shape), (0, width, width))
        highest = smooth.reshape(len(left), -1).argmax(axis=1)
        for user, near in around(grid, grid.centres[highest]):
            found[user, rank] = left[user, near] @ grid.centres[near] / left[user, near].sum()
            left[user, near] = 1e-300
    return found
