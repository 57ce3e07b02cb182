"""Loops over maps as images."""

import math

import numpy as np

from veilmap._kernels.compiling import njit


@njit(nogil=True, cache=True)
def total_variation_prox(image, weight, iterations):
    """argmin_x ½‖x − image‖² + weight · TV(x), isotropic TV, by fast gradient projection.

    Beck and Teboulle's accelerated projection of the dual field (p east, q north), whose
    projected gradient has Lipschitz constant 8.
    """
    rows, columns = image.shape
    p, q = np.zeros((rows, columns)), np.zeros((rows, columns))
    p_old, q_old = np.zeros((rows, columns)), np.zeros((rows, columns))
    r, s = np.zeros((rows, columns)), np.zeros((rows, columns))  # the accelerated point
    x = image.copy()
    if weight <= 0.0:
        return x
    momentum = 1.0
    for _ in range(iterations):
        _primal(image, weight, r, s, x)
        p_old, p = p, p_old
        q_old, q = q, q_old
        next_momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = (momentum - 1.0) / next_momentum
        momentum = next_momentum
        for i in range(rows):
            for j in range(columns):
                east = x[i, j] - x[i, j + 1] if j + 1 < columns else 0.0
                north = x[i, j] - x[i + 1, j] if i + 1 < rows else 0.0
                a = r[i, j] + east / (8.0 * weight)
                b = s[i, j] + north / (8.0 * weight)
                size = max(1.0, math.sqrt(a * a + b * b))
                p[i, j], q[i, j] = a / size, b / size
                r[i, j] = p[i, j] + ahead * (p[i, j] - p_old[i, j])
                s[i, j] = q[i, j] + ahead * (q[i, j] - q_old[i, j])
    _primal(image, weight, p, q, x)
    return x


@njit(nogil=True, cache=True)
def _primal(image, weight, p, q, x):
    """X = image − weight · (divergence of the dual field), in place."""
    rows, columns = image.shape
    for i in range(rows):
        for j in range(columns):
            flow = 0.0
            if j + 1 < columns:
                flow += p[i, j]
            if j > 0:
                flow -= p[i, j - 1]
            if i + 1 < rows:
                flow += q[i, j]
            if i > 0:
                flow -= q[i - 1, j]
            x[i, j] = image[i, j] - weight * flow
