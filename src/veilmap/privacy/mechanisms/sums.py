"""Sums that grow user by user: nobody's upload needs a place in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import rows
from veilmap._util.arrays import Array, Bools, Floats, Ints

# Parts of a sum that threads add to side by side: the k-th user is added to lane k mod LANES,
# one after the other. So a sum of floats has the same bits however many threads there are,
# however many users come at once, and whether they come with or without uploads of their own.
LANES = 4


@dataclass(frozen=True)
class Summand:
    """What becomes of a user's gradient of h before it is added."""

    clip: float  # bound of its norm
    scale: float = 0.0  # steps of the lattice per unit; 0 for real numbers, which count J_i times
    limit: float = 0.0  # bound of the squared norm on the lattice
    budget: float = 0.0  # of noise on the gradient itself: its energy over the gradient's
    kappa: float = 0.0  # κ, the shape of that noise; 0 for the same in every cell


@dataclass(frozen=True)
class Group:
    """Which sums some users are added to."""

    tiles: Ints  # the tile of each, (N,); 0 where there is only one
    cohorts: Ints  # how many users of each tile were asked, (T,)


@dataclass(frozen=True)
class Rest:
    """What is left of some users once their gradients of h were added up."""

    norms: Floats  # ‖∂F_i/∂h‖ before clipping, (N,)
    theta_gradient: Floats  # ∂F_i/∂θ, (N, P)
    counts: Ints  # J_i, (N,)
    laws: int = 2  # how many pairs (intercept, slope) θ begins with


@dataclass(frozen=True)
class Coins:
    """What users toss once a round, for all that they send in it."""

    seeds: NDArray[np.uint64]  # of their roundings, (N,), or of their noise, (N, 3)
    takes_part: Bools  # whose gradients are in what they send, of h and θ alike, (N,)


@dataclass
class RunningSum:
    """The sums of a round while users are added to them: one sum, or one for each tile."""

    lanes: Array  # for each tile gradients of h, then of θ, one tile after the other, (LANES, S)
    cells: Ints  # how many numbers of each tile are gradients of h, (T,)
    parameters: int  # P: how many are of θ
    weights: Ints  # J_i of all users, or how many there are, (T,)
    users: int = 0  # how many have been added

    @classmethod
    def empty(cls, cells: Sequence[int], parameters: int, *, whole: bool) -> "RunningSum":
        """Nobody yet; ``whole`` numbers or real ones."""
        counts = np.array(cells, dtype=np.int64)
        size = int(counts.sum()) + parameters * len(counts)
        kind = np.int64 if whole else np.float64
        return cls(np.zeros((LANES, size), kind), counts, parameters, np.zeros_like(counts))

    @cached_property
    def starts(self) -> Ints:
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

    def add_theta(self, values: Ints, tiles: Ints) -> None:
        """Add users' gradients of θ as whole numbers, (N, P), to their tiles' sums."""
        for tile in np.unique(tiles):
            self.of_tile(0, tile)[self.cells[tile] :] += values[tiles == tile].sum(axis=0)

    def total(self, tile: int = 0) -> tuple[Floats, Floats]:
        """Of h and of θ."""
        first, after = self.starts[tile : tile + 2]
        summed = self.lanes[:, first:after].sum(axis=0).astype(np.float64)
        return summed[: self.cells[tile]], summed[self.cells[tile] :]
