"""The client: one user's data in, one update out. Measurements never leave this module."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from veilmap._kernels import few_cells
from veilmap._kernels.arguments import Axes, NoisePerUser, NoiseShape, PerUser, Rounding
from veilmap._kernels.filtering import taps
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.threads import run_all
from veilmap.data.links import Links
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.geometry.tiling import Tiles
from veilmap.model.filtering import filtered
from veilmap.model.gradients import gradients_of
from veilmap.model.radio_map import RadioMap
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import AggregateGaussian, Answer, Contribution, Mechanism
from veilmap.privacy.mechanisms.aligned import unit_free
from veilmap.privacy.mechanisms.sums import LANES, Coins, Group, Rest, RunningSum
from veilmap.privacy.mechanisms.upload import LEAST_NORM


@dataclass(frozen=True)
class Insight:
    """What the N users behind some updates know and the server does not: for studies only."""

    loss: Floats  # (N,): F_i in dB²
    norm: Floats  # (N,): ‖g‖ before clipping
    noise_energy: Floats  # (N,): Σσ²


@dataclass(frozen=True)
class Clients:
    """Some users with their own links, who answer broadcasts.

    A device holds one user. A study in one process holds many and works through them
    together; what each sends is the same either way, to the last bit.
    """

    ids: Sequence[ClientId]  # in the order of ``links``
    links: Links
    mechanism: Mechanism
    seed: int | None = None  # of the noise; None takes it from the operating system

    def answer(self, broadcast: Broadcast) -> tuple[list[Update], Insight]:
        """Gradients on the users' own data, protected, ready to be sent."""
        raw, loss = self._raw(broadcast)
        updates, sent = self._protected(raw, broadcast)
        return updates, Insight(loss, sent.norms, sent.noise_energy)

    def contributions(self, broadcast: Broadcast) -> Array:
        """What the same users add to a sum beside noise, (N, M + P): for studies only."""
        if not isinstance(self.mechanism, AggregateGaussian):
            raise ConfigurationError(f"{self.mechanism.name} has no sums with noise", "mechanism")
        return self.mechanism.contributions(self._raw(broadcast)[0], self._draws(broadcast))

    def _raw(self, broadcast: Broadcast) -> tuple[Contribution, Floats]:
        """The users' gradients before they are protected, and F_i, (N,)."""
        own = gradients_of(broadcast.radio_map, self.links)
        gradient, width = own.height_gradient, self._filter_width(broadcast)
        if width:
            gradient = filtered(gradient, broadcast.radio_map.grid.shape, width)
        places, laws = self.links.mean_positions(), broadcast.radio_map.propagation.laws
        return Contribution(gradient, own.theta_gradient, own.counts, places, laws), own.loss

    def noise_alone(self, broadcast: Broadcast) -> list[Update]:
        """What the same users send if they have nothing to say: no data are looked at."""
        radio_map, users = broadcast.radio_map, len(self.ids)
        sizes = (radio_map.trained_cells, len(radio_map.theta), 2)
        heights, theta, places = (np.zeros((users, size)) for size in sizes)
        counts, laws = np.ones(users, dtype=np.int64), radio_map.propagation.laws
        return self._protected(Contribution(heights, theta, counts, places, laws), broadcast)[0]

    def _protected(self, raw: Contribution, broadcast: Broadcast) -> tuple[list[Update], Answer]:
        """The users' updates, and all that the mechanism made of what they contribute."""
        draws, grid = self._draws(broadcast), broadcast.radio_map.trained_grid
        sent = self.mechanism.answer(raw, grid, draws, broadcast.cohort)
        updates = [
            Update(client, broadcast.round, int(weight), upload, by_theta)
            for client, weight, upload, by_theta in zip(
                self.ids, sent.weights, sent.uploads, sent.theta_gradient, strict=True
            )
        ]
        return updates, sent

    def add_up(
        self, broadcast: Broadcast, tiles: Tiles, cohorts: Ints, total: RunningSum
    ) -> Insight:
        """The same answers, added to their tiles' sums as they are made.

        No upload takes up memory. Only for maps and mechanisms of which `can_add_up`
        says so; ``cohorts`` are the users who were asked, tile by tile.
        """
        draws, radio_map = self._draws(broadcast), broadcast.radio_map
        group = Group(tiles.of(self.links.mean_positions()), cohorts)
        coins = self.mechanism.coins(draws)
        loss, norms, by_theta = self._add_gradients(broadcast, coins, tiles, group, total)
        rest = Rest(norms, by_theta, self.links.counts, radio_map.propagation.laws)
        energy = self.mechanism.add_rest(rest, draws, coins, group, total)
        total.users += len(self.ids)
        return Insight(loss, norms, energy)

    def _filter_width(self, broadcast: Broadcast) -> float:
        """How widely gradients are filtered, where the mechanism is made for it."""
        return broadcast.filter_width if self.mechanism.filters else 0.0

    def _draws(self, broadcast: Broadcast) -> list[noise.Draw]:
        """The source of each user's noise in this round."""
        return [noise.draw(self.seed, client, broadcast.round) for client in self.ids]

    def _add_gradients(
        self, broadcast: Broadcast, coins: Coins, tiles: Tiles, group: Group, total: RunningSum
    ) -> tuple[Floats, Floats, Floats]:
        """Add the users' gradients of h to their tiles' sums as the mechanism wants them.

        Returns F_i, ‖∂F_i/∂h‖ before clipping, both (N,), and ∂F_i/∂θ, (N, P).
        """
        radio_map = broadcast.radio_map
        links, theta = radio_map.without_patterns(self.links), radio_map.propagation.as_array()
        loss, norms = np.empty((2, links.users))
        by_theta = np.empty((links.users, len(theta)))
        windows = np.column_stack([tiles.windows[group.tiles], total.starts[group.tiles]])
        hows = [self.mechanism.summand(int(cells), len(theta)) for cells in tiles.cells]
        how = hows[0]
        out = PerUser(losses=loss, by_theta=by_theta, lengths=norms)
        given: dict[str, Any] = {"links": links.kernel_links(), "model": radio_map.kernel_model}
        given |= {"step": LANES, "windows": windows, "out": out}
        kernel: Callable[..., None] = few_cells.add_clipped
        if how.scale:
            limits = np.array([how.limit for how in hows])[group.tiles]
            kernel = few_cells.add_on_lattice
            rounding = Rounding(clip=how.clip, scale=how.scale, limits=limits, seeds=coins.seeds)
            given |= {"rounding": rounding, "takes_part": coins.takes_part}
            given["taps"] = taps(self._filter_width(broadcast))
        elif how.budget:
            x, y, places = unit_free(radio_map.grid, links.mean_positions())
            kernel = few_cells.add_noisy
            shape = NoiseShape(budget=how.budget, kappa=how.kappa, axes=Axes(x=x, y=y))
            own = NoisePerUser(positions=places, seeds=coins.seeds)
            given |= {"shape": shape, "noise": own, "clip": how.clip}
            given["least"] = LEAST_NORM * how.clip
        else:
            given["clip"] = how.clip

        def part(lane: int, first: int) -> None:
            kernel(first=first, total=total.lanes[lane], **given)

        run_all([partial(part, *lane) for lane in total.firsts()])
        if not np.isfinite(norms).all():
            raise ConfigurationError("a gradient has an entry that is not finite")
        return loss, norms, by_theta


def can_add_up(mechanism: Mechanism, radio_map: RadioMap, seed: int | None = None) -> bool:
    """Whether users need no uploads of their own: two laws, nothing learned beside them.

    Noise on gradients themselves is added so only with a seed: the system's bits come in bulk.
    """
    plain = not (radio_map.propagation.between or len(radio_map.offsets) or radio_map.field)
    in_bulk = mechanism.perturbs_uploads and seed is None
    return plain and mechanism.sums_in_place and not in_bulk
