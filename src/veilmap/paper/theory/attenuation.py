"""How a user's gradient fades with distance: the paper's attenuation theorem."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._util import checks
from veilmap.data.links import Links
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid, paired
from veilmap.model.gradients import gradients_of
from veilmap.model.radio_map import RadioMap

# One step of a ray in rows and columns: the eight directions of a compass.
_COMPASS = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if row or column]


def expected_energy(
    radio_map: RadioMap,
    true_gain_db: ArrayLike,
    user_xyz: ArrayLike,
    bs_xyz: ArrayLike,
    noise_db: float,
) -> NDArray[np.float64]:
    """E{G_m²} of one user over the measurement noise, exactly: (M,), in (dB²/m)².

    A gradient is linear in the residuals r = y − γ: with s_jm = ∂γ_j/∂h_m,
    G_m = −(2/J) Σ_j r_j s_jm, so that E{G_m²} = (4/J²) [(Σ_j E{r_j} s_jm)² + σ² Σ_j s_jm²].

    Parameters
    ----------
    radio_map : RadioMap
        The map as it is believed, h and θ.
    true_gain_db : (J,)
        What the links show without noise, γ(p; h*).
    user_xyz, bs_xyz : (J, 3)
        One end may be a single point.
    noise_db : float
        σ of the measurements.
    """
    user, bs = paired(user_xyz, bs_xyz)
    truth = checks.floats("true_gain_db", true_gain_db)
    if truth.shape != (len(user),):
        raise ConfigurationError(
            f"{len(user)} links need as many gains, not shape {truth.shape}", "true_gain_db"
        )
    predicted = radio_map.predict(user, bs)
    # Each link as a user of its own whose residual is 1 dB: its gradient is −2 s_j.
    alone = Links(np.arange(len(user) + 1), user, bs, predicted + 1.0)
    slopes = -0.5 * gradients_of(radio_map, alone).heights
    noise = checks.number("noise_db", noise_db, least=0)
    systematic = (truth - predicted) @ slopes
    return 4 / len(user) ** 2 * (systematic**2 + noise**2 * np.sum(slopes**2, axis=0))


def rays(grid: Grid, xy: ArrayLike) -> list[NDArray[np.int64]]:
    """Cells c_m = c_0 + mδ from the cell of a point to the edge, in eight directions."""
    start = int(grid.cell_of(xy))
    if start < 0:
        raise ConfigurationError(f"the point {xy!r} is not on the grid", "xy")
    rows, columns = grid.shape
    row, column = divmod(start, columns)
    found = []
    for down, right in _COMPASS:
        reach = min(_steps(row, down, rows), _steps(column, right, columns))
        steps = np.arange(reach + 1)
        found.append((row + down * steps) * columns + column + right * steps)
    return found


def rises(energy: ArrayLike, least: float = 0.0) -> NDArray[np.bool_]:
    """Where E{G²} along a ray is larger than one cell nearer, against the theorem.

    (n − 1,); steps between cells that both hold less than ``least`` do not count.
    """
    values = checks.floats("energy", energy)
    nearer, farther = values[:-1], values[1:]
    return (farther > nearer * (1 + 1e-9)) & (np.maximum(nearer, farther) > least)


def _steps(position: int, direction: int, size: int) -> int:
    """Steps of ``direction`` from ``position`` until the last of ``size`` places."""
    if direction == 0:
        return size - 1
    return size - 1 - position if direction > 0 else position
