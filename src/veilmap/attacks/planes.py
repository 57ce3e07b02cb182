"""Reading the noise off an upload: its energy is a plane over the map, plus a few peaks."""

import numpy as np
from numpy.typing import NDArray

from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.aligned import unit_free

# A cell whose square is this many times the plane is signal, not noise: a normal number's
# square exceeds 12 times its mean once in 2,000.
_PEAK = 12.0
_PASSES = 6
_LEAST = 1e-3  # of the mean energy: no cell is taken to be free of noise


def noise_variances(uploads: NDArray, grid: Grid) -> NDArray[np.float64]:
    """σ² of every cell, (n, M): max{0, a·c + b} fitted to the uploads' squares.

    Least squares over the cells where the plane is positive and no peak stands out, found
    in a few passes. Without noise what is left is tiny.
    """
    x, y, _ = unit_free(grid, np.zeros((1, 2)))
    across, up = np.meshgrid(x, y)
    basis = np.stack([np.ones(grid.cells), across.ravel(), up.ravel()])
    products = np.einsum("im,jm->mij", basis, basis).reshape(grid.cells, 9)
    squares = uploads.astype(np.float64) ** 2
    least = _LEAST * squares.mean(axis=1, keepdims=True) + 1e-300
    kept = np.ones_like(squares)
    plane = squares
    for _ in range(_PASSES):
        normal = (kept @ products).reshape(-1, 3, 3)
        # A touch of ridge: a fit that keeps cells along one line only must not fail.
        normal += 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3)
        right = (kept * squares) @ basis.T
        plane = np.linalg.solve(normal + 1e-300 * np.eye(3), right[..., None])[..., 0] @ basis
        kept = ((squares < _PEAK * np.maximum(plane, least)) & (plane > 0)).astype(np.float64)
    return np.maximum(plane, least)
