"""Plain references for the fast paths: slow, short, and written from the equations."""

import math
from itertools import pairwise

import numpy as np


def sampled_cells(grid, user, bs, samples=20_001):
    """Cells and chords under a link by dense sampling: {cell: (chord, mean height)}."""
    user, bs = np.asarray(user, float), np.asarray(bs, float)
    t = (np.arange(samples) + 0.5) / samples
    points = user + t[:, None] * (bs - user)
    cells = grid.cell_of(points[:, :2])
    length = math.hypot(*(bs - user)[:2])
    return {
        int(cell): (length * np.mean(cells == cell), points[cells == cell, 2].mean())
        for cell in np.unique(cells[cells >= 0])
    }


def crossings(grid, user, bs):
    """Cells, chords and heights by sorting all crossings of grid lines, lower end first."""
    user, bs = np.asarray(user, float), np.asarray(bs, float)
    if tuple(user[[2, 0, 1]]) > tuple(bs[[2, 0, 1]]):
        user, bs = bs, user
    start, step = (user[:2] - grid.origin) / grid.cell_size, (bs - user)[:2] / grid.cell_size
    rows, columns = grid.shape
    cuts = {0.0, 1.0}
    for axis, count in ((0, columns), (1, rows)):
        if abs(step[axis]) >= 1e-9:
            cuts |= {(line - start[axis]) / step[axis] for line in range(count + 1)}
    cuts = sorted(t for t in cuts if 0 <= t <= 1)
    length = math.hypot(*step)
    result = []
    for enter, leave in pairwise(cuts):
        if (leave - enter) * length <= 1e-9:
            continue
        middle = 0.5 * (enter + leave)
        x, y = start + middle * step
        if -1e-9 <= x <= columns + 1e-9 and -1e-9 <= y <= rows + 1e-9:  # the edge is inside
            cell = min(int(y), rows - 1) * columns + min(int(x), columns - 1)
            chord = (leave - enter) * length * grid.cell_size
            result.append((cell, chord, user[2] + middle * (bs[2] - user[2])))
    return result


def los_weight(radio_map, user, bs):
    """S as the product of logistic functions."""
    s = 1.0
    for cell, _, z in crossings(radio_map.grid, user, bs):
        s *= 1 / (1 + math.exp(-radio_map.sharpness * (z - radio_map.heights.flat[cell])))
    return s


def gradients(radio_map, data):
    """F_i, ∂F_i/∂h and ∂F_i/∂θ user by user, link by link, cell by cell."""
    theta = radio_map.propagation.as_array()
    users = np.unique(data.user)
    loss = np.zeros(len(users))
    by_heights = np.zeros((len(users), radio_map.grid.cells))
    by_theta = np.zeros((len(users), 4))
    for i, user in enumerate(users):
        rows = np.flatnonzero(data.user == user)
        for j in rows:
            s = los_weight(radio_map, data.user_xyz[j], data.bs_xyz[j])
            log_d = math.log10(max(1.0, math.dist(data.user_xyz[j], data.bs_xyz[j])))
            clear, blocked = theta[0] + theta[1] * log_d, theta[2] + theta[3] * log_d
            gain = clear * s + blocked * (1 - s)
            residual = data.gain_db[j] - gain
            loss[i] += residual**2 / len(rows)
            capital_gamma = residual * (blocked - clear)
            for cell, _, z in crossings(radio_map.grid, data.user_xyz[j], data.bs_xyz[j]):
                h = radio_map.heights.flat[cell]
                psi = 1 / (1 + math.exp(-radio_map.sharpness * (z - h)))
                d = -radio_map.sharpness * s * (1 - psi)  # ∂S/∂h
                by_heights[i, cell] += 2 / len(rows) * capital_gamma * d
            slopes = np.array([s, s * log_d, 1 - s, (1 - s) * log_d])
            by_theta[i] += -2 / len(rows) * residual * slopes
    return loss, by_heights, by_theta


def losses(radio_map, data):
    """F_i of every user."""
    return gradients(radio_map, data)[0]


def total_variation(image):
    """Isotropic total variation."""
    east = np.zeros_like(image)
    north = np.zeros_like(image)
    east[:, :-1] = np.diff(image, axis=1)
    north[:-1] = np.diff(image, axis=0)
    return np.sqrt(east**2 + north**2).sum()


def shares(radio_map, place, stations):
    """a_b of one place: ∂(gradient)/∂(residual of b), (B, M), for one link each."""
    clear, blocked, *between = radio_map.propagation.as_array().reshape(-1, 2)
    powers = np.array([1.0, *radio_map.propagation.powers])
    result = np.zeros((len(stations), radio_map.grid.cells))
    predicted = np.zeros(len(stations))
    for b, station in enumerate(stations):
        s = los_weight(radio_map, place, station)
        log_d = math.log10(max(np.linalg.norm(np.subtract(place, station)), 1.0))
        laws = np.array([clear, *between, blocked]) @ [1.0, log_d]
        # γ = γ_blocked + Σ S^p (γ_law − γ_next), from the clear law to the last before blocked
        predicted[b] = laws[-1] - np.diff(laws) @ s**powers
        by_log_s = -np.diff(laws) @ (powers * s**powers)
        for cell, _, z in crossings(radio_map.grid, place, station):
            e = math.exp(radio_map.sharpness * (radio_map.heights.flat[cell] - z))
            result[b, cell] += by_log_s * radio_map.sharpness * e / (1 + e)
    return result, predicted


def log_evidence(radio_map, place, stations, gains, upload, variances, links, clip, spread):
    """log N(g; mean, C) − log N(g; 0, Σ) with dense matrices over all cells."""
    each, predicted = shares(radio_map, place, stations)
    each *= 2 / links
    taken = links / len(stations)
    residual = gains - predicted
    mean = taken * residual
    other = taken * spread**2 + max(taken * (1 - taken), 0) * residual**2
    norm = math.sqrt(np.sum((mean**2 + other)[:, None] * each**2))
    scale = min(1.0, clip / max(norm, 1e-150))
    covariance = np.diag(variances) + scale**2 * (each.T * other) @ each
    excess = upload - scale * mean @ each
    _, log_det = np.linalg.slogdet(covariance)
    quadratic = excess @ np.linalg.solve(covariance, excess)
    nothing = np.sum(upload**2 / variances + np.log(variances))
    return -0.5 * (quadratic + log_det) + 0.5 * nothing


def sums_moments(by_theta, residuals, rows, spread, within):
    """Mean, noise and sampling of ∂F/∂θ from φ (…, rows, columns, R, P, B) and r (…, R, B)."""

    def kept(values):
        wanted = values[..., rows, :, :, :, :]
        return wanted.reshape(-1, wanted.shape[-3] * wanted.shape[-2], wanted.shape[-1])

    x = kept(residuals[..., None, :] * by_theta)
    vectors = [spread * kept(by_theta)]
    for axis in (-5, -4):
        if by_theta.shape[axis] > 1:
            change, moved = np.gradient(by_theta, axis=axis), np.gradient(residuals, axis=axis + 1)
            both = moved[..., None, :] * by_theta + residuals[..., None, :] * change
            vectors += [within * kept(both), within * spread * kept(change)]
    noise = sum(np.einsum("nkb,njb->nkj", each, each) for each in vectors) / x.shape[2]
    apart = x - x.mean(axis=2, keepdims=True)
    sampling = np.einsum("nkb,njb->nkj", apart, apart) / max(x.shape[2] - 1, 1)
    return -2 * x.mean(axis=2), noise, sampling


def moved_into_cap(point, contribution, length, along):
    """Point with its component along a direction replaced."""
    towards = contribution / length
    return point + (along - math.fsum(towards * point)) * towards
