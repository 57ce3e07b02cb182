"""What stands out of the noise plane is the user."""

from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap.attacks.base import PointAttack
from veilmap.federation.transcript import Transcript
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.aligned import unit_free

# A cell whose square is this many times the plane is signal, not noise: a normal number's
# square exceeds 12 times its mean once in 2,000.
_PEAK = 12.0
_PASSES = 6
_LEAST = 1e-3  # of the mean energy: no cell is taken to be free of noise


@dataclass(frozen=True)
class PlaneSubtraction(PointAttack):
    """Fit the noise plane to the upload's square, subtract it, smooth, take the peak.

    What is left over is counted in units of the noise's own scatter, so that the loud end
    of the plane does not win by chance.
    """

    smoothing: float = 1.0  # standard deviation of the Gaussian filter, in cells

    name = "plane subtraction"

    def __post_init__(self) -> None:
        checks.number("smoothing", self.smoothing, least=0)

    def positions(self, uploads: Array, transcript: Transcript) -> Floats:
        """Estimates (n, 2) in metres for uploads (n, M)."""
        from scipy.ndimage import gaussian_filter

        grid = transcript.grid
        squares = uploads.astype(np.float64) ** 2
        plane = noise_variances(uploads, grid)
        # Where the noise is low the gradient itself scatters: a tenth of the mean energy.
        scatter = plane + 0.1 * squares.mean(axis=1, keepdims=True) + 1e-300
        left = ((squares - plane) / scatter).reshape(-1, *grid.shape)
        smooth = gaussian_filter(left, (0, self.smoothing, self.smoothing))
        return grid.centres[smooth.reshape(len(uploads), -1).argmax(axis=1)]


def noise_variances(uploads: Array, grid: Grid) -> Floats:
    """σ² of every cell, (n, M): max{0, a·c + b} fitted to the uploads' squares.

    An upload's energy is a plane over the map, plus a few peaks. Least squares over the cells
    where the plane is positive and no peak stands out, found in a few passes. Without noise
    what is left is tiny.
    """
    x, y, _ = unit_free(grid, np.zeros((1, 2)))
    across, up = np.meshgrid(x, y)
    basis = np.stack([np.ones(grid.cells), across.ravel(), up.ravel()])
    products = np.einsum("im,jm->mij", basis, basis).reshape(grid.cells, 9)
    squares = uploads.astype(np.float64) ** 2
    least = _LEAST * squares.mean(axis=1, keepdims=True) + 1e-300
    kept = np.ones_like(squares)
    for _ in range(_PASSES):
        normal = (kept @ products).reshape(-1, 3, 3)
        # A touch of ridge: a fit that keeps cells along one line only must not fail.
        normal += 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3)
        right = (kept * squares) @ basis.T
        plane = np.linalg.solve(normal + 1e-300 * np.eye(3), right[..., None])[..., 0] @ basis
        kept = ((squares < _PEAK * np.maximum(plane, least)) & (plane > 0)).astype(np.float64)
    return np.maximum(plane, least)
