"""Sums that grow user by user: nobody's upload needs a place in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

# Parts of a sum that threads add to side by side. Always as many, so that a sum of floats does
# not depend on how many threads there are.
LANES = 4


@dataclass(frozen=True)
class Summand:
    """What becomes of a user's gradient of h before it is added.

    Attributes
    ----------
    clip : float
        Bound of its norm.
    scale : float
        Steps of the lattice per unit; 0 for real numbers, which count J_i times.
    limit : float
        Bound of the squared norm on the lattice.
    """

    clip: float
    scale: float = 0.0
    limit: float = 0.0


@dataclass(frozen=True)
class Group:
    """Which sums some users are added to.

    Attributes
    ----------
    tiles : (N,) int
        The tile of each; 0 where there is only one.
    cohorts : (T,) int
        How many users of each tile were asked.
    """

    tiles: NDArray[np.int64]
    cohorts: NDArray[np.int64]


@dataclass(frozen=True)
class Coins:
    """What users toss once a round, for all that they send in it.

    Attributes
    ----------
    seeds : (N,) uint64
        Of their roundings.
    takes_part : (N,) bool
        Whose gradients are in what they send, of h and θ alike.
    """

    seeds: NDArray[np.uint64]
    takes_part: NDArray[np.bool_]

    @classmethod
    def untossed(cls, users: int) -> "Coins":
        """Nothing is rounded, and all take part."""
        return cls(np.zeros(users, dtype=np.uint64), np.ones(users, dtype=np.bool_))


@dataclass
class RunningSum:
    """The sums of a round while users are added to them: one sum, or one for each tile.

    Attributes
    ----------
    lanes : (LANES, S)
        For each tile gradients of h, then of θ, one tile after the other.
    cells : (T,) int
        How many numbers of each tile are gradients of h.
    parameters : int
        P: how many are of θ.
    weights : (T,) int
        J_i of all users, or how many there are.
    """

    lanes: NDArray
    cells: NDArray[np.int64]
    parameters: int
    weights: NDArray[np.int64]

    @classmethod
    def empty(cls, cells: Sequence[int], parameters: int, *, whole: bool) -> "RunningSum":
        """Nobody yet; ``whole`` numbers or real ones."""
        counts = np.array(cells, dtype=np.int64)
        size = int(counts.sum()) + parameters * len(counts)
        kind = np.int64 if whole else np.float64
        return cls(np.zeros((LANES, size), kind), counts, parameters, np.zeros_like(counts))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each tile begins, and where the last one ends, (T + 1,)."""
        return np.append(0, np.cumsum(self.cells + self.parameters))

    def of_tile(self, lane: int, tile: int) -> NDArray:
        """A tile's numbers in one lane."""
        return self.lanes[lane, self.starts[tile] : self.starts[tile + 1]]

    def add_theta(self, values: NDArray, tiles: NDArray[np.int64]) -> None:
        """Add users' gradients of θ, (N, P), to their tiles' sums."""
        for tile in np.unique(tiles):
            self.of_tile(0, tile)[self.cells[tile] :] += values[tiles == tile].sum(axis=0)

    def total(self, tile: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of h and of θ."""
        first, after = self.starts[tile : tile + 2]
        summed = self.lanes[:, first:after].sum(axis=0).astype(np.float64)
        return summed[: self.cells[tile]], summed[self.cells[tile] :]


def lanes_of(users: int) -> list[tuple[int, int, int]]:
    """Each lane with the first of its users and the one after the last."""
    bounds = np.linspace(0, users, LANES + 1).astype(np.int64).tolist()
    return [(lane, *bounds[lane : lane + 2]) for lane in range(LANES)]
