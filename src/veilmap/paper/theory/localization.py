"""What the centroid attacker finds under noise: its error, the spatial variance, their limit.

They take one user's clipped gradient ḡ, noise variances σ², the grid and the true position,
in metres and gradient units.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._util import checks
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid


@dataclass(frozen=True)
class Decomposition:
    """The bias–variance decomposition of the centroid attacker's error.

    Attributes
    ----------
    bias : (2,) float
        Δ_g: centroid of the gradient's energy minus the true position, in metres.
    noise : (2,) float
        Δ_n: the same for the noise.
    limit : float
        ‖Δ_g + μ Δ_n‖² / (1 + μ)² in m²: the squared error as the grid grows finer.
    """

    bias: NDArray[np.float64]
    noise: NDArray[np.float64]
    limit: float


def localization_limit(
    gradient: ArrayLike, variances: ArrayLike, grid: Grid, user_xy: ArrayLike
) -> Decomposition:
    """What the squared error of the centroid attacker (ν = 2) tends to on fine grids."""
    energy, noise, position = _energies(gradient, variances, grid, user_xy)
    bias = _centroid(energy, grid) - position
    if noise.sum() == 0:
        return Decomposition(bias, np.zeros(2), float(bias @ bias))
    drift = _centroid(noise, grid) - position
    budget = noise.sum() / energy.sum()  # μ, as it was really spent
    error = (bias + budget * drift) / (1 + budget)
    return Decomposition(bias, drift, float(error @ error))


def attacker_error(
    gradient: ArrayLike, variances: ArrayLike, grid: Grid, user_xy: ArrayLike
) -> float:
    """P: expected squared error of the centroid attacker (ν = 2), in m².

    The limit plus its second-order correction for finitely many cells: with weights
    X_m = G̃_m², means w, variances s = 2(w² − ḡ⁴) and e the limit's error,
    E‖ΣXc/ΣX − p‖² ≈ ‖e‖² + W⁻² Σ s_m (‖d_m − e‖² − 2 e·(d_m − e)), d = c − p.
    """
    energy, noise, position = _energies(gradient, variances, grid, user_xy)
    mean = energy + noise
    total = mean.sum()
    away = grid.centres - position
    error = mean @ away / total
    spread = 2 * (mean**2 - energy**2)
    apart = away - error
    correction = spread @ (np.sum(apart**2, axis=1) - 2 * apart @ error) / total**2
    return float(error @ error + correction)


def spatial_variance(gradient: ArrayLike, variances: ArrayLike) -> float:
    """V: expected sample variance of the upload's energy G̃² over the map, exactly.

    E G̃⁴ = 3w² − 2ḡ⁴ with w = ḡ² + σ². Uniform noise has V > 0 as well: its square
    still scatters, by 2σ⁴ a cell.
    """
    energy = checks.floats("gradient", gradient) ** 2
    mean = energy + checks.floats("variances", variances)
    cells = len(mean)
    fourth = 3 * mean**2 - 2 * energy**2
    of_mean = np.sum(2 * (mean**2 - energy**2)) / cells**2  # Var of the sample mean
    return float(fourth.mean() - of_mean - mean.mean() ** 2)


def _energies(
    gradient: ArrayLike, variances: ArrayLike, grid: Grid, user_xy: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    energy = checks.floats("gradient", gradient) ** 2
    noise = checks.floats("variances", variances)
    if energy.shape != (grid.cells,) or noise.shape != (grid.cells,):
        raise ConfigurationError(
            f"gradient and variances need {grid.cells} entries each", "gradient"
        )
    if not np.isfinite(energy + noise).all() or (noise < 0).any():
        raise ConfigurationError(
            "gradient and variances must be finite, variances not negative", "variances"
        )
    if energy.sum() + noise.sum() == 0:
        raise ConfigurationError("a gradient of zeros without noise has no centroid", "gradient")
    return energy, noise, checks.points("user_xy", user_xy, columns=2)


def _centroid(weights: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    return weights @ grid.centres / weights.sum()
