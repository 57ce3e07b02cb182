"""Gradients with more than two propagation laws: the same walk, S raised to several powers."""

import math

import numpy as np
from numba import njit

from veilmap._kernels.links import _blockage, _buffers, _ends, _log_distance

# S^p with p ≥ 0.01 is followed down to e^-6.9; beyond, a float could overflow.
DEEPEST = 1e300


@njit(nogil=True, cache=True)
def obstructions(start, stop, user, bs, frame, terrain, out):
    """−log S of links start … stop; infinite where it is beyond DEEPEST."""
    cells, e, _ = _buffers(frame)
    ones_x, ones_y = np.ones(2), np.ones(2)
    for j in range(start, stop):
        ax, ay, az, bx, by, bz = _ends(user[j], bs[j], frame)
        product, _ = _blockage(
            ax, ay, az, bx, by, bz, frame, terrain, cells, e, ones_x, ones_y, DEEPEST
        )
        out[j] = math.log(product) if product < DEEPEST else np.inf


@njit(nogil=True, cache=True, error_model="numpy")
def user_gradients(
    start, stop, offsets, user, bs, gain, frame, terrain, powers, theta,
    losses, by_heights, by_theta, residuals,
):  # fmt: skip
    """F_i, ∂F_i/∂h and ∂F_i/∂θ of users start … stop, and every link's y − γ.

    With E_0 = S and E_i = S^p_i, the laws' shares are E_0, E_1 − E_0, …, 1 − E_last, and
    ∂E_i/∂h_m = p_i E_i ∂(log S)/∂h_m, ∂(log S)/∂h_m = −sharpness · e_m/(1 + e_m).
    """
    sharpness = terrain[3]
    cells, e, _ = _buffers(frame)
    ones_x, ones_y = np.ones(2), np.ones(2)
    laws = len(theta) // 2
    share, rise = np.empty(laws), np.empty(laws)
    for i in range(start, stop):
        links = offsets[i + 1] - offsets[i]
        row = by_heights[i]
        row[:] = 0.0
        by_theta[i, :] = 0.0
        loss = 0.0
        for j in range(offsets[i], offsets[i + 1]):
            ax, ay, az, bx, by, bz = _ends(user[j], bs[j], frame)
            product, n = _blockage(
                ax, ay, az, bx, by, bz, frame, terrain, cells, e, ones_x, ones_y, DEEPEST
            )
            log_d = _log_distance(user[j], bs[j])
            predicted, moved = _mixture(product, log_d, powers, theta, share, rise)
            residual = gain[j] - predicted
            residuals[j] = residual
            loss += residual * residual
            slope = -2.0 * residual / links  # ∂F_i/∂γ
            for law in range(laws):
                by_theta[i, 2 * law] += slope * share[law]
                by_theta[i, 2 * law + 1] += slope * share[law] * log_d
            if moved != 0.0:
                scale = -slope * moved * sharpness
                for m in range(n):
                    row[cells[m]] += scale * e[m] / (1.0 + e[m])
        losses[i] = loss / links


@njit(inline="always")
def _mixture(product, log_d, powers, theta, share, rise):
    """γ of a link with S = 1/product by all laws, and ∂γ/∂(log S); fills ``share``, ``rise``."""
    _shares(product, powers, share, rise)
    predicted, moved = 0.0, 0.0
    for law in range(len(share)):
        value = theta[2 * law] + theta[2 * law + 1] * log_d
        predicted += share[law] * value
        moved += rise[law] * value
    return predicted, moved


@njit(inline="always")
def _shares(product, powers, share, rise):
    """Shares of the laws at S = 1/product, and their derivatives by log S; θ's order."""
    depth = math.log(product) if product < DEEPEST else np.inf
    last, last_rise = math.exp(-depth), math.exp(-depth)
    share[0], rise[0] = last, last
    for i in range(len(powers)):
        now = math.exp(-powers[i] * depth)
        share[2 + i], rise[2 + i] = now - last, powers[i] * now - last_rise
        last, last_rise = now, powers[i] * now
    share[1], rise[1] = 1.0 - last, -last_rise
