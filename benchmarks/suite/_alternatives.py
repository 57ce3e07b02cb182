"""What one would write without our kernels: the same results by NumPy and SciPy."""

import numpy as np
from numpy.typing import NDArray

from veilmap._util import threads
from veilmap.data.measurements import Measurements
from veilmap.geometry.grid import Grid, offsets_of
from veilmap.geometry.tracing import Crossings
from veilmap.model.gradients import LocalGradients, local_gradients
from veilmap.model.radio_map import RadioMap, log_distance
from veilmap.privacy.mechanisms import GeometryAligned
from veilmap.privacy.mechanisms.aligned import unit_free
from veilmap.privacy.mechanisms.base import norms_of
from veilmap.privacy.mechanisms.upload import LEAST_NORM


def sorted_crossings(
    grid: Grid, user_xyz: NDArray[np.float64], bs_xyz: NDArray[np.float64]
) -> Crossings:
    """The same as `trace` for links whose ends are on the grid and not on its lines.

    All crossings with grid lines are listed, and sorted link by link in one call.
    """
    upward = (user_xyz[:, 2] <= bs_xyz[:, 2])[:, None]
    low, high = np.where(upward, user_xyz, bs_xyz), np.where(upward, bs_xyz, user_xyz)
    x, y = ((low[:, :2] - grid.origin) / grid.cell_size).T.copy()
    step_x, step_y = ((high - low)[:, :2] / grid.cell_size).T.copy()
    links = np.arange(len(low))
    keys = np.concatenate([links, links + 1, _cuts(x, step_x), _cuts(y, step_y)])
    keys.sort()
    chord = np.diff(keys)
    inside = np.flatnonzero(chord > 1e-10)  # not where one link ends and the next begins
    chord = chord[inside]
    middle = keys[inside] + 0.5 * chord
    own = middle.astype(np.int64)
    along = middle - own
    column = (x[own] + along * step_x[own]).astype(np.int64)
    row = (y[own] + along * step_y[own]).astype(np.int64)
    length, rise = np.hypot(step_x, step_y) * grid.cell_size, high[:, 2] - low[:, 2]
    return Crossings(
        offsets_of(np.bincount(own, minlength=len(low))), row * grid.shape[1] + column,
        chord * length[own], low[:, 2][own] + along * rise[own],
    )  # fmt: skip


def _cuts(start: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of the link + t of every crossing with lines across one axis."""
    ends = np.sort(np.column_stack([start, start + step]), axis=1)
    first = np.ceil(ends[:, 0]).astype(np.int64)
    counts = np.ceil(ends[:, 1]).astype(np.int64) - first
    own = np.repeat(np.arange(len(start)), counts)
    line = first[own] + np.arange(len(own)) - offsets_of(counts)[own]
    return own + (line - start[own]) / step[own]


def traced_gradients(
    radio_map: RadioMap, data: Measurements, crossings: Crossings
) -> LocalGradients:
    """The same as `local_gradients`, whole arrays at a time, with the cells already known."""
    links, cells, k = data.links, radio_map.grid.cells, radio_map.sharpness
    e = np.exp(k * (radio_map.heights.ravel()[crossings.cells] - crossings.heights))
    s = np.exp(-np.add.reduceat(np.log1p(e), crossings.offsets[:-1]))
    log_d = log_distance(links.user_xyz, links.bs_xyz)
    theta = radio_map.propagation.as_array()
    clear, blocked = theta[0] + theta[1] * log_d, theta[2] + theta[3] * log_d
    residual = links.gain_db - (blocked + (clear - blocked) * s)
    user = np.repeat(np.arange(links.users), links.counts)
    slope = -2 * residual / links.counts[user]  # ∂F_i/∂γ
    walked = np.diff(crossings.offsets)
    entries = np.repeat(-slope * (clear - blocked) * s * k, walked) * (e / (1 + e))
    places = np.repeat(user * cells, walked) + crossings.cells
    by_heights = np.zeros((links.users, cells))
    by_heights.ravel()[:] = np.bincount(places, entries, by_heights.size)
    shares = slope * np.array([s, s * log_d, 1 - s, (1 - s) * log_d])
    by_theta = np.add.reduceat(shares, links.offsets[:-1], axis=1).T
    loss = np.add.reduceat(residual**2, links.offsets[:-1]) / links.counts
    return LocalGradients(loss, by_heights, by_theta, links.counts)


def bfgs_variances(
    mechanism: GeometryAligned,
    gradients: NDArray[np.float64],
    grid: Grid,
    user_xy: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The same as `variances`, user by user, with SciPy looking for the best plane."""
    x, y, places = unit_free(grid, user_xy)
    centres = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    kappa = mechanism.variance_weight(grid.cells)
    budget = mechanism.noise_budget
    result = np.empty_like(gradients)
    for row, place, own in zip(gradients, places, result, strict=True):
        energy = max(row @ row, (LEAST_NORM * mechanism.clip) ** 2)
        unit = (1 + budget) * energy / grid.cells  # the mean energy after noise
        own[:] = unit * _best_noise(row**2 / unit, centres, place, kappa, budget)
    return result


def _best_noise(
    q: NDArray[np.float64],
    centres: NDArray[np.float64],
    place: NDArray[np.float64],
    kappa: float,
    budget: float,
) -> NDArray[np.float64]:
    """σ² = max(0, a·c + b − q) that maximises |e|² − κ mean z² (docs/allocation.md)."""
    from scipy.optimize import minimize

    spent, counts = len(q) * budget / (1 + budget), np.arange(1, len(q) + 1)

    def noise(v: NDArray[np.float64]) -> NDArray[np.float64]:
        above = centres @ (v / kappa) - q
        b = np.min((spent - np.cumsum(-np.sort(-above))) / counts)
        return np.maximum(0, above + b)

    def climbed(v: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = q + noise(v)
        e = z @ centres / len(q) - place
        return float(v @ v + kappa * (z @ z) / len(q) - 2 * v @ e), 2 * (v - e)

    return noise(minimize(climbed, -place, jac=True, method="BFGS").x)


def normals(rows: NDArray[np.float64], generators: list[np.random.Generator]) -> None:
    """Normal numbers and nothing else, on as many threads as ours."""

    def part(start: int, stop: int) -> None:
        for i in range(start, stop):
            generators[i].standard_normal(out=rows[i])

    threads.run_parts(part, threads.even_parts(len(rows)))


def rounded_noise(
    deviation: float, rows: NDArray[np.int64], generators: list[np.random.Generator]
) -> None:
    """Add rounded normal numbers: quick to write, and nothing is proven of them."""

    def part(start: int, stop: int) -> None:
        for i in range(start, stop):
            numbers = generators[i].standard_normal(rows.shape[1])
            rows[i] += np.rint(deviation * numbers).astype(np.int64)

    threads.run_parts(part, threads.even_parts(len(rows)))


def dense_sum(radio_map: RadioMap, data: Measurements) -> NDArray[np.float64]:
    """The same with everybody's gradient in memory, and one product."""
    made = local_gradients(radio_map, data)
    return (made.counts / np.maximum(1, norms_of(made.height_gradient))) @ made.height_gradient


def centroids(uploads: NDArray[np.float32], grid: Grid) -> NDArray[np.float64]:
    """The same for uploads that are not all zeros."""
    energy = uploads.astype(np.float64) ** 2
    return energy @ grid.centres / energy.sum(axis=1)[:, None]
