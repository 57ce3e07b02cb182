"""Symmetric banded matrices, given by the lower Cholesky factor as LAPACK stores it."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def inverse_diagonal(factor: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """The diagonal of (L Lᵀ)⁻¹, by Takahashi's recursion within the band.

    ``factor[k, i]`` is L[i + k, i]. With Z the inverse, from the last row up,
    Z[j, i] = (δ_ij / L_ii − Σ_{k > i} L[k, i] Z[k, j]) / L_ii for j from i + b down to i.
    """
    width, size = factor.shape
    near = np.zeros((size, width))  # near[i, k] = Z[i + k, i]
    for i in range(size - 1, -1, -1):
        reach = min(width - 1, size - 1 - i)
        for step in range(reach, -1, -1):
            j = i + step
            total = 1.0 / factor[0, i] if step == 0 else 0.0
            for k in range(1, reach + 1):
                row = i + k
                entry = near[row, j - row] if j >= row else near[j, row - j]
                total -= factor[k, i] * entry
            near[i, step] = total / factor[0, i]
        out[i] = near[i, 0]
