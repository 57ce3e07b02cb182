"""What attacks on gradients of any model share: what they see, and how they answer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.base import Estimates, Placed, Posterior
from veilmap.federation.messages import ClientId
from veilmap.geometry.grid import Grid

LEAST_LEFT = 1e-12  # of an upload: what no template is taken to explain
_STARTS = 2  # candidates that are refined
_STEPS, _SHORTER = 60, 0.6
# Four ways to step on the ground, in turns: along the axes, then between them.
_WAYS = np.array(
    [[(1, 0), (-1, 0), (0, 1), (0, -1)], [(0.7, 0.7), (-0.7, 0.7), (0.7, -0.7), (-0.7, -0.7)]]
)


@dataclass(frozen=True, eq=False)
class SeenGradients:
    """What a server saw in one round: n vectors, each of one user or the mean of several.

    ``parameters`` (M,) is what was sent to the users, ``clip`` the bound of a single user's
    gradient if there is one, and ``sums`` whether the vectors are of several users.
    """

    parameters: Floats = field(repr=False)
    clients: tuple[tuple[ClientId, ...], ...]  # who is in each vector
    uploads: Floats = field(repr=False)  # (n, M)
    clip: float = math.inf
    sums: bool = False


class GradientAttack(ABC):
    """A way to find users from gradients of any model and public facts."""

    name: str  # for tables

    @abstractmethod
    def locate(self, seen: SeenGradients, places: Places) -> Estimates:
        """Where everybody is, under "all"; users of one sum are at the same place."""

    def applies(self, places: Places) -> bool:
        """Whether the model has what this attack works on."""
        return True


def answered(
    attack: GradientAttack,
    seen: SeenGradients,
    xy: Floats,
    evidence: Floats | None = None,
    grid: Grid | None = None,
) -> Estimates:
    """Places (n, 2) of the vectors, and evidence (n, K) if there is some, for all their users."""
    counts = [len(clients) for clients in seen.clients]
    clients = tuple(client for clients in seen.clients for client in clients)
    placed = Placed(clients, np.repeat(xy, counts, axis=0))
    if evidence is None or grid is None:
        return Estimates(attack.name, {"all": placed})
    beliefs = np.repeat(evidence.astype(np.float32), counts, axis=0)
    return Estimates(attack.name, {"all": placed}, {"all": Posterior(grid, clients, beliefs)})


def evidence_of(left: Floats, numbers: int) -> Floats:
    """Log-likelihood of places whose templates leave such a share of an upload's energy.

    For white noise of unknown variance, which is then estimated from what is left:
    −(numbers / 2) log(left).
    """
    return -0.5 * numbers * np.log(np.maximum(left, LEAST_LEFT))


def refined(
    evidence: Floats,
    grid: Grid,
    likelihood: Callable[[Floats], Floats],
    start: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Places (n, 2) between the candidates, and the evidence (n, K) with what was found there.

    ``likelihood`` is on the scale of ``evidence``: of every vector at some places of its own, from
    (n, o, 2) to (n, o). From the best candidates, and from a ``start`` (n, 2) that an attack has
    beside them, it is climbed in ever shorter steps. The place is then the mean over all beliefs,
    with the least squared error: as good as exact where the gradient tells, and the middle of the
    area where it does not.
    """
    rows = np.arange(len(evidence))
    tops = np.argsort(-evidence, axis=1, kind="stable")[:, :_STARTS]
    starts = [grid.centres[cells] for cells in tops.T] + ([] if start is None else [start])
    climbs = [_climbed(own, grid, likelihood) for own in starts]
    heights = np.array([height for _, height in climbs])
    best = np.array([xy for xy, _ in climbs])[heights.argmax(axis=0), rows]
    cells = grid.cell_of(best)
    sharper = evidence.copy()
    sharper[rows, cells] = np.maximum(evidence[rows, cells], heights.max(axis=0))
    chances = np.exp(sharper - sharper.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    moved = chances[rows, cells, None] * (best - grid.centres[cells])
    return chances @ grid.centres + moved, sharper


def _climbed(
    start: Floats, grid: Grid, likelihood: Callable[[Floats], Floats]
) -> tuple[Floats, Floats]:
    """Places (n, 2) that no step leads up from, and how high they are (n,)."""
    west, east, south, north = grid.extent
    best, height = start, likelihood(start[:, None])[:, 0]
    reach = np.full((len(start), 1), 0.5 * grid.cell_size)
    for number in range(_STEPS):
        options = best[:, None] + reach[:, None] * _WAYS[number % 2]
        options = np.clip(options, [west, south], [east, north])
        found = likelihood(options)
        chosen = found.argmax(axis=1)
        higher = found.max(axis=1) > height
        best = np.where(higher[:, None], options[np.arange(len(best)), chosen], best)
        height = np.maximum(height, found.max(axis=1))
        reach = np.where(higher[:, None], reach, _SHORTER * reach)
    return best, height
