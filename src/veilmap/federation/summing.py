"""Users of one process added up where they are: time and memory grow with the cells they cross."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import few_cells
from veilmap._kernels.arguments import Axes, NoisePerUser, NoiseShape, PerUser, Rounding
from veilmap._util.threads import run_all
from veilmap.data.links import Links
from veilmap.errors import ConfigurationError
from veilmap.geometry.tiling import Tiles
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism
from veilmap.privacy.mechanisms.aligned import unit_free
from veilmap.privacy.mechanisms.sums import LANES, Coins, Group, RunningSum
from veilmap.privacy.mechanisms.upload import LEAST_NORM


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


def can_add_up(mechanism: Mechanism, radio_map: RadioMap, seed: int | None = None) -> bool:
    """Whether users need no uploads of their own: two laws, nothing learned beside them.

    Noise on gradients themselves is added so only with a seed: the system's bits come in bulk.
    """
    plain = not (radio_map.propagation.between or len(radio_map.offsets) or radio_map.field)
    return plain and (seed is not None or not mechanism.perturbs_uploads)


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
    windows = np.column_stack([tiles.windows[group.tiles], total.starts[group.tiles]])
    hows = [mechanism.summand(int(cells), len(theta)) for cells in tiles.cells]
    how = hows[0]
    out = PerUser(losses=loss, by_theta=by_theta, lengths=norms)
    given: dict[str, Any] = {
        "step": LANES, "links": links.kernel_links(), "model": radio_map.kernel_model,
        "windows": windows, "out": out,
    }  # fmt: skip
    kernel: Callable[..., None] = few_cells.add_clipped
    if how.scale:
        limits = np.array([how.limit for how in hows])[group.tiles]
        kernel = few_cells.add_on_lattice
        rounding = Rounding(clip=how.clip, scale=how.scale, limits=limits, seeds=coins.seeds)
        given |= {"rounding": rounding, "takes_part": coins.takes_part}
    elif how.budget:
        x, y, places = unit_free(radio_map.grid, links.mean_positions())
        kernel = few_cells.add_noisy
        shape = NoiseShape(budget=how.budget, kappa=how.kappa, axes=Axes(x=x, y=y))
        noise = NoisePerUser(positions=places, seeds=coins.seeds)
        given |= {"shape": shape, "noise": noise, "least": LEAST_NORM * how.clip, "clip": how.clip}
    else:
        given["clip"] = how.clip

    def part(lane: int, first: int) -> None:
        kernel(first=first, total=total.lanes[lane], **given)

    run_all([partial(part, *lane) for lane in total.firsts()])
    if not np.isfinite(norms).all():
        raise ConfigurationError("a gradient has an entry that is not finite")
    return Added(loss, norms, by_theta)
