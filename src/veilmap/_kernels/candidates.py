"""What a user at a candidate place would have uploaded, and how well that explains an upload.

One user at place p measures the public base stations b. Its gradient is linear in the
residuals r_b = (measured − predicted gain): g = Σ_b r_b a_b, with
a_bm = (2/J) ∂γ/∂(log S) · sharpness · e_m/(1 + e_m) over the cells m under link b. With two laws
∂γ/∂(log S) = (γ_LOS − γ_NLOS) S. Gains come less the offsets that the client takes off.
``laws`` = (powers, θ) travels like ``frame`` and ``terrain``; no powers: two laws.
"""

import math

import numpy as np
from numba import njit

from veilmap._kernels.degrees import DEEPEST, _mixture
from veilmap._kernels.links import BLOCKED, _blockage, _buffers, _ends, _log_distance

# Cells that carry less than this share of a candidate's evidence are left out.
_FAINT = 1e-4


@njit(nogil=True, cache=True, error_model="numpy")
def _link(place, station, frame, terrain, laws, walk):
    """One link: e becomes a_b but for the factor 2/J; number of cells, predicted gain."""
    powers, theta = laws
    cells, e, ones_x, ones_y, share, rise = walk
    ax, ay, az, bx, by, bz = _ends(place, station, frame)
    log_d = _log_distance(place, station)
    if len(powers):
        # Laws between are felt where S itself is 0 for every purpose.
        product, n = _blockage(
            ax, ay, az, bx, by, bz, frame, terrain, cells, e, ones_x, ones_y, DEEPEST
        )
        predicted, moved = _mixture(product, log_d, powers, theta, share, rise)
    else:
        product, n = _blockage(ax, ay, az, bx, by, bz, frame, terrain, cells, e, ones_x, ones_y)
        s = 1.0 / product if product < BLOCKED else 0.0
        nlos = theta[2] + theta[3] * log_d
        moved = (theta[0] + theta[1] * log_d - nlos) * s  # ∂γ/∂(log S)
        predicted = nlos + moved
    scale = moved * terrain[3]
    if moved == 0.0:
        n = 0
    for m in range(n):
        e[m] = scale * e[m] / (1.0 + e[m])
    return n, predicted


@njit(nogil=True, cache=True)
def _room(frame, laws):
    """What one walk after the other writes into."""
    cells, e, _ = _buffers(frame)
    degrees = len(laws[1]) // 2
    return cells, e, np.ones(2), np.ones(2), np.empty(degrees), np.empty(degrees)


@njit(nogil=True, cache=True, error_model="numpy")
def expected_gradients(
    start,
    stop,
    places,
    stations,
    gains,
    frame,
    terrain,
    laws,
    block_of,
    expected,
    shifted,
    products,
):
    """Gradients of users at places who measure ``gains``, and what 1 dB more would add.

    ``gains`` is (n, B); ``expected`` and ``shifted`` are (n, M); ``products`` (n, 3, blocks)
    takes the sums of expected², shifted² and expected · shifted over each block of cells.
    """
    walk = _room(frame, laws)
    cells, e = walk[:2]
    per_link = 2.0 / len(stations)
    both = np.zeros((len(block_of), 2), np.float32)  # side by side, so that one cell is one place
    for i in range(start, stop):
        for b in range(len(stations)):
            n, predicted = _link(places[i], stations[b], frame, terrain, laws, walk)
            residual = gains[i, b] - predicted
            for m in range(n):
                share = per_link * e[m]
                pair = both[cells[m]]
                pair[0] += residual * share
                pair[1] += share
        products[i] = 0.0
        for m in range(len(both)):
            first, second = both[m, 0], both[m, 1]
            expected[i, m], shifted[i, m] = first, second
            if second != 0.0:
                block = block_of[m]
                products[i, 0, block] += first * first
                products[i, 1, block] += second * second
                products[i, 2, block] += first * second
                both[m, 0] = both[m, 1] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _shares(place, stations, gains, frame, terrain, laws, walk, links):
    """All a_b of a place end to end in ``links``; residuals as expected."""
    cells, e = walk[:2]
    offsets, all_cells, all_shares, residuals = links
    for b in range(len(stations)):
        n, predicted = _link(place, stations[b], frame, terrain, laws, walk)
        residuals[b] = gains[b] - predicted
        first = offsets[b]
        for m in range(n):
            all_cells[first + m] = cells[m]
            all_shares[first + m] = e[m]
        offsets[b + 1] = first + n


@njit(nogil=True, cache=True, error_model="numpy")
def _strongest(energy, touched, count, variance, scale, slots, chosen):
    """Number the cells whose expected energy stands out most from the noise."""
    ratio = np.empty(count)
    for k in range(count):
        ratio[k] = scale * energy[touched[k]] / variance[touched[k]]
    least = _FAINT
    if count > len(chosen):
        least = max(least, np.partition(ratio, count - len(chosen))[count - len(chosen)])
    n = 0
    for k in range(count):
        slots[touched[k]] = -1
        if ratio[k] >= least and n < len(chosen):
            slots[touched[k]] = n
            chosen[n] = touched[k]
            n += 1
    return n


@njit(nogil=True, cache=True, error_model="numpy")
def _log_ratio(n, covariance, excess, upload, variance, chosen):
    """Log N(g; mean, C) − log N(g; 0, Σ) over the chosen cells.

    C comes as its upper half and is replaced by its Cholesky root, ``excess`` = g − mean by
    the root's solution. Rows are eliminated one after the other, so that the inner loop runs
    along a row.
    """
    result = 0.0
    for k in range(n):
        noise = variance[chosen[k]]
        result += 0.5 * (upload[chosen[k]] ** 2 / noise + math.log(noise))
        row = covariance[k]
        root = math.sqrt(max(row[k], 1e-300))
        for j in range(k, n):
            row[j] /= root
        excess[k] /= root
        result -= 0.5 * excess[k] ** 2 + math.log(root)
        for i in range(k + 1, n):
            factor = row[i]
            if factor != 0.0:
                below = covariance[i]
                for j in range(i, n):
                    below[j] -= factor * row[j]
                excess[i] -= factor * excess[k]
    return result


@njit(inline="always")
def _moments(residual, taken, spread):
    """Mean and variance of a link's residual when only a share of the links was measured."""
    return taken * residual, taken * spread**2 + max(taken * (1.0 - taken), 0.0) * residual**2


@njit(nogil=True, cache=True, error_model="numpy")
def _add_energy(links, taken, per_link, spread, energy, touched):
    """Expected squares of a place's gradient, cell by cell; cells touched, and their sum."""
    offsets, all_cells, all_shares, residuals = links
    count = 0
    whole = 0.0
    for b in range(len(residuals)):
        mean, other = _moments(residuals[b], taken, spread)
        square = (mean * mean + other) * per_link * per_link
        for m in range(offsets[b], offsets[b + 1]):
            cell = all_cells[m]
            if energy[cell] == 0.0:
                touched[count] = cell
                count += 1
            share = square * all_shares[m] ** 2 + 1e-300
            energy[cell] += share
            whole += share
    return count, whole


@njit(nogil=True, cache=True, error_model="numpy")
def _add_moments(links, taken, per_link, spread, slots, own_slots, own_shares, covariance, excess):
    """Add the chosen cells' covariance to its upper half, take their mean off the excess."""
    offsets, all_cells, all_shares, residuals = links
    for b in range(len(residuals)):
        mean, other = _moments(residuals[b], taken, spread)
        mean *= per_link
        other *= per_link * per_link
        own = 0
        for m in range(offsets[b], offsets[b + 1]):
            if slots[all_cells[m]] >= 0:
                own_slots[own], own_shares[own] = slots[all_cells[m]], all_shares[m]
                own += 1
        for i in range(own):
            excess[own_slots[i]] -= mean * own_shares[i]
            for j in range(i + 1):
                low, high = min(own_slots[i], own_slots[j]), max(own_slots[i], own_slots[j])
                covariance[low, high] += other * own_shares[i] * own_shares[j]


@njit(nogil=True, cache=True, error_model="numpy")
def log_evidence(
    start, stop, places, users, stations, gains, frame, terrain, laws,
    uploads, variances, counts, clip, spread, most_cells, out,
):  # fmt: skip
    """How much better each place explains its user's upload than noise alone does.

    The residuals are integrated out: r_b is normal around what the expected gains say, with
    deviation ``spread``. A user who measured only a share f of the stations has each link
    with probability f. The gradient was clipped to ``clip``.
    """
    walk = _room(frame, laws)
    cells = walk[0]
    stations_count, size = len(stations), frame[3] * frame[4]
    links = (
        np.zeros(stations_count + 1, np.int64), np.empty(stations_count * len(cells), np.int64),
        np.empty(stations_count * len(cells)), np.empty(stations_count),
    )  # fmt: skip
    energy, touched, slots = np.zeros(size), np.empty(size, np.int64), np.empty(size, np.int64)
    chosen, excess = np.empty(most_cells, np.int64), np.empty(most_cells)
    covariance = np.empty((most_cells, most_cells))
    own_slots, own_shares = np.empty(len(cells), np.int64), np.empty(len(cells))
    for k in range(start, stop):
        user = users[k]
        upload, variance = uploads[user], variances[user]
        taken, per_link = counts[user] / stations_count, 2.0 / counts[user]
        _shares(places[k], stations, gains[k], frame, terrain, laws, walk, links)
        count, whole = _add_energy(links, taken, per_link, spread, energy, touched)
        scale = min(1.0, clip * clip / max(whole, 1e-300))  # what clipping left of the energy
        n = _strongest(energy, touched, count, variance, scale, slots, chosen)
        for i in range(n):
            excess[i] = upload[chosen[i]]
            covariance[i, i:n] = 0.0
            covariance[i, i] = variance[chosen[i]]
        clipped = per_link * math.sqrt(scale)
        _add_moments(
            links, taken, clipped, spread, slots, own_slots, own_shares, covariance, excess
        )
        out[k] = _log_ratio(n, covariance, excess, upload, variance, chosen)
        for i in range(count):
            energy[touched[i]] = 0.0
