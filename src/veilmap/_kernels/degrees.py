"""Gradients with more than two propagation laws: the same walk, S raised to several powers."""

import math
from typing import NamedTuple

import numpy as np

from veilmap._kernels.arguments import Floats
from veilmap._kernels.compiling import njit
from veilmap._kernels.links import _blockage, _log_distance, _segment, walk_room

# S^p with p ≥ 0.01 is followed down to e^-6.9; beyond, a float could overflow.
DEEPEST = 1e300


class Shares(NamedTuple):
    """Of each law, in the order of θ: its share of a link, and that by log S."""

    share: Floats
    rise: Floats


@njit(nogil=True, cache=True)
def obstructions(start, stop, ends, model, out):
    """−log S of links start … stop; infinite where it is beyond DEEPEST."""
    users, stations = ends
    frame, terrain, _ = model
    walk = walk_room(frame)
    for j in range(start, stop):
        link = _segment(users[j], stations[j], frame)
        product, _ = _blockage(link, frame, terrain, walk, DEEPEST)
        out[j] = math.log(product) if product < DEEPEST else np.inf


@njit(nogil=True, cache=True, error_model="numpy")
def user_gradients(start, stop, links, model, out, residuals):
    """F_i, ∂F_i/∂h and ∂F_i/∂θ of users start … stop, and every link's y − γ.

    With E_0 = S and E_i = S^p_i, the laws' shares are E_0, E_1 − E_0, …, 1 − E_last, and
    ∂E_i/∂h_m = p_i E_i ∂(log S)/∂h_m, ∂(log S)/∂h_m = −sharpness · e_m/(1 + e_m).
    """
    offsets, users, stations, gains = links
    frame, terrain, laws = model
    walk, shares = walk_room(frame), shares_room(laws)
    cells, e, share = walk.cells, walk.e, shares.share
    for i in range(start, stop):
        first, last = offsets[i], offsets[i + 1]
        row, by_theta = out.by_heights[i], out.by_theta[i]
        row[:] = 0.0
        by_theta[:] = 0.0
        loss = 0.0
        for j in range(first, last):
            link = _segment(users[j], stations[j], frame)
            product, n = _blockage(link, frame, terrain, walk, DEEPEST)
            log_d = _log_distance(users[j], stations[j])
            predicted, moved = _mixture(product, log_d, laws, shares)
            residual = gains[j] - predicted
            residuals[j] = residual
            loss += residual * residual
            slope = -2.0 * residual / (last - first)  # ∂F_i/∂γ
            for law in range(len(share)):
                by_theta[2 * law] += slope * share[law]
                by_theta[2 * law + 1] += slope * share[law] * log_d
            if moved != 0.0:
                scale = -slope * moved * terrain.sharpness
                for m in range(n):
                    row[cells[m]] += scale * e[m] / (1.0 + e[m])
        out.losses[i] = loss / (last - first)


@njit(nogil=True, cache=True)
def shares_room(laws):
    """What `_mixture` works in."""
    degrees = len(laws.theta) // 2
    return Shares(np.empty(degrees), np.empty(degrees))


@njit(inline="always")
def _mixture(product, log_d, laws, shares):
    """γ of a link with S = 1/product by all laws, and ∂γ/∂(log S); fills ``shares``."""
    powers, theta = laws
    share, rise = shares
    depth = math.log(product) if product < DEEPEST else np.inf
    last = last_rise = math.exp(-depth)
    share[0], rise[0] = last, last
    for i in range(len(powers)):
        now = math.exp(-powers[i] * depth)
        share[2 + i], rise[2 + i] = now - last, powers[i] * now - last_rise
        last, last_rise = now, powers[i] * now
    share[1], rise[1] = 1.0 - last, -last_rise
    predicted, moved = 0.0, 0.0
    for law in range(len(share)):
        value = theta[2 * law] + theta[2 * law + 1] * log_d
        predicted += share[law] * value
        moved += rise[law] * value
    return predicted, moved
