"""The client: one user's data in, one update out. Measurements never leave this module."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.data.links import Links
from veilmap.federation import summing
from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.geometry.tiling import Tiles
from veilmap.model.gradients import gradients_of
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import Answer, Contribution, Mechanism
from veilmap.privacy.mechanisms.sums import Group, Rest, RunningSum


@dataclass(frozen=True)
class Insight:
    """What the users behind some updates know and the server does not: for studies only.

    Attributes
    ----------
    loss, norm, noise_energy : (N,) float
        F_i in dB², ‖g‖ before clipping, Σσ².
    """

    loss: NDArray[np.float64]
    norm: NDArray[np.float64]
    noise_energy: NDArray[np.float64]


@dataclass(frozen=True)
class Clients:
    """Some users with their own links, who answer broadcasts.

    A device holds one user. A study in one process holds many and works through them
    together; what each sends is the same either way, to the last bit.

    Attributes
    ----------
    ids : user ids, in the order of ``links``
    links : Links
    mechanism : Mechanism
    seed : int or None
        Of the noise; None takes it from the operating system.
    """

    ids: Sequence[ClientId]
    links: Links
    mechanism: Mechanism
    seed: int | None = None

    def answer(self, broadcast: Broadcast) -> tuple[list[Update], Insight]:
        """Gradients on the users' own data, protected, ready to be sent."""
        gradients = gradients_of(broadcast.radio_map, self.links)
        raw = Contribution(
            gradients.height_gradient, gradients.theta_gradient, gradients.counts,
            self.links.mean_positions(), broadcast.radio_map.propagation.laws,
        )  # fmt: skip
        updates, sent = self._protected(raw, broadcast)
        return updates, Insight(gradients.loss, sent.norms, sent.noise_energy)

    def noise_alone(self, broadcast: Broadcast) -> list[Update]:
        """What the same users send if they have nothing to say: no data are looked at."""
        radio_map, users = broadcast.radio_map, len(self.ids)
        raw = Contribution(
            np.zeros((users, radio_map.trained_cells)), np.zeros((users, len(radio_map.theta))),
            np.ones(users, dtype=np.int64), np.zeros((users, 2)), radio_map.propagation.laws,
        )  # fmt: skip
        return self._protected(raw, broadcast)[0]

    def _protected(self, raw: Contribution, broadcast: Broadcast) -> tuple[list[Update], Answer]:
        """The users' updates, and all that the mechanism made of what they contribute."""
        draws = [noise.draw(self.seed, client, broadcast.round) for client in self.ids]
        sent = self.mechanism.answer(raw, broadcast.radio_map.trained_grid, draws, broadcast.cohort)
        updates = [
            Update(client, broadcast.round, int(weight), upload, by_theta)
            for client, weight, upload, by_theta in zip(
                self.ids, sent.weights, sent.uploads, sent.theta_gradient, strict=True
            )
        ]
        return updates, sent

    def add_up(
        self, broadcast: Broadcast, tiles: Tiles, cohorts: NDArray[np.int64], total: RunningSum
    ) -> Insight:
        """The same answers, added to their tiles' sums as they are made.

        No upload takes up memory. Only for maps and mechanisms of which `summing.can_add_up`
        says so; ``cohorts`` are the users who were asked, tile by tile.
        """
        draws = [noise.draw(self.seed, client, broadcast.round) for client in self.ids]
        places = self.links.mean_positions()
        group = Group(tiles.of(places), cohorts)
        coins = self.mechanism.coins(draws)
        added = summing.add_gradients(
            broadcast.radio_map, self.links, self.mechanism, coins, tiles, group, total
        )
        rest = Rest(
            added.norms, added.propagation, self.links.counts,
            broadcast.radio_map.propagation.laws,
        )  # fmt: skip
        energy = self.mechanism.add_rest(rest, draws, coins, group, total)
        total.users += len(self.ids)
        return Insight(added.loss, added.norms, energy)
