"""What attacks on gradients of any model share: what they see, and how they answer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.base import Estimates, Placed, Posterior
from veilmap.federation.messages import ClientId
from veilmap.geometry.grid import Grid

LEAST_LEFT = 1e-12  # of an upload: what no template is taken to explain
_STARTS = 3  # candidates that are refined
_EXACT, _SAME = 1e-4, 1e-3  # metres, and a difference of log-likelihoods that is none


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
    evidence: Floats, grid: Grid, likelihoods: Sequence[Callable[[Floats], float]]
) -> tuple[Floats, Floats]:
    """Places (n, 2) between the candidates, and the evidence (n, K) with what was found there.

    ``likelihoods`` are those of each vector, on the scale of ``evidence``, as functions of (x, y).
    """
    found = [_refined(own, grid, each) for own, each in zip(evidence, likelihoods, strict=True)]
    places, sharper = zip(*found, strict=True)
    return np.array(places), np.array(sharper)


def _refined(
    evidence: Floats, grid: Grid, likelihood: Callable[[Floats], float]
) -> tuple[Floats, Floats]:
    """Of one vector: climb from the best candidates, then take the mean over all beliefs.

    That guess has the least squared error: as good as exact where the gradient tells, and the
    middle of the area where it does not.
    """
    from scipy.optimize import minimize

    west, east, south, north = grid.extent
    best, highest = grid.centres[evidence.argmax()], -math.inf
    for cell in np.argsort(-evidence, kind="stable")[:_STARTS]:
        start = grid.centres[cell]
        steps = start + 0.3 * grid.cell_size * np.array([[0, 0], [1, 0], [0, 1]])
        found = minimize(
            lambda xy: -likelihood(xy), start, method="Nelder-Mead",
            bounds=[(west, east), (south, north)],
            options={"initial_simplex": steps, "xatol": _EXACT, "fatol": _SAME, "maxfev": 200},
        )  # fmt: skip
        if -found.fun > highest:
            best, highest = found.x, -float(found.fun)
    cell = int(grid.cell_of(best))
    centres, sharper = grid.centres.copy(), evidence.copy()
    centres[cell], sharper[cell] = best, max(evidence[cell], highest)
    chances = np.exp(sharper - sharper.max())
    return chances @ centres / chances.sum(), sharper
