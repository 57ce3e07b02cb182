"""Users of one process added up where they are: time and memory grow with the cells they cross."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import few_cells
from veilmap._threads import run_all
from veilmap.errors import VeilmapError
from veilmap.links import Links
from veilmap.mechanisms import Mechanism
from veilmap.mechanisms.sums import Coins, Group, RunningSum, Summand, lanes_of
from veilmap.radiomap import RadioMap
from veilmap.tiling import Tiles


@dataclass(frozen=True)
class Added:
    """What is left to know of users whose gradients of h were added up.

    Attributes
    ----------
    loss, norms : (N,) float
        F_i, and ‖∂F_i/∂h‖ before clipping.
    propagation : (N, P) float
        ∂F_i/∂θ.
    """

    loss: NDArray[np.float64]
    norms: NDArray[np.float64]
    propagation: NDArray[np.float64]


def can_add_up(mechanism: Mechanism, radio_map: RadioMap) -> bool:
    """Whether users need no uploads of their own: two laws, nothing learned beside them."""
    plain = not (radio_map.propagation.between or len(radio_map.offsets) or radio_map.field)
    return plain and mechanism.summand(1, 4) is not None


def _summand(mechanism: Mechanism, cells: int, parameters: int) -> Summand:
    how = mechanism.summand(cells, parameters)
    assert how is not None  # can_add_up was asked before
    return how


def add_gradients(
    radio_map: RadioMap,
    links: Links,
    mechanism: Mechanism,
    coins: Coins,
    tiles: Tiles,
    group: Group,
    total: RunningSum,
) -> Added:
    """Add the users' gradients of h to their tiles' sums as the mechanism wants them."""
    links, theta = radio_map.without_patterns(links), radio_map.propagation.as_array()
    loss, norms = np.empty((2, links.users))
    by_theta = np.empty((links.users, len(theta)))
    ends = links.offsets, links.user_xyz, links.bs_xyz, links.gain_db
    windows = np.column_stack([tiles.windows[group.tiles], total.starts[group.tiles]])
    known = radio_map.grid.frame, radio_map.terrain, theta, windows
    hows = [_summand(mechanism, int(cells), len(theta)) for cells in tiles.cells]
    clip, scale = hows[0].clip, hows[0].scale
    limits = np.array([how.limit for how in hows])[group.tiles]

    def part(lane: int, start: int, stop: int) -> None:
        row = total.lanes[lane]
        if scale:
            few_cells.add_on_lattice(
                start, stop, *ends, *known, clip, scale, limits, coins.seeds,
                coins.takes_part, loss, by_theta, norms, row,
            )  # fmt: skip
        else:
            few_cells.add_clipped(start, stop, *ends, *known, clip, loss, by_theta, norms, row)

    run_all([partial(part, *lane) for lane in lanes_of(links.users)])
    if not np.isfinite(norms).all():
        raise VeilmapError("a gradient has an entry that is not finite")
    return Added(loss, norms, by_theta)
