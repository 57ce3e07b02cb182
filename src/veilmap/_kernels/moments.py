"""Mean and covariance of the sums that users at cells of a grid would send as ∂F/∂θ."""

import numpy as np

from veilmap._kernels.compiling import njit


@njit(nogil=True, fastmath=True)
def _set_products(rows, share, out):
    """Share · Σ_b v_b v_bᵀ (K, K) of the columns v_b of rows (K, B)."""
    for j in range(len(rows)):
        for k in range(j, len(rows)):
            total = 0.0
            for b in range(rows.shape[1]):
                total += rows[j, b] * rows[k, b]
            out[j, k] = out[k, j] = share * total


@njit(nogil=True, cache=True, fastmath=True)
def sums_moments(start, stop, expected, cells, spread, within, out):
    """Moments of cells start … stop, taken along the stations b.

    The mean is −2 E_b[x_b], x_b = r_b φ_b; sampling is Cov_b[x_b]; noise is E_b over σ φ_b and,
    for both axes, over what ``within``, the deviation of a position in its cell, makes of the
    changes of x_b and of σ φ_b from cell to cell.
    """
    by_theta, residuals = expected.by_theta, expected.residuals
    size, count = by_theta.shape[1:]
    each = size // residuals.shape[1]  # parameters of a round
    apart, vectors = np.empty((size, count)), np.empty((size, 5 * count))
    for i in range(start, stop):
        own = cells.own[i]
        for k in range(size):
            phi, residual, row = by_theta[own, k], residuals[own, k // each], vectors[k]
            total = 0.0
            for b in range(count):
                apart[k, b] = residual[b] * phi[b]
                row[b] = spread * phi[b]
                total += apart[k, b]
            out.mean[i, k] = -2.0 * total / count
            for b in range(count):
                apart[k, b] -= total / count
            for axis in range(2):
                before, after = cells.before[axis, i], cells.after[axis, i]
                share = within * cells.scale[axis, i]
                low, high = by_theta[before, k], by_theta[after, k]
                less, more = residuals[before, k // each], residuals[after, k // each]
                first = (1 + 2 * axis) * count
                for b in range(count):
                    moved = share * (high[b] - low[b])
                    row[first + b] = share * (more[b] - less[b]) * phi[b] + residual[b] * moved
                    row[first + count + b] = spread * moved
        _set_products(vectors, 1.0 / count, out.noise[i])
        _set_products(apart, 1.0 / max(count - 1, 1), out.sampling[i])
