"""Where an attacker believes each user to be: a probability for every cell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap.federation.messages import ClientId
from veilmap.geometry.grid import Grid


@dataclass(frozen=True)
class Posterior:
    """Beliefs about some users over a grid of places.

    Attributes
    ----------
    grid : Grid
        Of candidate places; it may be coarser than the map's.
    clients : tuple of ids
    evidence : (n, K) float32
        Log-probability of every place up to a constant per user.
    """

    grid: Grid
    clients: tuple[ClientId, ...]
    evidence: NDArray[np.float32] = field(repr=False)

    @cached_property
    def probability(self) -> NDArray[np.float32]:
        """(n, K), each row sums to 1."""
        weight = np.exp(self.evidence - self.evidence.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def map_of(self, client: ClientId) -> NDArray[np.float32]:
        """One user's probabilities as an image, (rows, columns)."""
        return self.probability[self.clients.index(client)].reshape(self.grid.shape)

    def modes(self) -> NDArray[np.float64]:
        """The most probable place of every user, (n, 2), in metres."""
        return self.grid.centres[self.evidence.argmax(axis=1)]

    def means(self) -> NDArray[np.float64]:
        """The mean place of every user, (n, 2): the guess with the least squared error."""
        return self.probability.astype(np.float64) @ self.grid.centres

    def entropy(self) -> NDArray[np.float64]:
        """What the attacker does not know of every user, (n,), in bits; log2 K at most."""
        p = self.probability.astype(np.float64)
        return -np.sum(p * np.log2(np.maximum(p, 1e-300)), axis=1)

    def credible_region(self, level: float = 0.95) -> NDArray[np.bool_]:
        """The fewest cells that hold every user with probability ``level``, (n, K)."""
        order = np.argsort(-self.probability, axis=1, kind="stable")
        held = np.cumsum(np.take_along_axis(self.probability, order, 1), axis=1, dtype=np.float64)
        needed = np.hstack([np.ones((len(held), 1), dtype=bool), held[:, :-1] < level])
        region = np.zeros(order.shape, dtype=bool)
        np.put_along_axis(region, order, needed, 1)
        return region

    def credible_area(self, level: float = 0.95) -> NDArray[np.float64]:
        """Area of that region, (n,), in m²."""
        return self.credible_region(level).sum(axis=1) * self.grid.cell_size**2

    def covers(
        self, true_xy: Mapping[ClientId, NDArray[np.float64]], level: float = 0.95
    ) -> NDArray[np.bool_]:
        """Whether the credible region holds the truth, (n,): ``level`` of all if calibrated."""
        places = np.array([true_xy[client] for client in self.clients])
        cells = self.grid.cell_of(places)
        return (cells >= 0) & self.credible_region(level)[np.arange(len(cells)), cells]


def added(posteriors: list[Posterior]) -> Posterior:
    """Evidence of several rounds added up; users who missed rounds have less of it."""
    grid = posteriors[0].grid
    clients = tuple(dict.fromkeys(client for each in posteriors for client in each.clients))
    index = {client: i for i, client in enumerate(clients)}
    total = np.zeros((len(clients), grid.cells), dtype=np.float32)
    for each in posteriors:
        total[[index[client] for client in each.clients]] += each.evidence
    return Posterior(grid, clients, total)
