"""Symmetric banded matrices, given by the lower Cholesky factor as LAPACK stores it."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def inverse_diagonal(factor: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """The diagonal of Z = (L Lᵀ)⁻¹, by Takahashi's recursion within the band.

    ``factor[k, i]`` is L[i + k, i]. From the last row up, with b the width of the band,
    Z[j, i] = −Σ_{0 < k ≤ b} L[i + k, i] Z[i + k, j] / L_ii for i < j ≤ i + b, and
    Z[i, i] = (1 / L_ii − Σ L[i + k, i] Z[i + k, i]) / L_ii.
    Only the last b rows of Z are held, row r in place r modulo b.
    """
    width, size = factor.shape
    band = max(width - 1, 1)
    near = np.zeros((band, band))
    sums = np.empty(band)
    for i in range(size - 1, -1, -1):
        reach = min(width - 1, size - 1 - i)
        pivot = factor[0, i]
        sums[:] = 0.0
        for k in range(1, reach + 1):
            weight, row = factor[k, i], near[(i + k) % band]
            for place in range(band):
                sums[place] += weight * row[place]
        own = 1.0 / pivot
        for k in range(1, reach + 1):
            own += factor[k, i] * sums[(i + k) % band] / pivot
        here = i % band
        for place in range(band):
            near[here, place] = -sums[place] / pivot
            near[place, here] = -sums[place] / pivot
        near[here, here] = own / pivot
        out[i] = own / pivot
