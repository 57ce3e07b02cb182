"""Sums that grow user by user: nobody's upload needs a place in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import rows
from veilmap._util.arrays import Array

# Parts of a sum that threads add to side by side: the k-th user is added to lane k mod LANES,
# one after the other. So a sum of floats has the same bits however many threads there are,
# however many users come at once, and whether they come with or without uploads of their own.
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
    budget, kappa : float
        Of noise on the gradient itself: its energy over the gradient's, and what decides its
        shape, κ; 0 for the same noise in every cell.
    """

    clip: float
    scale: float = 0.0
    limit: float = 0.0
    budget: float = 0.0
    kappa: float = 0.0


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
class Rest:
    """What is left of some users once their gradients of h were added up.

    Attributes
    ----------
    norms : (N,) float
        ‖∂F_i/∂h‖ before clipping.
    theta_gradient : (N, P) float
        ∂F_i/∂θ.
    counts : (N,) int
        J_i.
    laws : int
        How many pairs (intercept, slope) θ begins with.
    """

    norms: NDArray[np.float64]
    theta_gradient: NDArray[np.float64]
    counts: NDArray[np.int64]
    laws: int = 2


@dataclass(frozen=True)
class Coins:
    """What users toss once a round, for all that they send in it.

    Attributes
    ----------
    seeds : (N,) uint64, or (N, 3)
        Of their roundings, or of their noise.
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
    users : int
        How many have been added.
    """

    lanes: Array
    cells: NDArray[np.int64]
    parameters: int
    weights: NDArray[np.int64]
    users: int = 0

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

    def of_tile(self, lane: int, tile: int) -> Array:
        """A tile's numbers in one lane."""
        return self.lanes[lane, self.starts[tile] : self.starts[tile + 1]]

    def firsts(self) -> list[tuple[int, int]]:
        """Each lane with the first of the users to come that it takes; then every LANES-th."""
        return [(lane, (lane - self.users) % LANES) for lane in range(LANES)]

    def add(self, heights: Array, propagation: Array, weight: int) -> None:
        """Add one user's upload to the sum of the first tile."""
        lane = self.of_tile(self.users % LANES, 0)
        rows.add_weighted(row=heights, weight=float(weight), total=lane)
        lane[self.cells[0] :] += weight * propagation
        self.weights[0] += weight
        self.users += 1

    def add_theta(self, values: NDArray[np.int64], tiles: NDArray[np.int64]) -> None:
        """Add users' gradients of θ as whole numbers, (N, P), to their tiles' sums."""
        for tile in np.unique(tiles):
            self.of_tile(0, tile)[self.cells[tile] :] += values[tiles == tile].sum(axis=0)

    def total(self, tile: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of h and of θ."""
        first, after = self.starts[tile : tile + 2]
        summed = self.lanes[:, first:after].sum(axis=0).astype(np.float64)
        return summed[: self.cells[tile]], summed[self.cells[tile] :]
